"""Checkpoints and reverts, in a small guest and in a large one with much written in it."""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand.base.paths import paths

from quicksand_tui.cli.measuring.figure import MIB, Figure
from quicksand_tui.cli.measuring.measured import (
    CALM_S,
    LARGE,
    processor_seconds,
    pss,
    warm_sandbox,
    with_mode,
    write_memory,
)

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox
    from quicksand.things.checkpoint import Checkpoint

LARGE_MIB = 1024
"""MiB written in the large guest before its first checkpoint, on which the next ones build."""
WRITTEN_MIB = (1, 8, 64, 256)
"""MiB that are written before a revert."""
LARGE_REVERTS = 3
"""The most reverts of the large guest, and of the small one after more than `MUCH_MIB`."""
MUCH_MIB = 64
SAVED_MIB = 8
"""MiB that are written before a checkpoint that is reverted to at once."""
PAIRS = 5
"""Pairs of checkpoint and revert whose processor time is one value: a single one takes a few ticks
of the kernel's count."""
STEP = 4 * MIB
"""Bytes of one plain write."""


async def small_checkpoints(image: str, runs: int) -> list[Figure]:
    """Measures a guest of 512M."""
    async with warm_sandbox(image) as sandbox:
        await write_memory(sandbox, 64)
        figures = await _memory_taken(sandbox, "512M")
        figures += [await checkpoint_pause(sandbox, runs, written, "512M") for written in (8, 64)]
        figures += flat(await revert_times(sandbox, runs, "512M"))
        figures += await _right_after(sandbox, runs, "512M")
        figures.append(await _processor_time(sandbox, runs, "512M"))
        return with_mode(sandbox, figures)


async def large_guest(image: str, runs: int) -> list[Figure]:
    """Measures a guest of 2G: right after 1 GiB was written, and later."""
    async with warm_sandbox(image, LARGE) as sandbox:
        await write_memory(sandbox, LARGE_MIB, "large")
        figures = await _after_much(sandbox)
        await write_memory(sandbox, 1)
        await sandbox.checkpoint("base")
        what = "2G, 1 GiB written before"
        figures.append(await checkpoint_pause(sandbox, runs, 1, what))
        first = RevertFigures("first revert after 1 GiB was written (2G)")
        await first.add(sandbox, "base")
        figures += flat([first, *await revert_times(sandbox, min(runs, LARGE_REVERTS), what)])
        return with_mode(sandbox, figures)


async def _after_much(sandbox: Sandbox) -> list[Figure]:
    """Measures the first checkpoint after much was written, and a plain write of as many bytes."""
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
    """Measures the pause of a checkpoint after ``mebibytes`` MiB were written since the last one.
    The sandbox must have a checkpoint."""
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


async def _memory_taken(sandbox: Sandbox, guest: str) -> list[Figure]:
    """Measures the host's memory that a sandbox takes before its first checkpoint, "base", after
    it, and after a revert to it."""
    steps: list[tuple[str, Callable[[], Awaitable[object]] | None]] = [
        ("before its first checkpoint", None),
        ("after it", lambda: sandbox.checkpoint("base")),
        ("after a revert to it", lambda: sandbox.revert("base")),
    ]
    figures = []
    for when, change in steps:
        if change is not None:
            await change()
        await asyncio.sleep(CALM_S)
        name = f"PSS of a sandbox with its keeper, {when} ({guest})"
        figures.append(Figure(name, "MiB", [pss(sandbox) / MIB]))
    return figures


async def revert_times(
    sandbox: Sandbox, runs: int, guest: str, amounts: Sequence[int] = WRITTEN_MIB
) -> list[RevertFigures]:
    """Measures reverts to the checkpoint "base", each after ``amounts`` MiB were written; returns
    the figures for each amount."""
    await sandbox.revert("base")
    found = []
    for mebibytes in amounts:
        reverts = RevertFigures(f"revert, {mebibytes} MiB since ({guest})")
        for _ in range(runs if mebibytes <= MUCH_MIB else min(runs, LARGE_REVERTS)):
            await write_memory(sandbox, mebibytes)
            await reverts.add(sandbox, "base")
        found.append(reverts)
    return found


async def _right_after(sandbox: Sandbox, runs: int, guest: str) -> list[Figure]:
    """Measures reverts to a checkpoint that was taken just before."""
    reverts = RevertFigures(f"revert straight after a checkpoint ({guest})")
    for _ in range(runs):
        await write_memory(sandbox, SAVED_MIB)
        await sandbox.checkpoint("now", replace=True)
        await reverts.add(sandbox, "now")
    return reverts.figures


async def _processor_time(sandbox: Sandbox, runs: int, guest: str) -> Figure:
    """Measures the processor time of a checkpoint and a revert to it, in this process, the keeper
    and QEMU together."""
    figure = Figure(f"processor time of a checkpoint and a revert to it ({guest})", "s")
    for _ in range(runs):
        before = processor_seconds(sandbox)
        for _ in range(PAIRS):
            await sandbox.checkpoint("now", replace=True)
            _note_form(figure, await sandbox.revert("now"))
        figure.values.append((processor_seconds(sandbox) - before) / PAIRS)
    return figure


class RevertFigures:
    """Reverts of one kind, each of which keeps the state before: the time from the call to the
    guest's answer; the pause of the guest; and the whole call, which ends when the state before is
    on disk, with a command after it."""

    def __init__(self, what: str) -> None:
        self.answer = Figure(f"{what}, to the guest's answer", "s")
        self.pause = Figure(f"pause of a {what}", "ms")
        self.call = Figure(f"{what}, the call and a command", "s")

    @property
    def figures(self) -> list[Figure]:
        return [self.answer, self.pause, self.call]

    async def add(self, sandbox: Sandbox, tag: str) -> None:
        """Reverts to ``tag``."""
        started = time.perf_counter()
        reached = await sandbox.revert(tag)
        await sandbox.execute("true")
        self.call.values.append(time.perf_counter() - started)
        self.answer.values.append(reached.revert_answer_s)
        self.pause.values.append(reached.revert_pause_s * 1000)
        for figure in self.figures:
            _note_form(figure, reached)


def flat(reverts: Iterable[RevertFigures]) -> list[Figure]:
    """Returns all figures, in order."""
    return [figure for each in reverts for figure in each.figures]


def _note_form(figure: Figure, reached: Checkpoint) -> None:
    """Adds the form of a revert to a figure's facts: all forms, where they differ."""
    forms = [*figure.facts.get("form", "").split(" + "), reached.revert_form]
    figure.facts["tier"] = reached.tier
    figure.facts["form"] = " + ".join(form for form in dict.fromkeys(forms) if form)
    if reached.revert_why:
        figure.facts["form_note"] = reached.revert_why


def write_plainly(size: int) -> float:
    """Returns the seconds of writing so many bytes to a new file beside the user's data, past the
    page cache, and syncing it."""
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
