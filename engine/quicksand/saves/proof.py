"""The proof that a directory is a save, and may be moved to the trash and deleted there. The proof
is in the directory itself, not in anything around it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from quicksand.base.errors import SaveError
from quicksand.base.removal import MARK, marked_id
from quicksand.saves.own_directories import is_own_dir
from quicksand.saves.ownership import IMPORTED
from quicksand.saves.save_manifest import MANIFEST, OVERLAYS, read_manifest

_PARTS = {MANIFEST, OVERLAYS, IMPORTED, MARK}
_OVERLAY = re.compile(r"[0-9]{1,4}\.qcow2")


def why_no_save(path: Path) -> str:
    """Why ``path`` is not proven to be a save; "" if it is, or is an empty directory.

    A save of ours has our mark, in whatever state the rest is. One that was copied from elsewhere
    has a readable manifest, and no other files than a save has.
    """
    if not is_own_dir(path):
        return "it is no directory of yours, or a link to one"
    if marked_id(path) is not None:
        return ""
    try:
        names = set(os.listdir(path))  # noqa: PTH208
        overlays = os.listdir(path / OVERLAYS) if OVERLAYS in names else []  # noqa: PTH208
    except OSError:
        return "it cannot be read"
    if not names:
        return ""
    try:
        read_manifest(path)
    except SaveError:
        return f"it has neither a mark of ours nor a {MANIFEST} of a save"
    others = sorted({*names} - _PARTS) + sorted(o for o in overlays if not _OVERLAY.fullmatch(o))
    return f"{others[0]!r} in it is no part of a save" if others else ""
