"""Half cells as Textual's segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from quicksand_pixels import UPPER, runs
from rich.color import Color
from rich.segment import Segment
from rich.style import Style


def segments(line: Sequence[bytes], beside: Style, *, ascii_only: bool) -> Iterator[Segment]:
    """Yields the segments of a line of cells, six bytes each; empty cells are beside the
    picture."""
    for run in runs(line):
        if run.upper:
            yield Segment(*_look(run.upper, run.lower, run.cells, ascii_only=ascii_only))
        else:
            yield Segment(" " * run.cells, beside)


@lru_cache(maxsize=1 << 14)
def _style(upper: bytes, lower: bytes) -> Style:
    return Style(color=Color.from_rgb(*upper), bgcolor=Color.from_rgb(*lower))


def _look(upper: bytes, lower: bytes, cells: int, *, ascii_only: bool) -> tuple[str, Style]:
    if ascii_only:
        mixed = bytes((one + other) // 2 for one, other in zip(upper, lower, strict=True))
        return " " * cells, _style(mixed, mixed)
    return UPPER * cells, _style(upper, lower)
