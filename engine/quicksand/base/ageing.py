"""Throwing things away by their age, although clocks err.

A host's clock may have been behind when a thing was put into the trash, or be days ahead for the
moment of one command. So a thing is no older than the files in it, and it goes only if it was found
overdue a day ago, too. The file ``overdue.json`` beside it notes when each was found overdue.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterable
from pathlib import Path

from quicksand.base.errors import HostError
from quicksand.base.files import read_json, write_json

NOTE = "overdue.json"
CONFIRMED_S = 86400.0
"""Seconds for which a thing must have been known as overdue before it goes."""


def youngest(since: float, paths: Iterable[Path], now: float) -> float:
    """The time (Unix) from which a thing's age counts: ``since``, as recorded, but not before any
    of ``paths`` was last written to. Times after ``now`` cannot be true and do not count."""
    times = [since]
    for path in paths:
        with contextlib.suppress(OSError):
            times.append(path.lstat().st_mtime)
    return max((time for time in times if time <= now), default=since)


def confirm(trash: Path, overdue: Collection[str], now: float) -> list[str]:
    """Those of the ``overdue`` things in a directory that were found overdue a day ago already.
    Notes the others, and forgets what was found at a time that is still to come, or is overdue no
    more. If that cannot be noted, nothing is confirmed. Blocks for I/O."""
    path = trash / NOTE
    before = _read(path)
    if not overdue and not before:
        return []
    seen = {id_: before[id_] if before.get(id_, math.inf) <= now else now for id_ in overdue}
    if seen != before:
        try:
            write_json(path, seen, durable=False)
        except HostError:
            return []
    return [id_ for id_, since in seen.items() if now - since >= CONFIRMED_S]


def _read(path: Path) -> dict[str, float]:
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return {}
    return {
        id_: float(since)
        for id_, since in found.items()
        if isinstance(since, int | float) and math.isfinite(since)
    }
