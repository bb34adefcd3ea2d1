"""Trees of attempts, as examples/tree_search.py searches them."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from typing import TYPE_CHECKING

from quicksand_tui.cli.measuring.figure import Figure, timed
from quicksand_tui.cli.measuring.measured import GUEST_S, require, warm_sandbox, with_mode

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

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
