"""Saves: disks that outlive their sandbox (format 6 of the specification, with additions).

Those of the workspace in the current directory come first, then the user's own. All functions
raise QuicksandError.
"""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from quicksand.saves.bundle.exporting import Exported
    from quicksand.saves.bundle.importing import Imported
    from quicksand.saves.bundle.receiving import Progress
    from quicksand.saves.census import SaveInfo
    from quicksand.saves.keeping import Removed
    from quicksand.saves.store import Save
    from quicksand.saves.verifying import Report, Verdict

__all__ = ["delete", "export", "import_", "list", "restore", "verify"]


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


async def export(
    name: str | Path,
    file: str | Path | BinaryIO,
    *,
    full: bool = False,
    tree: bool = False,
    compress: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write a save as one file that `import_` takes on another host; or, with ``tree``, a sandbox
    with all its checkpoints.

    ``full``: with the image inside that it lies on; otherwise whoever imports it must have that
    image. ``compress``: with Zstandard. ``progress`` is told the stage, bytes done and their total.

    After an error ``file`` is what it was; after a cancellation too, or it is the new bundle.
    """
    from quicksand.saves.bundle.service import export_any

    target = file if not isinstance(file, str) else Path(file)
    return await export_any(
        name, target, full=full, tree=tree, compress=compress, progress=progress
    )


async def import_(
    file: str | Path | BinaryIO,
    *,
    name: str | None = None,
    replace: bool = False,
    trusted: bool = False,
    progress: Progress | None = None,
) -> Imported:
    """Take what is in a bundle: a save goes to the user's saves, an image to the image store, and
    checkpoints make a new, stopped sandbox. Whatever is in the file, nothing else is touched. After
    an error nothing has changed; after a cancellation nothing, or, if that came too late, all.

    ``replace``: a save of that name goes to the trash. ``trusted``: you know who made the bundle;
    it may have QEMU arguments and mounts of its own.
    """
    from quicksand.saves.bundle.service import import_any

    source = file if not isinstance(file, str) else Path(file)
    return await import_any(source, name=name, replace=replace, trusted=trusted, progress=progress)
