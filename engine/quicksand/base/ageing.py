"""Throwing things away by their age, although clocks err.

A host's clock may have been behind when a thing was put into the trash, or be days ahead for the
moment of one command. So a thing counts as no older than its files, and goes only if it was already
overdue a day ago. The file ``overdue.json`` beside it notes when each was found overdue.
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
    """Return the Unix time from which a thing's age counts: ``since``, as recorded, but not before
    the last change of any of ``paths``. Times after ``now`` cannot be true and do not count."""
    times = [since]
    for path in paths:
        with contextlib.suppress(OSError):
            times.append(path.lstat().st_mtime)
    return max((time for time in times if time <= now), default=since)


def confirm(trash: Path, overdue: Collection[str], now: float) -> list[str]:
    """Return those of the ``overdue`` things in a directory that were already found overdue a day
    ago. Note the others, and forget findings of a future time, or of things no longer overdue. If
    the notes cannot be written, nothing is confirmed. Blocks for I/O."""
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
