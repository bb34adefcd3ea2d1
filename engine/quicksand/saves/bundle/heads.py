"""The head of a bundle, read from its manifest before anything is unpacked.

A bundle is identified by the digest of its manifest, which has the digests of all files: any file
with that manifest has the same contents, or is damaged. A manifest of the other format may lack
digests, or come after gigabytes; such a file is identified by its inode, size and times.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from quicksand.base.errors import BundleError, ImageNotFound, PathError, QuicksandError
from quicksand.base.regular import NotAFileError, open_file
from quicksand.disks.images.stored_image import check_suggested
from quicksand.saves.bundle.bases import check_part_size
from quicksand.saves.bundle.hostile_parts import DiskWatch
from quicksand.saves.bundle.image_import import describe_image, told_digest
from quicksand.saves.bundle.importing import check_length, name_of_file, read_manifest
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
from quicksand.saves.bundle.streams import BundleSource, open_source
from quicksand.saves.bundle.tar import Header, TarReader

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
            f"{path} is no bundle that can be used: {error}",
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
