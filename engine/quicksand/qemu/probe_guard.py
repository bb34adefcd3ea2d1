"""Runs a program that may never end, and kills it as soon as stdin closes: whoever started it has
waited long enough, or was killed. Run as a script:

    probe_guard.py [NAME=VALUE...] -- PROGRAM ARG...

Its status is the program's; 128 + N if that was ended by signal N, as in a shell. The variables are
the program's alone: its libraries are not this interpreter's.
"""

import os
import subprocess
import sys
import threading


def main() -> int:
    dashes = sys.argv.index("--")
    env = {**os.environ, **dict(word.split("=", 1) for word in sys.argv[1:dashes])}
    argv = sys.argv[dashes + 1 :]
    program = subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=env)
    threading.Thread(target=kill_at_the_end, args=(program,), daemon=True).start()
    status = program.wait()
    return status if status >= 0 else 128 - status


def kill_at_the_end(program: "subprocess.Popen[bytes]") -> None:
    os.read(0, 1)
    program.kill()


if __name__ == "__main__":
    sys.exit(main())
