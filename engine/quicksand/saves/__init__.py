"""Saves: disks that outlive their sandbox (format 6 of the specification, with additions).

Those of the workspace in the current directory come first, then the user's own. All functions
raise QuicksandError.
"""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quicksand.saves.census import SaveInfo
    from quicksand.saves.keeping import Removed
    from quicksand.saves.store import Save
    from quicksand.saves.verifying import Report, Verdict

__all__ = ["delete", "list", "restore", "verify"]


def list(*, everywhere: bool = False) -> builtins.list[SaveInfo]:  # noqa: A001 - saves.list()
    """All saves with their sizes, base, descent and problems; ``everywhere``: also those of other
    workspaces. Never raises for one of them."""
    from quicksand.host.paths import paths
    from quicksand.saves.census import Census

    return builtins.list(Census(paths()).list(everywhere=everywhere))


def delete(name: str | Path, *, now: bool = False) -> Removed:
    """Move a save to the trash, where it is kept for a week, or remove it for good ``now``.

    Saves and sandboxes that came from it keep what they share with it.
    """
    from quicksand.host.paths import paths
    from quicksand.saves.keeping import remove_save, sweep

    removed = remove_save(name, paths(), now=now)
    sweep(paths())
    return removed


def restore(name: str, *, new_name: str | None = None) -> Save:
    """Bring back the save of that name, or of that id in the trash, which was removed last."""
    from quicksand.host.paths import paths
    from quicksand.saves.keeping import restore_save, sweep

    restored = restore_save(name, paths(), new_name=new_name)
    sweep(paths())
    return restored


async def verify(
    name: str | Path, *, deep: bool = False, progress: Report | None = None
) -> Verdict:
    """Look at a save, or the file of a snapshot, from outside, or ``deep`` at every byte of it and
    of what it lies on."""
    from quicksand.host.paths import paths
    from quicksand.saves.verifying import find_any, verify_saves

    save = find_any(name, paths())
    return (await verify_saves([save], paths(), deep=deep, progress=progress))[0]
