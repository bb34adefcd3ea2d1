# The last part of what is run inside the new root file system: see customize.sh.

# --- what only costs space, or differs from build to build
find /usr/share/doc -mindepth 1 ! -type d ! -name copyright -delete
find /usr/share/doc -mindepth 1 -type d -empty -delete
find /usr/share/man /usr/share/info /usr/share/lintian -mindepth 1 -delete
find /usr/share/locale -mindepth 1 ! -name locale.alias -delete
find /var/log -type f -delete
find /var/cache/apt /var/cache/debconf /var/cache/ldconfig -type f ! -name '*.dat' -delete
find /var/lib/dpkg /var/lib/apt /etc -name '*-old' -type f -delete
rm -rf /var/cache/debconf/tmp.ci
rm -f /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/subuid- /etc/subgid- /etc/.pwd.lock
# The day on which the passwords were set would be that of the build.
sed -i 's/^\([^:]*:[^:]*\):[0-9]*:/\1::/' /etc/shadow
dpkg-query -W -f '${Package}\t${Version}\n' | LC_ALL=C sort >"$WORK/packages"
