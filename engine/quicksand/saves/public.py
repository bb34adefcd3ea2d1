"""The functions of `quicksand.saves`, whose docstring says what they have in common."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from quicksand.base.paths import paths
from quicksand.saves.bundle.by_name import export_any, import_any
from quicksand.saves.census import Census
from quicksand.saves.save_removal import remove_save, restore_save, sweep
from quicksand.saves.verifying import find_any, verify_saves

if TYPE_CHECKING:
    from quicksand.base.progress import Progress
    from quicksand.saves.bundle.exporting import Exported
    from quicksand.saves.bundle.receiving import Imported
    from quicksand.saves.census import SaveInfo
    from quicksand.saves.save_removal import Removed
    from quicksand.saves.store import Save
    from quicksand.saves.verifying import Report, Verdict


def list(*, everywhere: bool = False) -> builtins.list[SaveInfo]:  # noqa: A001 - saves.list()
    """All saves with their sizes, images, parents and problems; with ``everywhere`` also those of
    other workspaces. A damaged save is listed with its problem, not raised."""
    return builtins.list(Census(paths()).list(everywhere=everywhere))


def delete(name: str | Path, *, now: bool = False) -> Removed:
    """Move a save to the trash, where it is kept for a week, or with ``now`` remove it for good.
    Saves and sandboxes made from it are not affected.

    Raises SaveNotFoundError, SaveError if it is needed (a sandbox is starting from it, or another
    save lies on it), HostError.
    """
    removed = remove_save(name, paths(), now=now)
    sweep(paths())
    return removed


def restore(name: str, *, new_name: str | None = None) -> Save:
    """Bring a save back from the trash: the one with that id there, or the most recently removed
    one with that name. ``new_name`` renames it.

    Raises SaveNotFoundError, SaveError if the name is taken, ConfigError for a bad new name,
    HostError.
    """
    restored = restore_save(name, paths(), new_name=new_name)
    sweep(paths())
    return restored


async def verify(
    name: str | Path, *, deep: bool = False, progress: Report | None = None
) -> Verdict:
    """Check a save or a snapshot file: manifest, sizes and headers, or with ``deep`` every byte of
    it and of the image below. ``progress`` is called with bytes done and bytes in all, from another
    thread.

    Raises SaveNotFoundError; the result names the save's faults.
    """
    save = find_any(name, paths())
    return (await verify_saves([save], paths(), deep=deep, progress=progress))[0]


async def export(
    name: str | Path,
    file: str | Path | BinaryIO,
    *,
    full: bool = False,
    tree: bool = False,
    image: bool = False,
    compress: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write a save, with ``tree`` a sandbox with all its checkpoints, or with ``image`` an image,
    to one file, a bundle, which `import_` reads on another host.

    ``full`` includes the image; otherwise the other host must have it. ``compress`` uses Zstandard.
    ``progress`` is called with the stage, bytes done and bytes in all.

    Raises SaveNotFoundError, SaveError, SandboxNotFoundError, HistoryError, ImageError, HostError.
    After an error ``file`` is unchanged; after a cancellation it is unchanged or complete.
    """
    target = file if not isinstance(file, str) else Path(file)
    return await export_any(
        name, target, full=full, tree=tree, image=image, compress=compress, progress=progress
    )


async def import_(
    file: str | Path | BinaryIO,
    *,
    name: str | None = None,
    replace: bool = False,
    trusted: bool = False,
    memory_dir: str | Path | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Import a bundle: a save goes to the user's saves, an image to the image store, and
    checkpoints become a new, stopped sandbox. Nothing else is written, whatever the file contains.

    ``replace``: an existing save of that name goes to the trash. ``trusted``: you know who made the
    bundle, so its network, ports and QEMU arguments are accepted. Without it, its network and ports
    are left out at the start (`confine`), and a bundle with QEMU arguments or mounts is refused.
    ``memory_dir``: the directory for the memory files of a sandbox, as that of `Sandbox`.

    Raises BundleError for a damaged or refused bundle, SaveError, ConfigError, ImageError,
    HostError. After an error nothing has changed; after a cancellation nothing or everything.
    """
    source = file if not isinstance(file, str) else Path(file)
    return await import_any(
        source,
        name=name,
        replace=replace,
        trusted=trusted,
        memory_dir=memory_dir,
        progress=progress,
    )
