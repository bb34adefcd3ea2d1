"""A measured quantity, and the lines in which figures are printed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

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
