# Run in the machine in which the image `code-interpreter` is made.

# Clients expect this user.
useradd --create-home --shell /bin/bash user
printf 'user ALL=(ALL) NOPASSWD: ALL\n' >/etc/sudoers.d/user
chmod 0440 /etc/sudoers.d/user

cat >/usr/lib/quicksand/code-interpreter <<'END'
#!/usr/bin/python3
import sys

sys.path.insert(0, "/usr/lib/quicksand/python")

from quicksand_interpreter.main import main

sys.exit(main(sys.argv[1:]))
END
# A template has the server with a kernel that has loaded what most cells use.
cat >/usr/lib/quicksand/warm <<'END'
#!/bin/sh
exec /usr/lib/quicksand/code-interpreter start --warm
END
chmod 0755 /usr/lib/quicksand/code-interpreter /usr/lib/quicksand/warm
python3 -m compileall -q /usr/lib/quicksand/python

# A start proves that all of it fits, and makes matplotlib's list of fonts.
/usr/lib/quicksand/code-interpreter start --warm
pkill -u user -f 'code-interpreter serve'
while pgrep -u user >/dev/null; do sleep 0.1; done
rm -rf /run/quicksand-interpreter
