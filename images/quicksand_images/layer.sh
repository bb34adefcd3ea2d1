# Run by `sh -eu` as root in the machine in which a layer is made. The builder has handed a disk to
# it with what is to be installed; SERIAL is its serial number. WORK is a directory in memory for what
# the builder reads afterwards.
echo 'stage: looking at what is to be installed'
handed=/run/quicksand-handed
mkdir -p "$handed" "$WORK"
device=
for disk in /sys/block/*; do
    if [ "$(cat "$disk/serial" 2>/dev/null)" = "$SERIAL" ]; then device=/dev/${disk##*/}; fi
done
[ -n "$device" ] || { echo 'the disk with the packages is not here'; exit 1; }
mount -t ext4 -o ro "$device" "$handed"

if [ -d "$handed/debs" ]; then
    echo 'stage: installing packages'
    # No init looks after daemons here.
    [ -e /usr/sbin/policy-rc.d ] || {
        printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
        chmod 755 /usr/sbin/policy-rc.d
        policy=ours
    }
    dpkg --force-confold --unpack --force-depends "$handed"/debs/*.deb
    dpkg --force-confold --configure --pending
    [ "${policy-}" != ours ] || rm -f /usr/sbin/policy-rc.d
    xargs -r apt-mark auto <"$handed/automatic"
fi

if [ -d "$handed/apk" ]; then
    echo 'stage: installing packages'
    # apk verifies the mirrors' signatures by the keys of the base.
    sed "s,^,$handed/apk/," "$handed/apk/repositories" >"$WORK/repositories"
    xargs apk add --no-network --no-cache --repositories-file "$WORK/repositories" \
        <"$handed/apk/wanted"
fi

if [ -d "$handed/wheels" ]; then
    echo 'stage: installing Python packages'
    # Debian's pip, which venv brings along, if the command is not installed.
    for pip in /usr/share/python-wheels/pip-*.whl; do [ ! -e "$pip" ] || export PYTHONPATH="$pip"; done
    python3 -m pip --version >/dev/null || {
        echo 'the base has no pip: name the package python3-venv, or python3-pip'; exit 1
    }
    xargs python3 -m pip install --quiet --no-index --find-links "$handed/wheels" --no-cache-dir \
        --break-system-packages --root-user-action ignore --no-compile --disable-pip-version-check \
        <"$handed/wanted"
    unset PYTHONPATH
fi

if [ -d "$handed/files" ]; then
    echo 'stage: copying the files of the recipe'
    cp -R "$handed/files/." /
fi

if [ -s "$handed/steps" ]; then
    echo 'stage: running the steps of the recipe'
    cd /root
    HOME=/root sh -eu "$handed/steps"
    cd /
fi

echo 'stage: cleaning up'
