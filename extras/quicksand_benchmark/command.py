"""`quicksand-tui benchmark IMAGE`: measures this machine and reports medians of one run:
checkpoints and reverts, trees, clones, saves, and what `measured` has. Programs in bench/ use the
same functions."""

from __future__ import annotations

import asyncio
import errno
import json
import mmap
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quicksand import HostError, Sandbox
from quicksand.extending import (
    OFF,
    SPARES,
    make_private_dir,
    paths,
    verify_saves,
    workspace_store,
)

from quicksand_benchmark.measured import (
    CALM_S,
    GUEST_S,
    LARGE,
    MIB,
    SMALL,
    WIDTH,
    Figure,
    Say,
    figure_lines,
    make_warm,
    measure_cold,
    own_disk,
    processor_seconds,
    pss,
    require,
    run_process,
    timed,
    warm_sandbox,
    warm_starts,
    with_mode,
    write_memory,
)
from quicksand_tui.plugins import command_of, say

if TYPE_CHECKING:
    from quicksand import Checkpoint


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


NODES = 40
MIB_EACH = 4
SEED = 1
STRIDE = 4104
"""Bytes; no multiple of a page."""


async def trees(image: str) -> list[Figure]:
    """Measures a search in a tree in one sandbox, and in as many as there are processors."""
    figures = []
    async with warm_sandbox(image) as first:
        seed = f"head -c {2 * MIB_EACH}M /dev/urandom > /dev/shm/seed"
        require(await first.execute(seed, timeout=GUEST_S), "the random bytes for all attempts")
        await first.checkpoint("0")
        for count in sorted({1, min(4, os.cpu_count() or 1)}):
            figures.append(await _tree(first, count))
        return with_mode(first, figures)


async def _tree(first: Sandbox, count: int) -> Figure:
    """Measures a search in ``count`` sandboxes: the first, and clones of it."""
    where = "one sandbox" if count == 1 else f"{count} sandboxes"
    figure = Figure(f"tree search, {NODES} nodes of {MIB_EACH} MiB each, in {where}", "nodes/s")
    clones = await first.clone(count - 1) if count > 1 else []
    steps: dict[str, list[float]] = {"back_ms": [], "attempt_ms": [], "keep_ms": []}
    try:
        for clone in clones:
            await clone.checkpoint("0")
        started = time.perf_counter()
        share = NODES // count
        await asyncio.gather(*(_grow(each, share, steps) for each in (first, *clones)))
        figure.values.append(count * share / (time.perf_counter() - started))
    finally:
        await asyncio.gather(*(clone.kill() for clone in clones))
    figure.facts = {name: round(statistics.median(taken)) for name, taken in steps.items()}
    return figure


async def _grow(sandbox: Sandbox, nodes: int, steps: dict[str, list[float]]) -> None:
    """Adds so many states to the tree of one sandbox: goes on from an earlier state, mostly one of
    the latest, to a new one. Adds the time of each step to ``steps``."""
    chance = random.Random(SEED)  # noqa: S311 - the same tree each time
    for number in range(1, nodes + 1):
        goal = str(int(chance.triangular(0, number, number)))
        for name, work in (
            ("back_ms", lambda: sandbox.revert(goal, keep_now=False)),  # noqa: B023
            ("attempt_ms", lambda: _attempt(sandbox, number)),  # noqa: B023
            ("keep_ms", lambda: sandbox.checkpoint(str(number), replace=True)),  # noqa: B023
        ):
            steps[name].append(await timed(work) * 1000)


async def _attempt(sandbox: Sandbox, number: int) -> None:
    """Fills pages with bytes that no page had before: cut from random ones at another place each
    time, since the guest's random generator is not to be measured."""
    result = await sandbox.execute(
        f"dd if=/dev/shm/seed of=/dev/shm/work bs=1M count={MIB_EACH} skip={number * STRIDE} "
        "iflag=skip_bytes,fullblock conv=notrunc status=none"
    )
    require(result, "an attempt")


CLONES = 10
CLONE_RUNS = 3
"""The most runs."""


async def clones(image: str, runs: int) -> list[Figure]:
    """Measures ten clones, and the command `ps` while they run."""
    time_taken = Figure(f"clone({CLONES}) of 512M, until all have answered", "s")
    disk = Figure("own disk of each clone", "MiB")
    memory = Figure("PSS of each clone, with its keeper", "MiB")
    listing = Figure(f"`ps` beside {CLONES} clones, the whole process", "s")
    modes: set[str] = set()
    async with warm_sandbox(image) as sandbox:
        for _ in range(min(runs, CLONE_RUNS)):
            started = time.perf_counter()
            made = await sandbox.clone(CLONES)
            try:
                await asyncio.gather(*(clone.execute("true") for clone in made))
                time_taken.values.append(time.perf_counter() - started)
                disk.values += [own_disk(clone) / MIB for clone in made]
                memory.values += [pss(clone) / MIB for clone in made]
                modes |= {clone.boot_timing.mode for clone in made if clone.boot_timing}
                seconds, table = await run_process("ps")
                listing.values.append(seconds)
                listing.facts["sandboxes"] = len(table.splitlines()) - 1
            finally:
                await asyncio.gather(*(clone.kill() for clone in made))
    for figure in (time_taken, disk, memory):
        figure.facts["mode"] = ", ".join(sorted(modes))
    return [time_taken, disk, memory, listing]


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


@command_of("benchmark")
def benchmark_command(image: str, runs: int, stream_mb: int, quick: bool, as_json: bool) -> None:
    """Measure this machine: starts, commands, streams, checkpoints, clones.

    This takes some minutes, and prints medians, with the range in brackets. Starts are faster if a
    spare waits for them. Those have a second median, "none waits", which QUICKSAND_SPARES=off
    gives; with --json these are two figures, and the first names the second as its "none_waits".
    """
    # Nothing is made in the background, except where that is measured.
    os.environ[SPARES.variable] = OFF
    load = os.getloadavg()[0]
    figures, facts = asyncio.run(_measure(image, max(1, runs), max(1, stream_mb), quick=quick))
    # Figures that the engine does not tell on this host have no values.
    figures = [figure for figure in figures if figure.values]
    facts |= {"image": image, "host": platform.platform(), "load_before": round(load, 2)}
    if as_json:
        rows = [{**asdict(figure), "median": figure.median} for figure in figures]
        print(json.dumps({**facts, "figures": rows}))
    else:
        _report(figures, facts)


async def _measure(
    image: str, runs: int, stream_mb: int, *, quick: bool
) -> tuple[list[Figure], dict[str, Any]]:
    figures, facts = await measure_cold(image, runs, stream_mb, say)
    figures += await _measure_snapshots(image, runs, quick=quick)
    return figures + await measure_saves(image, runs, say), facts


async def _measure_snapshots(image: str, runs: int, *, quick: bool) -> list[Figure]:
    """Measures all that needs a snapshot. Machines start from templates, which are made first if
    there are none."""
    parts: list[tuple[str, Callable[[], Awaitable[list[Figure]]]]] = [
        ("warm starts", lambda: warm_starts(image, runs)),
        ("checkpoints", lambda: small_checkpoints(image, runs)),
        ("a tree of attempts", lambda: trees(image)),
        ("clones", lambda: clones(image, runs)),
    ]
    if not quick:
        parts.append(("a guest of 2G with 1 GiB in it", lambda: large_guest(image, runs)))
    figures: list[Figure] = []
    for name, part in parts:
        say(name)
        try:
            figures += await part()
        except HostError as error:  # the host has too little memory or disk for this one
            say(f"left out: {error}")
    return figures


def _report(figures: list[Figure], facts: dict[str, Any]) -> None:
    where = f"{facts['image']} on {facts['accelerator']}, {facts['host']}"
    print(f"{where}, load {facts['load_before']:.2f} before")
    for line in figure_lines(figures):
        print(line)
    print("phases of a cold start, medians in seconds")
    for name, value in facts["boot_phases_s"].items():
        print(f"  {name.removesuffix('_s'):<{WIDTH}} {value:9.3f}")
