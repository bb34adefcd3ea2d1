"""Measures how long Firefox takes on the desktop from a click to its window, in sandboxes from the
template of `debian-desktop`: by turns as the template has it, which has started it once
(docs/internals/images.md, Warm), and without its profile and with none of its files in memory.
``python bench/firefox.py [TURNS]``.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from quicksand import Sandbox

ICON = (116, 14)
FORGET = (
    "rm -rf /home/quicksand/.mozilla /home/quicksand/.cache; sync; echo 3 >/proc/sys/vm/drop_caches"
)
SHOWN = "until xdotool search --onlyvisible --class firefox; do sleep 0.2; done"


async def start(*, forget: bool) -> float:
    """Seconds from the click until the window is there."""
    async with Sandbox(image="debian-desktop", enable_display=True) as sandbox:
        if forget:
            await sandbox.execute(FORGET, timeout=60)
        await sandbox.wait_for_screen("stable", quiet=2, timeout=60)
        await sandbox.mouse_move_px(*ICON)
        started = time.perf_counter()
        await sandbox.mouse_click()
        result = await sandbox.execute(SHOWN, timeout=300)
        assert result.exit_code == 0, result.stderr
        return time.perf_counter() - started


async def main() -> None:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    for _ in range(turns):
        for forget in (False, True):
            seconds = await start(forget=forget)
            words = "without profile and files" if forget else "as in the template"
            print(f"{words}: {seconds:.1f} s (load {os.getloadavg()[0]:.1f})", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
