"""Measures how long each stage of building an image takes, for `images/quicksand_images/shares.py`.
Prints JSON: the seconds of each stage in their order.

python bench/builds.py [NAME] [--in-vm]

It builds NAME, `debian` by default, anew into the user's store: set QUICKSAND_DATA_DIR and
QUICKSAND_CACHE_DIR to empty directories for a build without any package in the cache. With --in-vm
it takes the way of a user who can make no namespaces.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from quicksand_images import build_image, mmdebstrap


async def measure(name: str) -> dict[str, float]:
    """Build the image; return the seconds of each stage."""
    took: dict[str, float] = {}
    stage, since = "", time.monotonic()

    def note(now: str, done: int, total: int) -> None:
        nonlocal stage, since
        if now == stage:
            return
        at = time.monotonic()
        if stage:
            took[stage] = round(took.get(stage, 0.0) + at - since, 1)
        stage, since = now, at

    await build_image(name, progress=note)
    note("", 0, 0)
    return took


async def _find_none(*_: object) -> None:
    """In place of `mmdebstrap.find_builder`."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?", default="debian")
    parser.add_argument("--in-vm", action="store_true")
    given = parser.parse_args()
    if given.in_vm:
        mmdebstrap.find_builder = _find_none  # type: ignore[assignment]
    json.dump(asyncio.run(measure(given.name)), sys.stdout, indent=2)


if __name__ == "__main__":
    main()
