"""Layers as streams: decompressed within bounds, compared with the given digests, and applied to
the records of an image."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.capacity import check_space
from quicksand.base.error_text import size_text
from quicksand.base.errors import ImageError
from quicksand.base.regular import create, open_regular
from quicksand_disks import zstd

from quicksand_images.oci.sparse import placed
from quicksand_images.oci.tar import Kind, Member, TarReader
from quicksand_images.oci.tree import Tree

TOTAL_MAX = 64 * 1024**3
"""The most bytes of all files of all layers, including those that later ones replace."""

RATIO_MAX, RATIO_FREE = 100, 256 * 1024 * 1024
"""The most unpacked bytes of a layer: so many times its compressed size, plus so many. Real ones
have three to ten times; a stream of zeros has a thousand (gzip) or more (Zstandard)."""

TEXT_MAX = 256 * 1024 * 1024
"""Bytes of the names, links and xattrs of all layers, which are kept in memory. The largest images
have a tenth."""

BEHIND_MAX = 64 * 1024 * 1024
"""The most bytes after a layer's archive; tar fills its last record, of some KiB, with zeros."""

FRAME_MIN = 64
"""The least bytes of a compressed frame on average: some tools begin a new one for every file, and
each costs as much as thousands of bytes."""

_READ = 1 << 14
"""Bytes that are decompressed at once; more would be copied for each frame in them."""

_HASH = 1 << 20
_ENTER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_SPACE_EVERY = 64 * 1024 * 1024
_GZIP = b"\x1f\x8b"
_SKIPPABLE = b"\x2a\x4d\x18"
"""The end of the magic number of a Zstandard frame with other data (RFC 8878, 3.1.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A part of a file: a layer, or a document."""

    path: Path
    offset: int
    size: int
    below: Path | None = None
    """The directory in which it lies; no link from there to it is followed."""


def stoppable(pieces: Iterator[bytes], stop: Callable[[], None]) -> Iterator[bytes]:
    """Yield ``pieces``. ``stop`` is called before each, and may raise."""
    for piece in pieces:
        stop()
        yield piece


def pieces_of(blob: Blob, size: int = _READ) -> Iterator[bytes]:
    """Yield the bytes of a blob. Raises ImageError if its file was shortened meanwhile, OSError."""
    if blob.below is None:
        descriptor = open_regular(blob.path)
    else:
        descriptor = open_below(blob.below, blob.path.relative_to(blob.below).parts)
    try:
        at, end = blob.offset, blob.offset + blob.size
        while at < end:
            piece = os.pread(descriptor, min(size, end - at), at)
            if not piece:
                raise ImageError(f"{blob.path} was shortened while it was read")
            at += len(piece)
            yield piece
    finally:
        os.close(descriptor)


def open_below(root: Path, parts: Sequence[str]) -> int:
    """Open a regular file in a directory for reading, without following a link on the way; return
    its descriptor. Raises ImageError for a link on the way, OSError."""
    at = os.open(root, _ENTER)
    try:
        for part in parts[:-1]:
            below = os.open(part, _ENTER | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = below
        return open_regular(parts[-1], os.O_RDONLY | os.O_NOFOLLOW, at=at)
    except NotADirectoryError as error:
        raise ImageError(
            f"{root.joinpath(*parts)} is refused: there is a symbolic link, or no directory, on "
            "the way to it"
        ) from error
    finally:
        os.close(at)


def require_digest(
    blob: Blob, digest: str, what: str, *, stop: Callable[[], None] = lambda: None
) -> None:
    """Raise ImageError unless a blob has the given SHA-256, in hexadecimal. ``stop`` is called for
    each piece, and may raise."""
    found = hashlib.sha256()
    for piece in stoppable(pieces_of(blob, _HASH), stop):
        found.update(piece)
    if found.hexdigest() != digest:
        raise ImageError(
            f"{what} is refused: its SHA-256 is {found.hexdigest()[:12]}…, and {digest[:12]}… was "
            "said",
            hint="get the image again; if it stays so, somebody has changed it",
        )


def unpacked(pieces: Iterator[bytes], packed: int, what: str) -> Iterator[bytes]:
    """Decompress a stream of ``packed`` bytes, or pass on one that is not compressed. Raises
    ImageError if it is damaged, or unpacks to more than real ones do."""
    first = next(pieces, b"")
    stream = _chain(first, pieces)
    if not is_compressed(first):
        yield from stream
        return
    frames = _gunzipped(stream) if first.startswith(_GZIP) else zstd.unpack_frames(stream)
    most, count, done = packed * RATIO_MAX + RATIO_FREE, 0, 0
    try:
        for piece in frames:
            count += not piece
            done += len(piece)
            if count > 1000 + packed // FRAME_MIN:
                raise ImageError(f"{what} is refused: it is compressed in too many pieces")
            if done > most:
                raise ImageError(
                    f"{what} is refused: its {size_text(packed)} unpack to more than "
                    f"{size_text(most)}"
                )
            if piece:
                yield piece
    except (ValueError, zlib.error) as error:
        raise ImageError(f"{what} is damaged: {error}") from error


def is_compressed(first: bytes) -> bool:
    """Whether a file with this beginning is compressed in a known way."""
    is_skippable = first[1:4] == _SKIPPABLE and first[0] & 0xF0 == 0x50
    return first.startswith((_GZIP, zstd.MAGIC)) or is_skippable


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def _gunzipped(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress gzip members that follow each other; an empty piece comes at the end of each."""
    member, is_open = zlib.decompressobj(wbits=31), False
    for piece in pieces:
        data = piece
        while data:
            is_open = True
            if plain := member.decompress(data, zstd.PIECE):
                yield plain
            data = member.unconsumed_tail
            if member.eof:
                data, is_open = member.unused_data.lstrip(b"\0"), False
                member = zlib.decompressobj(wbits=31)
                yield b""
    while is_open and (plain := member.decompress(member.unconsumed_tail, zstd.PIECE)):
        yield plain
    if is_open and not member.eof:
        raise ValueError("it is cut off")


class Plain:
    """A decompressed stream that knows its SHA-256 in the end."""

    def __init__(self, pieces: Iterator[bytes], what: str) -> None:
        """``what`` names it in errors."""
        self._pieces = pieces
        self._what = what
        self._waiting = b""
        self._digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, fewer only at the end."""
        found = [self._waiting]
        have = len(self._waiting)
        while have < size and (piece := next(self._pieces, b"")):
            self._digest.update(piece)
            found.append(piece)
            have += len(piece)
        data = b"".join(found)
        self._waiting = data[size:]
        return data[:size]

    def finish(self) -> str:
        """Read the rest; return the SHA-256 of everything. Raises ImageError if the rest is too
        large."""
        left, self._waiting = len(self._waiting), b""
        for piece in self._pieces:
            left += len(piece)
            if left > BEHIND_MAX:
                raise ImageError(
                    f"{self._what} is refused: more than {size_text(BEHIND_MAX)} lie behind the "
                    "end of its archive"
                )
            self._digest.update(piece)
        return self._digest.hexdigest()


class LayerWriter:
    """Applies layers to a tree. The contents of their files are kept in the directory ``place``."""

    def __init__(self, place: Path, *, stop: Callable[[], None] = lambda: None) -> None:
        """``stop`` is called now and then, and may raise."""
        self._place = place
        self._stop = stop
        self.tree = Tree(self._discard)
        self._entries = 0
        self._bytes = 0
        self._text = 0
        self._unchecked = 0

    def _discard(self, content: Path) -> None:
        content.unlink()

    def apply(self, blob: Blob, diff_id: str, what: str) -> None:
        """Apply the next layer, whose unpacked SHA-256 is ``diff_id``. Raises ImageError,
        DiskSpaceError, OSError; then the tree is useless."""
        plain = Plain(stoppable(unpacked(pieces_of(blob), blob.size, what), self._stop), what)
        reader = TarReader(plain, what)
        try:
            for member in reader:
                self._stop()
                self._count(member)
                content = None
                if member.kind is Kind.FILE:
                    content = self._write(reader, member)
                self.tree.apply(member, content)
        except RecursionError as error:
            raise ImageError(f"{what} is refused: it is too deep") from error
        self.tree.end_layer()
        found = plain.finish()
        if found != diff_id:
            raise ImageError(
                f"{what} is refused: unpacked, its SHA-256 is {found[:12]}…, and the image's "
                f"config says {diff_id[:12]}…"
            )

    def _count(self, member: Member) -> None:
        self.tree.count()
        self._entries += 1
        self._bytes += member.size
        self._text += len(member.name) + len(member.target)
        self._text += sum(len(name) + len(value) for name, value in member.xattrs.items())
        if self._text > TEXT_MAX:
            raise ImageError(
                "the layers are refused: their names, links and xattrs have more than "
                f"{size_text(TEXT_MAX)}"
            )
        if self._bytes > TOTAL_MAX:
            raise ImageError(
                f"the layers are refused: their files have more than {size_text(TOTAL_MAX)}"
            )

    def _write(self, reader: TarReader, member: Member) -> Path:
        path = self._place / str(self._entries)
        ranges = ((0, member.size),) if member.ranges is None else member.ranges
        with create(path) as file:
            file.truncate(member.size)
            for offset, piece in placed(reader.content(), ranges):
                self._stop()
                self._unchecked += len(piece)
                if self._unchecked > _SPACE_EVERY:
                    self._unchecked = 0
                    check_space(self._place)
                file.seek(offset)
                file.write(piece)
        return path
