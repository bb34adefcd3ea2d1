"""Reads a wheel (PyPA, "Binary distribution format") as a file from elsewhere: nothing in it is
trusted, unpacked at places that it names, or run.

Only single files are read, by their names, into memory or to a place that the caller names, so no
name in a wheel ever becomes a path. Each must be in the wheel's RECORD with its digest and size.
"""

from __future__ import annotations

import base64
import binascii
import calendar
import configparser
import contextlib
import csv
import hashlib
import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from email.errors import MessageError
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from packaging.metadata import parse_email
from packaging.tags import Tag, parse_tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from quicksand_wheels.errors import RefusedError
from quicksand_wheels.files import create, open_file, size_text
from quicksand_wheels.links import SHOWN_MAX

SUFFIX = ".whl"
ENTRIES_MAX = 10_000
DIRECTORY_MAX = 16 * 1024 * 1024
"""Bytes of the table of contents: ENTRIES_MAX entries of the usual size take a tenth of that."""

METADATA_MAX = 1024 * 1024
ENTRY_POINTS_MAX = 64 * 1024
RECORD_MAX = 4 * 1024 * 1024
PIECE = 1024 * 1024
FILE_MAX = 64 * 1024**3
"""Bytes of one file in a wheel."""

RATIO_MAX, RATIO_FROM = 200, 256 * 1024 * 1024
"""The largest ratio of a file's size to its compressed size, if it has more than so many bytes.
Deflate reaches 1000 with zeros alone, which files of that size do not have."""

_ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
_DIGESTS = ("sha256", "sha384", "sha512")
_UNRECORDED = ("RECORD", "RECORD.jws", "RECORD.p7s")
"""Files of the metadata that cannot be in RECORD with a digest (PEP 376, PEP 427)."""

_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    UnicodeError,
    ValueError,
    OverflowError,
    csv.Error,
    MessageError,
)
"""The errors of zipfile and of the parsers for bytes that are no wheel."""

Look = Callable[[bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelName:
    """The parts of a wheel's file name."""

    package: str
    """The normalised name."""
    version: Version
    build: tuple[int, str] | tuple[()]
    tags: frozenset[Tag]
    file: str

    @property
    def arch(self) -> str | None:
        """The architecture of its platforms, "x86_64" or "aarch64"; None if it is for any, or for
        another one."""
        return _arch_of(self.tags)


def parse_wheel_name(name: str) -> WheelName:
    """Parse a wheel's file name. Raises RefusedError."""
    try:
        package, version, build, tags = parse_wheel_filename(name)
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise RefusedError(f"{name[:SHOWN_MAX]!r} is no name of a wheel: {error}") from error
    return WheelName(package=package, version=version, build=build, tags=tags, file=name)


def _parse_entry_points(text: str) -> configparser.ConfigParser:
    """Parse an `entry_points.txt`. Raises RefusedError."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # names have their case
    try:
        parser.read_string(text)
        return parser
    except configparser.Error as error:
        raise RefusedError(f"its entry points cannot be read: {error}") from error


def _arch_of(tags: Collection[Tag]) -> str | None:
    """The architecture that platforms such as manylinux_2_17_x86_64 and macosx_11_0_arm64 name."""
    for tag in tags:
        for name, arch in _ARCHITECTURES.items():
            if tag.platform.endswith(f"_{name}"):
                return arch
    return None


class Wheel:
    """An open wheel. All methods raise RefusedError naming the file and what is wrong with it."""

    def __init__(self, path: Path) -> None:
        """Open a wheel and check all but the contents of its files. Raises RefusedError."""
        self.path = path
        self.name = parse_wheel_name(path.name)
        try:
            self._file = open_file(path)
        except OSError as error:
            raise RefusedError(f"{path} cannot be read: {error.strerror}") from error
        try:
            with self._naming():
                self._open()
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> None:
        self._zip = zipfile.ZipFile(_Bounded(self._file))
        self._entries = _checked_entries(self._zip.infolist())
        self._about = self._find_about()
        self._record: dict[str, _Recorded] = {}
        self._record = self._read_record()
        self._check_metadata()
        found = f"{self._about}/entry_points.txt"
        is_there = found in self._entries
        text = self.read(found, ENTRY_POINTS_MAX).decode() if is_there else ""
        self._entry_points = _parse_entry_points(text)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._file.fileno()).st_size

    def entry_points(self, group: str) -> dict[str, str]:
        """Return the entry points of a group: names and what they lead to."""
        found = self._entry_points
        return dict(found[group]) if found.has_section(group) else {}

    def names(self) -> Collection[str]:
        return self._entries.keys()

    def size_of(self, name: str) -> int:
        """Return the unpacked bytes of a file in it, as the wheel declares them."""
        return self._find(name).file_size

    def newest(self) -> float:
        """Unix time of the newest file in it, by its table of contents, which has no time zone and
        is taken as UTC. Builds that are reproducible have one time for all."""
        return max((_unix_time(entry.date_time) for entry in self._entries.values()), default=0.0)

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of a file of at most ``limit`` bytes."""
        return b"".join(self._pieces(name, limit))

    def unpack(self, name: str, target: Path, *, limit: int, look: Look) -> int:
        """Write a file of at most ``limit`` bytes to ``target``, which must not exist, and return
        its size. ``look`` sees each piece first, and may raise. Raises OSError, too, if it cannot
        be written."""
        with create(target) as into:
            for piece in self._pieces(name, limit):
                look(piece)
                into.write(piece)
            return into.tell()

    def _pieces(self, name: str, limit: int) -> Iterator[bytes]:
        """Yield the content of a file; what it is not by RECORD is told at its end."""
        with self._naming():
            entry, known = self._find(name), self._record.get(name)
            _check_size(entry, limit)
            digest = hashlib.new(known.algorithm if known is not None else "sha256")
            done = 0
            with self._zip.open(entry) as source:
                while piece := source.read(min(PIECE, entry.file_size - done + 1)):
                    done += len(piece)
                    if done > entry.file_size:
                        raise ValueError(f"{name} is longer than it says")
                    digest.update(piece)
                    yield piece
            if done != entry.file_size:
                raise ValueError(f"{name} is shorter than it says")
            if known is not None and digest.digest() != known.digest:
                raise ValueError(f"{name} has another digest than in RECORD")

    def _find(self, name: str) -> zipfile.ZipInfo:
        if name not in self._entries:
            raise RefusedError(f"{self.path.name} has no {name}")
        return self._entries[name]

    def _find_about(self) -> str:
        found = {name.partition("/")[0] for name in self._entries}
        about = [name for name in found if name.endswith(".dist-info")]
        if len(about) != 1:
            raise ValueError(f"it has {len(about)} directories of metadata, not one")
        name, _, version = about[0].removesuffix(".dist-info").partition("-")
        self._require_same(name, version, about[0])
        return about[0]

    def _require_same(self, name: str, version: str, where: str) -> None:
        """Check that a part of it is about the package that its file name names."""
        try:
            is_same = Version(version) == self.name.version
        except InvalidVersion:
            is_same = False
        if not is_same or canonicalize_name(name) != self.name.package:
            raise ValueError(f"{where} is about {name[:SHOWN_MAX]} {version[:SHOWN_MAX]}")

    def _check_metadata(self) -> None:
        raw, _ = parse_email(self.read(f"{self._about}/METADATA", METADATA_MAX))
        self._require_same(raw.get("name", ""), raw.get("version", ""), "METADATA")
        self.requires = tuple(raw.get("requires_dist", ()))
        text = self.read(f"{self._about}/WHEEL", METADATA_MAX).decode()
        fields = [line.partition(":") for line in text.splitlines()]
        version = next((value.strip() for key, _, value in fields if key == "Wheel-Version"), "")
        if version.partition(".")[0] != "1":
            raise ValueError(f"it is of version {version[:SHOWN_MAX]!r}, and 1 is known")
        tags = [parse_tag(value.strip()) for key, _, value in fields if key == "Tag"]
        if tags and frozenset().union(*tags) != self.name.tags:
            raise ValueError("its tags are not those in its name")

    def _read_record(self) -> dict[str, _Recorded]:
        text = self.read(f"{self._about}/RECORD", RECORD_MAX).decode()
        found: dict[str, _Recorded] = {}
        unrecorded = {f"{self._about}/{name}" for name in _UNRECORDED}
        for row in csv.reader(io.StringIO(text)):
            if not row:
                continue
            if len(row) != 3 or row[0] in found:
                raise ValueError(f"RECORD has a line for {row[0][:SHOWN_MAX]!r} that is wrong")
            if row[0] not in unrecorded:
                found[row[0]] = _Recorded.parse(*row)
        there = self._entries.keys() - unrecorded
        if missing := sorted(found.keys() - there):
            raise ValueError(f"it is not whole: {missing[0][:SHOWN_MAX]!r} is only in RECORD")
        if more := sorted(there - found.keys()):
            raise ValueError(f"{more[0][:SHOWN_MAX]!r} is not in RECORD")
        for name, known in found.items():
            if known.size not in (None, self._entries[name].file_size):
                raise ValueError(f"{name} has another size than in RECORD")
        return found

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except RefusedError as error:
            raise RefusedError(f"{self.path.name}: {error}", hint=error.hint) from error
        except _DAMAGED as error:
            raise RefusedError(f"{self.path.name} cannot be used: {error}") from error

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Wheel:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A line of RECORD."""

    algorithm: str
    digest: bytes
    size: int | None

    @classmethod
    def parse(cls, name: str, digest: str, size: str) -> _Recorded:
        """Raises ValueError."""
        algorithm, _, text = digest.partition("=")
        if algorithm not in _DIGESTS:
            raise ValueError(f"RECORD has no digest that counts for {name[:SHOWN_MAX]!r}")
        try:
            value = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        except binascii.Error as error:
            raise ValueError(f"RECORD has a damaged digest for {name[:SHOWN_MAX]!r}") from error
        if size and not (size.isascii() and size.isdigit() and len(size) < 20):
            raise ValueError(f"RECORD has a damaged size for {name[:SHOWN_MAX]!r}")
        return cls(algorithm, value, int(size) if size else None)


class _Bounded(io.RawIOBase):
    """A file that cannot be read in large pieces: zipfile reads a table of contents at once,
    whatever size the file declares."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        try:
            return self._file.seek(offset, whence)
        except OSError as error:  # a place before the beginning
            raise zipfile.BadZipFile("it leads to a place outside of it") from error

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int | None = -1) -> bytes:
        wanted = DIRECTORY_MAX + 1 if size is None or size < 0 else size
        data = self._file.read(min(wanted, DIRECTORY_MAX + 1))
        if len(data) > DIRECTORY_MAX:
            raise zipfile.BadZipFile("its table of contents is too large")
        return data


def _checked_entries(entries: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    """Return the files in it by name. Raises ValueError for entries that no wheel has."""
    if len(entries) > ENTRIES_MAX:
        raise ValueError(f"it has {len(entries)} files, more than {ENTRIES_MAX}")
    found: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        # zipfile cuts names at a NUL and changes separators; the name in the file counts.
        name = entry.orig_filename
        shown = repr(name[:SHOWN_MAX])
        if not _is_harmless(name.removesuffix("/")) or name != entry.filename:
            raise ValueError(f"it has a file {shown}, which leads out of it or has no proper name")
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            what = "a link" if kind == stat.S_IFLNK else "a special file"
            raise ValueError(f"{shown} is {what}")
        if entry.flag_bits & _ENCRYPTED:
            raise ValueError(f"{shown} is encrypted")
        if entry.compress_type not in _COMPRESSIONS:
            raise ValueError(f"{shown} is compressed in a way that no wheel is")
        if name in found:
            raise ValueError(f"it has {shown} twice")
        if not name.endswith("/"):
            found[name] = entry
    return found


def _is_harmless(name: str) -> bool:
    parts = name.split("/")
    if "\\" in name or ":" in parts[0] or not name.isprintable():
        return False
    return not {"", ".", ".."}.intersection(parts)


def _check_size(entry: zipfile.ZipInfo, limit: int) -> None:
    """Raise ValueError for a file that unpacks to too much."""
    size, packed = entry.file_size, entry.compress_size
    if size > limit:
        raise ValueError(f"{entry.filename} has {size_text(size)}, more than {size_text(limit)}")
    if size > RATIO_FROM and size > RATIO_MAX * packed:
        raise ValueError(
            f"{entry.filename} would grow from {size_text(packed)} to {size_text(size)}"
        )


def is_wheel(name: str) -> bool:
    """Whether the user means the path of a wheel."""
    return name.lower().endswith(SUFFIX)


def _unix_time(date: tuple[int, int, int, int, int, int]) -> float:
    try:
        return float(max(0, calendar.timegm(date)))
    except (ValueError, OverflowError):
        return 0.0
