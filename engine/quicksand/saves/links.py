"""The directories where this user has saved: ``<data>/workspaces/<digest>`` are symbolic links to
them. Only there may the engine clean up; other directories may belong to other users."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from quicksand.base.paths import Paths

LINKS = re.compile(r"[0-9a-f]{16}")
"""The names of the links."""


def workspaces_dir(places: Paths) -> Path:
    return places.data / "workspaces"


def link_of(root: Path, places: Paths) -> Path:
    """The link to ``root``, which need not exist."""
    return workspaces_dir(places) / hashlib.sha256(os.fsencode(root)).hexdigest()[:16]


def is_kept(root: Path, places: Paths) -> bool:
    """Whether this user has saved there."""
    return root == places.saves or link_of(root, places).is_symlink()
