"""Reads the files of Alpine: an index or a package is a row of gzip members, each with a tar
archive in it. They are read in pieces: files from a mirror may be of any size."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from quicksand.base.errors import ImageError
from quicksand.base.regular import open_file
from quicksand_wheels.links import shown

from quicksand_images.apk import Limits, Package, parse_packages
from quicksand_images.oci.tar import Kind, TarReader

INDEX = "APKINDEX.tar.gz"
INDEX_MAX = 64 * 1024 * 1024
"""Bytes of an index, packed or unpacked; that of Alpine's community has 10 MB unpacked."""

APK_MAX = 2 * 1024**3
"""Bytes of a package; the largest of Alpine have some hundred MB."""

HEAD_MAX = 4 * 1024 * 1024
"""Bytes of the signatures and of the metadata of a package, unpacked."""

FILES_MAX = 1000
"""Files in an index, or in the metadata of a package."""

SIGNATURE_MAX = 4096
"""Bytes of a signature; that of an RSA key of 4096 bits has 512."""

SIGNATURES_MAX = 16
"""Signatures of a file; real ones have one or two."""

_READ = 1 << 16
_SIGNATURE = re.compile(r"\.SIGN\.RSA(256|512)?\.([A-Za-z0-9@._-]{1,200}\.rsa\.pub)")
_HASHES = {None: "sha1", "256": "sha256", "512": "sha512"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A signature by an RSA key (PKCS #1, version 1.5)."""

    key: str
    """The name of the key's file, chosen by the signer."""
    hash: str
    """The hash, by hashlib's name."""
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """The signatures of a file, and the part of it to which they apply."""

    signatures: Sequence[Signature]
    digests: Mapping[str, bytes]
    """The digests of that part, by the hashes of the signatures."""


class GzipMember:
    """A gzip member of a file, decompressed as it is read. Raises ImageError if it is not gzip, is
    cut off, or has more than ``most`` bytes."""

    def __init__(self, file: BinaryIO, start: int, most: int, what: str) -> None:
        file.seek(start)
        self._file, self._start, self._what = file, start, what
        self._unpacker = zlib.decompressobj(wbits=31)
        self._packed = b""
        self._taken = 0
        self._left = most

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, fewer only at the end."""
        found = bytearray()
        while len(found) < size and not self._unpacker.eof:
            self._packed = self._packed or self._file.read(_READ)
            if not self._packed:
                raise ImageError(f"{self._what} cannot be read: it is cut off")
            before = len(self._packed)
            try:
                found += self._unpacker.decompress(self._packed, size - len(found))
            except zlib.error as error:
                raise ImageError(f"{self._what} cannot be read: {error}") from error
            rest = self._unpacker.unused_data or self._unpacker.unconsumed_tail
            self._taken += before - len(rest)
            self._packed = rest
        self._left -= len(found)
        if self._left < 0:
            raise ImageError(f"{self._what} cannot be read: it is too large")
        return bytes(found)

    def end(self) -> int:
        """Read the rest; return the beginning of the next member."""
        while self.read(_READ):
            pass
        return self._start + self._taken


def read_signed(path: Path, what: str, *, metadata: bool) -> Signed:
    """Return the signatures in front of a file, and the digests of the signed part: the metadata of
    a package, or all of an index. Without signatures both are empty.

    Raises ImageError also for another file beside the signatures: it is not signed, and a search
    for a file of that name would find it first.
    """
    with open_file(path) as file:
        first = GzipMember(file, 0, HEAD_MAX, what)
        signatures = _read_signatures(TarReader(first, what), what)
        if not signatures:
            return Signed(signatures=(), digests={})
        start, end = first.end(), path.stat().st_size
        if metadata:
            end = GzipMember(file, start, HEAD_MAX, what).end()
        hashes = {one.hash for one in signatures}
        digests = {name: _digest(file, name, start, end) for name in hashes}
    return Signed(signatures=signatures, digests=digests)


def _read_signatures(reader: TarReader, what: str) -> list[Signature]:
    signatures: list[Signature] = []
    for number, member in enumerate(reader):
        found = _SIGNATURE.fullmatch(member.name)
        if found is None or member.kind is not Kind.FILE:
            if not signatures:
                return []  # they stand first
            raise ImageError(f"{what} is refused: it has other files beside its signatures")
        if number >= SIGNATURES_MAX:
            raise ImageError(f"{what} is refused: it has more than {SIGNATURES_MAX} signatures")
        if member.size > SIGNATURE_MAX:
            raise ImageError(f"{what} is refused: its signature has {member.size} bytes")
        data = b"".join(reader.content())
        signatures.append(Signature(key=found[2], hash=_HASHES[found[1]], data=data))
    return signatures


def _digest(file: BinaryIO, name: str, start: int, end: int) -> bytes:
    """Return the digest of a part of a file."""
    digest = hashlib.new(name, usedforsecurity=False)
    file.seek(start)
    while start < end and (piece := file.read(min(_READ, end - start))):
        digest.update(piece)
        start += len(piece)
    return digest.digest()


def read_index(path: Path, repository: str, limits: Limits) -> list[Package]:
    """Return the packages in an index, which may have `INDEX_MAX` bytes. Raises ImageError."""
    what = f"the index of {shown(repository)}"
    if path.stat().st_size > INDEX_MAX:
        raise ImageError(f"{what} cannot be read: it is too large")
    with open_file(path) as file:
        start = 0
        for _ in range(2):  # one with signatures may come first
            member = GzipMember(file, start, INDEX_MAX, what)
            content = _find(TarReader(member, what), "APKINDEX")
            if content is not None:
                return parse_packages(content, repository, limits)
            start = member.end()
            if start >= path.stat().st_size:
                break
    raise ImageError(f"{what} cannot be read: it has no APKINDEX")


def is_right(path: Path, package: Package) -> bool:
    """Whether a package has the metadata in the index, and the files in its metadata."""
    try:
        start = files_start(path, package)
    except ImageError:
        return False
    return start > 0


def files_start(path: Path, package: Package) -> int:
    """Return the offset of the part with the files in a package; 0 if its metadata differ from the
    index, or the files from the metadata. Raises ImageError if it is not a package."""
    what = path.name
    with open_file(path) as file:
        start = 0
        for _ in range(2):  # one with signatures may come first
            member = GzipMember(file, start, HEAD_MAX, what)
            content = _find(TarReader(member, what), ".PKGINFO")
            text = b"" if content is None else b"".join(content)
            end = member.end()
            digest = base64.b64encode(_digest(file, "sha1", start, end)).decode()
            if package.checksum == f"Q1{digest}":
                break
            start = end
        else:
            return 0
        found = re.search(rb"^datahash = ([0-9a-f]{64})$", text, re.MULTILINE)
        # The files may have gigabytes.
        size = file.seek(0, io.SEEK_END)
        if found is None or found[1].decode() != _digest(file, "sha256", end, size).hex():
            return 0
    return end


def _find(reader: TarReader, name: str) -> Iterator[bytes] | None:
    """Return the content of a file in an archive, None if it is not there."""
    for number, member in enumerate(reader):
        if member.name == name and member.kind is Kind.FILE:
            return reader.content()
        if number >= FILES_MAX:
            break
    return None
