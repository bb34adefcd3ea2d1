"""`quicksand-tui benchmark IMAGE`: figures of this machine, medians of one run."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import click

STREAM_MB = 500
SETTLE_S = 20.0
WIDTH = 64
"""Columns of a row's name."""


@dataclass(slots=True)
class Figure:
    """One measured quantity."""

    name: str
    unit: str
    values: list[float] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    """What it was measured with: tier, mode, bytes."""

    @property
    def median(self) -> float:
        return statistics.median(self.values)


async def timed(work: Callable[[], Awaitable[Any]]) -> float:
    """Seconds that ``work`` takes."""
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


async def measure(
    image: str, runs: int, stream_mb: int, say: Callable[[str], None]
) -> tuple[list[Figure], dict[str, Any]]:
    """All figures. Each start is a new sandbox; the rest runs in the last of them."""
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
    """Figures of one running sandbox."""
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
    # Just after its boot a kernel still puts things in order.
    await asyncio.sleep(SETTLE_S)
    idle.values.append(await idle_cpu(sandbox, seconds=10.0))
    say(f"streaming {stream_mb} MB")
    return [ping, true, parallel, sleeps, idle, *await measure_stream(sandbox, stream_mb)]


async def idle_cpu(sandbox: Any, *, seconds: float) -> float:
    """Percent of a core that QEMU takes while nobody asks for anything."""
    from quicksand.stats import process_usage

    pid = next(e.run.qemu_pid for e in sandbox.list() if e.id == sandbox.id and e.run)
    before = process_usage(pid)[0]
    await asyncio.sleep(seconds)
    return (process_usage(pid)[0] - before) / seconds * 100


async def measure_stream(sandbox: Any, megabytes: int) -> list[Figure]:
    """Stream a file through stdout and compare digests."""
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


@click.command("benchmark")
@click.argument("image", default="debian")
@click.option("-n", "--runs", default=5, show_default=True, help="Starts to measure.")
@click.option("--stream-mb", default=STREAM_MB, show_default=True, help="Size of the stream.")
@click.option("--quick", is_flag=True, help="Leave out the guest of 2G.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(image: str, runs: int, stream_mb: int, quick: bool, as_json: bool) -> None:
    """Measure this machine: starts, commands, streams, checkpoints, clones.

    Medians, and the range in brackets. Takes some minutes.
    """
    from quicksand_tui.cli.benchmark_saves import measure_saves
    from quicksand_tui.cli.benchmark_snapshots import describe, measure_snapshots

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    async def measure_all() -> tuple[list[Figure], dict[str, Any]]:
        figures, facts = await measure(image, max(1, runs), max(1, stream_mb), say)
        figures += await measure_snapshots(image, max(1, runs), quick=quick, say=say)
        return figures + await measure_saves(image, max(1, runs), say), facts

    load = os.getloadavg()[0]
    figures, facts = asyncio.run(measure_all())
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
