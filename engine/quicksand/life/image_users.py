"""Finds the sandboxes and saves that need an image of the store, including those in the trash; and
removes images that were installed from packages, with the templates and spares that were
prepared for them, unless something needs them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from quicksand_wheels.wanted import Wanted

from quicksand.base.effort import best_effort
from quicksand.base.errors import ImageNotFound, StateError
from quicksand.base.paths import Paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import DIGEST_SHOWN, StoredImage
from quicksand.disks.packages.names import image_of, plain
from quicksand.life.sandbox_removal import SandboxTrash
from quicksand.records.fleet_files import nodes_of
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.saves.census import base_of
from quicksand.saves.finding import all_stores, known_stores
from quicksand.saves.save_manifest import Save
from quicksand.warm.spares.claiming import end_useless
from quicksand.warm.templates import TemplateInfo, discard, list_templates

FRESH_S = 600.0
"""Seconds for which a new version is left alone, because it may be about to be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """The names of the sandboxes and saves that need an image."""

    sandboxes: tuple[str, ...] = ()
    saves: tuple[str, ...] = ()
    """Names of saves, or paths of those in other workspaces."""
    trashed: tuple[str, ...] = ()
    """Sandboxes and saves in the trash."""

    def __bool__(self) -> bool:
        return bool(self.sandboxes or self.saves or self.trashed)


class ImageUsers:
    """All sandboxes and saves as of the creation of this object. Blocks for I/O."""

    def __init__(self, paths: Paths, cwd: Path | None = None) -> None:
        near = {store.root for store in all_stores(paths, cwd)}
        stores = known_stores(paths, cwd)
        registry = Registry(paths)
        self._sandboxes = [(entry.name, entry.record) for entry in registry.list()]
        self._trashed = [(found.name, found.record) for found in SandboxTrash(registry).list()]
        for node in nodes_of(paths):
            node.require_ours(paths)
            there = Registry(node.paths(paths))
            self._sandboxes += [(f"{e.name}@{node.name}", e.record) for e in there.list()]
            trash = SandboxTrash(there).list()
            self._trashed += [(f"{one.name}@{node.name}", one.record) for one in trash]
        self._saves = [
            (save.name if store.root in near else str(save.root), save)
            for store in stores
            for save in store.list()
        ]
        self._trash = [(found.save.name, found.save) for s in stores for found in s.trash()]

    def of(self, image: StoredImage) -> Users:
        """Return the users of this version of an image."""
        trashed = [name for name, record in self._trashed if _lies_on(record, image)]
        trashed += [name for name, save in self._trash if _needs(save, image)]
        return Users(
            sandboxes=tuple(n for n, record in self._sandboxes if _lies_on(record, image)),
            saves=tuple(name for name, save in self._saves if _needs(save, image)),
            trashed=tuple(trashed),
        )

    def of_all(self, images: list[StoredImage]) -> Users:
        """Return the users of any of these versions."""
        found = [self.of(image) for image in images]
        return Users(
            sandboxes=_once(name for users in found for name in users.sandboxes),
            saves=_once(name for users in found for name in users.saves),
            trashed=_once(name for users in found for name in users.trashed),
        )


def find_unneeded(paths: Paths, cwd: Path | None = None) -> list[StoredImage]:
    """List old versions of images, and those that starts have unpacked from bundles, that no
    sandbox and no save needs. Blocks for I/O."""
    store, users = ImageStore(paths.images), ImageUsers(paths, cwd)
    found = [
        image for image in store.unpacked() if not _is_fresh(image.root) and not users.of(image)
    ]
    for current in store.list():
        if current.errors:
            continue  # an older version may be needed to replace it
        versions = store.versions(current.name)
        kept = {current.root, *(image.root for image in store.of_all_archs(current))}
        for image in versions:
            if image.root in kept or image.bundle or _is_fresh(image.root):
                continue
            if not users.of(image):
                found.append(image)
    return found


def _lies_on(record: Record | None, image: StoredImage) -> bool:
    if record is None:
        return False
    if record.image_digest:
        return _is(record.image_digest, image)
    if not record.chain:  # its first start is under way
        return plain(record.config.image) in (plain(image.name), plain(image.versioned))
    place = image.root.resolve()
    return any(Path(layer).resolve().is_relative_to(place) for layer in record.chain)


def _needs(save: Save, image: StoredImage) -> bool:
    if save.manifest is None:
        return False
    base = base_of(save)
    return _is(base.digest, image) if base.digest else plain(base.name) == plain(image.name)


def _is(digest: str, image: StoredImage) -> bool:
    # By the directory's name, since a damaged manifest cannot be read.
    return digest[:DIGEST_SHOWN] == image.root.name


def _is_fresh(path: Path) -> bool:
    try:
        # The time of the inode, not of the contents, tells when the version was put here.
        return time.time() - path.stat().st_ctime < FRESH_S
    except OSError:
        return True


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def templates_of(digests: Iterable[str], paths: Paths) -> list[TemplateInfo]:
    """Return the templates of images, given by their digests or the first digits of these."""
    wanted = tuple(filter(None, digests))
    return [t for t in list_templates(paths) if wanted and t.image_digest.startswith(wanted)]


def drop_prepared(images: Iterable[StoredImage], paths: Paths) -> None:
    """Remove the templates of images that are gone, and end their spares, which would keep the
    space."""
    for template in templates_of([image.root.name for image in images], paths):
        # Only the templates used last are kept: one that cannot be removed now goes later.
        with best_effort("remove a template of an image that is gone", paths.engine_log):
            discard(template.root)
    end_useless(Registry(paths))


@dataclass(frozen=True, slots=True, kw_only=True)
class Uninstalled:
    """A package whose images have been removed."""

    name: str
    """The name of the image."""
    versions: tuple[StoredImage, ...]
    """The versions that were removed."""
    now: StoredImage | None
    """The version from which new sandboxes now boot, and which did not come from the uninstalled
    package; None if there is none."""


def installed_images(paths: Paths) -> list[StoredImage]:
    """List all versions of images that were installed from packages. Blocks for I/O."""
    store = ImageStore(paths.images)
    found = [one for image in store.list() for one in store.versions(image.root.parent.name)]
    return [image for image in found if image.package is not None]


def uninstall(wanted: Wanted, paths: Paths) -> Uninstalled:
    """Remove the images that installations of a package have put into the store; built or imported
    ones stay. Blocks for I/O.

    Raises ImageNotFound if it is not installed, StateError naming the users of an image, HostError;
    an image that is needed is left as it is.
    """
    store, name = ImageStore(paths.images), image_of(wanted.package)
    doomed = [
        image
        for image in store.versions(name)
        if image.package is not None
        and wanted.versions.contains(image.package.version, prereleases=True)
    ]
    if not doomed:
        others = ", ".join(sorted({image.name for image in installed_images(paths)}))
        raise ImageNotFound(
            f"{wanted} is not installed",
            hint=f"installed are {others}" if others else "no image is installed from a package",
        )
    _require_unneeded(name, doomed, paths)
    for image in doomed:
        store.withdraw(image)
    drop_prepared(doomed, paths)
    return Uninstalled(name=name, versions=tuple(doomed), now=store.get(name))


def _require_unneeded(name: str, images: list[StoredImage], paths: Paths) -> None:
    users = ImageUsers(paths).of_all(images)
    for kind, names, hint in (
        ("the disks of", users.sandboxes, "remove them first, and from the trash"),
        ("the saves", users.saves, "remove them first, and from the trash"),
        ("in the trash", users.trashed, "empty the trash first"),
    ):
        if names:
            raise StateError(
                f"the image {name!r} is the base of {kind} {', '.join(names)}", hint=hint
            )
