"""Imports bundles from anywhere. Nothing in one is trusted: every number has a limit, every file is
compared with its digest, our own code reads every disk header, and nothing of a bundle becomes
visible before all of it is complete."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from quicksand.base.errors import BundleError, ConfigError, QuicksandError
from quicksand.base.files import sync_dir, write_json
from quicksand.base.remedies import Words
from quicksand.base.staging import staging, sweep_staging
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.resolve import BUNDLE_SUFFIX
from quicksand.records.registry import Registry
from quicksand.saves.bundle.bases import IncomingBase
from quicksand.saves.bundle.hostile_parts import DiskWatch, check_config, check_layer, warnings
from quicksand.saves.bundle.image_import import import_bundled_image, import_image
from quicksand.saves.bundle.manifest import (
    FORMAT,
    IMAGE_FILES,
    MANIFEST,
    MANIFEST_MAX,
    Bundle,
    BundleKind,
    image_part,
    parse_json,
)
from quicksand.saves.bundle.receiving import Imported, ImportOptions, Members, Receiver
from quicksand.saves.bundle.streams import BundleSource, open_source
from quicksand.saves.bundle.tar import BLOCK, Header, TarReader
from quicksand.saves.bundle.tree_import import import_tree
from quicksand.saves.ownership import mark_imported
from quicksand.saves.save_manifest import MANIFEST as SAVE_MANIFEST
from quicksand.saves.save_manifest import OVERLAYS, SaveManifest, check_save_name
from quicksand.saves.store import SaveStore, taken


def import_bundle(
    path: Path | BinaryIO,
    store: SaveStore,
    image_store: ImageStore,
    registry: Registry | None = None,
    options: ImportOptions | None = None,
) -> Imported:
    """Import a save into ``store``, a sandbox with its checkpoints into ``registry``, or an image
    into ``image_store``. Blocks for I/O.

    Raises BundleError for a bundle that is damaged or reaches this host, SaveError or
    NameTakenError for a name that is taken, ConfigError, ImageError, HostError, and what
    ``progress`` raises; then nothing has changed, except that a new image may stay.
    """
    options = options or ImportOptions()
    label = str(path) if isinstance(path, Path) else options.opened or "the bundle"
    try:
        with open_source(path, options.stop) as (source, size):
            return _import(source, size, label, store, image_store, registry, options)
    except QuicksandError:
        raise
    except (ValueError, OverflowError, KeyError, TypeError) as error:
        raise BundleError(f"{label} cannot be imported: {error}") from error


def _import(
    source: BundleSource,
    size: int | None,
    label: str,
    store: SaveStore,
    image_store: ImageStore,
    registry: Registry | None,
    options: ImportOptions,
) -> Imported:
    reader = TarReader(source)
    first, data = read_manifest(reader)
    value = None if data is None else parse_json(data)
    if options.expected and hashlib.sha256(data or b"").hexdigest() != options.expected:
        raise changed(label)
    if value is None or value.get("format") != FORMAT:
        return import_image(
            reader, first, value, image_store, options, fallback=name_of_file(label)
        )
    bundle = Bundle.from_json(value)
    if size is not None and not source.is_packed:
        check_length(bundle, first, size)
    if not options.opened:
        check_reach(bundle, trusted=options.trusted)
    if options.memory_dir is not None and bundle.kind is not BundleKind.TREE:
        raise ConfigError(f"{label} holds no sandbox but {bundle.kind.named}, which has no memory")
    receiver = Receiver(reader, bundle.size, options.progress)
    if bundle.kind is BundleKind.IMAGE:
        return import_bundled_image(receiver, bundle, image_store, options)
    if bundle.kind is BundleKind.TREE:
        if registry is None:
            raise BundleError("it holds a sandbox with its checkpoints, not a save")
        return import_tree(receiver, bundle, image_store, registry, options)
    return import_save(receiver, bundle, store, image_store, options)


def check_reach(bundle: Bundle, *, trusted: bool) -> None:
    """Raise BundleError for a bundle that reaches this host, unless its maker is ``trusted``."""
    other = bundle.content.other_config if isinstance(bundle.content, SaveManifest) else {}
    if bundle.config is not None and not trusted:
        check_config(bundle.config, other)


def read_manifest(reader: TarReader) -> tuple[Header, bytes | None]:
    """Read the first member, and return its header and, if that is the manifest, its content.
    Raises ValueError."""
    first = reader.next()
    if first is None or first.name not in (MANIFEST, *IMAGE_FILES):
        raise ValueError("it is a tar, but not a bundle")
    if first.name != MANIFEST:
        return first, None
    return first, reader.small_content(MANIFEST_MAX, MANIFEST)


def changed(label: str) -> BundleError:
    """Return the error for a bundle that became another one while it was used."""
    return BundleError(
        f"{label} has changed since its manifest was read",
        hint="wait until the file is complete, then start again",
    )


def name_of_file(label: str) -> str:
    """Return the name that an image without one gets from its bundle's file; "" if the file name
    has no known ending."""
    return Path(label).stem if label.endswith(BUNDLE_SUFFIX) else ""


def check_length(bundle: Bundle, first: Header, size: int) -> None:
    """Raise ValueError if the file is shorter than the contents that it claims."""
    need = sum(BLOCK + -(-part // BLOCK) * BLOCK for part in _sizes(bundle, first))
    if size < need:
        raise ValueError(f"it is cut off: it has {size} bytes, and claims to hold {need}")


def _sizes(bundle: Bundle, first: Header) -> list[int]:
    return [first.size, *(file.size for file in bundle.files)]


def import_save(
    receiver: Members, bundle: Bundle, store: SaveStore, images: ImageStore, options: ImportOptions
) -> Imported:
    """Import a save, whose files the ``receiver`` has. Raises as `import_bundle`, and ValueError
    for a faulty one."""
    save = bundle.content
    assert isinstance(save, SaveManifest)
    name = options.name or bundle.name
    try:
        check_save_name(name)
    except ConfigError as error:
        hint = Words(Words("`import --name NAME`", python="`name=`"), " gives it another one")
        raise ConfigError(str(error), hint=hint) from error
    if (store.root / name).exists() and not options.replace:
        raise taken(name, store.root)
    base = IncomingBase(images, bundle)
    own = sum(file.size for file in bundle.files if image_part(file.name) is None)
    receiver.require_space(store.root, own)
    with ExitStack() as stack:
        made = stack.enter_context(store.making())
        for file in bundle.files:
            if image_part(file.name) is None:
                watch = DiskWatch(file.name, file.size, allow_backing=True)
                receiver.write(file, made / file.name, watch=watch)
                check_layer(made / file.name, file.name, snapshots=True)
        if base.is_new:
            receiver.require_space(images.root, bundle.size - own)
            base.receive(receiver, stack.enter_context(staging(images.root)))
        else:
            sweep_staging(images.root)
            base.receive(receiver, made)
        receiver.end()
        write_json(made / SAVE_MANIFEST, save.to_json(), read=SaveManifest.from_json)
        if not options.trusted or options.opened:
            mark_imported(made)
        sync_dir(made / OVERLAYS)
        sync_dir(made)
        options.stop()
        image = base.publish(opened=options.opened)
        published = store.publish(made, name, replace=options.replace)
    return Imported(
        kind=BundleKind.SAVE,
        name=name,
        root=published.root,
        size=bundle.size,
        base=f"{image.name} {image.digest[:12]}",
        image_added=base.is_new,
        notes=tuple(warnings(save.config, save.arch, trusted=options.trusted)),
    )
