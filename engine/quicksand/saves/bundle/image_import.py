"""Imports image bundles of the specification: ``manifest.json``, ``image.qcow2``, ``image.kernel``
and ``image.initrd``, in any order. Their manifests may lack digests; any digests are checked."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from quicksand.base.arch import Architecture
from quicksand.base.errors import BundleError
from quicksand.base.remedies import Words
from quicksand.base.staging import staging
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import DIGEST_SHOWN, NAMES, image_digest
from quicksand.saves.bundle.bases import IncomingBase, check_part_size, publish_image
from quicksand.saves.bundle.hostile_parts import DiskWatch, check_disk, foreign
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
    parse_json,
)
from quicksand.saves.bundle.receiving import Imported, ImportOptions, Receiver, require_space
from quicksand.saves.bundle.tar import Header, TarReader


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
