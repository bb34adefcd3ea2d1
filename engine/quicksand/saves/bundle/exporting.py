"""Exports a save or an image as one file."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError, QuicksandError, SaveError
from quicksand.base.paths import Paths
from quicksand.base.progress import Progress
from quicksand.base.remedies import Words
from quicksand.disks.images.resolve import ImageResolver
from quicksand.saves.bundle import manifest as bundles
from quicksand.saves.bundle.bases import FoundBase, describe, find_base
from quicksand.saves.bundle.bundle_writer import Outgoing, find_digests, open_all, write_bundle
from quicksand.saves.bundle.hostile_parts import check_layer, dangers
from quicksand.saves.bundle.manifest import Bundle, BundleKind, overlay_name
from quicksand.saves.bundle.streams import open_target
from quicksand.saves.resuming import stack_of
from quicksand.saves.save_manifest import MANIFEST, Base, SavedLayer, SaveManifest
from quicksand.saves.store import Save, overlay_paths


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A bundle that was written."""

    kind: BundleKind
    name: str
    size: int
    """Bytes of the files in it."""
    base: str
    """The image below it."""
    full: bool
    checkpoints: int = 0
    notes: tuple[str, ...] = ()
    """Things that it lacks and that an import will need."""


def export_save(
    save: Save,
    target: Path | BinaryIO,
    paths: Paths,
    *,
    full: bool = False,
    compress: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write a save as a bundle, with ``full`` including the image below it. Equal saves give equal
    bytes. Blocks for I/O.

    Raises SaveError if the save is damaged or ``full`` lacks the image, BundleError for a layer
    that no import would accept, ImageError, HostError, and the errors of ``progress``; ``target``
    is then unchanged.
    """
    say = progress or (lambda stage, done, total: None)
    with planned_save(save, paths, full=full, progress=say) as plan:
        with open_target(target, compress=compress) as write:
            write_bundle(plan.bundle, plan.files, write, say)
        manifest = plan.manifest
        size, base = plan.bundle.size, plan.bundle.base
    trust = dangers(manifest.config, manifest.other_config)
    return Exported(
        kind=BundleKind.SAVE,
        name=save.name,
        size=size,
        base=str(base),
        full=full,
        notes=(f"importing it takes --trust: the bundle {trust}",) if trust else (),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSave:
    """A save that is about to leave this host. Its files are open."""

    bundle: Bundle
    manifest: SaveManifest
    files: Sequence[Outgoing]


@contextlib.contextmanager
def planned_save(
    save: Save, paths: Paths, *, full: bool | None, progress: Progress
) -> Iterator[PlannedSave]:
    """Open the files of a save, compute the digests that are not known, and describe it as a
    bundle. ``full``: with the image below it; None means if that is here. Raises as
    `export_save`."""
    with ExitStack() as stack:
        stack_of_saves = stack_of(save, paths)
        layers = [file for lower in stack_of_saves for file in _layers(lower)]
        for number, file in enumerate(layers):
            file.name = overlay_name(number)
        open_all(layers, stack)
        find_digests(layers, progress)
        found = _find_base(stack_of_saves[0], paths)
        is_full = bool(found.files) if full is None else full
        base_files = require_files(found, save.name) if is_full else []
        open_all(base_files, stack)
        files = [*layers, *base_files]
        manifest = _complete(save, layers, found.base)
        bundle = Bundle(
            name=save.name,
            created=manifest.created,
            content=manifest,
            base=found.base,
            files=tuple(file.member for file in files),
        )
        yield PlannedSave(bundle=bundle, manifest=manifest, files=files)


def export_image(
    name: str,
    target: Path | BinaryIO,
    paths: Paths,
    *,
    compress: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write an image as a bundle; equal images give equal bytes. Blocks for I/O. Raises as
    `export_save`."""
    say = progress or (lambda stage, done, total: None)
    resolver = ImageResolver(paths)
    stored = resolver.store.get(name, Architecture.host())
    if stored is not None and stored.errors:
        raise ImageError(f"the image {name!r} is damaged: {'; '.join(stored.errors)}")
    found = describe(stored) if stored else find_base(resolver, name, "", Architecture.host())
    created = found.base.about.get("created")
    with ExitStack() as stack:
        files = require_files(found, name)
        open_all(files, stack)
        find_digests(files, say)
        bundle = Bundle(
            name=found.base.name,
            created=float(created) if isinstance(created, int | float) else 0.0,
            content=None,
            base=found.base,
            files=tuple(file.member for file in files),
        )
        with open_target(target, compress=compress) as write:
            write_bundle(bundle, files, write, say)
    return Exported(
        kind=BundleKind.IMAGE, name=bundle.name, size=bundle.size, base=str(found.base), full=True
    )


def _layers(save: Save) -> list[Outgoing]:
    """List the layers of a save. Raises SaveError, BundleError for one that no import accepts."""
    manifest = save.require()
    files = []
    for number, path in enumerate(overlay_paths(save.root, manifest)):
        check_layer(path, str(path), snapshots=True)
        file = Outgoing(name=path.name, path=path)
        if manifest.layers is not None:
            known = manifest.layers[number]
            file.size, file.sha256 = known.size, known.sha256
        files.append(file)
    return files


def _find_base(lowest: Save, paths: Paths) -> FoundBase:
    manifest = lowest.require()
    known = manifest.base or Base(name=manifest.config.image)
    arch = Architecture.parse(manifest.arch)
    try:
        found = find_base(ImageResolver(paths), known.name, known.digest, arch)
    except QuicksandError as error:
        raise SaveError(
            Words(f"the image {known} below the save cannot be determined: ", error.words),
            hint=error.advice,
        ) from error
    if not found.files:
        return replace(found, base=replace(found.base, version=known.version))
    return found


def require_files(found: FoundBase, name: str) -> list[Outgoing]:
    """List the files of an image for a full bundle. Raises SaveError if they are not here."""
    if not found.files:
        raise SaveError(
            f"{name!r} needs the image {found.base}, which is not here",
            hint=Words(
                "export it without ",
                Words("--full", python="full=True"),
                ", or where that image is",
            ),
        )
    return [
        Outgoing(name=name, path=path, size=member.size, sha256=member.sha256)
        for name, (path, member) in found.files.items()
    ]


def _complete(save: Save, layers: list[Outgoing], base: bundles.BundleBase) -> SaveManifest:
    """Return the manifest with the fields that published packages leave out, so that an import can
    find the image and check that the save is whole."""
    manifest = replace(
        save.require(),
        # Directories of this host concern nobody else.
        config=replace(save.require().config, image=base.name, mounts=(), memory_dir=None),
        arch=base.arch,
        base=Base(name=base.name, version=base.version, digest=base.digest),
    )
    if manifest.id:
        return manifest
    known = tuple(
        SavedLayer(id=_name(f"{number} {file.sha256}"), size=file.size, sha256=file.sha256)
        for number, file in enumerate(layers)
    )
    return replace(
        manifest,
        id=_name(" ".join(layer.id for layer in known)),
        created=float(int((save.root / MANIFEST).stat().st_mtime)),
        layers=known,
    )


def _name(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
