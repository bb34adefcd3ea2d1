# What a desktop with OpenRC starts: devices, the system's bus, seats, and the login that needs them.

for service in devfs dmesg udev udev-trigger udev-settle; do
    rc-update add "$service" sysinit
done
for service in dbus elogind lightdm; do
    rc-update add "$service" default
done
# Nobody logs in on consoles.
if [ -e /etc/inittab ]; then sed -i 's/^tty[0-9]*:/#&/' /etc/inittab; fi
mkdir -p /etc/xdg/autostart
cat >/etc/xdg/autostart/quicksand-display.desktop <<'END'
# Programs that root or the user of the desktop starts from outside may use the display.
[Desktop Entry]
Type=Application
Name=Access to the display
Exec=sh -c 'xhost +si:localuser:root "+si:localuser:$(id -un)"'
END
