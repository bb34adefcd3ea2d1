# In place of clean.sh, on a base without dpkg.
rm -rf /var/cache/apk/*
if [ -e /lib/apk/db/installed ]; then
    sed -n 's/^P:/P /p; s/^V:/V /p' /lib/apk/db/installed |
        awk '$1 == "P" { name = $2 } $1 == "V" { print name "\t" $2 }' | LC_ALL=C sort >"$WORK/packages"
else
    : >"$WORK/packages"
fi
