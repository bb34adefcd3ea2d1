# Sets up a desktop: Xfce on an X server, with a user who is logged in. Run by `sh -eu` in the new root
# file system, after the builder's script, whose variables it has. What depends on the distribution is
# in files of their own, which a recipe names before or after this one.

# --- one session on one display
mkdir -p /etc/lightdm/lightdm.conf.d
cat >/etc/lightdm/lightdm.conf.d/50-quicksand.conf <<END
[LightDM]
# Without a display there is no seat for a session, and LightDM waits instead of failing.
logind-check-graphical=true

[Seat:*]
autologin-user=$USER_NAME
autologin-user-timeout=0
autologin-session=xfce
user-session=xfce
xserver-command=X -nolisten tcp -s 0 -dpms
END

# --- the X server
mkdir -p /etc/X11/xorg.conf.d
cat >/etc/X11/xorg.conf.d/50-quicksand.conf <<'END'
Section "Device"
    Identifier "virtio-gpu"
    Driver "modesetting"
    # The cursor is drawn into the picture, so that a screenshot has it.
    Option "SWcursor" "true"
    # Drawing in 2D by way of OpenGL, in software, would be slower.
    Option "AccelMethod" "none"
EndSection

# Nobody wants a sandbox's screen to go dark.
Section "ServerFlags"
    Option "BlankTime" "0"
    Option "StandbyTime" "0"
    Option "SuspendTime" "0"
    Option "OffTime" "0"
EndSection
END

# --- for programs that are started from outside
cat >/etc/environment <<'END'
DISPLAY=:0
LIBGL_ALWAYS_SOFTWARE=1
NO_AT_BRIDGE=1
GTK_A11Y=none
END
mkdir -p /usr/local/bin /usr/lib/quicksand
cat >/usr/local/bin/on-desktop <<'END'
#!/bin/sh
# on-desktop COMMAND...: runs a command as the user of the desktop, in the session there.
uid=1000
user=$(id -nu "$uid")
home=$(getent passwd "$uid" | cut -d: -f6)
runtime=/run/user/$uid
[ ! -S "$runtime/bus" ] || set -- env DBUS_SESSION_BUS_ADDRESS="unix:path=$runtime/bus" "$@"
set -- env HOME="$home" USER="$user" LOGNAME="$user" DISPLAY=:0 XDG_RUNTIME_DIR="$runtime" \
    XDG_CURRENT_DESKTOP=XFCE LIBGL_ALWAYS_SOFTWARE=1 NO_AT_BRIDGE=1 GTK_A11Y=none "$@"
[ "$(id -u)" = "$uid" ] && exec "$@"
cd "$home"
exec setpriv --reuid "$uid" --regid "$uid" --init-groups "$@"
END
cat >/usr/lib/quicksand/ready <<'END'
#!/bin/sh
# Ends when the desktop is there, or at once if the machine has no display. A template is made when
# this program has ended (docs/internals/images.md).
grep -qs '^0x03' /sys/bus/pci/devices/*/class || exit 0
export DISPLAY=:0
for class in Xfdesktop Xfce4-panel; do
    until timeout 20 xdotool search --onlyvisible --class "$class" >/dev/null 2>&1; do
        sleep 0.5
    done
done
END
cat >/usr/lib/quicksand/fit-screen <<'END'
#!/bin/sh
# Gives the screen the size that the host asks for. The X server looks for new sizes when it is asked
# for them, and may answer with those that it knew before: so it is asked until it has the new one.
export DISPLAY=:0
screen() { timeout 20 xrandr "$@" 2>/dev/null; }
screen >/dev/null || exit 0
for _ in 1 2 3 4 5; do
    screen --output Virtual-1 --auto
    # The size in use is marked with a star, the one that is asked for with a plus.
    if screen | grep -q '\*+'; then break; fi
done
END
mkdir -p /etc/udev/rules.d
cat >/etc/udev/rules.d/90-quicksand-display.rules <<'END'
ACTION=="change", SUBSYSTEM=="drm", ENV{HOTPLUG}=="1", RUN+="/usr/lib/quicksand/fit-screen"
END
chmod 0755 /usr/local/bin/on-desktop /usr/lib/quicksand/ready /usr/lib/quicksand/fit-screen

# --- Xfce, drawn by software
settings=/etc/xdg/xfce4/xfconf/xfce-perchannel-xml
mkdir -p "$settings"
channel() { # name; the properties on stdin
    {
        printf '<?xml version="1.0" encoding="UTF-8"?>\n<channel name="%s" version="1.0">\n' "$1"
        cat
        printf '</channel>\n'
    } >"$settings/$1.xml"
}
channel xfwm4 <<'END'
  <property name="general" type="empty">
    <property name="use_compositing" type="bool" value="false"/>
    <property name="box_move" type="bool" value="false"/>
    <property name="workspace_count" type="int" value="1"/>
    <property name="theme" type="string" value="Default"/>
  </property>
END
channel xsettings <<'END'
  <property name="Net" type="empty">
    <property name="ThemeName" type="string" value="Adwaita"/>
    <property name="IconThemeName" type="string" value="Adwaita"/>
    <property name="EnableEventSounds" type="bool" value="false"/>
    <property name="CursorBlink" type="bool" value="false"/>
  </property>
  <property name="Xft" type="empty">
    <property name="DPI" type="int" value="96"/>
    <property name="Antialias" type="int" value="1"/>
    <property name="HintStyle" type="string" value="hintslight"/>
    <property name="RGBA" type="string" value="none"/>
  </property>
  <property name="Gtk" type="empty">
    <property name="FontName" type="string" value="DejaVu Sans 10"/>
    <property name="MonospaceFontName" type="string" value="DejaVu Sans Mono 10"/>
  </property>
END
channel xfce4-desktop <<'END'
  <property name="backdrop" type="empty">
    <property name="screen0" type="empty">
      <property name="monitorVirtual-1" type="empty">
        <property name="workspace0" type="empty">
          <property name="image-style" type="int" value="0"/>
          <property name="color-style" type="int" value="0"/>
          <property name="rgba1" type="array">
            <value type="double" value="0.16"/>
            <value type="double" value="0.24"/>
            <value type="double" value="0.33"/>
            <value type="double" value="1"/>
          </property>
        </property>
      </property>
    </property>
  </property>
  <property name="desktop-icons" type="empty">
    <property name="style" type="int" value="2"/>
    <property name="file-icons" type="empty">
      <property name="show-home" type="bool" value="true"/>
      <property name="show-filesystem" type="bool" value="false"/>
      <property name="show-trash" type="bool" value="false"/>
      <property name="show-removable" type="bool" value="false"/>
    </property>
  </property>
END
channel xfce4-session <<'END'
  <property name="general" type="empty">
    <property name="FailsafeSessionName" type="string" value="Failsafe"/>
    <property name="SaveOnExit" type="bool" value="false"/>
    <property name="LockCommand" type="string" value=""/>
  </property>
  <property name="startup" type="empty">
    <property name="ssh-agent" type="empty">
      <property name="enabled" type="bool" value="false"/>
    </property>
    <property name="gpg-agent" type="empty">
      <property name="enabled" type="bool" value="false"/>
    </property>
  </property>
  <property name="sessions" type="empty">
    <property name="Failsafe" type="empty">
      <property name="IsFailsafe" type="bool" value="true"/>
      <property name="Count" type="int" value="4"/>
      <property name="Client0_Command" type="array"><value type="string" value="xfwm4"/></property>
      <property name="Client1_Command" type="array"><value type="string" value="xfsettingsd"/></property>
      <property name="Client2_Command" type="array"><value type="string" value="xfce4-panel"/></property>
      <property name="Client3_Command" type="array"><value type="string" value="xfdesktop"/></property>
    </property>
  </property>
END
browser=firefox-esr
[ -e "/usr/share/applications/$browser.desktop" ] || browser=org.gnome.Epiphany
channel xfce4-panel <<END
  <property name="configver" type="int" value="2"/>
  <property name="panels" type="array">
    <value type="int" value="1"/>
    <property name="panel-1" type="empty">
      <property name="position" type="string" value="p=6;x=0;y=0"/>
      <property name="length" type="double" value="100"/>
      <property name="position-locked" type="bool" value="true"/>
      <property name="icon-size" type="uint" value="16"/>
      <property name="size" type="uint" value="28"/>
      <property name="plugin-ids" type="array">
        <value type="int" value="1"/>
        <value type="int" value="2"/>
        <value type="int" value="3"/>
        <value type="int" value="4"/>
        <value type="int" value="5"/>
        <value type="int" value="6"/>
        <value type="int" value="7"/>
      </property>
    </property>
  </property>
  <property name="plugins" type="empty">
    <property name="plugin-1" type="string" value="applicationsmenu"/>
    <property name="plugin-2" type="string" value="launcher">
      <property name="items" type="array"><value type="string" value="$browser.desktop"/></property>
    </property>
    <property name="plugin-3" type="string" value="launcher">
      <property name="items" type="array"><value type="string" value="xfce4-terminal.desktop"/></property>
    </property>
    <property name="plugin-4" type="string" value="launcher">
      <property name="items" type="array"><value type="string" value="thunar.desktop"/></property>
    </property>
    <property name="plugin-5" type="string" value="tasklist"/>
    <property name="plugin-6" type="string" value="separator">
      <property name="expand" type="bool" value="true"/>
      <property name="style" type="uint" value="0"/>
    </property>
    <property name="plugin-7" type="string" value="clock">
      <property name="digital-layout" type="uint" value="3"/>
      <property name="digital-time-format" type="string" value="%H:%M"/>
    </property>
  </property>
END

# --- caches that the first login would make, and what the packages bring that nobody needs
if command -v fc-cache >/dev/null; then fc-cache --system-only --force; fi
find /usr/share/xsessions -name '*.desktop' ! -name xfce.desktop -delete
rm -rf /usr/share/backgrounds/xfce /usr/share/gtk-doc /usr/share/help
