"""The image store: images by name, each version in a directory named by its digest.

::

    <data>/images/<name>/current            the digest in use, replaced atomically
    <data>/images/<name>/<digest>/manifest.json     written last: its presence is the commit mark
                                  disk.qcow2, kernel, initrd
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quicksand.errors import ImageError, ImageNotFound, QuicksandError
from quicksand.host.files import map_os_errors, read_json, sync_dir, try_lock, write_json
from quicksand.host.paths import make_private_dir

SCHEMA = 1
MANIFEST = "manifest.json"
CURRENT = "current"
REMOVED = ".removed-"
PARTS = ("disk", "kernel", "initrd")
DIGEST_SHOWN = 12
"""Hexadecimal digits of a digest that name its directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """One version of an image in the store."""

    root: Path
    name: str
    version: str = ""
    digest: str = ""
    arch: str = ""
    created: float | None = None
    recipe: str = ""
    """Digest of the recipe that it was built from, "" if unknown."""
    cmdline: str = ""
    """Words for the kernel."""
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By part ("disk", "kernel", "initrd"): its name, size and sha256."""
    errors: tuple[str, ...] = ()
    """Why it cannot be used."""

    @property
    def disk(self) -> Path:
        return self._path("disk")

    @property
    def kernel(self) -> Path:
        return self._path("kernel")

    @property
    def initrd(self) -> Path:
        return self._path("initrd")

    @property
    def size(self) -> int:
        """Allocated bytes of all files."""
        if not self.root.is_dir():
            return 0
        return sum(path.stat().st_blocks * 512 for path in self.root.iterdir())

    def _path(self, part: str) -> Path:
        return self.root / str(self.files[part]["name"])


class ImageStore:
    """The images under one directory. Published versions are never changed."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def list(self) -> builtins.list[StoredImage]:
        """The current version of every image; a broken one carries its errors."""
        if not self.root.is_dir():
            return []
        names = sorted(p.name for p in self.root.iterdir() if p.is_dir() and p.name[0] != ".")
        return [image for name in names if (image := self.get(name)) is not None]

    def get(self, name: str) -> StoredImage | None:
        """The current version of the image ``name``, or None."""
        if not _is_name(name):
            return None
        place = self.root / name
        try:
            digest = (place / CURRENT).read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            return StoredImage(root=place, name=name, errors=(f"{CURRENT}: {error}",))
        if not digest or "/" in digest or digest.startswith("."):
            return StoredImage(root=place, name=name, errors=(f"{CURRENT} names {digest!r}",))
        try:
            return self.load(place / digest)
        except QuicksandError as error:
            return StoredImage(root=place / digest, name=name, errors=(str(error),))

    def find_version(self, name: str, digest: str) -> StoredImage | None:
        """The version of that digest, current or not, of the image ``name``, else of any; None if
        there is none that can be used."""
        short = digest[:DIGEST_SHOWN]
        if not short.isalnum() or not self.root.is_dir():
            return None
        names = [name, *sorted(p.name for p in self.root.iterdir())]
        for place in (self.root / n / short for n in names if _is_name(n)):
            with contextlib.suppress(QuicksandError):
                image = self.load(place)
                if image.digest == digest and not image.errors:
                    return image
        return None

    def versions(self, name: str) -> builtins.list[StoredImage]:
        """Every version of an image, also those that are not in use; a broken one carries its
        errors."""
        place = self.root / name
        if not _is_name(name) or not place.is_dir():
            return []
        found = []
        for path in sorted(p for p in place.iterdir() if p.is_dir() and p.name[0] != "."):
            try:
                found.append(self.load(path))
            except QuicksandError as error:
                found.append(StoredImage(root=path, name=name, errors=(str(error),)))
        return found

    @staticmethod
    def load(directory: Path) -> StoredImage:
        """The image in ``directory``. Files are compared with the manifest by size.

        Raises ImageNotFound without a manifest, ImageError for an unreadable one.
        """
        directory = directory.absolute()
        path = directory / MANIFEST
        try:
            manifest = read_json(path)
            if manifest.get("schema_version") != SCHEMA:
                raise ValueError(f"schema_version {manifest.get('schema_version')!r}")
            files = {part: _checked_file(manifest["files"][part]) for part in PARTS}
            image = StoredImage(
                root=directory,
                name=str(manifest["name"]),
                version=str(manifest["version"]),
                digest=str(manifest["digest"]),
                arch=str(manifest["arch"]),
                created=float(manifest["created"]),
                recipe=str(manifest.get("recipe", "")),
                cmdline=str(manifest.get("cmdline", "")),
                files=files,
            )
            if image.digest != image_digest(files, image.cmdline, image.recipe):
                raise ValueError("the digest does not fit the files and the command line")
        except FileNotFoundError:
            raise ImageNotFound(f"Image not found: {directory} has no {MANIFEST}") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ImageError(f"{path} is damaged: {error!r}") from error
        return _with_errors(image)

    @staticmethod
    def verify(image: StoredImage) -> builtins.list[str]:
        """Read every byte and compare digests; returns what is wrong. Blocks for I/O."""
        wrong = [*image.errors]
        for part, found in image.files.items():
            path = image.root / str(found["name"])
            if path.is_file() and sha256_file(path) != found["sha256"]:
                wrong.append(f"{path.name} has another digest ({part})")
        return wrong

    def publish(
        self, staging: Path, manifest: dict[str, Any], *, current: bool = True
    ) -> StoredImage:
        """Make the finished files in ``staging`` (a directory of this store's file system) the
        current version of the image that ``manifest`` describes. Atomic: old version or new one.

        ``current=False`` leaves the version in use as it is, if there is one.
        """
        files = {}
        for part in PARTS:
            name = str(manifest["files"][part]["name"])
            path = staging / name
            with map_os_errors(path):
                _sync_file(path)
            files[part] = {"name": name, "size": path.stat().st_size, "sha256": sha256_file(path)}
        digest = image_digest(
            files, str(manifest.get("cmdline", "")), str(manifest.get("recipe", ""))
        )
        place = make_private_dir(self.root / str(manifest["name"]))
        target = place / digest[:DIGEST_SHOWN]
        with map_os_errors(target):
            write_json(
                staging / MANIFEST,
                {**manifest, "schema_version": SCHEMA, "files": files, "digest": digest},
            )
            if not target.exists():
                staging.rename(target)
                sync_dir(place)
            if not current and (place / CURRENT).exists():
                return self.load(target)
            pointer = place / f".{CURRENT}.{secrets.token_hex(4)}"
            pointer.write_text(target.name + "\n", encoding="ascii")
            _sync_file(pointer)
            pointer.replace(place / CURRENT)
            sync_dir(place)
        return self.load(target)

    def remove(self, name: str) -> None:
        """Remove an image with all versions. Raises ImageNotFound.

        Whoever calls has made sure that no sandbox lies on it.
        """
        place = self.root / name
        if not _is_name(name) or not place.is_dir():
            raise ImageNotFound(f"Image not found: {name!r} is not in the store")
        with map_os_errors(place):
            self._remove_tree(place)

    def remove_old(self, image: StoredImage) -> bool:
        """Remove one version, unless it is the one in use or an image of that name is being built;
        returns whether it was removed. Raises PathError.

        Whoever calls has made sure that nothing lies on it.
        """
        name = image.root.parent.name
        with map_os_errors(image.root):
            # Who builds an image that is there already makes it the one in use again.
            lock = try_lock(self.root / f".{name}.lock")
            if lock is None:
                return False
            try:
                current = self.get(name)
                if current is None or current.root == image.root or not image.root.is_dir():
                    return False
                self._remove_tree(image.root)
            finally:
                os.close(lock)
        return True

    def _remove_tree(self, place: Path) -> None:
        # Out of sight first, so that nothing starts from a half-removed image.
        doomed = self.root / f"{REMOVED}{secrets.token_hex(4)}"
        place.rename(doomed)
        shutil.rmtree(doomed)


def sha256_file(path: Path) -> str:
    """The digest of a file's content. Blocks for I/O."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_name(name: str) -> bool:
    """Whether it can name an image, and so a directory of the store."""
    return bool(name) and "/" not in name and "\0" not in name and not name.startswith(".")


def _checked_file(value: Mapping[str, Any]) -> dict[str, Any]:
    name, size, digest = value["name"], value["size"], value["sha256"]
    if not isinstance(name, str) or "/" in name or name in ("", ".", ".."):
        raise ValueError(f"bad file name {name!r}")
    if not isinstance(size, int) or not isinstance(digest, str):
        raise ValueError(f"bad size or digest of {name!r}")
    return {"name": name, "size": size, "sha256": digest}


def _with_errors(image: StoredImage) -> StoredImage:
    errors = []
    for found in image.files.values():
        path = image.root / str(found["name"])
        if path.is_symlink():
            errors.append(f"{path.name} is a symbolic link")
        elif not path.is_file():
            errors.append(f"{path.name} is missing")
        elif path.stat().st_size != found["size"]:
            errors.append(
                f"{path.name} is {path.stat().st_size} bytes long, not {found['size']}: truncated?"
            )
    if not errors:
        return image
    return StoredImage(
        **{f: getattr(image, f) for f in StoredImage.__slots__ if f != "errors"},
        errors=tuple(errors),
    )


def image_digest(files: Mapping[str, Mapping[str, Any]], cmdline: str, recipe: str = "") -> str:
    """The identity of an image: of everything that a guest boots from, and of its recipe."""
    words = [*(f"{part} {files[part]['sha256']}" for part in PARTS), f"cmdline {cmdline}"]
    if recipe:
        words.append(f"recipe {recipe}")
    text = "\n".join(words)
    return hashlib.sha256(text.encode()).hexdigest()


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
