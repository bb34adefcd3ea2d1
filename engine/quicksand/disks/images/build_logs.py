"""Logs of the last build of each image, kept in the cache."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

from quicksand.base.files import is_locked
from quicksand.base.listing import own_files
from quicksand.base.paths import Paths

PLACE = "builds"
"""The logs' directory in the cache."""

_NAMES = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.log")


def build_log_path(cache: Path, name: str) -> Path:
    """Return the path of the log of the image ``name``."""
    return cache / PLACE / f"{name}.log"


def list_build_logs(places: Paths) -> list[Path]:
    """Return all logs except those of images that are just being built. Blocks for I/O."""
    found = []
    for log in own_files(places.cache / PLACE, _NAMES):
        with contextlib.suppress(OSError):  # the file in the lock's place is not ours
            if not is_locked(places.images / f".{log.stem}.lock"):
                found.append(log)
    return found


def drop_build_logs(files: Sequence[Path], places: Paths) -> None:
    """Remove logs, except those of images that are just being built. Raises OSError."""
    for log in set(files) & set(list_build_logs(places)):
        with contextlib.suppress(FileNotFoundError):
            log.unlink()
