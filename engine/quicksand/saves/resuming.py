"""Beginning a sandbox from a save. The save is only read: its layers become the sandbox's own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quicksand.config import SandboxConfig
from quicksand.errors import ConfigError, ImageError, ImageNotFound, SaveError, SaveNotFoundError
from quicksand.host.arch import Architecture
from quicksand.host.files import map_os_errors, sync_dir
from quicksand.host.paths import Paths
from quicksand.host.sharing import copy_sparse, share_file
from quicksand.images.overlay import create_overlay
from quicksand.images.qcow2 import check_qcow2
from quicksand.images.resolve import ImageResolver, ResolvedImage
from quicksand.layout import SandboxDir, layer_name
from quicksand.qemu.keeping import FIRST
from quicksand.saves.finding import find_save, workspace_store
from quicksand.saves.looking import identity_of
from quicksand.saves.manifest import OVERLAYS, SaveManifest
from quicksand.saves.portable import check_portable, find_image, find_portable
from quicksand.saves.source import Source
from quicksand.saves.store import Save, check_save, overlay_paths
from quicksand.snapshots.records import Head, new_id

STACK_MAX = 64


def look_up(name: str, paths: Paths, workspace: Path | None = None) -> Save | None:
    """The save that ``name`` leads to, if it leads to one; in ``workspace`` before all others.
    Raises SaveError for one that cannot be used."""
    if workspace is not None and (found := workspace_store(workspace).get(name)) is not None:
        found.require()
        return found
    if "/" in name or name.endswith(".qcow2"):
        portable = find_portable(Path(name).expanduser().absolute())
        if portable is not None:
            return portable
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
    if own["extra_qemu_args"] and "extra_qemu_args" not in options:
        words = " ".join(own["extra_qemu_args"])
        raise ConfigError(
            f"the save {save.name!r} has arguments for QEMU, which can reach this host: {words}",
            hint="if you want them give them as extra_qemu_args, or [] to go without",
        )
    # Where the disk came from decides what it can run on.
    return SandboxConfig.parse({**own, **options, "image": own["image"]})


def source_of(save: Save, paths: Paths) -> Source:
    """What a sandbox that begins from ``save`` is to remember."""
    manifest = save.require()
    *below, _ = stack_of(save, paths)
    return Source(
        path=str(save.root),
        below=tuple(str(lower.root) for lower in below),
        name=save.name,
        id=manifest.id,
        digest="" if below else layers_digest(manifest),
    )


def stack_of(save: Save, paths: Paths) -> list[Save]:
    """The saves that one lies on, and itself, the lowest first. Ours have all their layers; the
    published packages' may name another save as their image."""
    found = [save]
    while found[0].require().base is None and len(found) <= STACK_MAX:
        lower = look_up(found[0].require().config.image, paths)
        # One that has the name of its image lies on the image.
        if lower is None or lower.root in [known.root for known in found]:
            break
        found.insert(0, lower)
    return found


def save_files(save: Save, paths: Paths) -> tuple[Path, ...]:
    """All files above the image, the lowest first. Raises SaveError."""
    return tuple(
        path for one in stack_of(save, paths) for path in overlay_paths(one.root, one.require())
    )


def layers_digest(manifest: SaveManifest) -> str:
    """One digest of all layers, "" if the save does not tell theirs."""
    if manifest.layers is None:
        return ""
    text = "\n".join(layer.sha256 for layer in manifest.layers)
    return hashlib.sha256(text.encode()).hexdigest()


def find_base(save: Save, paths: Paths, base_dir: Path | None = None) -> ResolvedImage:
    """The image that a save lies on; in ``base_dir`` it is looked for first. Raises SaveError
    naming it if it is not here."""
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
    manifest = _check(Path(source.path))
    digest = "" if source.below else layers_digest(manifest)
    if (manifest.id, digest) != (source.id, source.digest):
        raise SaveError(f"the save at {source.path} is not the one that it was")
    ids: list[str] = []
    with map_os_errors(place.layers):
        for root in map(Path, (*source.below, source.path)):
            before = identity_of(root)
            ids += _adopt_one(root, _check(root), place)
            # Replaced meanwhile, it may have given layers of both.
            if identity_of(root) != before:
                raise SaveError(f"the save at {root} was replaced in this moment; try again")
    lower = check_qcow2(place.layer(ids[-1]), allow_backing=True).virtual_size
    base = check_qcow2(image.chain[-1], allow_backing=len(image.chain) > 1).virtual_size
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
        if not root.is_file():  # which has its metadata behind the disk
            place.digest(ids[-1]).write_text(f"{known[number].sha256}\n", encoding="ascii")
    return ids
