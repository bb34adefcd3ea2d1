"""Measures the screen of saves with very many: first list, cursor, filter, order, marks. Prints
JSON.

python bench/saves_browser.py [SAVES]

It measures the work that a key causes in the event loop, since nothing else runs during a callback.
The saves are on disk, and the service is the real one.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from quicksand.disks.images.disk_layers import create_overlay
from quicksand.records.config import SandboxConfig
from quicksand.saves.save_manifest import MANIFEST, OVERLAYS, Base, Parent, SavedLayer, SaveManifest

from quicksand_tui.door.service import EngineService
from quicksand_tui.screens.saves_and_trash import SavesScreen
from quicksand_tui.ui.app import QuicksandApp

SIZE = (120, 36)
WAIT_S = 120.0


def make_saves(root: Path, count: int) -> None:
    """Make ``count`` saves of two layers; they share the lower one as hard links."""
    root.mkdir(parents=True)
    layer = root.parent / "layer.qcow2"
    create_overlay(layer, backing=root / "none.qcow2", size=64 << 20)
    data = layer.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    layers = tuple(
        SavedLayer(id=digest[n : n + 12], size=len(data), sha256=digest) for n in range(2)
    )
    ids: list[str] = []
    for number in range(count):
        overlays = root / f"save-{number:05}" / OVERLAYS
        overlays.mkdir(parents=True)
        os.link(layer, overlays / "0.qcow2")
        (overlays / "1.qcow2").write_bytes(data)
        ids.append(f"{number:012x}")
        parent = Parent(name=f"save-{number // 2:05}", id=ids[number // 2]) if number else None
        manifest = SaveManifest(
            config=SandboxConfig(image="debian"),
            arch="x86_64",
            id=ids[-1],
            created=time.time() - number * 60,
            note=f"note {number}",
            base=Base(name="debian"),
            parent=parent,
            layers=layers,
        )
        (overlays.parent / MANIFEST).write_text(json.dumps(manifest.to_json()))


class Busy:
    """Records the processor time of the event loop's callbacks, without other load."""

    def __init__(self) -> None:
        self.spent: list[float] = []
        run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            before = time.thread_time()
            run(handle)
            self.spent.append((time.thread_time() - before) * 1000)

        asyncio.Handle._run = timed  # type: ignore[assignment,method-assign]

    def take(self) -> tuple[float, float]:
        """Return the milliseconds of the longest callback since the last call, and their sum."""
        spent, self.spent = self.spent, []
        return max(spent, default=0.0), sum(spent)


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the app does not show what it should")
        await asyncio.sleep(0.002)


async def measure(count: int) -> dict[str, float]:
    busy, service = Busy(), EngineService()
    app = QuicksandApp(service)
    app.animation_level = "none"
    found: dict[str, float] = {}
    async with app.run_test(size=SIZE) as pilot:
        await until(lambda: app.world.loaded)
        begun = time.perf_counter()
        busy.take()
        await pilot.press("v")
        await until(lambda: isinstance(app.screen, SavesScreen))
        screen = app.screen
        assert isinstance(screen, SavesScreen)
        await until(lambda: screen.browser.table.row_count == count)
        found["listed_s"] = round(time.perf_counter() - begun, 2)
        found["longest callback while all is read, ms"] = round(busy.take()[0], 1)
        for what, keys in (
            ("cursor", "j k j pagedown pageup G g"),
            ("filter", "slash 4 2 backspace 7 backspace backspace"),
            ("filter words", "n o t e space ! 1 3 enter escape"),
            ("order", "o o o o"),
            ("mark all", "asterisk asterisk"),
        ):
            taken = []
            for key in keys.split():
                busy.take()
                await pilot.press(key)
                await asyncio.sleep(0.05)
                taken.append(busy.take())
            found |= {
                f"{what}: longest callback, ms": round(max(longest for longest, _ in taken), 1),
                f"{what}: all of a key, ms, median": round(
                    statistics.median(whole for _, whole in taken), 1
                ),
                f"{what}: all of a key, ms, most": round(max(whole for _, whole in taken), 1),
            }
    await asyncio.to_thread(service.close)
    return found


def main() -> None:
    count = int([*sys.argv[1:], "10000"][0])
    with tempfile.TemporaryDirectory() as directory:
        os.environ["QUICKSAND_DATA_DIR"] = directory
        os.environ["QUICKSAND_RUNTIME_DIR"] = str(Path(directory) / "run")
        os.chdir(directory)
        make_saves(Path(directory) / "saves", count)
        print(json.dumps({"saves": count, **asyncio.run(measure(count))}, indent=1))


if __name__ == "__main__":
    main()
