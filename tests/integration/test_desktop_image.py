"""The images of desktops, built if they are missing, and what sandboxes of them show: `make soak`.
It takes minutes, and a gigabyte of the user's image store. `alpine-desktop` is not among them."""

from __future__ import annotations

import asyncio
import functools

import pytest
from quicksand import DebianDesktopSandbox, Sandbox, UbuntuDesktopSandbox
from quicksand.base.paths import Paths
from quicksand.life import machinery
from quicksand.life.image_building import build_if_missing, suggested_options
from quicksand.records.config import SandboxConfig
from quicksand.records.registry import Registry
from quicksand.warm.template_maker import READY, READY_S, warm, with_desktop

pytestmark = [pytest.mark.vm, pytest.mark.soak, pytest.mark.timeout(3600)]

IMAGE = "debian-desktop"
PANEL = 28
"""Pixels of the panel at the top of the screen."""

BACKGROUND = (41, 61, 84)
"""What `desktop.sh` asks for, as 0.16, 0.24, 0.33."""


async def say(sandbox: Sandbox, command: str) -> list[str]:
    result = await sandbox.execute(command, timeout=300)
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


async def wait_until_booted(sandbox: Sandbox) -> None:
    """The agent answers before the init of the image is there to be asked."""
    async with asyncio.timeout(300):
        while True:
            said = await sandbox.execute("systemctl is-system-running --wait", timeout=300)
            if said.stdout.strip() in ("running", "degraded"):
                return


class Pixels:
    """A picture of the screen."""

    def __init__(self, ppm: bytes) -> None:
        head, size, _, self.data = ppm.split(b"\n", 3)
        assert head == b"P6"
        self.width, self.height = (int(word) for word in size.split())

    def at(self, x: int, y: int) -> tuple[int, ...]:
        """The red, green and blue at a place."""
        start = 3 * (y * self.width + x)
        return tuple(self.data[start : start + 3])


@pytest.mark.parametrize("image", [IMAGE, "ubuntu-desktop"])
async def test_a_sandbox_from_a_template_shows_the_desktop_at_once(
    places: Paths, image: str
) -> None:
    await build_if_missing(image, places, build=True)
    config = SandboxConfig.parse({**suggested_options(image, places), "image": image})
    await warm(Registry(places), config)
    async with Sandbox(image=image, name="desk") as sandbox:
        assert sandbox.boot_timing is not None
        assert sandbox.boot_timing.mode == "template"
        picture = Pixels(await sandbox.screenshot(format="ppm"))
        assert (picture.width, picture.height) == (1280, 800)
        assert picture.at(900, 600) == pytest.approx(BACKGROUND, abs=2)
        panel = [picture.at(x, PANEL // 2) for x in range(300, 1200, 50)]
        assert all(min(pixel) > 200 for pixel in panel)
        # The host has another name now, and programs still reach the screen.
        assert await say(sandbox, "hostname") == ["desk"]
        assert (await say(sandbox, "xdotool getmouselocation --shell"))[2] == "SCREEN=0"
        command = "on-desktop sh -c 'id -un; echo $HOME; xdpyinfo >/dev/null && echo $DISPLAY'"
        assert await say(sandbox, command) == ["quicksand", "/home/quicksand", ":0"]


async def test_the_first_example_runs_from_a_cold_boot(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    await build_if_missing(IMAGE, places, build=True)
    # As long as a template may take: on a busy host it is there later than a start waits for it.
    patient = functools.partial(with_desktop, limit_s=READY_S)
    monkeypatch.setattr(machinery, "with_desktop", patient)
    async with DebianDesktopSandbox(warm=False) as sandbox:
        assert sandbox.boot_timing is not None and sandbox.boot_timing.mode == "cold boot"
        assert sandbox.notices == ()
        assert await sandbox.query_display_size() == (1280, 800)
        await sandbox.wait_for_screen("stable")
        x, y = await sandbox.query_mouse_position()  # nobody has moved it: the middle
        assert (x * 1280 // 32768, y * 800 // 32768) == pytest.approx((640, 400), abs=1)
        await sandbox.mouse_move_px(640, 400)
        await sandbox.mouse_click(double=True)
        await sandbox.type_text("hello\n")
        await sandbox.press_key("ctrl", "s")
        assert await sandbox.screenshot()


async def test_without_a_display_it_is_ready_at_once_and_has_no_desktop(places: Paths) -> None:
    await build_if_missing(IMAGE, places, build=True)
    async with Sandbox(image=IMAGE, warm=False, enable_display=False) as sandbox:
        await say(sandbox, READY)
        await wait_until_booted(sandbox)
        assert (await sandbox.execute("pgrep -x Xorg")).exit_code == 1
        assert await say(sandbox, "systemctl --failed --no-legend") == []


async def test_the_browser_of_ubuntu_shows_a_page(places: Paths) -> None:
    """It is drawn without OpenGL, and sandboxed by namespaces of its own."""
    await build_if_missing("ubuntu-desktop", places, build=True)
    async with UbuntuDesktopSandbox(warm=False) as sandbox:
        await sandbox.files.write("/tmp/page.html", b"<body style='background: #ff0000'>")
        browser = "epiphany-browser file:///tmp/page.html"
        await say(sandbox, f"setsid -f on-desktop {browser} >/tmp/said 2>&1 </dev/null")
        async with asyncio.timeout(240):
            while Pixels(await sandbox.screenshot(format="ppm")).at(600, 600) != (255, 0, 0):
                await sandbox.wait_for_screen("stable")
        assert (await sandbox.execute("pgrep -c WebKitWebProces")).exit_code == 0
