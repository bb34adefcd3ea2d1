"""Draws the measurements of bench/checkpoints.py as an SVG.

python bench/checkpoints.py --memory 512M,2G,8G --written 1,16,256 --out FILE.json
python bench/curves.py FILE.json docs/internals/checkpoints.svg

The left half has the pause over the guest's size, one line for each amount of written memory; the
right half the whole call over the written memory, one line for each size, and a plain write of as
many bytes. Medians; all axes are logarithmic.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from quicksand.records.machine_options import parse_memory

GIB = 1 << 30
MIB = 1 << 20
WIDTH, HEIGHT, EDGE = 460, 300, 56
"""Pixels: one panel, and the room around its plot."""
LINE = 14
"""Pixels between two names."""
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#57606a")
Point = tuple[float, float]


def scale(values: Sequence[float], low: float, high: float) -> Callable[[float], float]:
    """Places between ``low`` and ``high`` for values, by their logarithms."""
    first, last = math.log(min(values)), math.log(max(values))
    span = (last - first) or 1.0
    return lambda value: low + (math.log(value) - first) / span * (high - low)


def ticks(values: Sequence[float]) -> list[float]:
    """Round numbers within the range of values, at most seven."""
    first = math.floor(math.log10(min(values)))
    last = math.ceil(math.log10(max(values)))
    steps = [
        step * 10.0**power
        for power in range(first, last + 1)
        for step in (1, 2, 5)
        if min(values) * 0.999 <= step * 10.0**power <= max(values) * 1.001
    ]
    return steps[:: -(-len(steps) // 7)] if steps else [min(values)]


def text(x: float, y: float, words: str, anchor: str = "middle", colour: str = "#24292f") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def panel(
    left: float,
    title: str,
    lines: dict[str, list[Point]],
    dashed: list[Point],
    *,
    label: Callable[[float], str],
    unit: str,
) -> list[str]:
    """One plot with its axes; ``label`` returns the text below a value of x."""
    points = [point for line in (*lines.values(), dashed) for point in line]
    xs, ys = sorted({x for x, _ in points}), [y for _, y in points]
    floor, ceiling = min(ys) / 2, max(ys) * 2
    across = scale(xs, left + EDGE, left + WIDTH - 80)
    up = scale([floor, ceiling], HEIGHT - EDGE, EDGE)
    parts = [text(left + WIDTH / 2, 24, title)]
    for value in ticks([floor, ceiling]):
        y = up(value)
        right = left + WIDTH - 80
        parts.append(f'<path d="M{left + EDGE} {y:.1f}H{right}" stroke="#d0d7de"/>')
        parts.append(text(left + EDGE - 6, y + 4, f"{value:g} {unit}", "end"))
    parts += [text(across(value), HEIGHT - EDGE + 20, label(value)) for value in xs]
    names = [*zip(lines, cycle(COLOURS), strict=False), ("plain write", "#8c959f")]
    ends: list[tuple[float, str, str]] = []
    for (name, colour), line in zip(names, (*lines.values(), dashed), strict=True):
        if not line:
            continue
        path = "L".join(f"{across(x):.1f} {up(y):.1f}" for x, y in sorted(line))
        dash = ' stroke-dasharray="5 4"' if line is dashed else ""
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        ends.append((up(max(line)[1]) + 4, name, colour))
    # Names stand apart where their lines do not.
    lowest = 0.0
    for y, name, colour in sorted(ends):
        lowest = max(y, lowest + LINE)
        parts.append(text(left + WIDTH - 74, lowest, name, "start", colour))
    return parts


def draw(rows: list[dict[str, Any]]) -> str:
    """The whole picture, of rows of the first level that was measured."""
    level = rows[0]["level"]
    # A size may have been measured twice, before all others and among them: the later one counts.
    last = {(parse_memory(r["memory"]), r["written_mib"]): r for r in rows if r["level"] == level}
    pauses: dict[str, list[Point]] = {}
    calls: dict[str, list[Point]] = {}
    plain: dict[float, list[float]] = {}
    names: dict[int, str] = {}
    """Sizes as they are written first: 1G is 1024M."""
    for (memory, written), row in last.items():
        pause, call = statistics.median(row["pause_ms"]), statistics.median(row["call_s"])
        pauses.setdefault(f"{written:g} MiB", []).append((memory / GIB, pause))
        calls.setdefault(names.setdefault(memory, row["memory"]), []).append((written, call))
        plain.setdefault(written, []).extend(row["plain_s"])
    dashed = [(written, statistics.median(found)) for written, found in plain.items()]
    parts = panel(
        0, "pause by the guest's memory, for what was written since", pauses, [],
        label=lambda value: f"{value:g} GiB", unit="ms",
    )  # fmt: skip
    parts += panel(
        WIDTH + 20, "checkpoint() by what was written, for the guest's memory", calls, dashed,
        label=lambda value: f"{value:g} MiB", unit="s",
    )  # fmt: skip
    width = 2 * WIDTH + 40
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}"'
        f' width="{width}" height="{HEIGHT}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows written by bench/checkpoints.py. Raises OSError, or ValueError if the file has
    nothing that could be drawn."""
    try:
        rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"]
        drawn = [
            values
            for row in rows
            for values in ([row["written_mib"]], row["pause_ms"], row["call_s"], row["plain_s"])
        ]
        # Axes are logarithmic.
        is_drawable = bool(drawn) and all(values and min(values) > 0 for values in drawn)
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not what bench/checkpoints.py writes: {error!r}") from error
    if not is_drawable:
        raise ValueError(f"{path} has no rows, or rows with nothing above 0 to draw")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("measured", type=Path, help="what bench/checkpoints.py has written")
    parser.add_argument("picture", type=Path)
    given = parser.parse_args()
    try:
        given.picture.write_text(draw(read_rows(given.measured)))
    except OSError as error:
        parser.error(f"{error.filename}: {error.strerror}")
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
