"""Clones: their times, the memory and disk of each, and the time of listing many."""

from __future__ import annotations

import asyncio
import time

from quicksand_tui.cli.measuring.command_times import run_process
from quicksand_tui.cli.measuring.figure import MIB, Figure
from quicksand_tui.cli.measuring.measured import own_disk, pss, warm_sandbox

CLONES = 10
CLONE_RUNS = 3
"""The most runs."""


async def clones(image: str, runs: int) -> list[Figure]:
    """Measures ten clones, and the command `ps` while they run."""
    time_taken = Figure(f"clone({CLONES}) of 512M, until all have answered", "s")
    disk = Figure("own disk of each clone", "MiB")
    memory = Figure("PSS of each clone, with its keeper", "MiB")
    listing = Figure(f"`ps` beside {CLONES} clones, the whole process", "s")
    async with warm_sandbox(image) as sandbox:
        for _ in range(min(runs, CLONE_RUNS)):
            started = time.perf_counter()
            made = await sandbox.clone(CLONES)
            try:
                await asyncio.gather(*(clone.execute("true") for clone in made))
                time_taken.values.append(time.perf_counter() - started)
                disk.values += [own_disk(clone) / MIB for clone in made]
                memory.values += [pss(clone) / MIB for clone in made]
                modes = {clone.boot_timing.mode for clone in made if clone.boot_timing}
                seconds, table = await run_process("ps")
                listing.values.append(seconds)
                listing.facts["sandboxes"] = len(table.splitlines()) - 1
            finally:
                await asyncio.gather(*(clone.kill() for clone in made))
    for figure in (time_taken, disk, memory):
        figure.facts["mode"] = ", ".join(sorted(modes))
    return [time_taken, disk, memory, listing]
