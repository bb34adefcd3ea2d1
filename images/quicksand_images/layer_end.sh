# The end of what makes a layer, behind clean.sh.
for found in /usr/local/lib/python3*/dist-packages/*.dist-info /usr/lib/python3*/site-packages/*.dist-info
do
    name=${found##*/}
    [ ! -e "$found" ] || printf '%s\n' "${name%.dist-info}"
done | LC_ALL=C sort >"$WORK/python"
# What a machine gets at its own start.
: >/etc/machine-id
rm -f /var/lib/systemd/random-seed /root/.bash_history /root/.python_history
printf 'quicksand\n' >/etc/hostname
umount "$handed"
rmdir "$handed"
sync
# Blocks that are free again are left out of the layer.
fstrim / || :
sync
