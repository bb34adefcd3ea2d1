# Run in the machine in which the image `cua` is made.

# Playwright takes Debian's Chromium, which apt keeps up to date, where it looks for its own.
browsers=/opt/playwright
printf 'PLAYWRIGHT_BROWSERS_PATH=%s\n' "$browsers" >>/etc/environment
export PLAYWRIGHT_BROWSERS_PATH="$browsers"
python3 - <<'END'
import json
import os
import pathlib

import playwright

package = pathlib.Path(playwright.__file__).parent / "driver" / "package"
revisions = {b["name"]: b["revision"] for b in json.loads((package / "browsers.json").read_text())["browsers"]}
places = {
    "chromium": ("chromium", "chrome-linux64/chrome", "chrome-linux/chrome"),
    "chromium-headless-shell": (
        "chromium_headless_shell",
        "chrome-headless-shell-linux64/chrome-headless-shell",
        "chrome-linux/headless_shell",
    ),
}
root = pathlib.Path(os.environ["PLAYWRIGHT_BROWSERS_PATH"])
for name, (directory, *programs) in places.items():
    place = root / f"{directory}-{revisions[name]}"
    for program in programs:
        (place / program).parent.mkdir(parents=True, exist_ok=True)
        (place / program).symlink_to("/usr/bin/chromium")
    (place / "INSTALLATION_COMPLETE").touch()
END
# Sandboxes are for one agent, which may be root; Chromium's own sandbox does not start then.
printf 'CHROMIUM_FLAGS="$CHROMIUM_FLAGS --no-sandbox"\n' >/etc/chromium.d/quicksand
# A page that is opened here proves that all of it fits.
python3 - <<'END'
from playwright.sync_api import sync_playwright

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(timeout=240000)
    page = browser.new_page()
    page.set_content("<title>it works</title>")
    assert page.title() == "it works", page.title()
    browser.close()
END
