"""Things in a trash that have been there for long."""

from __future__ import annotations

import os
import time
from pathlib import Path

from quicksand.base.ageing import CONFIRMED_S, NOTE
from quicksand.base.files import read_json, write_json
from quicksand.records.trash import TRASH_KEPT_S


def age(entry: Path, seconds: float = TRASH_KEPT_S + 60) -> None:
    """Let an entry of a trash have been put there so many seconds ago, when all in it was
    written."""
    about, then = entry / "trash.json", time.time() - seconds
    write_json(about, {**read_json(about), "removed": then})
    for path in entry.rglob("*"):
        os.utime(path, (then, then), follow_symlinks=False)


def make_overdue(*entries: Path) -> None:
    """Let entries of one trash have been there for a week, which was found a day ago."""
    for entry in entries:
        age(entry)
    long_ago = time.time() - CONFIRMED_S - 1
    write_json(entries[0].parent / NOTE, {entry.name: long_ago for entry in entries})
