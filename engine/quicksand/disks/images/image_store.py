"""The image store: images by name, each version in a directory named after its digest.

::

    <data>/images/<name>/current            the digest in use, replaced atomically
    <data>/images/<name>/<digest>/manifest.json     written last: its presence is the commit mark
                                  disk.qcow2, kernel, initrd
                                  layer1.qcow2 …    the layers above disk.qcow2, if there are any
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import re
import secrets
import stat
from pathlib import Path
from typing import Any

from quicksand.base.arch import Architecture
from quicksand.base.error_text import reason_of
from quicksand.base.errors import ConfigError, ImageError, ImageNotFound, QuicksandError, StateError
from quicksand.base.fields import Fields
from quicksand.base.files import (
    give_back,
    map_os_errors,
    read_json,
    sync_dir,
    try_named_lock,
    write_json,
)
from quicksand.base.listing import ANY_ID, TEMPORARY, own_directories, own_files
from quicksand.base.paths import SHARED_IMAGES, make_private_dir
from quicksand.base.regular import create, open_regular, read_word
from quicksand.base.removal import mark, remove, require_ours
from quicksand.base.sharing import share_file
from quicksand.base.staging import staging
from quicksand.disks.images.recipes import require_own_name
from quicksand.disks.images.stored_image import (
    DIGEST_SHOWN,
    KEY,
    Origin,
    StoredImage,
    check_suggested,
    checked_file,
    image_digest,
    layers_of,
    link_same,
    parts_of,
    sha256_file,
    with_errors,
)
from quicksand.disks.packages.names import is_image_name

SCHEMA, SCHEMA_OF_LAYERS = 1, 2
"""The versions of the manifest: an earlier program would take the lowest layer for the disk."""
MANIFEST = "manifest.json"
CURRENT = "current"
REMOVED = ".removed-"
NAME_MAX = 200
"""Characters of an image's name, which names a directory too."""

BUNDLE = "bundle"
"""The key in the manifest of an image that a start has unpacked from a bundle: the bundle's file
name. Such an image does not become a current version; its name is NAME@DIGEST (`versioned`)."""

_DIGEST = re.compile(r"[0-9a-f]{6,64}")
"""The digits of a digest that may follow the @."""

_POINTERS = re.compile(rf"{CURRENT}|\.{CURRENT}{TEMPORARY}")


class ImageStore:
    """The images below one directory. Published versions never change."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def list(self) -> builtins.list[StoredImage]:
        """List the current version of every image; a broken one carries its errors."""
        if not self.root.is_dir():
            return []
        names = sorted(p.name for p in self.root.iterdir() if p.is_dir() and p.name[0] != ".")
        return [image for name in names if (image := self.get(name)) is not None]

    def unpacked(self) -> builtins.list[StoredImage]:
        """List the versions that starts have unpacked from bundles and that are not current."""
        found = [image for image in self._all_versions() if image.bundle]
        return [image for image in found if image.root != self._current_root(image)]

    def _all_versions(self) -> builtins.list[StoredImage]:
        if not self.root.is_dir():
            return []
        names = sorted(p.name for p in self.root.iterdir() if p.is_dir() and p.name[0] != ".")
        return [image for name in names for image in self.versions(name)]

    def _current_root(self, image: StoredImage) -> Path | None:
        current = self.get(image.root.parent.name)
        return None if current is None else current.root

    def get(self, name: str, arch: Architecture | None = None) -> StoredImage | None:
        """Return the current version of ``name`` or, if that is NAME@DIGEST, that version of the
        image NAME; None if there is none. A broken one carries its errors. If the current one is
        not for ``arch``, or ``arch`` is not this host's (the pointer chooses only among its
        versions), return the newest usable one for ``arch``, if there is any."""
        image = self._current(name)
        if image is None or image.errors or arch is None:
            return image
        if image.arch == arch.value and arch is Architecture.host():
            return image
        others = self.versions(name)
        fitting = [one for one in others if not one.errors and one.arch == arch.value]
        fitting = [one for one in fitting if not one.bundle]
        return max(fitting, key=lambda one: one.built or 0.0, default=image)

    def of_all_archs(self, current: StoredImage) -> builtins.list[StoredImage]:
        """Return the result of `get` for each architecture of an image whose current version is
        ``current``."""
        if current.errors:
            return [current]
        name = current.root.parent.name
        found = [(arch, self.get(name, arch)) for arch in Architecture]
        fitting = [one for arch, one in found if one is not None and one.arch == arch.value]
        return fitting or [current]

    def _current(self, name: str) -> StoredImage | None:
        if not _is_name(name):
            return None
        place = self.root / name
        try:
            digest = read_word(place / CURRENT).strip()
        except FileNotFoundError:
            return self._get_version(name)
        except (OSError, UnicodeDecodeError) as error:
            return StoredImage(root=place, name=name, errors=(f"{CURRENT}: {error}",))
        if not digest or "/" in digest or digest.startswith("."):
            return StoredImage(root=place, name=name, errors=(f"{CURRENT} names {digest!r}",))
        try:
            return self.load(place / digest)
        except QuicksandError as error:
            return StoredImage(root=place / digest, name=name, errors=(str(error),))

    def _get_version(self, name: str) -> StoredImage | None:
        name, at, digest = name.rpartition("@")
        if not at or not _DIGEST.fullmatch(digest):
            return None
        wanted = digest[:DIGEST_SHOWN]
        found = [image for image in self.versions(name) if image.root.name.startswith(wanted)]
        return found[0] if len(found) == 1 else None

    def find_version(self, name: str, digest: str) -> StoredImage | None:
        """Return the usable version with that digest, current or not, of the image ``name`` or
        else of any other image; None if there is none."""
        short = digest[:DIGEST_SHOWN]
        if not short.isalnum() or not self.root.is_dir():
            return None
        names = [name, *sorted(p.name for p in self.root.iterdir())]
        for place in (self.root / n / short for n in names if _is_name(n)):
            with contextlib.suppress(QuicksandError):  # then it is not that version
                image = self.load(place)
                if image.digest == digest and not image.errors:
                    return image
        return None

    def versions(self, name: str) -> builtins.list[StoredImage]:
        """List every version of an image, old ones included; a broken one carries its errors."""
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
        """Load the image in ``directory``. ``errors`` lists files that are missing or whose size
        differs from the manifest.

        Raises ImageNotFound if there is no manifest, ImageError if it is damaged.
        """
        directory = directory.absolute()
        path = directory / MANIFEST
        try:
            manifest = read_json(path)
            if manifest.get("schema_version") not in (SCHEMA, SCHEMA_OF_LAYERS):
                raise ValueError(f"schema_version {manifest.get('schema_version')!r}")
            found = Fields(manifest, "bad manifest")
            told = found.fields("files")
            files = {part: checked_file(told[part]) for part in parts_of(told)}
            image = StoredImage(
                root=directory,
                name=found.text("name"),
                version=found.text("version"),
                digest=found.text("digest"),
                arch=found.text("arch"),
                created=found.real("created"),
                built=path.stat().st_mtime,
                recipe=found.text("recipe", default=""),
                cmdline=found.text("cmdline", default=""),
                machine=check_suggested(manifest.get("machine", {})),
                container=found.any("container", default={}) or {},
                files=files,
                package=Origin.from_json(manifest[KEY]) if manifest.get(KEY) is not None else None,
                bundle=found.text(BUNDLE, default=""),
            )
            if image.digest != image_digest(files, image.cmdline, image.recipe):
                raise ValueError("the digest does not fit the files and the command line")
        except FileNotFoundError:
            raise ImageNotFound(f"Image not found: {directory} has no {MANIFEST}") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ImageError(f"{path} is damaged: {reason_of(error)}") from error
        return with_errors(image)

    @staticmethod
    def verify(image: StoredImage) -> builtins.list[str]:
        """Read all files, compare their digests, and return the faults. Blocks for I/O."""
        wrong = [*image.errors]
        for part, found in image.files.items():
            path = image.root / str(found["name"])
            if path.is_file() and sha256_file(path) != found["sha256"]:
                wrong.append(f"{path.name} has another digest ({part})")
        return wrong

    def publish(
        self, staging: Path, manifest: dict[str, Any], *, current: bool = True
    ) -> StoredImage:
        """Move the finished files in ``staging``, a directory on the store's file system, into the
        store and atomically make them the current version; ``current=False`` does that only if the
        image has none, and not if they were unpacked from a bundle (`BUNDLE`).

        Raises ImageError, DiskSpaceError, PathError.
        """
        _require_own()
        try:
            check_suggested(manifest.get("machine", {}))
        except ValueError as error:
            raise ImageError(f"the manifest of {manifest['name']!r} is wrong: {error}") from None
        files, stored = {}, self._all_versions()
        for part in parts_of(manifest["files"]):
            name = str(manifest["files"][part]["name"])
            path = staging / name
            with map_os_errors(path):
                _sync_file(path, alone=True)
            files[part] = {"name": name, "size": path.stat().st_size, "sha256": sha256_file(path)}
            with map_os_errors(path):
                link_same(path, files[part], stored)
        digest = image_digest(
            files, str(manifest.get("cmdline", "")), str(manifest.get("recipe", ""))
        )
        schema = SCHEMA if len(layers_of(files)) == 1 else SCHEMA_OF_LAYERS
        place = make_private_dir(self.root / str(manifest["name"]))
        target = place / digest[:DIGEST_SHOWN]
        with map_os_errors(target):
            write_json(
                staging / MANIFEST,
                {**manifest, "schema_version": schema, "files": files, "digest": digest},
            )
            mark(staging, as_=target.name)
            if _move_in(staging, target):
                sync_dir(place)
            elif not manifest.get(BUNDLE):
                self.adopt(self.load(target))
            if not current and (manifest.get(BUNDLE) or (place / CURRENT).exists()):
                return self.load(target)
            _point(place, target.name)
        return self.load(target)

    def remove(self, name: str) -> None:
        """Remove an image with all versions. The caller makes sure that nothing uses it.

        Raises StateError if that image is just being built or installed, ImageNotFound,
        DiskSpaceError, PathError.
        """
        _require_own()
        place = self.root / name
        if not _is_name(name) or not place.is_dir():
            raise ImageNotFound(f"Image not found: {name!r} is not in the store")
        with map_os_errors(place):
            path, lock = self._hold(name)
            try:
                # The pointer goes first, so that nothing starts from a half-removed image.
                for pointer in own_files(place, _POINTERS):
                    pointer.unlink()
                for version in own_directories(place, ANY_ID):
                    self._remove_tree(version)
                with contextlib.suppress(OSError):  # other files in there are not ours
                    place.rmdir()
            finally:
                give_back(path, lock)

    def _hold(self, name: str) -> tuple[Path, int]:
        """Lock an image against builds; return the path and the descriptor of the lock. Raises
        StateError, OSError."""
        lock = try_named_lock(path := self.root / f".{name}.lock")
        if lock is None:
            raise StateError(f"the image {name!r} is just being built or installed")
        return path, lock

    def remove_old(self, image: StoredImage) -> bool:
        """Remove one version, unless it is the current one or that image is being built; return
        whether it was removed. The caller makes sure that nothing uses it. Raises PathError.
        """
        _require_own()
        name = image.root.parent.name
        with map_os_errors(image.root):
            # A build whose result already exists makes that version current again.
            lock = try_named_lock(path := self.root / f".{name}.lock")
            if lock is None:
                return False
            try:
                current = self.get(name)
                is_in_use = current.root == image.root if current else not image.bundle
                if is_in_use or not image.root.is_dir():
                    return False
                self._remove_tree(image.root)
            finally:
                give_back(path, lock)
        return True

    def adopt(self, image: StoredImage) -> StoredImage:
        """Turn a version that was only unpacked from a bundle (`BUNDLE`) into one that was imported
        or made, so that its name and architecture find it, and return it. Raises DiskSpaceError,
        PathError."""
        _require_own()
        if not image.bundle:
            return image
        path = image.root / MANIFEST
        with map_os_errors(path):
            write_json(path, {k: v for k, v in read_json(path).items() if k != BUNDLE})
        return self.load(image.root)

    def make_current(self, image: StoredImage) -> None:
        """Make a stored version the one from which new sandboxes boot. Raises DiskSpaceError,
        PathError."""
        _require_own()
        with map_os_errors(image.root):
            _point(image.root.parent, image.root.name)

    def withdraw(self, image: StoredImage) -> None:
        """Remove one version, the current one too: then the newest usable one of the others becomes
        the current one, if there is any. The caller makes sure that nothing uses it.

        Raises StateError if that image is just being built or installed, ImageNotFound if the
        version is not there, DiskSpaceError, PathError.
        """
        _require_own()
        place = image.root.parent
        with map_os_errors(image.root):
            if not image.root.is_dir():
                raise ImageNotFound(f"Image not found: there is no {image.root}")
            path, lock = self._hold(place.name)
            try:
                current = self.get(place.name)
                if current is None or current.root == image.root:
                    self._turn_from(image)
                self._remove_tree(image.root)
                with contextlib.suppress(OSError):  # other versions are there, or files of others
                    place.rmdir()
            finally:
                give_back(path, lock)

    def _turn_from(self, image: StoredImage) -> None:
        place = image.root.parent
        others = [found for found in self.versions(place.name) if found.root != image.root]
        usable = [found for found in others if not found.errors and not found.bundle]
        if usable:
            _point(place, max(usable, key=lambda found: found.built or 0.0).root.name)
            return
        for pointer in own_files(place, _POINTERS):
            pointer.unlink()

    def _remove_tree(self, place: Path) -> None:
        require_ours(place)
        # Renamed first, so that nothing starts from a half-removed image. Images of other names can
        # have the same version.
        doomed = self.root / f"{REMOVED}{secrets.token_hex(4)}-{place.name}"
        place.rename(doomed)
        remove(doomed)


def _require_own() -> None:
    """Raise StateError if the images are another data directory's."""
    if os.environ.get(SHARED_IMAGES):
        raise StateError(
            "a node of a fleet shares the images of its machine, and does not change them",
            hint="do that on the machine itself, whose images these are",
        )


def _is_name(name: str) -> bool:
    """Whether ``name`` can name an image, and so a directory of the store."""
    if len(name) > NAME_MAX or "/" in name or "\0" in name:
        return False
    return bool(name) and not name.startswith(".")


def _point(place: Path, version: str) -> None:
    """Make a version the current one of the image whose directory ``place`` is. Raises OSError,
    DiskSpaceError, PathError."""
    pointer = place / f".{CURRENT}.{secrets.token_hex(4)}"
    with create(pointer) as file:
        file.write(f"{version}\n".encode())
    _sync_file(pointer)
    pointer.replace(place / CURRENT)
    sync_dir(place)


def _move_in(staging: Path, target: Path) -> bool:
    """Move a finished version to its place; return False if that version is already there, perhaps
    just put there by another process. Raises OSError."""
    if target.exists():
        return False
    try:
        staging.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _sync_file(path: Path, *, alone: bool = False) -> None:
    """Sync a file; ``alone``: a file that was just made, which only its owner may then write to,
    whatever the umask was."""
    descriptor = open_regular(path)
    try:
        if alone:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if mode & 0o022:
                os.fchmod(descriptor, mode & ~0o022)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
