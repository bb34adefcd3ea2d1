# The last part of what is run inside the new root file system: see customize_alpine.sh.

# --- what only costs space, or differs from build to build
rm -rf /var/cache/apk/* /usr/share/man /usr/share/doc
find /var/log -type f -delete
rm -f /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/subuid- /etc/subgid- /etc/.pwd.lock
# The day on which the password was set would be that of the build.
sed -i 's/^\([^:]*:[^:]*\):[0-9]*:/\1::/' /etc/shadow
database=/lib/apk/db/installed
[ -e "$database" ] || database=/usr$database
sed -n 's/^P:/P /p; s/^V:/V /p' "$database" |
    awk '$1 == "P" { name = $2 } $1 == "V" { print name "\t" $2 }' | LC_ALL=C sort >"$WORK/packages"
