"""The places of saves, and a first look whether a name can be a save's. It imports little: most
names are those of images."""

from __future__ import annotations

from pathlib import Path

from quicksand.base.paths import Paths
from quicksand.disks.images.resolve import is_file

WORKSPACE = ".quicksand"
"""The directory of a workspace's files; saves are in its ``sandboxes`` (names from the
specification)."""

PLAIN = "sandboxes"
"""The name of directories that contain only saves (from the specification)."""

HOUSE = ".quicksand-saves"
"""The subdirectory for the lock, the trash and so on in a directory that has other contents too."""

READY = ".ready-"
"""Prefix of saves that are finished and have no name yet."""


def may_be_save(name: str, paths: Paths, workspace: Path | None = None) -> bool:
    """Whether a save can have that name or path; `resolving.find_meaning` decides it. Blocks for
    I/O."""
    if is_file(name):
        return True
    here = Path.cwd()
    roots = [here / WORKSPACE / PLAIN, paths.saves, here]
    if workspace is not None:
        roots += [workspace, workspace / PLAIN]
    return any(_may_hold(root, name, is_only_saves=root is not here) for root in roots)


def _may_hold(root: Path, name: str, *, is_only_saves: bool) -> bool:
    try:
        if (root / name).exists() or (root / HOUSE).exists():
            return True
        return is_only_saves and any(path.name.startswith(READY) for path in root.iterdir())
    except FileNotFoundError:
        return False
    except (OSError, ValueError):  # the closer look reports the error
        return True
