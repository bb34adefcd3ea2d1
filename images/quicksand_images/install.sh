# Run by `sh -eu` as root in the VM that a build boots: the base system lies there unpacked, and
# nothing of it is installed yet. $WORK has the packages: base/ and more/, with what they are.
cd "$WORK"
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
dpkg --print-architecture >/var/lib/dpkg/arch

echo 'stage: installing the base system'
# dpkg leaves directories that are there to their owners, and who unpacked these was not root.
while read -r owner directory; do chown "$owner" "$directory"; done <owners
# As mmdebstrap does: dpkg does not heed that one needs the other before it is unpacked.
dpkg --install --force-depends base/*.deb
echo 'stage: installing packages'
dpkg --unpack --force-depends more/*.deb
dpkg --configure --pending
xargs -r apt-mark auto <automatic
rm -rf base more automatic owners

echo 'stage: configuring the system'
