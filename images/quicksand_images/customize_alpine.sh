# Run by `sh -eu` inside the new root file system of an Alpine, once its packages are installed. Given
# by the builder: REPOSITORIES, USER_NAME, PLAIN_MODULES DROPPED_MODULES, and WORK, a directory that the
# builder empties afterwards. The recipe's own script comes next, if it has one, and then
# clean_alpine.sh.

# --- the modules of the kernel; its package is not installed, as in customize.sh
release=$(cat "$WORK/release")
modules=/lib/modules/$release
for directory in $DROPPED_MODULES; do rm -rf "${modules:?}/kernel/$directory"; done
rm -f "$modules/vmlinuz" # a link to the kernel, which is not in the image
depmod "$release"
if [ -n "$PLAIN_MODULES" ]; then
    for module in $PLAIN_MODULES; do
        modprobe --set-version "$release" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\.gz\).*/\1/p'
    done | sort -u | xargs -r gunzip
    depmod "$release"
fi

# --- the user
shell=/bin/sh
[ ! -x /bin/bash ] || shell=/bin/bash
adduser -D -u 1000 -s "$shell" "$USER_NAME"
if [ -d /etc/sudoers.d ]; then
    printf '%s ALL=(ALL:ALL) NOPASSWD: ALL\n' "$USER_NAME" >/etc/sudoers.d/quicksand
    chmod 0440 /etc/sudoers.d/quicksand
fi

# --- apk, as the guest will use it
printf '%s\n' "$REPOSITORIES" >/etc/apk/repositories
# A key of the recipe's that a package brings along, too, differs from it by a line's end at most.
find /etc/apk/keys -name '*.apk-new' -delete

# --- small files
printf 'quicksand\n' >/etc/hostname
printf '127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\tquicksand\n' >/etc/hosts
printf 'nameserver 10.0.2.3\n' >/etc/resolv.conf
: >/etc/machine-id
printf '# The agent has mounted the root file system.\n' >/etc/fstab
chmod 0644 /etc/hostname /etc/hosts /etc/resolv.conf
