"""Firefox on the desktop of `debian-desktop`: opened by a click, typed into, closed, and back after
a revert. `make soak`; it takes minutes, most of them for the template."""

from __future__ import annotations

import asyncio
import time

import pytest
from quicksand import Sandbox
from quicksand.base.paths import Paths
from quicksand.life.image_building import build_if_missing, suggested_options
from quicksand.records.config import SandboxConfig
from quicksand.records.registry import Registry
from quicksand.warm.template_maker import warm

from tests.integration.test_desktop_image import BACKGROUND, IMAGE, Pixels

pytestmark = [pytest.mark.vm, pytest.mark.soak, pytest.mark.timeout(3600)]

ICON = (116, 14)
"""The middle of Firefox's icon in the panel, in pixels, as on a picture of the desktop."""

PAGE = (900, 600)
"""A place in the window's empty page; the background of the desktop if there is no window."""

TEXT = "about:blank#typed-by-the-host"
DRAWN_S = 240
COPIED_S = 20
OTHER = "something else"


async def wait_for_page(sandbox: Sandbox, *, shown: bool) -> None:
    """Wait until Firefox's empty page is on the screen, or until the desktop is there again."""
    deadline = time.monotonic() + DRAWN_S
    while time.monotonic() < deadline:
        pixel = Pixels(await sandbox.screenshot(format="ppm")).at(*PAGE)
        if (min(pixel) > 240) if shown else pixel == pytest.approx(BACKGROUND, abs=2):
            return
        await asyncio.sleep(0.2)
    pytest.fail(f"waited {DRAWN_S} s for the page to be {'shown' if shown else 'gone'}")


async def copy_address(sandbox: Sandbox) -> str:
    """What the address bar has, by way of the clipboard; OTHER if nothing comes in COPIED_S."""
    clipboard = "xclip -selection clipboard"
    put = f"printf %s '{OTHER}' | {clipboard} >/dev/null 2>&1"
    assert (await sandbox.execute(put, timeout=60)).exit_code == 0
    await sandbox.press_key("ctrl", "l")
    await sandbox.press_key("ctrl", "c")
    deadline = time.monotonic() + COPIED_S
    found = OTHER
    while found in ("", OTHER) and time.monotonic() < deadline:
        found = (await sandbox.execute(f"timeout 5 {clipboard} -o", timeout=60)).stdout
    return found


async def type_address(sandbox: Sandbox) -> None:
    """Type TEXT into the address bar. A window that is new takes no keys for a while."""
    deadline = time.monotonic() + DRAWN_S
    while time.monotonic() < deadline:
        await sandbox.press_key("ctrl", "l")
        await sandbox.type_text(TEXT)
        if await copy_address(sandbox) == TEXT:
            return
    pytest.fail(f"the address bar did not take the text in {DRAWN_S} s")


async def test_firefox_comes_back_with_its_text_by_a_revert(places: Paths) -> None:
    await build_if_missing(IMAGE, places, build=True)
    config = SandboxConfig.parse({**suggested_options(IMAGE, places), "image": IMAGE})
    await warm(Registry(places), config)
    async with Sandbox(image=IMAGE, enable_display=True) as sandbox:
        await wait_for_page(sandbox, shown=False)
        await sandbox.mouse_move_px(*ICON)
        await sandbox.mouse_click()
        await wait_for_page(sandbox, shown=True)
        await type_address(sandbox)
        await sandbox.checkpoint("open")

        await sandbox.press_key("ctrl", "q")
        await wait_for_page(sandbox, shown=False)

        await sandbox.revert("open")
        await wait_for_page(sandbox, shown=True)
        assert (await sandbox.execute("pgrep -f '[f]irefox-esr'")).exit_code == 0
        # It is not a picture only: the program goes on.
        assert await copy_address(sandbox) == TEXT
