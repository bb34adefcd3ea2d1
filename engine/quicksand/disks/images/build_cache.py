"""The files that builds of images keep in the cache: the log of the last build of each, and the
packages that they have downloaded, for the next ones."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from quicksand.base.files import is_locked, try_lock
from quicksand.base.listing import own_directories, own_files
from quicksand.base.paths import Paths, make_private_dir

LOGS = "builds"
"""The logs' directory in the cache."""

_LOG_NAMES = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.log")


def build_log_path(cache: Path, name: str) -> Path:
    """Return the path of the log of the image ``name``."""
    return cache / LOGS / f"{name}.log"


def list_build_logs(places: Paths) -> list[Path]:
    """Return all logs except those of images that are just being built. Blocks for I/O."""
    found = []
    for log in own_files(places.cache / LOGS, _LOG_NAMES):
        with contextlib.suppress(OSError):  # the file in the lock's place is not ours
            if not is_locked(places.images / f".{log.stem}.lock"):
                found.append(log)
    return found


def drop_build_logs(files: Sequence[Path], places: Paths) -> None:
    """Remove logs, except those of images that are just being built. Raises OSError."""
    for log in set(files) & set(list_build_logs(places)):
        with contextlib.suppress(FileNotFoundError):
            log.unlink()


PACKAGES = "packages"
"""The packages' directory in the cache, with one directory for each kind."""

LOCK = ".lock"
"""In each, flock'ed by the build that downloads or takes something."""

_KINDS = re.compile(r"wheels|[a-z]+-[a-z0-9]+")
_PACKAGE_NAMES = re.compile(r"\.?[A-Za-z0-9][A-Za-z0-9._+~%-]*\.(deb|whl|apk)")


def downloads_dir(cache: Path, kind: str) -> Path:
    """Return the directory for packages of a kind: "wheels", or a distribution and an architecture
    such as "debian-amd64". Raises PathError."""
    return make_private_dir(make_private_dir(cache) / PACKAGES / kind)


def list_downloads(cache: Path) -> list[Path]:
    """Return all packages that are kept. Blocks for I/O."""
    kinds = own_directories(cache / PACKAGES, _KINDS)
    return [path for kind in kinds for path in own_files(kind, _PACKAGE_NAMES)]


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
