"""The desktop of `debian-desktop` as agents and viewers use it: all that is typed arrives, its size
is what is asked for, and what it does to its screen harms nobody. `make soak`."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from quicksand import DebianDesktopSandbox, Sandbox
from quicksand.base.errors import DisplayError, DisplayTimeoutError
from quicksand.base.paths import Paths
from quicksand.life.image_building import build_if_missing, suggested_options
from quicksand.records.config import SandboxConfig
from quicksand.records.registry import Registry
from quicksand.warm.template_maker import warm

from tests.integration.test_desktop_image import IMAGE, say

pytestmark = [pytest.mark.vm, pytest.mark.soak, pytest.mark.timeout(3600)]

ASCII = "".join(chr(code) for code in range(0x20, 0x7F))
WORDS = "naïve É Straße 漢字 \N{GRINNING FACE} \N{WOMAN}\u200d\N{PERSONAL COMPUTER} 5 €"
HAN = "".join(chr(0x4E00 + number) for number in range(30))
"""More characters than there are spare keys."""

FOLLOWED_S = 60
TERMINAL = (
    "setsid -f on-desktop xfce4-terminal -x sh -c 'stty -echo; cat >/tmp/typed' >/dev/null 2>&1; "
    "until xdotool search --onlyvisible --class xfce4-terminal windowactivate --sync && "
    "[ -e /tmp/typed ]; do sleep 0.2; done"
)

MODES = "for n in $(seq 40); do xrandr -s 800x600; xrandr -s 1024x768; done"
HUGE = (
    "xrandr --newmode huge 3000 16384 16385 16386 16400 16384 16385 16386 16400; "
    "xrandr --addmode Virtual-1 huge; xrandr --output Virtual-1 --mode huge; "
    "xrandr --fb 16384x16384; xrandr --fb 8192x8192; true"
)


@pytest.fixture
async def desktop(places: Paths) -> AsyncIterator[Sandbox]:
    await build_if_missing(IMAGE, places, build=True)
    config = SandboxConfig.parse({**suggested_options(IMAGE, places), "image": IMAGE})
    await warm(Registry(places), config)
    async with DebianDesktopSandbox(name="d") as sandbox:
        yield sandbox


async def typed(sandbox: Sandbox, wanted: str) -> str:
    """What has arrived in the terminal, when it is what was wanted or nothing more comes."""
    deadline = time.monotonic() + FOLLOWED_S
    found = ""
    while found != wanted and time.monotonic() < deadline:
        found = (await sandbox.execute("cat /tmp/typed", timeout=60)).stdout
    return found


async def until_pointer(sandbox: Sandbox, x: int, y: int) -> None:
    """Wait until the pointer of the X server is there, within a pixel."""
    async with asyncio.timeout(FOLLOWED_S):
        while True:
            said = await sandbox.execute("xdotool getmouselocation --shell", timeout=FOLLOWED_S)
            # It fails where the window below the pointer goes while it asks.
            found = [int(line.partition("=")[2]) for line in said.stdout.splitlines()[:2]]
            if len(found) == 2 and abs(found[0] - x) <= 1 and abs(found[1] - y) <= 1:
                return


async def test_all_that_is_typed_arrives(desktop: Sandbox, tmp_path: Path) -> None:
    """The calls are those of the specification."""
    await say(desktop, TERMINAL)
    wanted = ""
    for line in (ASCII, "x" * 200, WORDS, HAN, WORDS[::-1]):
        await desktop.type_text(f"{line}\n")
        wanted += f"{line}\n"
        assert await typed(desktop, wanted) == wanted
    await desktop.press_key("ctrl", "d")
    await say(desktop, "while pgrep -x cat; do sleep 0.2; done")

    assert await desktop.query_display_size() == (1280, 800)
    await desktop.mouse_move(16384, 16384)
    await desktop.mouse_click("right")
    assert await desktop.query_mouse_position() == (16384, 16384)
    await until_pointer(desktop, 640, 400)
    for x, y in ((0, 0), (1279, 799), (333, 555)):
        await desktop.mouse_move_px(x, y)
        await until_pointer(desktop, x, y)
    await desktop.screenshot(tmp_path / "shot.png")
    assert (tmp_path / "shot.png").read_bytes().startswith(b"\x89PNG")


async def test_windows_of_a_desktop_from_a_template_are_of_this_host(desktop: Sandbox) -> None:
    """The window manager began in the template, whose name was another one; it would add "(on d)"
    to every title."""
    begun_anew = "pgrep -f 'xfwm4 --replac[e]' && [ $(pidof xfwm4 | wc -w) = 1 ]"
    await say(desktop, f"until {begun_anew}; do sleep 0.2; done")
    assert await say(desktop, "hostname") == ["d"]


async def test_what_the_guest_is_asked_for(desktop: Sandbox) -> None:
    """Its keyboard's layout, its pointer, and the texts that it shows."""
    await say(desktop, TERMINAL)
    await desktop.wait_for_screen("text", text="Terminal")
    wanted = ""
    for layout in ("de", "ru", "us"):
        await say(desktop, f"DISPLAY=:0 setxkbmap {layout}")
        for line in ("zy-/?@ Hello", f"{ASCII} Ä"):
            await desktop.type_text(f"{line}\n")
            wanted += f"{line}\n"
            assert await typed(desktop, wanted) == wanted

    async with desktop.display() as client:
        await client.next_update()
        await client.pointer(100, 200)
        await until_pointer(desktop, 100, 200)
    x, y = await desktop.query_mouse_position()
    assert (x * 1280 // 32768, y * 800 // 32768) == pytest.approx((100, 200), abs=1)

    await desktop.press_key("ctrl", "alt", "f2")
    await say(desktop, "until grep tty2 /sys/class/tty/tty0/active; do sleep 0.1; done")
    await say(desktop, "echo 'Wört: login' >/dev/tty2")
    await desktop.wait_for_screen("text", text="Wört: lo")
    with pytest.raises(DisplayTimeoutError, match="did not show 'Terminal'"):
        await desktop.wait_for_screen("text", text="Terminal", timeout=2)


async def until_size(sandbox: Sandbox, size: tuple[int, int]) -> None:
    async with asyncio.timeout(FOLLOWED_S):
        while await sandbox.query_display_size() != size:
            await asyncio.sleep(0.1)


async def test_the_screen_gets_the_size_that_is_asked_for(desktop: Sandbox) -> None:
    for size in ((1024, 768), (1400, 900), (1280, 800)):
        await desktop.set_display_size(*size)
        await until_size(desktop, size)
    # The desktop fills it, and keeps it over a revert.
    await desktop.set_display_size(1000, 700)
    await until_size(desktop, (1000, 700))
    await desktop.checkpoint("small")
    await desktop.set_display_size(1280, 800)
    await until_size(desktop, (1280, 800))
    await desktop.revert("small")
    await until_size(desktop, (1000, 700))


async def test_a_screen_that_never_rests_harms_nobody(desktop: Sandbox) -> None:
    """Modes that change all the time, one that is too large, and none at all, for two viewers and
    for pictures."""
    pictures = 0

    async def view() -> None:
        async with desktop.display() as client:
            while True:
                await client.next_update()

    async def take() -> None:
        nonlocal pictures
        while True:
            with contextlib.suppress(DisplayError):
                await desktop.screenshot()
                pictures += 1

    watchers = [asyncio.ensure_future(what) for what in (view(), view(), take())]
    try:
        for trouble in (MODES, HUGE, "xrandr --output Virtual-1 --off"):
            await desktop.execute(trouble, timeout=300)
            await say(desktop, "xrandr --output Virtual-1 --auto; xrandr -s 1280x800")
            await until_size(desktop, (1280, 800))
        for viewer in watchers:
            if viewer.done():
                viewer.result()
    finally:
        for watcher in watchers:
            watcher.cancel()
        await asyncio.wait(watchers)
    assert pictures > 10
