"""The functions of `quicksand.saves`, whose docstring says what they have in common: saves,
sandboxes and images by their names, in the directories of this user."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Unpack, cast

from quicksand.base.arch import Architecture
from quicksand.base.arguments import checked
from quicksand.base.errors import QuicksandError, SaveNotFoundError, StateError
from quicksand.base.paths import Paths, paths
from quicksand.base.progress import Progress
from quicksand.base.remedies import Words
from quicksand.base.threads import in_stoppable_thread
from quicksand.disks.images.image_store import ImageStore
from quicksand.qemu.accelerator import choose_accelerator
from quicksand.qemu.binaries import find_binaries
from quicksand.records.config import SandboxConfig
from quicksand.records.machine_options import decode_directory, places_of, refuse_unknown
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.saves.bundle.exporting import Exported, export_image, export_save, export_tree
from quicksand.saves.bundle.importing import import_bundle
from quicksand.saves.bundle.manifest import BundleKind
from quicksand.saves.bundle.receiving import Imported, ImportOptions, stopping
from quicksand.saves.census import Census, remove_save, restore_save, sweep
from quicksand.saves.finding import find_save
from quicksand.saves.save_manifest import Save
from quicksand.saves.store import SaveStore
from quicksand.saves.verifying import find_any, verify_saves
from quicksand.snapshots.history import history_of
from quicksand.snapshots.restore import differences, make_shape

if TYPE_CHECKING:
    from quicksand.records.params import HostPlaces
    from quicksand.saves.census import Removed, SaveInfo
    from quicksand.saves.verifying import Report, Verdict


async def export_any(
    name: str | Path,
    target: Path | BinaryIO,
    *,
    full: bool,
    tree: bool,
    image: bool,
    compress: bool,
    progress: Progress | None,
) -> Exported:
    """Export a save; with ``tree`` a sandbox with its checkpoints, with ``image`` an image.

    Raises SaveNotFoundError or SandboxNotFoundError, SaveError or HistoryError if it is damaged,
    StateError, ImageError, HostError.
    """
    places = paths()
    if tree:
        registry = Registry(places)
        record = _require_record(registry, str(name))
        return await export_tree(
            registry, record, target, full=full, compress=compress, progress=progress
        )
    save = None if image else _find_save(name, places)

    def work(stop: Callable[[], None]) -> Exported:
        say = stopping(progress, stop)
        if save is None:
            return export_image(str(name), target, places, compress=compress, progress=say)
        return export_save(save, target, places, full=full, compress=compress, progress=say)

    return await in_stoppable_thread(work)


async def import_any(
    source: Path | BinaryIO,
    *,
    name: str | None,
    replace: bool,
    trusted: bool,
    progress: Progress | None,
    chosen: Mapping[str, str | Path | None],
) -> Imported:
    """Import a bundle of any kind. Notes say which checkpoints cannot be started on this host.

    Raises BundleError for a file that is damaged or not harmless, SaveError or NameTakenError for a
    name that is taken, ImageError, ConfigError, HostError.
    """
    places = paths()
    registry = Registry(places)
    refuse_unknown(chosen, [one.keyword for one in places_of(SandboxConfig)])
    named = {keyword: decode_directory(place) for keyword, place in chosen.items()}

    def work(stop: Callable[[], None]) -> Imported:
        options = ImportOptions(
            name=name,
            replace=replace,
            trusted=trusted,
            places={keyword: place for keyword, place in named.items() if place is not None},
            progress=stopping(progress, stop),
            stop=stop,
        )
        stores = SaveStore(places.saves), ImageStore(places.images)
        return import_bundle(source, *stores, registry, options)

    return await _with_reasons(registry, await in_stoppable_thread(work))


def _require_record(registry: Registry, name: str) -> Record:
    entry = registry.find(name)
    if entry.record is None:
        raise StateError(f"the record of {name!r} cannot be read: {entry.error}")
    return entry.record


def _find_save(name: str | Path, places: Paths) -> Save:
    try:
        return find_save(name, places)
    except SaveNotFoundError as error:
        if any(str(name) in (entry.name, entry.id) for entry in Registry(places).list()):
            hint = Words(
                f"{name!r} is a sandbox: ",
                Words("--tree", python="tree=True"),
                " exports its checkpoints; or `save` it first",
            )
            raise SaveNotFoundError(str(error), hint=hint) from error
        raise


async def _with_reasons(registry: Registry, imported: Imported) -> Imported:
    """Add notes about checkpoints of an imported sandbox that cannot be started here."""
    if imported.kind is not BundleKind.TREE or not imported.checkpoints:
        return imported
    record = _require_record(registry, imported.id)
    reasons = await find_reasons(registry, record)
    return replace(imported, notes=(*imported.notes, *reasons))


async def find_reasons(registry: Registry, record: Record) -> Sequence[str]:
    """List why checkpoints of a stopped sandbox cannot be started on this host; empty if all
    can."""
    config = record.config
    arch = config.arch or Architecture.host()
    try:
        binaries = find_binaries(arch.value)
        status = await choose_accelerator(binaries, config.accel, arch)
    except QuicksandError as error:
        return [f"no checkpoint of it can be started here: {error}"]
    shape = make_shape(
        config,
        accel=status.accelerator.value,
        qemu=binaries.version_text,
        image=record.image_digest,
    )

    def reasons() -> Iterator[str]:
        found: dict[str, builtins.list[str]] = {}
        for node in history_of(registry, record.id).nodes():
            if why := "; ".join(differences(node, shape)):
                found.setdefault(why, []).append(node.tag)
        for why, tags in found.items():
            yield f"cannot be started here, of another machine: {', '.join(tags)} ({why})"

    return [*reasons()]


@checked
def list(*, everywhere: bool = False) -> builtins.list[SaveInfo]:  # noqa: A001 - saves.list()
    """All saves with their sizes, images, parents and problems; with ``everywhere`` also those of
    other workspaces. A damaged save is listed with its problem, not raised."""
    return builtins.list(Census(paths()).list(everywhere=everywhere))


@checked
def delete(name: str | Path, *, now: bool = False) -> Removed:
    """Move a save to the trash, where it is kept for a week, or with ``now`` remove it for good.
    Saves and sandboxes made from it are not affected.

    Raises SaveNotFoundError, SaveError if it is needed (a sandbox is starting from it, or another
    save lies on it), HostError.
    """
    removed = remove_save(name, paths(), now=now)
    sweep(paths())
    return removed


@checked
def restore(name: str, *, new_name: str | None = None) -> Save:
    """Bring a save back from the trash: the one with that id there, or the most recently removed
    one with that name. ``new_name`` renames it.

    Raises SaveNotFoundError, SaveError if the name is taken, ConfigError for a bad new name,
    HostError.
    """
    restored = restore_save(name, paths(), new_name=new_name)
    sweep(paths())
    return restored


@checked
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


@checked
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


@checked
async def import_(
    file: str | Path | BinaryIO,
    *,
    name: str | None = None,
    replace: bool = False,
    trusted: bool = False,
    progress: Progress | None = None,
    **places: Unpack[HostPlaces],
) -> Imported:
    """Import a bundle: a save goes to the user's saves, an image to the image store, and
    checkpoints become a new, stopped sandbox. Nothing else is written, whatever the file contains.

    ``replace``: an existing save of that name goes to the trash. ``trusted``: you know who made the
    bundle, so its network, ports and QEMU arguments are accepted. Without it, its network and ports
    are left out at the start (`confine`), and a bundle with QEMU arguments or mounts is refused.
    ``places`` are directories of this host for a sandbox, as those of `Sandbox`: ``memory_dir``.

    Raises BundleError for a damaged or refused bundle, SaveError, ConfigError, ImageError,
    HostError. After an error nothing has changed; after a cancellation nothing or everything.
    """
    source = file if not isinstance(file, str) else Path(file)
    return await import_any(
        source,
        name=name,
        replace=replace,
        trusted=trusted,
        progress=progress,
        chosen=cast("Mapping[str, str | Path | None]", places),
    )
