"""Measures how checkpoints grow with the guest and with what it has written: the pause, the whole
call, and a plain write of the same bytes for comparison.

python bench/checkpoints.py [-n RUNS] [--memory 512M,2G] [--written 1,8,64,256] [--before MIB]
                            [--levels write-protect,anonymous] [--out FILE]

BEFORE MiB are written once before the first checkpoint, which is measured too. Then WRITTEN MiB are
written before each checkpoint; all sizes and levels take turns, so that a busy host treats them
alike. At the end the guest reverts, once with a QEMU that waits and once without. It prints tables,
and writes JSON with all values to FILE. The guests are idle.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import mmap
import os
import platform
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quicksand import Sandbox
from quicksand.config import parse_size
from quicksand.host.paths import paths
from quicksand.snapshots.tracking import LEVELS, VARIABLE

from quicksand_tui.cli.benchmark import MIB, revert_times, warm_sandbox, write_memory
from quicksand_tui.cli.output import print_table

HEADS = ("GUEST", "LEVEL", "WRITTEN", "PAUSE ms", "CALL s", "PLAIN s", "STORED MiB")
REVERT_HEADS = ("GUEST", "LEVEL", "REVERT s", "NONE WAITS s")
STEP = 4 * MIB


@dataclass
class Row:
    """What was measured with one guest, at one level, for one amount of written memory."""

    memory: str
    level: str
    written_mib: int
    pause_ms: list[float] = field(default_factory=list)
    call_s: list[float] = field(default_factory=list)
    plain_s: list[float] = field(default_factory=list)
    """Writing as many bytes to a new file past the page cache, with fsync."""
    stored_mib: list[float] = field(default_factory=list)
    tier_note: str = ""

    def cells(self) -> tuple[str, ...]:
        pause, call, plain, stored = (
            statistics.median(values)
            for values in (self.pause_ms, self.call_s, self.plain_s, self.stored_mib)
        )
        return (
            self.memory,
            self.level,
            f"{self.written_mib} MiB",
            f"{pause:.1f}",
            f"{call:.3f}",
            f"{plain:.3f}",
            f"{stored:.1f}",
        )


def median_of(values: list[float]) -> str:
    return f"{statistics.median(values):.2f}" if values else "-"


def write_plainly(size: int) -> float:
    """Seconds to write so many bytes to a new file and sync it."""
    block = mmap.mmap(-1, STEP)
    block[:] = os.urandom(MIB) * 4
    with tempfile.TemporaryDirectory(dir=paths().data) as directory:
        path = Path(directory) / "plain"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
        try:
            started = time.perf_counter()
            left = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
            while left:
                left -= os.write(descriptor, memoryview(block)[: min(left, STEP)])
            os.fsync(descriptor)
            return time.perf_counter() - started
        finally:
            os.close(descriptor)


async def take(sandbox: Sandbox, row: Row) -> None:
    """Write memory, take a checkpoint, and add what it cost to ``row``."""
    await write_memory(sandbox, row.written_mib, f"{row.written_mib}")
    os.environ[VARIABLE] = row.level
    started = time.perf_counter()
    made = await sandbox.checkpoint()
    row.call_s.append(time.perf_counter() - started)
    row.pause_ms.append(made.pause_s * 1000)
    row.stored_mib.append(made.bytes_written / MIB)
    row.plain_s.append(await asyncio.to_thread(write_plainly, made.bytes_written))
    row.tier_note = made.tier_note
    # Each fills its own file; the guest must not run out of memory.
    await sandbox.execute(f"rm -f /dev/shm/{row.written_mib}")


async def measure(arguments: argparse.Namespace, memory: str) -> tuple[list[Row], list[Any]]:
    """Measure guests of one size, one for each level."""
    levels = arguments.levels.split(",")
    # What does not fit into the guest is left out.
    sizes = [int(size) for size in arguments.written.split(",")]
    room = 2 * parse_size(memory, what="memory") // 3
    before = arguments.before if arguments.before * MIB <= room else 0
    sizes = [size for size in sizes if (before + size) * MIB <= room]
    rows = {(level, size): Row(memory, level, size) for level in levels for size in sizes}
    first = [Row(memory, level, before) for level in levels if before]
    reverts = []
    async with AsyncExitStack() as stack:
        guests = {
            level: await stack.enter_async_context(warm_sandbox(arguments.image, memory))
            for level in levels
        }
        for row in first:
            await take(guests[row.level], row)
            await write_memory(guests[row.level], row.written_mib, "before")
        for level, guest in guests.items():
            os.environ[VARIABLE] = level
            await guest.checkpoint("base")
        for _ in range(arguments.runs):
            for row in rows.values():
                await take(guests[row.level], row)
        for level, guest in guests.items():
            os.environ[VARIABLE] = level
            waited, cold = await revert_times(guest, arguments.runs, memory)
            reverts.append((memory, level, waited.values, cold.values))
    return [*first, *rows.values()], reverts


async def measure_all(arguments: argparse.Namespace) -> tuple[list[Row], list[Any]]:
    rows, reverts = [], []
    for memory in arguments.memory.split(","):
        print(f"guests of {memory}", file=sys.stderr, flush=True)
        found = await measure(arguments, memory)
        rows += found[0]
        reverts += found[1]
    return rows, reverts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("-n", "--runs", type=int, default=3)
    parser.add_argument("--image", default="debian")
    parser.add_argument("--memory", default="512M,1G,2G,4G")
    parser.add_argument("--written", default="1,8,64")
    parser.add_argument("--before", type=int, default=0)
    parser.add_argument("--levels", default=LEVELS[0])
    parser.add_argument("--out", type=Path, help="write JSON here")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    rows, reverts = asyncio.run(measure_all(arguments))
    print_table(HEADS, [row.cells() for row in rows])
    print_table(
        REVERT_HEADS,
        [
            (memory, level, *(median_of(values) for values in (waited, cold)))
            for memory, level, waited, cold in reverts
        ],
    )
    if arguments.out is not None:
        facts = {"host": platform.platform(), "load_before": load, "reverts": reverts}
        rows_json = [vars(row) for row in rows]
        arguments.out.write_text(json.dumps({**facts, "rows": rows_json}, indent=1) + "\n")


if __name__ == "__main__":
    main()
