"""The measurements of one sandbox: starts, commands, and its use of the host; and the figures that
they give."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import resource
import statistics
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quicksand import Sandbox, SandboxConfig
from quicksand.extending import (
    OFF,
    SPARE_WAIT_S,
    SPARES,
    USE,
    Registry,
    list_spares,
    make_spare,
    paths,
    process_usage,
    spare_record_for,
    warm,
)

if TYPE_CHECKING:
    from quicksand import ExecuteResult
    from quicksand.extending import RunState


SMALL, LARGE = "512M", "2G"
GUEST_S = 600
"""Seconds that a guest may take to write the bytes asked of it."""

CPU_FIELDS = (11, 12, 13, 14)
"""utime, stime, cutime and cstime in /proc/PID/stat, counted behind the name (proc(5))."""

CALM_S = 0.5
"""Seconds to wait until work in the background has ended, and its memory is free."""


@contextlib.asynccontextmanager
async def warm_sandbox(image: str, memory: str = SMALL) -> AsyncIterator[Sandbox]:
    """Yields a sandbox that started from a template. Making the template is over by then."""
    await make_warm(image, memory)
    async with Sandbox(image=image, memory=memory) as sandbox:
        enlarged = await sandbox.execute("mount -o remount,size=90% /dev/shm")
        require(enlarged, "enlarging /dev/shm")
        yield sandbox


async def make_warm(image: str, memory: str) -> None:
    """Makes the template unless there is one, so that it is not made during a measurement."""
    await warm(Registry(paths()), SandboxConfig(image=image, memory=memory))


def with_mode(sandbox: Sandbox, figures: list[Figure]) -> list[Figure]:
    """Returns the figures with the start mode of their sandbox, where they lack it."""
    if sandbox.boot_timing is not None:
        for figure in figures:
            figure.facts = {"mode": sandbox.boot_timing.mode} | figure.facts
    return figures


def require(result: ExecuteResult, what: str) -> str:
    """Returns the output of a command in the guest. Raises RuntimeError if it has failed."""
    if result.exit_code != 0:
        raise RuntimeError(f"{what} has failed in the guest: {result.stderr.strip()}")
    return result.stdout


async def write_memory(sandbox: Sandbox, mebibytes: int, name: str = "block") -> None:
    """Fills pages of the guest's memory with random bytes; the same pages for the same name."""
    command = (
        f"dd if=/dev/urandom of=/dev/shm/{name} bs=1M count={mebibytes} conv=notrunc status=none"
    )
    require(await sandbox.execute(command, timeout=GUEST_S), f"writing {mebibytes} MiB")


@contextlib.contextmanager
def spares_in_use() -> Iterator[None]:
    """Lets starts take spares within the block, and has none made in the background."""
    os.environ[SPARES.variable] = USE
    try:
        yield
    finally:
        os.environ[SPARES.variable] = OFF


async def make_spare_for(image: str) -> None:
    """Makes a spare for the usual machine, and waits until the host is calm again."""
    record = spare_record_for(SandboxConfig(image=image, memory=SMALL))
    await make_spare(Registry(paths()), record, seconds=SPARE_WAIT_S)
    await asyncio.sleep(CALM_S)


def own_disk(sandbox: Sandbox) -> int:
    """Returns the bytes on disk in files of this sandbox alone, which have no other hard link."""
    files = [p.lstat() for p in Registry(paths()).place(sandbox.id).root.rglob("*") if p.is_file()]
    return sum(found.st_blocks * 512 for found in files if found.st_nlink == 1)


def pss(sandbox: Sandbox) -> int:
    """Returns the host memory of a sandbox's QEMU and its keeper in bytes (PSS, proc(5)): shared
    pages count in part. Raises RuntimeError where the system does not report it, StopIteration if
    the sandbox does not run."""
    run = _run_of(sandbox)
    return _pss_of(run.qemu_pid) + _pss_of(run.keeper_pid)


def processor_seconds(sandbox: Sandbox) -> float:
    """Returns the processor time so far of this process, of a sandbox's keeper and its processes
    that have ended, and of its QEMU (proc(5)). A QEMU that is being ended counts again when the
    keeper has waited for it."""
    run = _run_of(sandbox)
    own = os.times()
    ours = own.user + own.system + own.children_user + own.children_system
    return ours + _cpu_of(run.keeper_pid, CPU_FIELDS) + _cpu_of(run.qemu_pid, CPU_FIELDS[:2])


def _cpu_of(pid: int, fields: Sequence[int]) -> float:
    """Returns some fields of /proc/PID/stat, in seconds. Raises RuntimeError."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise RuntimeError(f"the time of process {pid} cannot be told: {error}") from error
    # The name in brackets may contain anything.
    found = stat[stat.rindex(")") + 2 :].split()
    return sum(int(found[field]) for field in fields) / os.sysconf("SC_CLK_TCK")


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


MIB = 1024 * 1024
WIDTH = 68
"""Width of the column with the names of the figures, in characters."""

Say = Callable[[str], None]


@dataclass(slots=True)
class Figure:
    """One measured quantity, with the values of all runs."""

    name: str
    unit: str
    values: list[float] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    """The conditions of the measurement: mode, tier, bytes."""
    none_waits: str = ""
    """The name of the figure of the same without a waiting QEMU, if that makes this one faster."""

    @property
    def median(self) -> float:
        return statistics.median(self.values)


async def timed(work: Callable[[], Awaitable[Any]]) -> float:
    """Returns the seconds that ``work`` takes. Raises what ``work`` raises."""
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


def figure_lines(figures: Sequence[Figure]) -> Iterator[str]:
    """Yields the table of figures that have values. A figure with a waiting QEMU and without is one
    row, with a median in each column; the range and the facts are of the first."""
    by_name = {figure.name: figure for figure in figures}
    paired = {figure.none_waits for figure in figures}
    yield f"  {'':<{WIDTH}} {'median':>9} {'none waits':>10}"
    for figure in figures:
        if figure.name in paired:
            continue
        slow = by_name.get(figure.none_waits)
        median = f"{figure.median:9.3f}"
        none_waits = f"{slow.median:10.3f}" if slow is not None else ""
        low, high = min(figure.values), max(figure.values)
        line = f"  {figure.name:<{WIDTH}} {median} {none_waits:>10} {figure.unit}  "
        yield f"{line}[{low:.3f} to {high:.3f}]  {describe(figure.facts)}".rstrip()


def describe(facts: dict[str, Any]) -> str:
    """Returns a row's facts as one line. Notes are left to `--json` and `doctor`."""
    shown = {key: value for key, value in facts.items() if not key.endswith("_note")}
    return ", ".join(f"{key} {value}" for key, value in shown.items() if value != "")


async def run_process(*words: str) -> tuple[float, bytes]:
    """Returns the seconds of a command until its process has ended, and its output on stdout.
    Raises RuntimeError if it fails."""
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "quicksand_tui", *words, stdout=PIPE, stderr=PIPE
    )
    output, complaint = await process.communicate()
    seconds = time.perf_counter() - started
    if process.returncode != 0:
        said = complaint.decode(errors="replace").strip()
        raise RuntimeError(f"`{' '.join(words)}` exited with {process.returncode}: {said}")
    return seconds, output


SETTLE_S = 20.0
PROCESSES = 10
"""The number of whole processes that are started for a figure."""


async def measure_running(sandbox: Sandbox, runs: int, stream_mb: int, say: Say) -> list[Figure]:
    """Measures one running sandbox."""
    say("commands, and half a minute of idling")
    ping = Figure("round trip to the agent", "ms")
    true = Figure('execute("true")', "ms")
    for _ in range(max(20, runs)):
        ping.values.append(await sandbox.ping() * 1000)
        true.values.append(await timed(lambda: sandbox.execute("true")) * 1000)
    whole = Figure("`exec NAME -- true`, the whole process", "ms")
    for _ in range(PROCESSES):
        seconds, _output = await run_process("exec", sandbox.id, "--", "true")
        whole.values.append(seconds * 1000)
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
    return [ping, true, whole, parallel, sleeps, idle, *await measure_stream(sandbox, stream_mb)]


async def idle_cpu(sandbox: Sandbox, *, seconds: float) -> float:
    """Returns the CPU time that QEMU takes while the guest is idle, in percent of one core."""
    pid = qemu_pid(sandbox)
    before = process_usage(pid)[0]
    await asyncio.sleep(seconds)
    return (process_usage(pid)[0] - before) / seconds * 100


async def measure_stream(sandbox: Sandbox, megabytes: int) -> list[Figure]:
    """Streams a file out of the guest through a command's stdout and compares digests."""
    make = f"head -c {megabytes}M /dev/urandom > /var/tmp/stream && sha256sum /var/tmp/stream"
    made = require(await sandbox.execute(make, timeout=GUEST_S), "making a file to stream")
    read = await sandbox.execute("cat /var/tmp/stream > /dev/null", timeout=GUEST_S)
    require(read, "reading that file")
    digest = hashlib.sha256()
    started = time.perf_counter()
    async with await sandbox.spawn("cat /var/tmp/stream") as command:
        async for _, data in command.output():
            digest.update(data)
    seconds = time.perf_counter() - started
    if digest.hexdigest() != made.split()[0]:
        raise RuntimeError("the stream's SHA-256 is not the file's")
    await sandbox.execute("rm /var/tmp/stream")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        Figure(f"stdout of {megabytes} MB, equal SHA-256", "MB/s", [megabytes / seconds]),
        Figure("peak memory of this client", "MiB", [memory]),
    ]


IDLE_S = 5.0
"""Seconds after the last command at which a sandbox counts as idle."""


async def measure_cold(
    image: str, runs: int, stream_mb: int, say: Say
) -> tuple[list[Figure], dict[str, Any]]:
    """Measures cold starts, each of a new sandbox, and commands in the last one."""
    start = Figure("cold start to the first command's output", "s")
    phases: dict[str, list[float]] = {}
    facts: dict[str, Any] = {}
    rest: list[Figure] = []
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
                with_mode(sandbox, rest)
    facts["boot_phases_s"] = {k: round(statistics.median(v), 4) for k, v in phases.items()}
    return [start, *rest], facts


async def warm_starts(image: str, runs: int) -> list[Figure]:
    """Measures starts with a spare and without, by turns."""
    without = Figure("warm start to the first command's output", "s")
    taken = Figure(f"{without.name}, with a spare", "s", none_waits=without.name)
    alone = Figure("`run IMAGE -- echo hi`, the whole process", "s")
    spared = Figure(f"{alone.name}, with a spare", "s", none_waits=alone.name)
    idle = Figure("PSS of an idle sandbox from a template, with its keeper", "MiB")
    await make_warm(image, SMALL)
    for number in range(runs):
        await _warm_start(image, without, idle if number == runs - 1 else None)
        await _run_command(image, alone)
        with spares_in_use():
            await make_spare_for(image)
            await _warm_start(image, taken)
            await make_spare_for(image)
            await _run_command(image, spared)
    return [without, taken, alone, spared, idle]


async def _warm_start(image: str, start: Figure, idle: Figure | None = None) -> None:
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
            idle.facts |= start.facts


async def _run_command(image: str, figure: Figure) -> None:
    """Measures a whole process that starts a sandbox, runs one command in it and ends it."""
    waiting = len(list_spares(paths()))
    seconds, output = await run_process("run", image, "--", "echo", "hi")
    if output != b"hi\n":
        raise RuntimeError(f"the command printed {output[:80]!r}")
    figure.values.append(seconds)
    figure.facts["mode"] = "spare" if len(list_spares(paths())) < waiting else "template"
