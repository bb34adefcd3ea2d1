# Firefox for a desktop: started once before a template is made, and without the pages and questions of
# a first run.

mkdir -p /usr/lib/quicksand
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
chmod 0755 /usr/lib/quicksand/warm

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
