"""Measures the display: a screenshot to PNG, and typing 200 characters. Run it on a quiet machine:
``python bench/display.py [IMAGE]``. With an image that has no driver for the screen, that is
640x480; a picture of 1280x800 is then packed alone.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

from quicksand import Sandbox
from quicksand_vnc import Format, Picture

RUNS = 15
TEXT = "The quick brown fox jumps over 13 lazy dogs. " * 5


async def median_ms(action: Callable[[], Awaitable[object]]) -> float:
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        await action()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000


def desktop() -> Picture:
    """As hard to pack as a desktop: text on white, and a photograph on a fifth of it."""
    source = random.Random(1)
    line = bytes(source.choice((0, 255, 255, 255)) for _ in range(1024)) + bytes([255]) * 2816
    photo = source.randbytes(1280 * 3)
    rows = [photo if row % 5 == 0 else line for row in range(800)]
    return Picture(1280, 800, b"".join(rows))


async def main() -> None:
    image = sys.argv[1] if len(sys.argv) > 1 else "debian"
    print(f"load {os.getloadavg()[0]:.1f}")
    picture = desktop()

    async def pack() -> None:
        await asyncio.to_thread(picture.encode, Format.PNG)

    print(f"packing a picture of 1280x800: {await median_ms(pack):.1f} ms")
    async with Sandbox(image=image, enable_display=True) as sandbox:
        await sandbox.execute("modprobe -a virtio_input", timeout=60)
        width, height = await sandbox.query_display_size()
        print(f"screenshot of {width}x{height}: {await median_ms(sandbox.screenshot):.1f} ms")
        typing = await median_ms(lambda: sandbox.type_text(TEXT[:200]))
        print(f"typing 200 characters: {typing:.0f} ms")
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    asyncio.run(main())
