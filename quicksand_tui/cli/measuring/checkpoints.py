"""Checkpoints and reverts, in a small guest and in a large one with much written in it."""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand.base.paths import paths

from quicksand_tui.cli.measuring.figure import MIB, Figure
from quicksand_tui.cli.measuring.machines import (
    LARGE,
    is_standby_off,
    standby,
    until_one_waits,
    warm_sandbox,
    with_mode,
    write_memory,
)

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

LARGE_MIB = 1024
"""MiB that are written in the large guest before its first checkpoint, on which the next ones
build."""
LARGE_REVERTS = 3
"""Reverts of the large guest at most."""
STEP = 4 * MIB
"""Bytes of one plain write."""


async def small_checkpoints(image: str, runs: int) -> list[Figure]:
    """Measures a guest of 512M."""
    async with warm_sandbox(image) as sandbox:
        await write_memory(sandbox, 64)
        await sandbox.checkpoint("base")
        figures = [await checkpoint_pause(sandbox, runs, written, "512M") for written in (8, 64)]
        figures += await revert_times(sandbox, runs, "512M")
        return with_mode(sandbox, figures)


async def large_guest(image: str, runs: int) -> list[Figure]:
    """Measures a guest of 2G: right after 1 GiB was written, and later."""
    async with warm_sandbox(image, LARGE) as sandbox:
        # A QEMU that the checkpoints had made wait would take over at the first revert.
        with standby("off"):
            await write_memory(sandbox, LARGE_MIB, "large")
            figures = await _after_much(sandbox)
            await write_memory(sandbox, 1)
            await sandbox.checkpoint("base")
            what = "2G, 1 GiB written before"
            pause = await checkpoint_pause(sandbox, runs, 1, what)
            first = Figure("first revert after 1 GiB was written (2G), where no QEMU waits", "s")
            await _revert(sandbox, first)
        reverts = await revert_times(sandbox, min(runs, LARGE_REVERTS), what)
        return with_mode(sandbox, [*figures, first, pause, *reverts])


async def _after_much(sandbox: Sandbox) -> list[Figure]:
    """Measures the first checkpoint after much was written, and a plain write of as many bytes
    beside it."""
    started = time.perf_counter()
    made = await sandbox.checkpoint("large")
    call = time.perf_counter() - started
    plain = await asyncio.to_thread(write_plainly, made.bytes_written)
    facts = {"tier": made.tier, "tier_note": made.tier_note}
    facts["written_mib"] = str(round(made.bytes_written / MIB))
    what = "checkpoint right after 1 GiB was written (2G)"
    return [
        Figure(f"pause of a {what}", "ms", [made.pause_s * 1000], facts),
        Figure(f"whole call of a {what}", "s", [call], facts),
        Figure("plain write of as many bytes as that call (O_DIRECT, fsync)", "s", [plain]),
        Figure("that whole call against that plain write", "times as long", [call / plain]),
    ]


async def checkpoint_pause(sandbox: Sandbox, runs: int, mebibytes: int, guest: str) -> Figure:
    """Measures how long a checkpoint pauses the VM after ``mebibytes`` MiB were written since the
    last checkpoint. The sandbox must have a checkpoint."""
    figure = Figure(f"pause of a checkpoint, {mebibytes} MiB since ({guest})", "ms")
    calls, written = [], []
    for number in range(runs):
        await write_memory(sandbox, mebibytes)
        started = time.perf_counter()
        made = await sandbox.checkpoint(f"{mebibytes}-{number}")
        calls.append(time.perf_counter() - started)
        figure.values.append(made.pause_s * 1000)
        written.append(made.bytes_written / MIB)
        figure.facts |= {"tier": made.tier, "tier_note": made.tier_note}
    figure.facts |= {
        "written_mib": round(statistics.median(written), 2),
        "call_s": round(statistics.median(calls), 3),
    }
    return figure


async def revert_times(sandbox: Sandbox, runs: int, guest: str) -> list[Figure]:
    """Measures the time from the call of revert to the answer of the next command: once with a QEMU
    that waits for the revert, as one does from a second or two after a checkpoint or revert, and
    once without. Reverts to the checkpoint "base". The first figure has no values if no QEMU may
    wait."""
    cold = Figure(f"revert where no QEMU waits, to the answer ({guest})", "s")
    name = f"revert to the next command's answer ({guest})"
    waited = Figure(name, "s", none_waits=cold.name)
    for figure in (cold,) if is_standby_off() else (cold, waited):
        with standby("off" if figure is cold else "on"):
            await sandbox.revert("base")
            for _ in range(runs):
                if figure is waited:
                    await until_one_waits(sandbox)
                await _revert(sandbox, figure)
    return [waited, cold]


async def _revert(sandbox: Sandbox, figure: Figure) -> None:
    started = time.perf_counter()
    reached = await sandbox.revert("base")
    await sandbox.execute("true")
    figure.values.append(time.perf_counter() - started)
    figure.facts["tier"] = reached.tier


def write_plainly(size: int) -> float:
    """Returns the seconds that it takes to write so many bytes to a new file beside the user's
    data, past the page cache, and sync it."""
    block = mmap.mmap(-1, STEP)
    block[:] = os.urandom(MIB) * (STEP // MIB)
    with tempfile.TemporaryDirectory(dir=paths().data) as directory:
        path = Path(directory) / "plain"
        descriptor = _open_past_cache(path)
        try:
            started = time.perf_counter()
            left = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
            while left:
                left -= os.write(descriptor, memoryview(block)[: min(left, STEP)])
            os.fsync(descriptor)
            return time.perf_counter() - started
        finally:
            os.close(descriptor)


def _open_past_cache(path: Path) -> int:
    how = os.O_WRONLY | os.O_CREAT
    try:
        return os.open(path, how | getattr(os, "O_DIRECT", 0))
    except OSError as error:
        # So open(2) says of a file system in memory, which has no cache to pass.
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, how)
