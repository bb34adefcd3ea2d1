"""Beginning a sandbox from a save. The save is only read: its layers become the sandbox's own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quicksand.config import SandboxConfig
from quicksand.errors import ImageError, ImageNotFound, SaveError, SaveNotFoundError
from quicksand.host.arch import Architecture
from quicksand.host.files import map_os_errors, sync_dir
from quicksand.host.paths import Paths
from quicksand.host.sharing import copy_sparse, share_file
from quicksand.images.overlay import create_overlay
from quicksand.images.qcow2 import check_qcow2
from quicksand.images.resolve import ImageResolver, ResolvedImage
from quicksand.layout import SandboxDir, layer_name
from quicksand.qemu.keeper import FIRST
from quicksand.saves.finding import find_save, workspace_store
from quicksand.saves.manifest import OVERLAYS, SavedLayer, SaveManifest
from quicksand.saves.source import Source
from quicksand.saves.store import Save, check_save, overlay_paths
from quicksand.snapshots.records import Head, new_id


def look_up(name: str, paths: Paths, workspace: Path | None = None) -> Save | None:
    """The save that ``name`` leads to, if it leads to one; in ``workspace`` before all others.
    Raises SaveError for one that cannot be used."""
    if workspace is not None and (found := workspace_store(workspace).get(name)) is not None:
        found.require()
        return found
    try:
        save = find_save(name, paths)
    except SaveNotFoundError:
        return None
    if save.manifest is None and not (save.root / OVERLAYS).exists():
        return None  # the directory of an image has a manifest, too
    save.require()
    return save


def merge_config(save: Save, options: Mapping[str, Any]) -> SandboxConfig:
    """The save's config with ``options`` in place of its own. Raises ConfigError."""
    own = save.require().config.to_json()
    # Where the disk came from decides what it can run on.
    return SandboxConfig.parse({**own, **options, "image": own["image"]})


def source_of(save: Save) -> Source:
    """What a sandbox that begins from ``save`` is to remember."""
    manifest = save.require()
    return Source(
        path=str(save.root), name=save.name, id=manifest.id, digest=layers_digest(manifest)
    )


def layers_digest(manifest: SaveManifest) -> str:
    """One digest of all layers, "" if the save does not tell theirs."""
    if manifest.layers is None:
        return ""
    text = "\n".join(layer.sha256 for layer in manifest.layers)
    return hashlib.sha256(text.encode()).hexdigest()


def find_base(save: Save, paths: Paths) -> ResolvedImage:
    """The image that a save lies on. Raises SaveError naming it if it is not here."""
    manifest, resolver = save.require(), ImageResolver(paths)
    arch = Architecture.parse(manifest.arch)
    base = manifest.base
    if base is not None and base.digest:
        stored = resolver.store.find_version(base.name, base.digest)
        if stored is not None:
            return resolver.resolve(str(stored.root), arch)
        there = resolver.store.get(base.name)
        has = f"; the one here has the digest {there.digest[:12]}" if there is not None else ""
        raise SaveError(
            f"the save {save.name!r} lies on the image {base}, which is not here{has}",
            hint=f"bring that version of {base.name!r}, or `quicksand-tui export --full` the save "
            "where it was made",
        )
    name = base.name if base is not None else manifest.config.image
    try:
        return resolver.resolve(name, arch)
    except ImageNotFound as error:
        raise SaveError(
            f"the save {save.name!r} lies on the image {name!r}, which is not here",
            hint=error.hint,
        ) from error
    except ImageError as error:
        message = f"the save {save.name!r} cannot be used: {error}"
        raise SaveError(message, hint=error.hint) from error


def adopt(source: Source, place: SandboxDir, image: ResolvedImage, size: int) -> Head:
    """Make the layers of a save those of a new sandbox, and an empty one for the guest above them;
    returns where it stands. ``size``: bytes that the disk is to have at least.

    Nothing is copied where the file system has hard links, but for saves of others: whoever made
    those may change them. Raises SaveError if the save is not what it was, DiskSpaceError,
    PathError.
    """
    save = Path(source.path)
    manifest = check_save(save)
    if layers_digest(manifest) != source.digest or manifest.id != source.id:
        raise SaveError(f"the save at {save} is not the one that the sandbox was made from")
    known: Sequence[SavedLayer] = manifest.layers or ()
    paths = overlay_paths(save, manifest)
    ids = tuple(layer.id for layer in known) or tuple(new_id() for _ in paths)
    with map_os_errors(place.layers):
        for number, (path, id_) in enumerate(zip(paths, ids, strict=True)):
            if manifest.id:
                share_file(path, place.layer(id_))
                place.digest(id_).write_text(f"{known[number].sha256}\n", encoding="ascii")
            else:
                copy_sparse(path, place.layer(id_))
    lower = check_qcow2(place.layer(ids[-1]), allow_backing=True).virtual_size
    base = check_qcow2(image.chain[-1], allow_backing=len(image.chain) > 1).virtual_size
    head = Head(layers=ids, top=new_id(), machine=FIRST)
    top = place.layer(head.top)
    create_overlay(top, backing=layer_name(ids[-1]), size=max(lower, base, size))
    sync_dir(place.layers)
    return head
