"""Imports bundles from anywhere. Nothing in one is trusted: every number has a limit, every file is
compared with its digest, our own code reads every disk header, and nothing of a bundle becomes
visible before all of it is complete.

Image bundles of the specification have ``manifest.json``, ``image.qcow2``, ``image.kernel`` and
``image.initrd``, in any order. Their manifests may lack digests; any digests are checked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from quicksand.base.arch import Architecture
from quicksand.base.error_text import reason_of
from quicksand.base.errors import BundleError, ConfigError, QuicksandError
from quicksand.base.files import sync_dir, write_json
from quicksand.base.remedies import Words
from quicksand.base.staging import staging, sweep_staging
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.resolve import BUNDLE_SUFFIX
from quicksand.disks.images.stored_image import DIGEST_SHOWN, NAMES, image_digest
from quicksand.records.config import SandboxConfig
from quicksand.records.machine_options import places_of
from quicksand.records.registry import Registry
from quicksand.saves.bundle.bases import IncomingBase, check_part_size, publish_image
from quicksand.saves.bundle.manifest import (
    FORMAT,
    IMAGE_FILES,
    MANIFEST,
    MANIFEST_MAX,
    Bundle,
    BundleBase,
    BundleKind,
    check_cmdline,
    check_image_name,
    image_part,
    parse_json,
)
from quicksand.saves.bundle.receiving import (
    DiskWatch,
    Imported,
    ImportOptions,
    Members,
    Receiver,
    check_config,
    check_disk,
    check_layer,
    foreign,
    require_space,
    warnings,
)
from quicksand.saves.bundle.streams import BLOCK, BundleSource, Header, TarReader, open_source
from quicksand.saves.bundle.tree_import import import_tree
from quicksand.saves.ownership import mark_imported
from quicksand.saves.save_manifest import MANIFEST as SAVE_MANIFEST
from quicksand.saves.save_manifest import OVERLAYS, SaveManifest, check_save_name
from quicksand.saves.store import SaveStore, taken


def import_image(
    reader: TarReader,
    first: Header,
    manifest: dict[str, Any] | None,
    store: ImageStore,
    options: ImportOptions,
    *,
    fallback: str,
) -> Imported:
    """Import an image. ``first`` is the header of its first member, whose content was read if that
    is ``manifest``. ``fallback`` is the name if neither the options nor the manifest have one.

    Raises ValueError, BundleError, ConfigError, ImageError, HostError and then changes nothing.
    """
    receiver = Receiver(reader, 0, options.progress)
    with ExitStack() as stack:
        made = stack.enter_context(staging(store.root))
        digests: dict[str, str] = {}
        header = first if manifest is None else reader.next()
        size = 0
        while header is not None:
            if header.name == MANIFEST and manifest is None:
                manifest = parse_json(reader.small_content(MANIFEST_MAX, MANIFEST))
            elif header.name in IMAGE_FILES and header.name not in digests:
                part = IMAGE_FILES[header.name]
                check_part_size(header.name, header.size)
                require_space(store.root, header.size)
                watch = DiskWatch(header.name, header.size) if part == "disk" else None
                digests[header.name] = receiver.write_content(made / NAMES[part], watch=watch)
                size += header.size
            else:
                raise ValueError(
                    f"it has {header.name!r}, which is not part of an image or occurs twice"
                )
            header = reader.next()
        missing = [name for name in IMAGE_FILES if name not in digests]
        if manifest is None or manifest.get("format") == FORMAT or missing:
            raise ValueError(f"it has no {(*missing, MANIFEST)[0]} of an image")
        check_disk(made / NAMES["disk"], "image.qcow2")
        _check_digests(manifest, digests)
        base = describe_image(manifest, digests, options.name or manifest.get("name") or fallback)
        is_opened = options.opened != ""
        _refuse_taken(store, base, replace=options.replace or is_opened)
        options.stop()
        is_ours = base.arch == Architecture.host().value
        current = is_ours and not is_opened
        image = publish_image(store, made, base, current=current, opened=options.opened)
    return Imported(
        kind=BundleKind.IMAGE,
        name=image.name,
        root=image.root,
        size=size,
        base=f"{image.name} {image.digest[:12]}",
        image_added=True,
        notes=tuple(foreign(base.arch)),
    )


def import_bundled_image(
    receiver: Receiver, bundle: Bundle, store: ImageStore, options: ImportOptions
) -> Imported:
    """Import an image from a bundle with a manifest of ours. Raises as `import_image`."""
    bundle = replace(
        bundle, base=replace(bundle.base, name=check_image_name(options.name or bundle.base.name))
    )
    is_opened = options.opened != ""
    _refuse_taken(store, bundle.base, replace=options.replace or is_opened)
    base = IncomingBase(store, bundle, named=not is_opened)
    require_space(store.root, bundle.size)
    with staging(store.root) as made:
        base.receive(receiver, made)
        receiver.end()
        options.stop()
        is_ours = bundle.base.arch == Architecture.host().value
        image = base.publish(opened=options.opened, current=is_ours and not is_opened)
        image = image if is_opened else store.adopt(image)
    if not is_opened and (is_ours or store.get(image.root.parent.name) is None):
        store.make_current(image)  # it may have been there already, unused
    return Imported(
        kind=BundleKind.IMAGE,
        name=image.name,
        root=image.root,
        size=bundle.size,
        base=f"{image.name} {image.digest[:12]}",
        image_added=base.is_new,
        notes=tuple(foreign(bundle.base.arch)),
    )


def describe_image(
    manifest: Mapping[str, Any], digests: Mapping[str, str], name: object
) -> BundleBase:
    """Describe the image of a manifest whose files have these digests, by their names in the
    bundle. Raises ValueError, ConfigError."""
    arch = manifest.get("arch") or Architecture.host().value
    cmdline, recipe = manifest.get("cmdline", ""), manifest.get("recipe", "")
    if not isinstance(cmdline, str) or not isinstance(recipe, str):
        raise ValueError("cmdline or recipe is not a text")
    parts = {part: {"sha256": digests[file]} for file, part in IMAGE_FILES.items()}
    return BundleBase(
        name=check_image_name(name),
        version=str(manifest.get("version", "")),
        digest=image_digest(parts, check_cmdline(cmdline), recipe),
        arch=Architecture.parse(arch).value,
        recipe=recipe,
        cmdline=cmdline,
        about={key: found for key, found in manifest.items() if key not in ("files", "digest")},
    )


def _check_digests(manifest: Mapping[str, Any], digests: Mapping[str, str]) -> None:
    """Raise ValueError if the manifest has other digests for the files."""
    files = manifest.get("files")
    for name, part in IMAGE_FILES.items():
        digest = told_digest(files, name, part)
        if digest is not None and digest != digests[name]:
            raise ValueError(f"{name} is damaged: its digest is {digests[name][:12]}…")


def told_digest(files: object, name: str, part: str) -> object:
    """Return the digest that a manifest's ``files`` have of a file; None if they have none."""
    told = files.get(name, files.get(part)) if isinstance(files, dict) else None
    return told.get("sha256") if isinstance(told, dict) else None


def _refuse_taken(store: ImageStore, base: BundleBase, *, replace: bool) -> None:
    there = store.get(base.name, Architecture.parse(base.arch))
    if there is not None and not there.errors and there.arch != base.arch:
        return  # images for different processors lie beside each other
    same = there is not None and there.root.name == base.digest[:DIGEST_SHOWN]
    if there is not None and not same and not replace:
        raise BundleError(
            f"there is an image {base.name!r} already, and it is another one",
            hint=Words(
                Words("`import --name NAME`", python="`name=`"),
                " gives this one another name; ",
                Words("`--replace`", python="`replace=True`"),
                " makes it the one that new sandboxes boot from",
            ),
        )


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
        raise BundleError(f"{label} cannot be imported: {reason_of(error)}") from error


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
    if options.places and bundle.kind is not BundleKind.TREE:
        place = next(o.place for o in places_of(SandboxConfig) if o.keyword in options.places)
        raise ConfigError(f"{label} holds no sandbox but {bundle.kind.named}, which has no {place}")
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
