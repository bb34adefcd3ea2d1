"""How checkpoints are taken on this host, and why not in a better way. For `doctor`: the engine
finds it out anew each time, by doing it."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from quicksand.host.files import map_os_errors
from quicksand.host.sharing import FICLONE
from quicksand.snapshots.copying import NOT_TRACKED, tracks_writes
from quicksand.snapshots.guest_ram import PAGE
from quicksand.snapshots.history import INTERNAL, PAGES
from quicksand.snapshots.tiers import choose_tier

ALL = "all of the guest's memory that is not zeros"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """What checkpoints are like here."""

    tier: str
    """"pages", or "internal" where that is not possible."""
    copied: str
    """What each pause copies."""
    why: str
    """Why nothing better; "" if there is nothing better."""
    hint: str = ""
    """What would make it better."""


def find_ability() -> Ability:
    """The best that this host can do. Blocks for some milliseconds."""
    tier = choose_tier()
    if tier.name == INTERNAL:
        return Ability(tier=INTERNAL, copied=ALL, why=tier.note, hint=tier.hint)
    if tracks_writes():
        return Ability(
            tier=PAGES, copied="what the guest has written since the last checkpoint", why=""
        )
    return Ability(
        tier=PAGES,
        copied="all that the guest has written since its QEMU started",
        why=NOT_TRACKED,
    )


def can_reflink(directory: Path) -> bool:
    """Whether files of this directory's file system can share their blocks (ioctl_ficlone(2)).

    Tries it with two files of a page each. Raises DiskSpaceError, PathError.
    """
    if sys.platform != "linux":
        return False
    with (
        map_os_errors(directory),
        tempfile.TemporaryFile(dir=directory) as old,
        tempfile.TemporaryFile(dir=directory) as new,
    ):
        os.write(old.fileno(), bytes(PAGE))
        try:
            fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
        except OSError:
            return False
    return True
