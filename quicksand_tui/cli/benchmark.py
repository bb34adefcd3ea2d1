"""`quicksand-tui benchmark IMAGE`: measures this machine and reports medians of one run."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import platform
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quicksand.settings import OFF, ON, SPARES, STANDBY, USE

from quicksand_tui.cli.commands import command_of

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox
    from quicksand.sandbox_records import RunState


SETTLE_S = 20.0
WIDTH = 64
"""Width of the column with the names of the figures, in characters."""


@dataclass(slots=True)
class Figure:
    """One measured quantity, with the values of all runs."""

    name: str
    unit: str
    values: list[float] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    """The conditions of the measurement: tier, mode, bytes."""

    @property
    def median(self) -> float:
        return statistics.median(self.values)


async def timed(work: Callable[[], Awaitable[Any]]) -> float:
    """Returns how many seconds ``work`` takes. Raises what ``work`` raises."""
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


async def measure(
    image: str, runs: int, stream_mb: int, say: Callable[[str], None]
) -> tuple[list[Figure], dict[str, Any]]:
    """Measures everything. Each start is a new sandbox; the other figures come from the last
    one."""
    from quicksand import Sandbox

    start = Figure("cold start to the first command's output", "s")
    phases: dict[str, list[float]] = {}
    facts: dict[str, Any] = {}
    for number in range(runs):
        say(f"start {number + 1} of {runs}")
        sandbox = Sandbox(image=image, warm=False)
        started = time.perf_counter()
        async with sandbox:
            await sandbox.execute("echo ready")
            start.values.append(time.perf_counter() - started)
            timing = sandbox.boot_timing
            assert timing is not None
            start.facts["mode"] = timing.mode
            for name, value in asdict(timing).items():
                if isinstance(value, float):
                    phases.setdefault(name, []).append(value)
            if number == runs - 1:
                facts["accelerator"] = sandbox.accelerator
                rest = await measure_running(sandbox, runs, stream_mb, say)
    facts["boot_phases_s"] = {k: round(statistics.median(v), 4) for k, v in phases.items()}
    return [start, *rest], facts


async def measure_running(
    sandbox: Any, runs: int, stream_mb: int, say: Callable[[str], None]
) -> list[Figure]:
    """Measures one running sandbox."""
    say("commands, and half a minute of idling")
    ping = Figure("round trip to the agent", "ms")
    true = Figure('execute("true")', "ms")
    for _ in range(max(20, runs)):
        ping.values.append(await sandbox.ping() * 1000)
        true.values.append(await timed(lambda: sandbox.execute("true")) * 1000)
    parallel = Figure("20 commands in parallel", "s")
    sleeps = Figure("three `sleep 3` at once", "s")
    parallel.values.append(
        await timed(lambda: asyncio.gather(*(sandbox.execute("echo x") for _ in range(20))))
    )
    sleeps.values.append(
        await timed(lambda: asyncio.gather(*(sandbox.execute("sleep 3") for _ in range(3))))
    )
    idle = Figure("host CPU of an idle sandbox", "% of a core")
    # A kernel stays busy for a moment after it has booted.
    await asyncio.sleep(SETTLE_S)
    idle.values.append(await idle_cpu(sandbox, seconds=10.0))
    say(f"streaming {stream_mb} MB")
    return [ping, true, parallel, sleeps, idle, *await measure_stream(sandbox, stream_mb)]


async def idle_cpu(sandbox: Any, *, seconds: float) -> float:
    """Returns the CPU time that QEMU takes while the guest is idle, in percent of one core."""
    from quicksand.stats import process_usage

    pid = next(e.run.qemu_pid for e in sandbox.list() if e.id == sandbox.id and e.run)
    before = process_usage(pid)[0]
    await asyncio.sleep(seconds)
    return (process_usage(pid)[0] - before) / seconds * 100


async def measure_stream(sandbox: Any, megabytes: int) -> list[Figure]:
    """Streams a file out of the guest through a command's stdout and compares digests."""
    make = f"head -c {megabytes}M /dev/urandom > /var/tmp/stream && sha256sum /var/tmp/stream"
    made = await sandbox.execute(make, timeout=600)
    await sandbox.execute("cat /var/tmp/stream > /dev/null", timeout=600)
    digest = hashlib.sha256()
    started = time.perf_counter()
    async with await sandbox.spawn("cat /var/tmp/stream") as command:
        async for _, data in command.output():
            digest.update(data)
    seconds = time.perf_counter() - started
    if digest.hexdigest() != made.stdout.split()[0]:
        raise RuntimeError("the stream's SHA-256 is not the file's")
    await sandbox.execute("rm /var/tmp/stream")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        Figure(f"stdout of {megabytes} MB, equal SHA-256", "MB/s", [megabytes / seconds]),
        Figure("peak memory of this client", "MiB", [memory]),
    ]


@command_of("benchmark")
def benchmark_command(image: str, runs: int, stream_mb: int, quick: bool, as_json: bool) -> None:
    """Measure this machine: starts, commands, streams, checkpoints, clones.

    Medians, and the range in brackets. Takes some minutes.
    """

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    async def measure_all() -> tuple[list[Figure], dict[str, Any]]:
        figures, facts = await measure(image, max(1, runs), max(1, stream_mb), say)
        figures += await measure_snapshots(image, max(1, runs), quick=quick, say=say)
        return figures + await measure_saves(image, max(1, runs), say), facts

    # Nothing is made in the background, except where it is what is measured.
    os.environ[SPARES.variable] = OFF
    load = os.getloadavg()[0]
    figures, facts = asyncio.run(measure_all())
    # With QUICKSAND_STANDBY=off there are no values of what waits.
    figures = [figure for figure in figures if figure.values]
    facts |= {"image": image, "host": platform.platform(), "load_before": round(load, 2)}
    if as_json:
        rows = [{**asdict(figure), "median": figure.median} for figure in figures]
        print(json.dumps({**facts, "figures": rows}))
        return
    print(f"{facts['image']} on {facts['accelerator']}, {facts['host']}, load {load:.2f} before")
    for figure in figures:
        low, high = min(figure.values), max(figure.values)
        line = f"  {figure.name:<{WIDTH}} {figure.median:9.3f} {figure.unit}  "
        print(f"{line}[{low:.3f} to {high:.3f}]  {describe(figure.facts)}".rstrip())
    print("phases of a cold start, medians in seconds")
    for name, value in facts["boot_phases_s"].items():
        print(f"  {name.removesuffix('_s'):<{WIDTH}} {value:9.3f}")


MIB = 1024 * 1024
SMALL, LARGE = "512M", "2G"
LARGE_BEFORE_MIB = 1024
"""MiB that are written in the large guest before its first checkpoint, on which the next ones
build."""

TREE_NODES = 40
TREE_MIB = 4
TREE_SEED = 1
TREE_STRIDE = 4104
"""Bytes; no multiple of a page."""


CLONES = 10
CLONE_RUNS = 3
IDLE_S = 5.0
"""Seconds after the last command at which a sandbox counts as idle."""

WAITS_S = 30.0
"""Seconds to wait for a QEMU that is prepared for the next revert."""
CALM_S = 0.5
"""Seconds to wait after that, until the client has let go of that QEMU."""

DD_S = 600
Say = Callable[[str], None]


async def measure_snapshots(image: str, runs: int, *, quick: bool, say: Say) -> list[Figure]:
    """Measures snapshots; returns all rows. Machines start from templates, which are made first if
    there are none."""
    figures: list[Figure] = []
    parts: list[tuple[str, Callable[[], Awaitable[list[Figure]]]]] = [
        ("warm starts", lambda: _warm_starts(image, runs)),
        ("checkpoints", lambda: _small_checkpoints(image, runs)),
        ("a tree of attempts", lambda: _tree(image)),
        ("clones", lambda: _clones(image, min(runs, CLONE_RUNS))),
    ]
    if not quick:
        parts.append(("a guest of 2G with 1 GiB in it", lambda: _large_guest(image, runs)))
    from quicksand.errors import HostError

    for name, part in parts:
        say(name)
        try:
            figures += await part()
        except HostError as error:  # the host has too little memory or disk for this one
            say(f"left out: {error}")
    return figures


@contextlib.asynccontextmanager
async def warm_sandbox(image: str, memory: str = SMALL) -> AsyncIterator[Sandbox]:
    """Yields a sandbox that started from a template. Making the template is over by then."""
    from quicksand import Sandbox

    await make_warm(image, memory)
    async with Sandbox(image=image, memory=memory) as sandbox:
        await sandbox.execute("mount -o remount,size=90% /dev/shm")
        yield sandbox


async def make_warm(image: str, memory: str) -> None:
    """Makes the template unless there is one, so that it is not made during a measurement."""
    from quicksand.config import SandboxConfig
    from quicksand.host.paths import paths
    from quicksand.registry import Registry
    from quicksand.template_maker import warm

    await warm(Registry(paths()), SandboxConfig(image=image, memory=memory))


async def write_memory(sandbox: Sandbox, mebibytes: int, name: str = "block") -> None:
    """Fills pages of the guest's memory with random bytes; the same pages for the same name."""
    command = (
        f"dd if=/dev/urandom of=/dev/shm/{name} bs=1M count={mebibytes} conv=notrunc status=none"
    )
    result = await sandbox.execute(command, timeout=DD_S)
    if result.exit_code != 0:
        raise RuntimeError(result.stderr.strip())


async def _warm_starts(image: str, runs: int) -> list[Figure]:
    """Measures starts with a spare and without, by turns; without alone if no QEMU may wait."""
    without = Figure("warm start to the first command's output", "s")
    taken = Figure("warm start to the first command's output, with a spare", "s")
    idle = Figure("PSS of an idle sandbox from a template, with its keeper", "MiB")
    await make_warm(image, SMALL)
    for number in range(runs):
        await _warm_start(image, without, idle if number == runs - 1 else None)
        if is_standby_off():
            continue
        with spares_in_use():
            await make_spare(image)
            await _warm_start(image, taken)
    return [without, taken, idle]


async def _warm_start(image: str, start: Figure, idle: Figure | None = None) -> None:
    from quicksand import Sandbox

    sandbox = Sandbox(image=image, memory=SMALL)
    started = time.perf_counter()
    async with sandbox:
        await sandbox.execute("echo ready")
        start.values.append(time.perf_counter() - started)
        timing = sandbox.boot_timing
        start.facts["mode"] = timing.mode if timing is not None else ""
        if idle is not None:
            await asyncio.sleep(IDLE_S)
            idle.values.append(pss(sandbox) / MIB)


def is_standby_off() -> bool:
    """Whether the user wants no QEMU to wait for a start or a revert."""
    return STANDBY.is_off


@contextlib.contextmanager
def spares_in_use() -> Iterator[None]:
    """Lets starts take spares within the block, and has none made in the background."""
    os.environ[SPARES.variable] = USE
    try:
        yield
    finally:
        os.environ[SPARES.variable] = OFF


async def make_spare(image: str) -> None:
    """Makes a spare for the usual machine, and waits until the host is calm again."""
    from quicksand.config import SandboxConfig
    from quicksand.host.paths import paths
    from quicksand.registry import Registry
    from quicksand.spares.making import WAIT_S, make_spare
    from quicksand.spares.stock import record_for

    record = record_for(SandboxConfig(image=image, memory=SMALL))
    await make_spare(Registry(paths()), record, seconds=WAIT_S)
    await asyncio.sleep(CALM_S)


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
    waited = Figure(f"revert to the next command's answer ({guest})", "s")
    cold = Figure(f"revert where no QEMU waits, to the answer ({guest})", "s")
    variable = STANDBY.variable
    before = os.environ.get(variable)
    try:
        for figure in (cold,) if is_standby_off() else (cold, waited):
            os.environ[variable] = OFF if figure is cold else ON
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
        os.environ.pop(variable)
        if before is not None:
            os.environ[variable] = before
    return [waited, cold]


async def _tree(image: str) -> list[Figure]:
    """Measures a search in a tree, as examples/tree_search.py makes one, in one sandbox and in as
    many as there are processors."""
    figures = []
    async with warm_sandbox(image) as first:
        await first.execute(f"head -c {2 * TREE_MIB}M /dev/urandom > /dev/shm/seed", timeout=DD_S)
        await first.checkpoint("0")
        for count in sorted({1, min(4, os.cpu_count() or 1)}):
            where = "one sandbox" if count == 1 else f"{count} sandboxes"
            name = f"tree search, {TREE_NODES} nodes of {TREE_MIB} MiB each, in {where}"
            figure = Figure(name, "nodes/s")
            clones = await first.clone(count - 1) if count > 1 else []
            steps: dict[str, list[float]] = {"back_ms": [], "attempt_ms": [], "keep_ms": []}
            try:
                for clone in clones:
                    await clone.checkpoint("0")
                started = time.perf_counter()
                share = TREE_NODES // count
                await asyncio.gather(*(_grow(each, share, steps) for each in (first, *clones)))
                figure.values.append(count * share / (time.perf_counter() - started))
            finally:
                await asyncio.gather(*(clone.kill() for clone in clones))
            figure.facts = {name: round(statistics.median(taken)) for name, taken in steps.items()}
            figures.append(figure)
    return figures


async def _grow(sandbox: Sandbox, nodes: int, steps: dict[str, list[float]]) -> None:
    """Adds so many states to the tree of one sandbox: from one that was seen before, mostly one of
    the latest, go on to a new one. Adds what each step took to ``steps``."""
    chance = random.Random(TREE_SEED)  # noqa: S311 - the same tree each time
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
    time, since it is not the guest's random generator that is to be measured."""
    result = await sandbox.execute(
        f"dd if=/dev/shm/seed of=/dev/shm/work bs=1M count={TREE_MIB} skip={number * TREE_STRIDE} "
        "iflag=skip_bytes,fullblock conv=notrunc status=none"
    )
    if result.exit_code != 0:
        raise RuntimeError(result.stderr.strip())


async def _until_one_waits(sandbox: Sandbox) -> None:
    from quicksand.host.paths import paths
    from quicksand.registry import Registry

    root = Registry(paths()).machine(sandbox.id).root.parent
    async with asyncio.timeout(WAITS_S):
        while not any(root.glob("*/waiting.json")):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await asyncio.sleep(CALM_S)


async def _clones(image: str, runs: int) -> list[Figure]:
    time_taken = Figure(f"clone({CLONES}) of 512M, until all have answered", "s")
    disk = Figure("own disk of each clone", "MiB")
    memory = Figure("PSS of each clone, with its keeper", "MiB")
    async with warm_sandbox(image) as sandbox:
        for _ in range(runs):
            started = time.perf_counter()
            clones = await sandbox.clone(CLONES)
            try:
                await asyncio.gather(*(clone.execute("true") for clone in clones))
                time_taken.values.append(time.perf_counter() - started)
                disk.values += [own_disk(clone) / MIB for clone in clones]
                memory.values += [pss(clone) / MIB for clone in clones]
                modes = {clone.boot_timing.mode for clone in clones if clone.boot_timing}
            finally:
                await asyncio.gather(*(clone.kill() for clone in clones))
    time_taken.facts |= {"mode": ", ".join(sorted(modes))}
    return [time_taken, disk, memory]


def own_disk(sandbox: Sandbox) -> int:
    """Returns the bytes on disk in files that only this sandbox uses, which have no other hard
    link."""
    from quicksand.host.paths import paths
    from quicksand.registry import Registry

    files = [p.lstat() for p in Registry(paths()).place(sandbox.id).root.rglob("*") if p.is_file()]
    return sum(found.st_blocks * 512 for found in files if found.st_nlink == 1)


def pss(sandbox: Sandbox) -> int:
    """Returns the host memory of a sandbox's QEMU and its keeper in bytes (PSS, proc(5)): shared
    pages count in part. Raises RuntimeError where the system does not report it, StopIteration if
    the sandbox does not run."""
    run = _run_of(sandbox)
    return _pss_of(run.qemu_pid) + _pss_of(run.keeper_pid)


def qemu_pid(sandbox: Sandbox) -> int:
    """Returns the process id of a sandbox's QEMU. Raises StopIteration if it does not run."""
    return _run_of(sandbox).qemu_pid


def _run_of(sandbox: Sandbox) -> RunState:
    return next(e.run for e in sandbox.list() if e.id == sandbox.id and e.run)


def _pss_of(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError as error:
        raise RuntimeError(f"the memory of process {pid} cannot be told: {error}") from error
    return next(int(line.split()[1]) for line in text.splitlines() if line[:4] == "Pss:") * 1024


def describe(facts: dict[str, Any]) -> str:
    """Returns a row's facts as one line. Notes are left to `--json` and `doctor`."""
    shown = {key: value for key, value in facts.items() if not key.endswith("_note")}
    return ", ".join(f"{key} {value}" for key, value in shown.items() if value != "")


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
"""A program for the guest: it writes and syncs a block again and again, and prints the longest time
in ms."""


async def measure_saves(image: str, runs: int, say: Callable[[str], None]) -> list[Figure]:
    """Measures saves; returns all rows. The saves go to a temporary directory beside the user's
    own."""
    from quicksand.host.paths import make_private_dir, paths

    say("saves")
    await make_warm(image, SMALL)
    with tempfile.TemporaryDirectory(dir=make_private_dir(paths().data)) as directory:
        workspace = Path(directory)
        figures = await _saves(image, runs, workspace)
        return [*figures, await _resume(image, runs, workspace), await _verify(workspace)]


async def _saves(image: str, runs: int, workspace: Path) -> list[Figure]:
    from quicksand import Sandbox

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
    return [whole, stall, calm, over]


async def _probe(sandbox: Sandbox) -> float:
    result = await sandbox.execute(["python3", "-c", PROBE % PROBE_S], timeout=DD_S)
    if result.exit_code != 0:
        raise RuntimeError(f"the guest's disk cannot be watched: {result.stderr.strip()}")
    return float(result.stdout)


async def _change(sandbox: Sandbox, number: int) -> None:
    command = f"head -c {CHANGED_MIB}M /dev/urandom > /root/changed{number}; sync"
    result = await sandbox.execute(command, timeout=DD_S)
    if result.exit_code != 0:
        raise RuntimeError(result.stderr.strip())


async def _resume(image: str, runs: int, workspace: Path) -> Figure:
    """Measures how much longer it takes to make the disk from a save than from its image. The boot
    is left out: it takes the same time, and varies by more."""
    from quicksand import Sandbox

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
    from quicksand.host.paths import paths
    from quicksand.saves.finding import workspace_store
    from quicksand.saves.verifying import verify_saves

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
