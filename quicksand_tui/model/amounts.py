"""Formats sizes, times and shares for people; no other module does.

Where commands and the app differ, the ``wide`` form is for the output of a command, which has room
for long units and one more digit, and the narrow form for a column of the app. An unknown value
(None) is shown as "–".
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

UNKNOWN = "–"

_NARROW_UNITS = ("B", "K", "M", "G", "T", "P")
_WIDE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

_Steps = Sequence[tuple[int, str, float]]
"""Units of time: their seconds, their letter, and the number from which the next unit is used."""

_NARROW_STEPS: _Steps = (
    (1, "s", 60),
    (60, "m", 60),
    (3600, "h", 48),
    (86400, "d", 21),
    (604800, "w", 104),
    (31557600, "y", math.inf),
)
_WIDE_STEPS: _Steps = ((1, "s", 120), (60, "m", 120), (3600, "h", 48), (86400, "d", math.inf))


def size_text(count: float | None, *, wide: bool = False) -> str:
    """Returns bytes in powers of 1024. Narrow: 0, 512K, 1.5G; wide, with three digits: 1.43 MiB."""
    if count is None:
        return UNKNOWN
    # The limit is 999.5 and not 1024, since four digits would need another column.
    units, most = (_WIDE_UNITS, 1000.0) if wide else (_NARROW_UNITS, 999.5)
    value, unit = float(count), 0
    while value >= most and unit < len(units) - 1:
        value /= 1024
        unit += 1
    if wide:
        whole = unit == 0 or value >= 100
        return f"{value:.0f} {units[unit]}" if whole else f"{value:.3g} {units[unit]}"
    if unit == 0:
        return f"{int(value)}B" if count else "0"
    return f"{value:.1f}{units[unit]}" if value < 9.95 else f"{value:.0f}{units[unit]}"


def megabytes_text(count: float) -> str:
    """Returns bytes in decimal megabytes, as speeds of disks are usually given: 1234 MB."""
    return f"{count / 1e6:.0f} MB"


def age_text(seconds: float | None, *, wide: bool = False) -> str:
    """Returns a time span, given in seconds, in its largest unit. Narrow, rounded down: 12s, 5m,
    3h, 2d, 6w, 1y. Wide, rounded, with up to three digits of seconds and minutes, and no unit above
    days: 119s, 3h, 100d."""
    if seconds is None:
        return UNKNOWN
    seconds = max(0.0, seconds)
    steps = _WIDE_STEPS if wide else _NARROW_STEPS
    size, letter, _ = next(step for step in steps if seconds // step[0] < step[2])
    return f"{seconds / size:.0f}{letter}" if wide else f"{int(seconds) // size}{letter}"


def fact_text(kind: str, value: Any, now: float, *, wide: bool = False) -> str:
    """Returns a fact of a kind of `Shown`; ``now`` is Unix time."""
    match kind:
        case "size":
            return size_text(value, wide=wide)
        case "age":
            return age_text(now - value, wide=wide)
        case "words":
            return str(value).replace("_", " ")
    return str(value)


def left_text(seconds: float, *, wide: bool = False) -> str:
    """Returns the time left, as far as can be told: about 20s left."""
    return f"about {age_text(seconds, wide=wide)} left"


def seconds_text(seconds: float, digits: int = 1) -> str:
    """Returns a duration in seconds: 3.2 s."""
    return f"{seconds:.{digits}f} s"


def pause_text(seconds: float) -> str:
    """Returns the duration of a pause, given in seconds, in milliseconds: 23 ms."""
    return f"{seconds * 1000:.0f} ms"


def clock_text(when: float, now: float | None = None) -> str:
    """Returns a moment (Unix time) as local time: 14:05:09. If ``now`` is given and on another day,
    the day comes first: 14 Jul 14:05:09."""
    moment = time.localtime(when)
    is_today = now is None or moment[:3] == time.localtime(now)[:3]
    return time.strftime("%H:%M:%S" if is_today else "%d %b %H:%M:%S", moment)


def date_text(when: float) -> str:
    """Returns the local date of a moment (Unix time) as in 2026-07-14; "never" if it is out of the
    calendar's range."""
    try:
        return time.strftime("%Y-%m-%d", time.localtime(when))
    except (OverflowError, ValueError, OSError):
        return "never"


def percent_text(value: float | None, *, wide: bool = False) -> str:
    """Returns a share of one CPU, given in percent. Narrow: 3%, 184%; wide: 183.6 %."""
    if value is None:
        return UNKNOWN
    return f"{value:.1f} %" if wide else f"{value:.0f}%"


BARS = " ▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int, *, top: float = 0.0) -> str:
    """Draws the last values as bars in ``width`` cells, the latest at the right. A full bar stands
    for the greatest value, and for no less than ``top``."""
    shown = values[-width:] if width > 0 else ()
    most = max([top, *shown])
    if most <= 0:
        return (BARS[1] * len(shown)).rjust(max(0, width))
    # Even the least value gets a visible bar.
    steps = [min(8, max(1, round(8 * value / most))) for value in shown]
    return "".join(BARS[step] for step in steps).rjust(max(0, width))


DISK_STEP = 16 << 20
"""The least bytes of growth that fill the bars: less is hardly worth a look."""


def disk_scale(values: Sequence[float], width: int) -> tuple[Sequence[float], float, float]:
    """Returns the last ``width`` sizes of a disk with the greatest and the least value of their
    bars. Bars from zero, or from a size that is no longer shown, would all be full."""
    values = values[-width:] if width > 0 else ()
    least = min(values, default=0)
    return values, max([least + DISK_STEP, *values]), least
