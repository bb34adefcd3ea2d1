"""Starts: cold, from a template, and with a spare."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import asdict
from typing import Any

from quicksand import Sandbox
from quicksand.base.paths import paths
from quicksand.warm.spares.spare import list_spares

from quicksand_tui.cli.measuring.command_times import measure_running, run_process
from quicksand_tui.cli.measuring.figure import MIB, Figure, Say
from quicksand_tui.cli.measuring.measured import (
    SMALL,
    make_spare,
    make_warm,
    pss,
    spares_in_use,
    with_mode,
)

IDLE_S = 5.0
"""Seconds after the last command at which a sandbox counts as idle."""


async def measure_cold(
    image: str, runs: int, stream_mb: int, say: Say
) -> tuple[list[Figure], dict[str, Any]]:
    """Measures cold starts, each of a new sandbox, and commands in the last one."""
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
            await make_spare(image)
            await _warm_start(image, taken)
            await make_spare(image)
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
