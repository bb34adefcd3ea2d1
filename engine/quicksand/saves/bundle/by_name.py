"""Exports and imports by name, in the directories of this user."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from quicksand.base.arch import Architecture
from quicksand.base.errors import QuicksandError, SaveNotFoundError, StateError
from quicksand.base.paths import Paths, paths
from quicksand.base.progress import Progress
from quicksand.base.remedies import Words
from quicksand.base.threads import in_stoppable_thread
from quicksand.disks.images.image_store import ImageStore
from quicksand.qemu.accelerator import choose_accelerator
from quicksand.qemu.binaries import find_binaries
from quicksand.records.machine_options import decode_directory
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.saves.bundle.exporting import Exported, export_image, export_save
from quicksand.saves.bundle.importing import import_bundle
from quicksand.saves.bundle.manifest import BundleKind
from quicksand.saves.bundle.receiving import Imported, ImportOptions, stopping
from quicksand.saves.bundle.tree_export import export_tree
from quicksand.saves.finding import find_save
from quicksand.saves.store import Save, SaveStore
from quicksand.snapshots.history import history_of
from quicksand.snapshots.restore import differences, make_shape


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
    memory_dir: str | Path | None,
    progress: Progress | None,
) -> Imported:
    """Import a bundle of any kind. Notes say which checkpoints cannot be started on this host.

    Raises BundleError for a file that is damaged or not harmless, SaveError or NameTakenError for a
    name that is taken, ImageError, ConfigError, HostError.
    """
    places = paths()
    registry = Registry(places)
    where = decode_directory(memory_dir)

    def work(stop: Callable[[], None]) -> Imported:
        options = ImportOptions(
            name=name,
            replace=replace,
            trusted=trusted,
            memory_dir=where,
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
        found: dict[str, list[str]] = {}
        for node in history_of(registry, record.id).nodes():
            if why := "; ".join(differences(node, shape)):
                found.setdefault(why, []).append(node.tag)
        for why, tags in found.items():
            yield f"cannot be started here, of another machine: {', '.join(tags)} ({why})"

    return list(reasons())
