"""Reads and writes Debian package files (deb(5)): ar archives of a version, control.tar and
data.tar."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.error_text import reason_of
from quicksand.base.errors import HostError
from quicksand.base.tools import ToolError
from quicksand_disks import zstd

from quicksand_images.toolbox import find_tar

_MAGIC = b"!<arch>\n"
_HEAD = 60
_END_OF_HEAD = b"`\n"
_UNPACK = ("--keep-directory-symlink", "--no-same-owner", "--exclude=./dev/*", "-xpf", "-")
DATA_MAX = 2 * 1024**3
"""Bytes of an unpacked package; kernels with all modules have 600 MB."""

GROWTH_MAX, SMALL = 100, 64 * 1024**2
"""The largest ratio of an unpacked archive to its packed size, above so many bytes: a large package
grows tenfold at most."""

DICTIONARY_MAX = 256 * 1024**2
"""Bytes that decompressing xz may take besides the data; `xz -9` needs 65 MiB (xz(1))."""


@dataclass(frozen=True, slots=True)
class Deb:
    """A package with its two tar archives decompressed."""

    version: bytes
    control: bytes
    data: bytes

    def fields(self) -> dict[str, str]:
        """Return the control file: the first line of each field. Raises KeyError if it is
        missing."""
        with tarfile.open(fileobj=io.BytesIO(self.control), mode="r:") as archive:
            file = archive.extractfile("./control")
            assert file is not None
            lines = file.read().decode("utf-8", "replace").splitlines()
        pairs = (line.partition(":") for line in lines if not line.startswith(" "))
        return {key: value.strip() for key, _, value in pairs}

    def directory_owners(self) -> dict[str, str]:
        """Return the owners of its directories, as "uid:gid" by path, without root's."""
        with tarfile.open(fileobj=io.BytesIO(self.data), mode="r:") as archive:
            return {
                member.name.removeprefix(".").rstrip("/"): f"{member.uid}:{member.gid}"
                for member in archive
                if member.isdir() and (member.uid or member.gid)
            }

    def write(self, path: Path) -> None:
        """Write it as a package file without compression. Raises OSError."""
        members = (
            ("debian-binary", self.version),
            ("control.tar", self.control),
            ("data.tar", self.data),
        )
        with path.open("wb") as file:
            file.write(_MAGIC)
            for name, content in members:
                file.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}".encode())
                file.write(_END_OF_HEAD)
                file.write(content)
                file.write(b"\n" * (len(content) % 2))

    def extract(self, target: Path) -> None:
        """Unpack its files into ``target`` as files of this user, following links to directories.

        The caller has verified the archive's signature. Raises ToolError.
        """
        # Not tarfile: its filters differ between releases of Python 3.11.
        argv = [find_tar(), "-C", os.fspath(target), *_UNPACK]
        done = subprocess.run(argv, input=self.data, capture_output=True, check=False)
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()[-2000:]
            raise ToolError(f"a package cannot be unpacked into {target}: {said}", output=said)


def read_deb(path: Path) -> Deb:
    """Read and decompress a package file. Raises HostError if it is damaged or of an unknown
    kind."""
    found: dict[str, bytes] = {}
    try:
        if path.stat().st_size > DATA_MAX:
            raise ValueError("it is larger than a package can be")
        for name, content in _members(path.read_bytes()):
            base, _, packing = name.partition(".tar")
            found[base] = _decompress(content, packing) if base != name else content
        return Deb(found["debian-binary"], found["control"], found["data"])
    except (KeyError, ValueError, OSError, EOFError, lzma.LZMAError) as error:
        raise HostError(f"the package {path.name} cannot be read: {reason_of(error)}") from error


def _members(archive: bytes) -> Iterator[tuple[str, bytes]]:
    if not archive.startswith(_MAGIC):
        raise ValueError("it is no ar archive")
    position = len(_MAGIC)
    while position + _HEAD <= len(archive):
        head = archive[position : position + _HEAD]
        if head[58:] != _END_OF_HEAD:
            raise ValueError(f"there is no header at byte {position}")
        size = int(head[48:58])
        position += _HEAD
        if size < 0 or position + size > len(archive):
            raise ValueError("it is cut off")
        yield head[:16].decode("ascii").rstrip(" /"), archive[position : position + size]
        position += size + size % 2


def _decompress(content: bytes, packing: str) -> bytes:
    most = min(DATA_MAX, max(SMALL, GROWTH_MAX * len(content)))
    match packing:
        case "":
            return content
        case ".xz":
            unpacker = lzma.LZMADecompressor(memlimit=DICTIONARY_MAX)
            data = unpacker.decompress(content, max_length=most + 1)
        case ".gz":
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
                data = file.read(most + 1)
        case ".zst":
            data = _unpack_zstd(content, most)
        case _:
            raise ValueError(f"the packing {packing!r} is not known here")
    if len(data) > most:
        raise ValueError("it is larger than a package can be")
    return data


def _unpack_zstd(content: bytes, most: int) -> bytes:
    data = bytearray()
    for piece in zstd.unpack(iter([content])):
        data += piece
        if len(data) > most:
            break
    return bytes(data)
