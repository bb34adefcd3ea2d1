# Sets up the desktop of debian-desktop.toml. Run by `sh -eu` in the new root file system, after
# customize.sh, whose variables it has.

# --- what is started: one session on one display. A boot leaves out the rest (logins on consoles,
# updates by the clock, kernel interfaces for debugging) and what the build has done already.
for unit in getty@tty1.service serial-getty@ttyS0.service autovt@.service \
    systemd-ask-password-wall.path systemd-ask-password-console.path \
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer systemd-tmpfiles-clean.timer \
    tmp.mount dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
    sys-kernel-config.mount sys-fs-fuse-connections.mount proc-sys-fs-binfmt_misc.automount \
    proc-sys-fs-binfmt_misc.mount systemd-binfmt.service modprobe@.service \
    ldconfig.service systemd-hwdb-update.service systemd-journal-catalog-update.service \
    systemd-sysusers.service systemd-update-done.service systemd-firstboot.service \
    systemd-random-seed.service systemd-pstore.service systemd-networkd-wait-online.service; do
    ln -sf /dev/null "/etc/systemd/system/$unit"
done
mkdir -p /etc/systemd/journald.conf.d /etc/lightdm/lightdm.conf.d
cat >/etc/systemd/journald.conf.d/quicksand.conf <<'END'
# A journal in memory, and a small one: it would be part of every checkpoint.
[Journal]
Storage=volatile
RuntimeMaxUse=4M
END
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
cat >/etc/X11/Xsession.d/36quicksand_root <<'END'
# Programs that root starts may use this display, as the user's own may (35x11-common_xhost-local).
# A cookie in ~/.Xauthority is not enough: it counts for the host name of the time of the login.
if type xhost >/dev/null 2>&1; then
    xhost "+si:localuser:root" >/dev/null || :
fi
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
set -- env HOME="$home" USER="$user" LOGNAME="$user" DISPLAY=:0 XDG_RUNTIME_DIR="$runtime" \
    DBUS_SESSION_BUS_ADDRESS="unix:path=$runtime/bus" XDG_CURRENT_DESKTOP=XFCE \
    LIBGL_ALWAYS_SOFTWARE=1 NO_AT_BRIDGE=1 GTK_A11Y=none "$@"
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
cat >/usr/lib/quicksand/warm <<'END'
#!/bin/sh
# Starts Firefox once and ends it, before a template is made: its profile and caches are then there,
# and its files in memory. A Firefox that does not come, or does not go, is no reason to have no
# template: it only starts more slowly.
grep -qs '^0x03' /sys/bus/pci/devices/*/class || exit 0
export DISPLAY=:0
within() { # seconds, then a command that is tried every half second until it succeeds
    end=$(($(date +%s) + $1))
    shift
    until "$@"; do
        [ "$(date +%s)" -lt "$end" ] || return 1
        sleep 0.5
    done
}
window() { xdotool search --onlyvisible --class firefox >/dev/null 2>&1; }
gone() { ! pgrep -f firefox-esr >/dev/null; }
ticks() { # of all processors: those that were idle, and all
    awk '/^cpu /{ print $5 + $6, $2 + $3 + $4 + $5 + $6 + $7 + $8 }' /proc/stat
}
calm() { # for two seconds nearly all time was idle
    before=$(ticks)
    sleep 2
    set -- $before $(ticks)
    [ $((10 * ($3 - $1))) -ge $((9 * ($4 - $2))) ]
}
setsid -f on-desktop firefox-esr >/dev/null 2>&1
if within 240 window; then
    # What Firefox does at its first start goes on for a while.
    within 120 calm || :
    xdotool key ctrl+q || :
    within 60 gone || :
fi
pkill -f firefox-esr || :
within 20 gone || pkill -KILL -f firefox-esr || :
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
chmod 0755 /usr/local/bin/on-desktop /usr/lib/quicksand/ready /usr/lib/quicksand/warm \
    /usr/lib/quicksand/fit-screen

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
channel xfce4-panel <<'END'
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
      <property name="items" type="array"><value type="string" value="firefox-esr.desktop"/></property>
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

# --- Firefox without pages and questions of a first run
mkdir -p /etc/firefox/policies
cat >/etc/firefox/policies/policies.json <<'END'
{
  "policies": {
    "DisableAppUpdate": true,
    "DisableFirefoxStudies": true,
    "DisableTelemetry": true,
    "DontCheckDefaultBrowser": true,
    "FirefoxHome": {
      "Search": false, "TopSites": false, "SponsoredTopSites": false, "Highlights": false,
      "Pocket": false, "SponsoredPocket": false, "Stories": false, "SponsoredStories": false,
      "Snippets": false, "Locked": false
    },
    "Homepage": { "URL": "about:blank", "StartPage": "none" },
    "NewTabPage": false,
    "NoDefaultBookmarks": true,
    "OfferToSaveLogins": false,
    "OverrideFirstRunPage": "",
    "OverridePostUpdatePage": "",
    "SkipTermsOfUse": true,
    "UserMessaging": {
      "ExtensionRecommendations": false, "FeatureRecommendations": false, "MoreFromMozilla": false,
      "SkipOnboarding": true, "UrlbarInterventions": false, "FirefoxLabs": false
    },
    "Preferences": {
      "app.normandy.enabled": { "Value": false, "Status": "default" },
      "browser.aboutwelcome.enabled": { "Value": false, "Status": "default" },
      "browser.cache.disk.enable": { "Value": false, "Status": "default" },
      "browser.sessionstore.resume_from_crash": { "Value": false, "Status": "default" },
      "browser.startup.couldRestoreSession.count": { "Value": -1, "Status": "default" },
      "browser.tabs.firefox-view": { "Value": false, "Status": "default" },
      "browser.warnOnQuitShortcut": { "Value": false, "Status": "default" },
      "browser.toolbars.bookmarks.visibility": { "Value": "never", "Status": "default" },
      "datareporting.policy.dataSubmissionEnabled": { "Value": false, "Status": "default" },
      "dom.ipc.processPrelaunch.enabled": { "Value": false, "Status": "default" },
      "extensions.getAddons.showPane": { "Value": false, "Status": "default" },
      "general.smoothScroll": { "Value": false, "Status": "default" },
      "gfx.webrender.software": { "Value": true, "Status": "default" },
      "network.captive-portal-service.enabled": { "Value": false, "Status": "default" },
      "network.connectivity-service.enabled": { "Value": false, "Status": "default" },
      "sidebar.revamp": { "Value": false, "Status": "default" },
      "toolkit.cosmeticAnimations.enabled": { "Value": false, "Status": "default" },
      "ui.prefersReducedMotion": { "Value": 1, "Status": "default" }
    }
  }
}
END

# --- caches that the first login would make, and what the packages bring that nobody needs
if command -v fc-cache >/dev/null; then fc-cache --system-only --force; fi
find /usr/share/xsessions -name '*.desktop' ! -name xfce.desktop -delete
rm -rf /usr/share/backgrounds/xfce /usr/share/gtk-doc /usr/share/help
