"""Saves: their times, their cost for the guest meanwhile, and starts from them."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand import Sandbox
from quicksand.base.paths import make_private_dir, paths
from quicksand.saves.finding import workspace_store
from quicksand.saves.verifying import verify_saves

from quicksand_tui.cli.measuring.figure import MIB, Figure, Say
from quicksand_tui.cli.measuring.measured import GUEST_S, SMALL, make_warm, require, with_mode

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

CHANGED_MIB = 64
PROBE_S = 4
LEAD_S = 1.0
"""Seconds to watch a guest before a save begins."""

PROBE = """
import os, time
file = os.open("/root/probe", os.O_WRONLY | os.O_CREAT)
last = time.monotonic()
end, most = last + %d, 0
while last < end:
    os.pwrite(file, bytes(4096), 0)
    os.fdatasync(file)
    now = time.monotonic()
    most, last = max(most, now - last), now
print(most * 1000)
"""
"""A program for the guest: it writes and syncs a block repeatedly, and prints the longest ms."""


async def measure_saves(image: str, runs: int, say: Say) -> list[Figure]:
    """Measures saves; returns all rows. The saves go to a temporary directory beside the user's."""
    say("saves")
    await make_warm(image, SMALL)
    with tempfile.TemporaryDirectory(dir=make_private_dir(paths().data)) as directory:
        workspace = Path(directory)
        figures = await _saves(image, runs, workspace)
        return [*figures, await _resume(image, runs, workspace), await _verify(workspace)]


async def _saves(image: str, runs: int, workspace: Path) -> list[Figure]:
    whole = Figure(f"save of {CHANGED_MIB} MiB of changes", "s")
    stall = Figure("the longest that a synced write took while it was saved", "ms")
    calm = Figure("the same while nothing was saved", "ms")
    over = Figure("size of a save beyond its changes", "%")
    async with Sandbox(image=image, memory=SMALL) as sandbox:
        await sandbox.save("before", workspace=workspace)
        for number in range(runs):
            await _change(sandbox, number)
            started = time.perf_counter()
            made = await sandbox.save("env", workspace=workspace)
            whole.values.append(time.perf_counter() - started)
            whole.facts["frozen"] = made.frozen
            top = workspace / "env" / "overlays" / f"{len(made.layers or ()) - 1}.qcow2"
            size = top.stat().st_blocks * 512 / MIB
            over.values.append((size / CHANGED_MIB - 1) * 100)
            calm.values.append(await _probe(sandbox))
            watched = asyncio.create_task(_probe(sandbox))
            await asyncio.sleep(LEAD_S)
            await sandbox.save("probed", workspace=workspace)
            stall.values.append(await watched)
    return with_mode(sandbox, [whole, stall, calm, over])


async def _probe(sandbox: Sandbox) -> float:
    result = await sandbox.execute(["python3", "-c", PROBE % PROBE_S], timeout=GUEST_S)
    return float(require(result, "watching the disk"))


async def _change(sandbox: Sandbox, number: int) -> None:
    command = f"head -c {CHANGED_MIB}M /dev/urandom > /root/changed{number}; sync"
    require(await sandbox.execute(command, timeout=GUEST_S), f"writing {CHANGED_MIB} MiB")


async def _resume(image: str, runs: int, workspace: Path) -> Figure:
    """Measures how much longer it takes to make the disk from a save than from its image. The boot
    is left out: it takes the same time, and varies by more."""
    figure = Figure("making the disk from a save, beyond that from its image", "ms")
    taken: dict[str, list[float]] = {image: [], "env": []}
    for _ in range(runs):
        for name, found in taken.items():
            sandbox = Sandbox(image=name, memory=SMALL, warm=False, workspace=workspace)
            async with sandbox:
                timing = sandbox.boot_timing
                assert timing is not None
                found.append((timing.resolve_image_s + timing.setup_disk_s) * 1000)
    medians = {name: statistics.median(found) for name, found in taken.items()}
    figure.values.append(medians["env"] - medians[image])
    figure.facts = {f"{name}_ms": round(value, 2) for name, value in medians.items()}
    return figure


async def _verify(workspace: Path) -> Figure:
    save = workspace_store(workspace).find("env")
    size = 0

    def report(_done: int, total: int) -> None:
        nonlocal size
        size = total

    started = time.perf_counter()
    (verdict,) = await verify_saves([save], paths(), deep=True, progress=report)
    seconds = time.perf_counter() - started
    assert not verdict.problems, verdict.problems
    return Figure("deep verification of a save", "MB/s", [size / 1e6 / seconds])
