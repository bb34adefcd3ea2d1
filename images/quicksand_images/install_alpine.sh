# Run by `sh -eu` as root in the VM that a build boots: a few packages lie there unpacked, and nothing
# of it is installed. $WORK has all packages in repositories, the keys that sign them, and the kernel.
# The new system comes into $TARGET.
/bin/busybox --install -s
cd "$WORK"

echo 'stage: installing packages'
umask 022
mkdir -p "$TARGET/etc/apk/keys" "$TARGET/dev"
cp apk/keys/* "$TARGET/etc/apk/keys/"
mount --bind /dev "$TARGET/dev"
sed "s,^,$WORK/apk/," apk/repositories >/run/repositories
# apk verifies the signatures once more.
xargs apk --root "$TARGET" --initdb --arch "$ARCH" --no-network --no-cache --no-progress \
    --repositories-file /run/repositories add <apk/wanted

echo 'stage: configuring the system'
mkdir -p "$TARGET$WORK" "$TARGET/lib/modules"
set -- kernel/lib/modules/* kernel/usr/lib/modules/*
[ -d "$1" ] || shift
mv "$1" "$TARGET/lib/modules/"
printf '%s\n' "${1##*/}" >"$TARGET$WORK/release"
mv kernel/boot/vmlinuz-* "$TARGET$WORK/bzimage"
mv kernel-package "$TARGET$WORK/"
mount -t proc proc "$TARGET/proc"
chroot "$TARGET" /bin/sh -eu -c "$CUSTOMIZE"
umount "$TARGET/proc" "$TARGET/dev"
