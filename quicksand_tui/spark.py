"""Values as a line of bars."""

from __future__ import annotations

from collections.abc import Sequence

BARS = " ▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int, *, top: float = 0.0) -> str:
    """The last values in ``width`` cells, the latest at the right; ``top`` is the least value of a
    full bar."""
    shown = values[-width:] if width > 0 else ()
    most = max([top, *shown])
    if most <= 0:
        return (BARS[1] * len(shown)).rjust(max(0, width))
    # What is more than nothing is seen.
    steps = [min(8, max(1, round(8 * value / most))) for value in shown]
    return "".join(BARS[step] for step in steps).rjust(max(0, width))
