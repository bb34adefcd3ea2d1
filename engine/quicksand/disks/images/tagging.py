"""Gives an image in the store another name."""

from __future__ import annotations

from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.error_reasons import reason_of
from quicksand.base.errors import ConfigError, ImageError, StateError
from quicksand.base.files import give_back, map_os_errors, read_json, try_named_lock
from quicksand.base.sharing import share_file
from quicksand.base.staging import staging
from quicksand.disks.images.image_store import BUNDLE, MANIFEST, ImageStore
from quicksand.disks.images.origin import KEY
from quicksand.disks.images.recipes import require_own_name
from quicksand.disks.images.stored_image import StoredImage
from quicksand.disks.packages.names import is_image_name

LEFT_OUT = ("digest", "schema_version", KEY, BUNDLE)
"""The keys of a manifest that are not facts about the files: publishing writes them, or they name
the origin of the first image."""


def tag_image(store: ImageStore, image: StoredImage, name: str) -> StoredImage:
    """Make ``image`` the current version of the image ``name``, too, and return that. If it is for
    another processor, a version for this host's stays current. Both share their files, and either
    can be removed without the other. Blocks for I/O.

    Raises ConfigError for a name that no image can have or that has another meaning, ImageError for
    a damaged image, StateError if an image of that name is just being built or installed,
    DiskSpaceError, PathError.
    """
    if not is_image_name(name):
        raise ConfigError(
            f"an image cannot be called {name!r}",
            hint="use lower-case letters, digits, dots, dashes and underscores",
        )
    if image.errors:
        raise ImageError(f"the image {image.name!r} is damaged: {'; '.join(image.errors)}")
    require_own_name(name)
    path = store.root / f".{name}.lock"
    with map_os_errors(store.root):
        lock = try_named_lock(path)
    if lock is None:
        raise StateError(f"the image {name!r} is just being built or installed")
    try:
        with staging(store.root) as made:
            manifest = read_manifest(image)
            files = {part: str(found["name"]) for part, found in image.files.items()}
            place = made / "image"
            with map_os_errors(place):
                place.mkdir(mode=0o700)
            for file in files.values():
                share_file(image.root / file, place / file)
            told = {key: value for key, value in manifest.items() if key not in LEFT_OUT}
            parts = {part: {"name": file} for part, file in files.items()}
            host = Architecture.host()
            there = store.get(name, host)
            current = image.arch == host.value or there is None or there.arch != host.value
            facts = {**told, "name": name, "files": parts}
            tagged = store.publish(place, facts, current=current)
            if current:
                store.make_current(tagged)
            return tagged
    finally:
        give_back(path, lock)


def read_manifest(image: StoredImage) -> dict[str, object]:
    """Read the whole manifest of an image. Raises ImageError."""
    path: Path = image.root / MANIFEST
    try:
        return read_json(path)
    except (OSError, ValueError, TypeError) as error:
        raise ImageError(f"{path} is damaged: {reason_of(error)}") from error
