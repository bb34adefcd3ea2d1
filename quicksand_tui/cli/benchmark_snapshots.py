"""Of `benchmark`: warm starts, checkpoints, reverts, clones."""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quicksand.snapshots.next_revert import VARIABLE

from quicksand_tui.cli.benchmark import Figure

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

MIB = 1024 * 1024
SMALL, LARGE = "512M", "2G"
LARGE_BEFORE_MIB = 1024
"""Written in the large guest before the checkpoint that the next ones follow."""

CLONES = 10
CLONE_RUNS = 3
IDLE_S = 5.0
"""From the last command until a sandbox counts as idle."""

WAITS_S = 30.0
"""Until a QEMU waits for the next revert."""
CALM_S = 0.5
"""From then on; its client has still to let go of it."""

DD_S = 600
Say = Callable[[str], None]


async def measure_snapshots(image: str, runs: int, *, quick: bool, say: Say) -> list[Figure]:
    """All rows. Machines go on from templates, which are made first if need be."""
    figures: list[Figure] = []
    parts: list[tuple[str, Callable[[], Awaitable[list[Figure]]]]] = [
        ("warm starts", lambda: _warm_starts(image, runs)),
        ("checkpoints", lambda: _small_checkpoints(image, runs)),
        ("clones", lambda: _clones(image, min(runs, CLONE_RUNS))),
    ]
    if not quick:
        parts.append(("a guest of 2G with 1 GiB in it", lambda: _large_guest(image, runs)))
    from quicksand.errors import HostError

    for name, part in parts:
        say(name)
        try:
            figures += await part()
        except HostError as error:  # too little memory or disk for this one
            say(f"left out: {error}")
    return figures


@contextlib.asynccontextmanager
async def warm_sandbox(image: str, memory: str = SMALL) -> AsyncIterator[Sandbox]:
    """A sandbox that went on from its template; what makes that is over before."""
    from quicksand import Sandbox

    await make_warm(image, memory)
    async with Sandbox(image=image, memory=memory) as sandbox:
        await sandbox.execute("mount -o remount,size=90% /dev/shm")
        yield sandbox


async def make_warm(image: str, memory: str) -> None:
    """See that there is a template: else one would be made beside what is measured."""
    from quicksand.config import SandboxConfig
    from quicksand.host.paths import paths
    from quicksand.registry import Registry
    from quicksand.template_maker import warm

    await warm(Registry(paths()), SandboxConfig(image=image, memory=memory))


async def write_memory(sandbox: Sandbox, mebibytes: int, name: str = "block") -> None:
    """Fill pages of the guest's memory, the same ones for the same name, with random bytes."""
    command = (
        f"dd if=/dev/urandom of=/dev/shm/{name} bs=1M count={mebibytes} conv=notrunc status=none"
    )
    result = await sandbox.execute(command, timeout=DD_S)
    if result.exit_code != 0:
        raise RuntimeError(result.stderr.strip())


async def _warm_starts(image: str, runs: int) -> list[Figure]:
    from quicksand import Sandbox

    start = Figure("warm start to the first command's output", "s")
    idle = Figure("PSS of an idle sandbox from a template", "MiB")
    await make_warm(image, SMALL)
    for number in range(runs):
        sandbox = Sandbox(image=image, memory=SMALL)
        started = time.perf_counter()
        async with sandbox:
            await sandbox.execute("echo ready")
            start.values.append(time.perf_counter() - started)
            timing = sandbox.boot_timing
            start.facts["mode"] = timing.mode if timing is not None else ""
            if number == runs - 1:
                await asyncio.sleep(IDLE_S)
                idle.values.append(pss(sandbox) / MIB)
    return [start, idle]


async def _small_checkpoints(image: str, runs: int) -> list[Figure]:
    async with warm_sandbox(image) as sandbox:
        await write_memory(sandbox, 64)
        await sandbox.checkpoint("base")
        figures = [await checkpoint_pause(sandbox, runs, written, "512M") for written in (8, 64)]
        return [*figures, *await revert_times(sandbox, runs, "512M")]


async def _large_guest(image: str, runs: int) -> list[Figure]:
    async with warm_sandbox(image, LARGE) as sandbox:
        await write_memory(sandbox, LARGE_BEFORE_MIB, "large")
        await write_memory(sandbox, 1)
        await sandbox.checkpoint("base")
        what = "2G, 1 GiB written before"
        return [
            await checkpoint_pause(sandbox, runs, 1, what),
            *await revert_times(sandbox, min(runs, CLONE_RUNS), what),
        ]


async def checkpoint_pause(sandbox: Sandbox, runs: int, mebibytes: int, guest: str) -> Figure:
    """How long the VM stands still for a checkpoint with so much written since the last one.
    There is one already."""
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
    """From the call of revert to the answer of the next command, to a QEMU that waits for it, as a
    second or two after a checkpoint or a revert; and where none does. Goes to "base"."""
    waited = Figure(f"revert to the next command's answer ({guest})", "s")
    cold = Figure(f"the same where no QEMU waits for it ({guest})", "s")
    before = os.environ.get(VARIABLE)
    try:
        for figure in (cold, waited):
            os.environ[VARIABLE] = "off" if figure is cold else "on"
            await sandbox.revert("base")
            for _ in range(runs):
                if figure is waited:
                    await _until_one_waits(sandbox)
                started = time.perf_counter()
                reached = await sandbox.revert("base")
                await sandbox.execute("true")
                figure.values.append(time.perf_counter() - started)
                figure.facts["tier"] = reached.tier
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before
    return [waited, cold]


async def _until_one_waits(sandbox: Sandbox) -> None:
    from quicksand.host.paths import paths
    from quicksand.layout import runtime_dir

    root = runtime_dir(paths(), sandbox.id).root
    async with asyncio.timeout(WAITS_S):
        while not any(root.glob("*/waiting.json")):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await asyncio.sleep(CALM_S)


async def _clones(image: str, runs: int) -> list[Figure]:
    time_taken = Figure(f"clone({CLONES}) of 512M, until all have answered", "s")
    disk = Figure("own disk of each clone", "MiB")
    memory = Figure("PSS of each clone", "MiB")
    concurrency = min(4, os.cpu_count() or 1)
    async with warm_sandbox(image) as sandbox:
        for _ in range(runs):
            started = time.perf_counter()
            clones = await sandbox.clone(CLONES, concurrency=concurrency)
            try:
                await asyncio.gather(*(clone.execute("true") for clone in clones))
                time_taken.values.append(time.perf_counter() - started)
                disk.values += [own_disk(clone) / MIB for clone in clones]
                memory.values += [pss(clone) / MIB for clone in clones]
                modes = {clone.boot_timing.mode for clone in clones if clone.boot_timing}
            finally:
                await asyncio.gather(*(clone.kill() for clone in clones))
    time_taken.facts |= {"mode": ", ".join(sorted(modes)), "concurrency": concurrency}
    return [time_taken, disk, memory]


def own_disk(sandbox: Sandbox) -> int:
    """Bytes on disk that are this sandbox's only: files that have no other link."""
    from quicksand.host.paths import paths
    from quicksand.layout import sandbox_dir

    files = [p.lstat() for p in sandbox_dir(paths(), sandbox.id).root.rglob("*") if p.is_file()]
    return sum(found.st_blocks * 512 for found in files if found.st_nlink == 1)


def pss(sandbox: Sandbox) -> int:
    """Bytes of the host's memory that its QEMU takes, those that it shares in parts (proc(5)).
    Raises RuntimeError where the system does not tell."""
    pid = qemu_pid(sandbox)
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError as error:
        raise RuntimeError(f"the memory of QEMU cannot be told: {error}") from error
    return next(int(line.split()[1]) for line in text.splitlines() if line[:4] == "Pss:") * 1024


def qemu_pid(sandbox: Sandbox) -> int:
    return next(e.run.qemu_pid for e in sandbox.list() if e.id == sandbox.id and e.run)


def describe(facts: dict[str, Any]) -> str:
    """A row's facts in a line; notes are for `--json`, and `doctor` tells them."""
    shown = {key: value for key, value in facts.items() if not key.endswith("_note")}
    return ", ".join(f"{key} {value}" for key, value in shown.items() if value != "")
