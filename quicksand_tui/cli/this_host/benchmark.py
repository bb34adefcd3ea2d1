"""`quicksand-tui benchmark IMAGE`: measures this machine and reports medians of one run."""

from __future__ import annotations

import asyncio
import json
import os
import platform
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from quicksand.base.errors import HostError
from quicksand.base.settings import OFF, SPARES

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.measuring.checkpoint_times import large_guest, small_checkpoints
from quicksand_tui.cli.measuring.clones import clones
from quicksand_tui.cli.measuring.figure import WIDTH, figure_lines
from quicksand_tui.cli.measuring.save_times import measure_saves
from quicksand_tui.cli.measuring.starts import measure_cold, warm_starts
from quicksand_tui.cli.measuring.tree_times import trees
from quicksand_tui.cli.output import say

if TYPE_CHECKING:
    from quicksand_tui.cli.measuring.figure import Figure


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
