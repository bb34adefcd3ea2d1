"""The place of a container image on this host: a directory or a tar with an OCI layout, or a tar
that `docker save` wrote, in its old or present form."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol

from quicksand.base.capacity import check_space
from quicksand.base.errors import ImageError
from quicksand.base.regular import create, open_file, open_regular

from quicksand_images.oci.documents import is_text
from quicksand_images.oci.layers import (
    TOTAL_MAX,
    Blob,
    is_compressed,
    open_below,
    pieces_of,
    stoppable,
    unpacked,
)
from quicksand_images.oci.tar import Kind, TarReader

MEMBERS_MAX = 20_000
"""Files in an archive; there are a few for each layer."""

_PLAIN_AT = 257
_PLAIN = b"ustar"
"""The mark of an archive that is not compressed."""


class Place(Protocol):
    """Files by their names, which have slashes."""

    what: str
    """Its name in errors."""

    def file(self, name: str) -> Blob | None:
        """Return a file; None if there is none. Raises ImageError for a name that leads out,
        OSError."""
        ...


def blob_name(digest: str) -> str:
    """Return the name of a blob in an OCI layout by its SHA-256 in hexadecimal."""
    return f"blobs/sha256/{digest}"


class Directory:
    """A directory. Links in it are not followed."""

    def __init__(self, root: Path) -> None:
        self.what = str(root)
        self._root = root

    def file(self, name: str) -> Blob | None:
        parts = PurePosixPath(name).parts
        if not is_text(name) or not parts or name.startswith("/") or ".." in parts:
            raise ImageError(f"{self.what} is refused: it names {name[:100]!r}, which is not in it")
        try:
            descriptor = open_below(self._root, parts)
        except FileNotFoundError:
            return None
        try:
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        return Blob(path=self._root.joinpath(*parts), offset=0, size=size, below=self._root)


class _Stoppable:
    """A file that calls ``stop`` before each read."""

    def __init__(self, file: BinaryIO, stop: Callable[[], None]) -> None:
        self._file = file
        self._stop = stop

    def read(self, size: int) -> bytes:
        self._stop()
        return self._file.read(size)


class Archive:
    """A tar archive that is a file, not compressed. Links in it are followed to its other files:
    old versions of `docker save` write a layer that occurs twice as a link."""

    def __init__(self, path: Path, what: str, *, stop: Callable[[], None] = lambda: None) -> None:
        """Read its names. ``stop`` is called for each piece, and may raise. Raises ImageError,
        OSError."""
        self.what = what
        self._files: dict[str, Blob] = {}
        self._links: dict[str, str] = {}
        with open_file(path) as file:
            for number, member in enumerate(TarReader(_Stoppable(file, stop), what)):
                if number >= MEMBERS_MAX:
                    raise ImageError(f"{what} is refused: it has more than {MEMBERS_MAX} files")
                name = posixpath.normpath(member.name)
                if member.ranges is not None:
                    raise ImageError(f"{what} is refused: {name[:200]!r} in it is a sparse file")
                if member.kind is Kind.FILE:
                    self._files[name] = Blob(path=path, offset=file.tell(), size=member.size)
                elif member.kind is Kind.SYMLINK:
                    above = posixpath.dirname(name)
                    self._links[name] = posixpath.normpath(posixpath.join(above, member.target))
                elif member.kind is Kind.LINK:
                    self._links[name] = posixpath.normpath(member.target)

    def file(self, name: str) -> Blob | None:
        name = posixpath.normpath(name)
        return self._files.get(name) or self._files.get(self._links.get(name, name))


def open_place(source: Path, work: Path, *, stop: Callable[[], None] = lambda: None) -> Place:
    """Open a directory or an archive. A compressed one is unpacked into ``work`` first. ``stop`` is
    called for each piece that is read, and may raise. Raises ImageError, DiskSpaceError,
    OSError."""
    if source.is_dir():
        return Directory(source)
    blob = _whole(source)
    with open_file(source) as file:
        first = file.read(512)
    if first[_PLAIN_AT:].startswith(_PLAIN):
        return Archive(source, str(source), stop=stop)
    if not is_compressed(first):
        raise ImageError(
            f"{source} is refused: it is neither a directory nor a tar archive, compressed or not"
        )
    target = work / "archive.tar"
    with create(target) as file:
        pieces = stoppable(unpacked(pieces_of(blob), blob.size, str(source)), stop)
        _unpack(pieces, file, work, str(source))
    return Archive(target, str(source), stop=stop)


def _whole(source: Path) -> Blob:
    descriptor = open_regular(source)
    try:
        return Blob(path=source, offset=0, size=os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _unpack(pieces: Iterator[bytes], target: BinaryIO, work: Path, what: str) -> None:
    done = checked = 0
    for piece in pieces:
        done += len(piece)
        if done > TOTAL_MAX:
            raise ImageError(f"{what} is refused: it unpacks to more than an image can have")
        if done - checked > 1 << 26:
            check_space(work)
            checked = done
        target.write(piece)
