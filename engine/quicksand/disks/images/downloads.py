"""Packages that builds of images have downloaded, kept in the cache for the next ones."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from quicksand.base.files import try_lock
from quicksand.base.listing import own_directories, own_files
from quicksand.base.paths import make_private_dir

PLACE = "packages"
"""The packages' directory in the cache, with one directory for each kind."""

LOCK = ".lock"
"""In each, flock'ed by the build that downloads or takes something."""

_KINDS = re.compile(r"wheels|[a-z]+-[a-z0-9]+")
_NAMES = re.compile(r"\.?[A-Za-z0-9][A-Za-z0-9._+~%-]*\.(deb|whl|apk)")


def downloads_dir(cache: Path, kind: str) -> Path:
    """Return the directory for packages of a kind: "wheels", or a distribution and an architecture
    such as "debian-amd64". Raises PathError."""
    return make_private_dir(make_private_dir(cache) / PLACE / kind)


def list_downloads(cache: Path) -> list[Path]:
    """Return all packages that are kept. Blocks for I/O."""
    kinds = own_directories(cache / PLACE, _KINDS)
    return [path for kind in kinds for path in own_files(kind, _NAMES)]


def drop_downloads(files: Sequence[Path]) -> None:
    """Remove kept packages, except those of a kind that a build is just downloading. Raises
    OSError."""
    for kind in {path.parent for path in files}:
        lock = try_lock(kind / LOCK)
        if lock is None:
            continue
        try:
            for path in files:
                if path.parent == kind:
                    with contextlib.suppress(FileNotFoundError):
                        path.unlink()
        finally:
            os.close(lock)
