"""Starting from a bundle: its head is read before anything is unpacked, which is done at the start,
once for each content.

::

    <cache>/bundles/saves/<key>/          the save of a bundle (`SaveStore`)
    <cache>/bundles/images/<key>.json     which image of the store a bundle without digests holds
    <cache>/bundles/<key>.lock            held, and there, while somebody unpacks it

An image goes into the image store, where its name is NAME@DIGEST: a start does not change the
meaning of other names. A save is only needed until the start has linked its layers, so it lies in
the cache. Keys are those of `BundleHead`.

A bundle is identified by the digest of its manifest, which has the digests of all files: any file
with that manifest has the same contents, or is damaged. A manifest of the other format may lack
digests, or come after gigabytes; such a file is identified by its inode, size and times.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from quicksand.base.error_text import reason_of
from quicksand.base.errors import BundleError, ImageNotFound, PathError, QuicksandError
from quicksand.base.files import give_back, map_os_errors, read_json, try_named_lock, write_json
from quicksand.base.listing import own_files
from quicksand.base.paths import Paths, make_private_dir
from quicksand.base.progress import Progress
from quicksand.base.regular import NotAFileError, open_file
from quicksand.base.remedies import Remedy, Words
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import StoredImage, check_suggested
from quicksand.saves.bundle.bases import check_part_size
from quicksand.saves.bundle.importing import (
    changed,
    check_length,
    describe_image,
    import_bundle,
    name_of_file,
    read_manifest,
    told_digest,
)
from quicksand.saves.bundle.manifest import (
    FORMAT,
    IMAGE_FILES,
    MANIFEST,
    MANIFEST_MAX,
    Bundle,
    BundleBase,
    BundleKind,
    check_image_name,
    parse_json,
)
from quicksand.saves.bundle.receiving import DiskWatch, ImportOptions, stopping
from quicksand.saves.bundle.streams import BundleSource, Header, TarReader, open_source
from quicksand.saves.save_manifest import Save, SaveManifest
from quicksand.saves.store import SaveStore

SETTLED_S = 2.0
"""Seconds after which a change of a file shows in its times: FAT counts in steps of two seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleHead:
    """A bundle, as its manifest describes it."""

    path: Path
    kind: BundleKind
    name: str
    key: str
    """A digest that is equal for equal contents; "" if the file has changed so recently that its
    times would not show a further change."""
    bundle: Bundle | None = None
    """Its manifest, if it is one of ours."""
    image: BundleBase | None = None
    """The image that it holds, if the manifest describes it completely."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """Values that an image suggests for the options of its machines."""


def read_head(path: Path) -> BundleHead:
    """Read the manifest of a bundle. Blocks for I/O. Raises BundleError for a file that is none or
    is damaged, ImageNotFound, PathError."""
    with opened(path) as (source, size, status):
        reader = TarReader(source)
        first, data = read_manifest(reader)
        value = None if data is None else parse_json(data)
        if value is not None and value.get("format") == FORMAT and data is not None:
            bundle = Bundle.from_json(value)
            if not source.is_packed:
                check_length(bundle, first, size)
            return _head(path, bundle, hashlib.sha256(data).hexdigest())
        return _foreign_head(path, value, identity(status))


def open_to_read(path: Path) -> BinaryIO:
    """Open the file of a bundle. Raises ImageNotFound, BundleError if it is no file, PathError."""
    try:
        return open_file(path)
    except FileNotFoundError:
        raise ImageNotFound(f"Image not found: {str(path)!r} does not exist") from None
    except NotAFileError as error:
        raise BundleError(f"{path} is no bundle: {error.strerror}") from error
    except OSError as error:
        raise PathError(f"cannot read {path}: {error.strerror}") from error


@contextmanager
def opened(path: Path) -> Iterator[tuple[BundleSource, int, os.stat_result]]:
    """Open a bundle; yield its content, its size in bytes, and its status. Raises as
    `read_head`."""
    try:
        with open_to_read(path) as file, open_source(file) as (source, _):
            status = os.fstat(file.fileno())
            yield source, status.st_size, status
    except QuicksandError:
        raise
    except (ValueError, OverflowError, KeyError, TypeError) as error:
        raise BundleError(
            f"{path} is no bundle that can be used: {reason_of(error)}",
            hint="get the file again from where it was made; an export makes one",
        ) from error


def identity(status: os.stat_result) -> str:
    """Return a digest of the values that change when a file is replaced or written to; "" if it has
    changed so recently that another change might not show in them."""
    if time.time() - max(status.st_mtime, status.st_ctime) < SETTLED_S:
        return ""
    facts = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _head(path: Path, bundle: Bundle, key: str) -> BundleHead:
    if bundle.kind is not BundleKind.IMAGE:
        return BundleHead(path=path, kind=bundle.kind, name=bundle.name, key=key, bundle=bundle)
    return BundleHead(
        path=path,
        kind=bundle.kind,
        name=bundle.base.name,
        key=key,
        bundle=bundle,
        image=bundle.base,
        machine=check_suggested(bundle.base.about.get("machine", {})),
    )


def _foreign_head(path: Path, manifest: Mapping[str, Any] | None, key: str) -> BundleHead:
    """Describe an image bundle of the specification. ``manifest`` is None if it does not come
    first."""
    told = manifest or {}
    name = told.get("name") or name_of_file(path.name)
    image = None
    digests = {file: told_digest(told.get("files"), file, part) for file, part in _PARTS}
    if manifest is not None:
        check_image_name(name)
    known = {file: digest for file, digest in digests.items() if isinstance(digest, str)}
    if len(known) == len(IMAGE_FILES):
        image = describe_image(told, known, name)
    return BundleHead(
        path=path,
        kind=BundleKind.IMAGE,
        name=str(name),
        key=key,
        image=image,
        machine=check_suggested(told.get("machine", {})),
    )


_PARTS = tuple(IMAGE_FILES.items())
DISK = next(name for name, part in _PARTS if part == "disk")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """All that is known of a bundle without unpacking it."""

    head: BundleHead
    files: Mapping[str, tuple[int, str]]
    """Size in bytes and SHA-256 by the name of each file; the latter is "" if only reading the file
    would tell it."""
    packed: bool
    """Whether it is compressed."""
    size: int
    """Bytes of the bundle itself."""


def read_contents(path: Path, stop: Callable[[], None] = lambda: None) -> Contents:
    """Read a bundle's description of itself. Our own manifest has it at the beginning; another
    bundle is read to its end, unless an import refuses its files. ``stop`` is called now and then
    meanwhile, and may raise. Blocks for I/O. Raises as `read_head`."""
    head = read_head(path)
    with opened(path) as (source, size, _):
        if head.bundle is not None:
            files = {file.name: (file.size, file.sha256) for file in head.bundle.files}
            return Contents(head=head, files=files, packed=source.is_packed, size=size)
        reader = TarReader(source)
        first, data = read_manifest(reader)

        def check() -> None:
            stop()
            source.check_ratio()

        found, value = _walk(reader, first, data, check)
        told = value.get("files")
        files = {
            name: (found[name], str(told_digest(told, name, part) or ""))
            for name, part in _PARTS
            if name in found
        }
        missing = [name for name in IMAGE_FILES if name not in found]
        if missing:
            raise ValueError(f"it has no {missing[0]} of an image")
        head = _foreign_head(path, value, head.key)
        return Contents(head=head, files=files, packed=source.is_packed, size=size)


def _walk(
    reader: TarReader, first: Header, data: bytes | None, check: Callable[[], None]
) -> tuple[dict[str, int], dict[str, Any]]:
    """Go through the members of an image bundle; return their sizes, and the manifest. ``check`` is
    called after each piece."""
    sizes: dict[str, int] = {}
    header: Header | None = first if data is None else reader.next()
    while header is not None:
        if data is None and header.name == MANIFEST:
            data = reader.small_content(MANIFEST_MAX, MANIFEST)
        elif header.name not in IMAGE_FILES or header.name in sizes:
            raise ValueError(f"it has {header.name!r}, which is not part of an image")
        else:
            check_part_size(header.name, header.size)
            sizes[header.name] = header.size
            watch = DiskWatch(header.name, header.size) if header.name == DISK else None
            for piece in reader.content():
                check()
                if watch is not None:
                    watch.look(piece)
        header = reader.next()
    if data is None:
        raise ValueError("it has no manifest.json of an image")
    return sizes, parse_json(data)


KEY_DIGITS = 32
"""Hexadecimal digits of a key that name a file or a directory."""

_KNOWN = re.compile(rf"[0-9a-f]{{{KEY_DIGITS}}}\.json")

LOCK_POLL_S = 0.1
WAITING = "waiting for another start that unpacks the same bundle"


class Unpacked(NamedTuple):
    """The content of a bundle that was unpacked on this host: an image or a save."""

    image: str = ""
    """The image's name: NAME@DIGEST, unless NAME means that very version."""
    save: Save | None = None


def require_startable(head: BundleHead) -> None:
    """Raise BundleError for a bundle from which no new sandbox can start."""
    if head.kind is BundleKind.TREE:
        raise BundleError(
            f"{head.path} holds the sandbox {head.name!r} with its checkpoints, and neither an "
            "image nor a save",
            hint=Words(
                Remedy("import_bundle", file=str(head.path)),
                " makes a sandbox of it, which can then be started at each of them",
            ),
        )


def save_in(head: BundleHead) -> Save | None:
    """Return the save that a bundle holds, as its manifest describes it; None if it holds none."""
    if head.bundle is None or not isinstance(head.bundle.content, SaveManifest):
        return None
    return Save(name=head.name, root=head.path, manifest=head.bundle.content)


def places_of(paths: Paths) -> tuple[SaveStore, Path]:
    """Return the store for the saves of bundles, and the directory of records about images."""
    root = paths.cache / "bundles"
    return SaveStore(root / "saves"), root / "images"


def unpack(
    head: BundleHead,
    paths: Paths,
    progress: Progress | None = None,
    stop: Callable[[], None] = lambda: None,
) -> Unpacked:
    """Return the contents of a bundle, unpacked and checked, now or before. ``stop`` is called now
    and then, and may raise. Blocks for I/O.

    Raises BundleError if the file is damaged, refused, has changed since ``head`` was read, or lies
    on an image that is not here; ImageError, SaveError, HostError. Nothing of it is left then,
    except that an image may stay.
    """
    require_startable(head)
    if (found := find_unpacked(head, paths)) is not None:
        return found
    say = stopping(progress, stop)
    with _alone(head, paths, say):
        # Another one may have unpacked it meanwhile.
        return find_unpacked(head, paths) or _unpack(head, paths, say, stop)


def find_unpacked(head: BundleHead, paths: Paths) -> Unpacked | None:
    """Return the contents of a bundle if it is already unpacked. Blocks for I/O."""
    images = ImageStore(paths.images)
    if head.kind is BundleKind.SAVE:
        return _find_save(head, paths, images)
    if head.image is not None:
        return _of(images, images.find_version(head.image.name, head.image.digest))
    if not head.key:
        return None
    with contextlib.suppress(OSError, ValueError):  # there is no record, or a damaged one
        known = read_json(_known(head, paths))
        image = images.find_version(str(known["name"]), str(known["digest"]))
        return _of(images, image)
    return None


def _of(images: ImageStore, image: StoredImage | None) -> Unpacked | None:
    if image is None:
        return None
    current = images.get(image.name)
    is_current = current is not None and current.root == image.root
    return Unpacked(image=image.name if is_current else image.versioned)


def _find_save(head: BundleHead, paths: Paths, images: ImageStore) -> Unpacked | None:
    assert head.bundle is not None
    store, _ = places_of(paths)
    save = store.get(head.key[:KEY_DIGITS])
    base = head.bundle.base
    if save is None or save.error or images.find_version(base.name, base.digest) is None:
        return None
    return Unpacked(save=replace(save, name=head.name))


def _unpack(
    head: BundleHead, paths: Paths, progress: Progress, stop: Callable[[], None]
) -> Unpacked:
    saves, known = places_of(paths)
    images = ImageStore(paths.images)
    is_save = head.kind is BundleKind.SAVE
    options = ImportOptions(
        name=head.key[:KEY_DIGITS] if is_save else head.name,
        replace=True,
        opened=head.path.name,
        expected=head.key if head.bundle is not None else "",
        progress=progress,
        stop=stop,
    )
    with open_to_read(head.path) as file:
        _require_same(head, file.fileno())
        done = import_bundle(file, saves, images, options=options)
        _require_same(head, file.fileno())
    if is_save:
        _forget_replaced(saves)
        return Unpacked(save=replace(saves.find(done.name), name=head.name))
    image = ImageStore.load(done.root)
    if head.image is None and head.key:
        make_private_dir(known)
        write_json(_known(head, paths), {"name": image.name, "digest": image.digest})
    return Unpacked(image=image.versioned)


def _require_same(head: BundleHead, descriptor: int) -> None:
    """Raise BundleError unless a file without digests is still the one whose manifest was read."""
    if head.bundle is None and head.key and identity(os.fstat(descriptor)) != head.key:
        raise changed(str(head.path))


def _forget_replaced(saves: SaveStore) -> None:
    """Remove damaged saves that were replaced: nobody wants them back."""
    if trashed := [one.id for one in saves.trash() if one.was_save]:
        saves.empty_trash(trashed)


def _known(head: BundleHead, paths: Paths) -> Path:
    return places_of(paths)[1] / f"{head.key[:KEY_DIGITS]}.json"


@contextlib.contextmanager
def _alone(head: BundleHead, paths: Paths, say: Progress) -> Iterator[None]:
    """Hold the lock of a bundle's content. Raises HostError, and the errors of ``say``."""
    root = make_private_dir(paths.cache / "bundles")
    lock = root / f"{head.key[:KEY_DIGITS] or 'unsettled'}.lock"
    with map_os_errors(root):
        while (held := try_named_lock(lock)) is None:
            say(WAITING, 0, 0)
            time.sleep(LOCK_POLL_S)
    try:
        yield
    finally:
        give_back(lock, held)


def unpacked_files(paths: Paths) -> list[Path]:
    """List the files that bundles have left in the cache and that can be unpacked again."""
    saves, known = places_of(paths)
    return [*saves.roots(), *own_files(known, _KNOWN)]


def forget(files: Sequence[Path], paths: Paths) -> None:
    """Remove these of `unpacked_files`. Raises SaveError, HostError."""
    saves, known = places_of(paths)
    for path in files:
        if path.parent == saves.root:
            saves.delete(path.name)
        elif path.parent == known:
            path.unlink(missing_ok=True)
