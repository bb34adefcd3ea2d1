"""Who needs an image of the store: sandboxes that lie on it, saves, also those in the trash."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from quicksand.host.paths import Paths
from quicksand.images.store import DIGEST_SHOWN, ImageStore, StoredImage
from quicksand.registry import Entry, Registry
from quicksand.saves.census import base_of
from quicksand.saves.finding import all_stores
from quicksand.saves.store import Save
from quicksand.saves.workspaces import known_stores

FRESH_S = 600.0
"""A version that has been here for less is left alone: somebody may be about to use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """Names of those who need an image."""

    sandboxes: tuple[str, ...] = ()
    saves: tuple[str, ...] = ()
    """Of other workspaces their paths."""
    trashed: tuple[str, ...] = ()
    """Saves that can still be brought back."""

    def __bool__(self) -> bool:
        return bool(self.sandboxes or self.saves or self.trashed)


class ImageUsers:
    """All sandboxes and saves at one moment. Blocks for I/O."""

    def __init__(self, paths: Paths, cwd: Path | None = None) -> None:
        near = {store.root for store in all_stores(paths, cwd)}
        stores = known_stores(paths, cwd)
        self._sandboxes = Registry(paths).list()
        self._saves = [
            (save.name if store.root in near else str(save.root), save)
            for store in stores
            for save in store.list()
        ]
        self._trash = [(found.save.name, found.save) for s in stores for found in s.trash()]

    def of(self, image: StoredImage) -> Users:
        """Who needs this version."""
        return Users(
            sandboxes=tuple(e.name for e in self._sandboxes if _lies_on(e, image)),
            saves=tuple(name for name, save in self._saves if _needs(save, image)),
            trashed=tuple(name for name, save in self._trash if _needs(save, image)),
        )

    def of_all(self, images: list[StoredImage]) -> Users:
        """Who needs any of these."""
        found = [self.of(image) for image in images]
        return Users(
            sandboxes=_once(name for users in found for name in users.sandboxes),
            saves=_once(name for users in found for name in users.saves),
            trashed=_once(name for users in found for name in users.trashed),
        )


def find_unneeded(paths: Paths, cwd: Path | None = None) -> list[StoredImage]:
    """Versions of images that are not in use any more and that nothing lies on."""
    store, users = ImageStore(paths.images), ImageUsers(paths, cwd)
    found = []
    for current in store.list():
        if current.errors:
            continue  # an older one may be what is wanted again
        for image in store.versions(current.name):
            if image.root == current.root or _is_fresh(image.root):
                continue
            if not users.of(image):
                found.append(image)
    return found


def _lies_on(entry: Entry, image: StoredImage) -> bool:
    record = entry.record
    if record is None:
        return False
    if record.image_digest:
        return _is(record.image_digest, image)
    if not record.chain:  # it is starting for the first time
        return record.config.image == image.name
    place = image.root.resolve()
    return any(Path(layer).resolve().is_relative_to(place) for layer in record.chain)


def _needs(save: Save, image: StoredImage) -> bool:
    if save.manifest is None:
        return False
    base = base_of(save)
    return _is(base.digest, image) if base.digest else base.name == image.name


def _is(digest: str, image: StoredImage) -> bool:
    # By the directory: the manifest of a damaged one cannot be read.
    return digest[:DIGEST_SHOWN] == image.root.name


def _is_fresh(path: Path) -> bool:
    try:
        # Not when its files were made: when it came here.
        return time.time() - path.stat().st_ctime < FRESH_S
    except OSError:
        return True


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
