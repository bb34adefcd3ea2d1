# Run by `sh -eu` inside the new root file system, once its packages are installed. Given by the
# builder: DISTRIBUTION KEYS SUITE MIRROR SECURITY_MIRROR COMPONENTS USER_NAME KERNEL_PACKAGE
# PLAIN_MODULES DROPPED_MODULES, and WORK, a directory that the builder empties afterwards. The recipe's own script
# comes next, if it has one, and then clean.sh.

# --- the kernel: its files, not its package
mkdir -p "$WORK"
cd "$WORK"
if [ ! -d kernel ]; then # in a VM without a network it is there already
    # The package of the recipe only depends on the one with the files.
    real=$(apt-cache depends --important "$KERNEL_PACKAGE" | sed -n 's/^ *Depends: \(linux-image-.*\)/\1/p' | head -n 1)
    # Ubuntu has the modules in a package of their own.
    modules=$(apt-cache depends --important "${real:-$KERNEL_PACKAGE}" | sed -n 's/^ *Depends: \(linux-modules-.*\)/\1/p' | head -n 1)
    apt-get -q -o APT::Sandbox::User=root download "${real:-$KERNEL_PACKAGE}" $modules xz-utils
    dpkg-deb -f linux-image-*.deb Package Version >kernel-package
    for package in linux-*.deb; do dpkg-deb -x "$package" kernel; done
    dpkg-deb -x xz-utils_*.deb xz
    rm -- *.deb
fi
set -- kernel/usr/lib/modules/*
[ -d "$1" ] || set -- kernel/lib/modules/*
release=${1##*/}
mkdir -p /usr/lib/modules
mv "$1" /usr/lib/modules/
modules=/usr/lib/modules/$release
for directory in $DROPPED_MODULES; do rm -rf "${modules:?}/kernel/$directory"; done
depmod "$release"
for module in $PLAIN_MODULES; do
    modprobe --set-version "$release" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\.xz\).*/\1/p'
done | sort -u | xargs -r xz/usr/bin/xz --decompress --no-warn
depmod "$release"
printf '%s\n' "$release" >release
mv kernel/boot/vmlinuz-"$release" bzimage
rm -rf kernel xz

# --- the user
useradd --create-home --user-group --uid 1000 --shell /bin/bash "$USER_NAME"
printf '%s ALL=(ALL:ALL) NOPASSWD: ALL\n' "$USER_NAME" >/etc/sudoers.d/quicksand
chmod 0440 /etc/sudoers.d/quicksand

# --- apt and dpkg, as the guest will use them
rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
keyring=/usr/share/keyrings/$DISTRIBUTION-archive-keyring.pgp
[ -e "$keyring" ] || keyring=/usr/share/keyrings/$DISTRIBUTION-archive-keyring.gpg
if [ ! -e "$keyring" ]; then
    keyring=/usr/share/keyrings/quicksand-archive.asc
    printf '%s' "$KEYS" >"$keyring"
fi
{
    printf 'Types: deb\nURIs: %s\nSuites: %s %s-updates\nComponents: %s\nSigned-By: %s\n\n' \
        "$MIRROR" "$SUITE" "$SUITE" "$COMPONENTS" "$keyring"
    printf 'Types: deb\nURIs: %s\nSuites: %s-security\nComponents: %s\nSigned-By: %s\n' \
        "$SECURITY_MIRROR" "$SUITE" "$COMPONENTS" "$keyring"
} >"/etc/apt/sources.list.d/$DISTRIBUTION.sources"
rm -f /etc/apt/apt.conf.d/99mmdebstrap /etc/dpkg/dpkg.cfg.d/99mmdebstrap
cat >/etc/apt/apt.conf.d/90quicksand <<'END'
// A sandbox installs what is asked for, quickly. Remove this file for the distribution's defaults.
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Retries "3";
Dpkg::Use-Pty "false";
END
# Nobody is there to answer questions while a package is installed.
echo 'debconf debconf/frontend select Noninteractive' | debconf-set-selections

# --- login shells: the distribution's profile starts `id` twice and `run-parts`, which takes an
# emulated guest 20 ms. Bash knows its user, and sorts what a pattern matches.
sed -i -e 's|"$(id -u)" -eq 0|"${EUID:-$(id -u)}" -eq 0|' \
    -e 's|in $(run-parts .* /etc/profile\.d); do|in /etc/profile.d/*.sh; do|' /etc/profile

# --- small files
printf 'LANG=C.UTF-8\n' >/etc/default/locale
printf 'quicksand\n' >/etc/hostname
printf '127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\tquicksand\n' >/etc/hosts
rm -f /etc/resolv.conf /etc/machine-id /var/lib/dbus/machine-id
printf 'nameserver 10.0.2.3\n' >/etc/resolv.conf
: >/etc/machine-id
printf '# The agent has mounted the root file system.\n' >/etc/fstab
chmod 0644 /etc/hostname /etc/hosts /etc/resolv.conf
chmod 0700 /var/lib/apt/lists/partial /var/cache/apt/archives/partial
