"""Starting a sandbox with a save. The save is only read; its layers become the sandbox's own."""

from __future__ import annotations

import hashlib
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError, ImageNotFound, SaveError
from quicksand.base.files import map_os_errors, sync_dir, write_word
from quicksand.base.paths import Paths
from quicksand.base.remedies import Remedy, Words
from quicksand.base.sharing import copy_sparse, share_file
from quicksand.disks.images.disk_headers import check_qcow2
from quicksand.disks.images.disk_layers import create_overlay
from quicksand.disks.images.resolve import ImageResolver, ResolvedImage, is_file
from quicksand.qemu.keeper_parts import FIRST
from quicksand.records.layout import SandboxDir, layer_name
from quicksand.records.machine_options import check_disk_size
from quicksand.records.nodes import Head, new_id
from quicksand.records.sandboxes import SaveSource
from quicksand.saves.finding import is_path, store_at
from quicksand.saves.portable import check_portable, find_image
from quicksand.saves.resolving import find_meaning
from quicksand.saves.save_facts import identity_of
from quicksand.saves.save_manifest import SaveManifest
from quicksand.saves.store import Save, check_save, overlay_paths

STACK_MAX = 64

NAME_SHOWN = 200
"""Characters of a save's text in a message."""


def source_of(save: Save, paths: Paths) -> SaveSource:
    """The `SaveSource` for the record of a sandbox that starts with ``save``. Raises SaveError."""
    manifest = save.require()
    *below, _ = stack_of(save, paths)
    return SaveSource(
        path=str(save.root),
        below=tuple(str(lower.root) for lower in below),
        name=save.name,
        id=manifest.id,
        digest="" if below else layers_digest(manifest),
    )


def stack_of(save: Save, paths: Paths) -> list[Save]:
    """The saves below ``save`` and itself, the lowest first. A save of this engine has all its
    layers; one of the published packages may name another save as its image. Raises SaveError."""
    found = [save]
    while found[0].require().base is None and len(found) <= STACK_MAX:
        lower = _find_lower(found[0], paths)
        # A save with the same name as its image is based on the image, not on itself.
        if lower is None or lower.root in [known.root for known in found]:
            break
        found.insert(0, lower)
    return found


def _find_lower(save: Save, paths: Paths) -> Save | None:
    """Return the save below one of the published packages, if there is one. The save beside it,
    which came with it, is preferred to others of that name."""
    name = save.require().config.image
    beside = None if is_path(name) else store_at(save.root.parent).get(name)
    if beside is not None:
        beside.require()
        return beside
    return find_meaning(name, paths).save


def save_files(save: Save, paths: Paths) -> tuple[Path, ...]:
    """All files of the save's disk above the image, the lowest first. Raises SaveError."""
    return tuple(
        path for one in stack_of(save, paths) for path in overlay_paths(one.root, one.require())
    )


def layers_digest(manifest: SaveManifest) -> str:
    """One SHA-256 of all layers' digests; "" if the manifest does not list them."""
    if manifest.layers is None:
        return ""
    text = "\n".join(layer.sha256 for layer in manifest.layers)
    return hashlib.sha256(text.encode()).hexdigest()


def find_base(
    save: Save, paths: Paths, base_dir: Path | None = None, *, trusted: bool
) -> ResolvedImage:
    """The image below a save; ``base_dir`` is searched first. Raises SaveError if the image is not
    on this host, or if it is given as a path and the save is not ``trusted``: the guest could then
    read any file of this host through its disk."""
    manifest, resolver = stack_of(save, paths)[0].require(), ImageResolver(paths)
    arch = Architecture.parse(manifest.arch)
    base = manifest.base
    if base is not None and base.digest:
        stored = resolver.store.find_version(base.name, base.digest)
        if stored is None or base_dir is not None or save.root.is_file():
            near = [base_dir] if base_dir is not None else []
            stored = find_image(base.digest, paths, [*near, save.root.parent])
        if stored is not None:
            return resolver.resolve(str(stored.root), arch)
        there = resolver.store.get(base.name)
        has = f"; the one here has the digest {there.digest[:12]}" if there is not None else ""
        raise SaveError(
            f"the save {save.name!r} is based on the image {base}, which is not here{has}",
            hint=Words(
                f"bring that version of {base.name!r}, or ",
                Remedy("export_full"),
                " the save where it was made",
                python=f"bring that version of {base.name!r}, or export the save in full where it "
                "was made",
            ),
        )
    name = base.name if base is not None else manifest.config.image
    if not trusted and is_file(name):
        raise SaveError(
            f"the save {save.name!r} was not made here, and is based on a file of this host: "
            f"{name[:NAME_SHOWN]!r}",
            hint="if you know who made it, --trust (in Python trust=True) takes it all the same",
        )
    try:
        return resolver.resolve(name, arch)
    except ImageNotFound as error:
        raise SaveError(
            f"the save {save.name!r} is based on the image {name!r}, which is not here",
            hint=error.advice,
        ) from error
    except ImageError as error:
        message = Words(f"the save {save.name!r} cannot be used: ", error.words)
        raise SaveError(message, hint=error.advice) from error


def adopt(source: SaveSource, place: SandboxDir, image: ResolvedImage, size: int) -> Head:
    """Give a new sandbox the layers of a save and an empty one above them; returns its head.
    ``size``: the least size of the disk in bytes.

    Layers are hard-linked where the file system allows it. Those without digests (saves of the
    published packages) are copied, since their owner may change them. Raises SaveError if the save
    has changed since ``source`` was recorded, ConfigError if ``size`` is too small, ImageError,
    DiskSpaceError, PathError.
    """
    manifest = _check(Path(source.path))
    digest = "" if source.below else layers_digest(manifest)
    if (manifest.id, digest) != (source.id, source.digest):
        raise SaveError(f"the save at {source.path} has changed since the sandbox was made")
    ids: list[str] = []
    with map_os_errors(place.layers):
        for root in map(Path, (*source.below, source.path)):
            before = identity_of(root)
            ids += _adopt_one(root, _check(root), place)
            # If it was replaced meanwhile, the layers may come from both saves.
            if identity_of(root) != before:
                raise SaveError(f"the save at {root} was just being replaced; try again")
    lower = check_qcow2(place.layer(ids[-1]), allow_backing=True).virtual_size
    base = check_qcow2(image.chain[-1], allow_backing=len(image.chain) > 1).virtual_size
    # The size in the save's own config is not a request, so it is not checked.
    if size != (manifest.config.disk_size_bytes or 0):
        check_disk_size(size, max(lower, base), f"the save {Path(source.path).name!r}")
    head = Head(layers=tuple(ids), top=new_id(), machine=FIRST)
    top = place.layer(head.top)
    create_overlay(top, backing=layer_name(ids[-1]), size=max(lower, base, size))
    sync_dir(place.layers)
    return head


def _check(root: Path) -> SaveManifest:
    return check_portable(root) if root.is_file() else check_save(root)


def _adopt_one(root: Path, manifest: SaveManifest, place: SandboxDir) -> list[str]:
    ids = []
    known = manifest.layers
    paths = (root,) if root.is_file() else overlay_paths(root, manifest)
    for number, path in enumerate(paths):
        if known is None:
            ids.append(new_id())
            copy_sparse(path, place.layer(ids[-1]))
            continue
        ids.append(known[number].id)
        share_file(path, place.layer(ids[-1]))
        if not root.is_file():  # a snapshot file has metadata behind the disk, so another digest
            write_word(place.digest(ids[-1]), f"{known[number].sha256}\n")
    return ids
