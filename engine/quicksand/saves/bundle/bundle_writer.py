"""Writes files into a bundle: each is opened once, read in order, and compared with its digest."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from quicksand.base.errors import BundleError, HostError, PathError
from quicksand.base.progress import Progress
from quicksand.base.regular import NotAFileError, open_regular
from quicksand.records.nodes import File
from quicksand.saves.bundle.manifest import MANIFEST, MANIFEST_MAX, Bundle, Member, parse_json
from quicksand.saves.bundle.receiving import RECORDS_MAX, Crcs, check_digest
from quicksand.saves.bundle.streams import Write
from quicksand.saves.bundle.tar import END, PIECE, encode_header, padding


@dataclass(slots=True, kw_only=True)
class Outgoing:
    """A file that goes into a bundle."""

    name: str
    """Its name in the bundle."""
    path: Path | None = None
    data: bytes | None = None
    """Its content, if there is no ``path``."""
    sha256: str = ""
    """Its digest; "" until it is known."""
    size: int = -1
    """Bytes; -1 until they are known."""
    expected: File | None = None
    """A record with its checksums."""
    descriptor: int = field(default=-1, repr=False)

    def open(self, stack: ExitStack) -> None:
        """Open it without following links, so that it stays readable whatever happens to its name.
        Raises BundleError, HostError if too many files are open."""
        if self.data is not None:
            self.size, self.sha256 = len(self.data), hashlib.sha256(self.data).hexdigest()
            return
        assert self.path is not None
        try:
            self.descriptor = open_regular(self.path, os.O_NOFOLLOW)
        except NotAFileError as error:
            raise BundleError(f"{self.path} is not a regular file") from error
        except OSError as error:
            raise _cannot_open(self.path, error) from error
        stack.callback(os.close, self.descriptor)
        found = os.fstat(self.descriptor)
        if self.size not in (-1, found.st_size):
            raise BundleError(
                f"{self.path} is damaged: {found.st_size} bytes instead of {self.size}"
            )
        self.size = found.st_size

    def pieces(self) -> Iterator[bytes]:
        """Yield its content. Raises BundleError if it became shorter, PathError."""
        if self.data is not None:
            yield self.data
            return
        at = 0
        while at < self.size:
            try:
                data = os.pread(self.descriptor, min(PIECE, self.size - at), at)
            except OSError as error:
                raise PathError(f"cannot read {self.path}: {error.strerror}") from error
            if not data:
                raise BundleError(f"{self.path} became shorter while it was read")
            yield data
            at += len(data)

    @property
    def member(self) -> Member:
        return Member(name=self.name, size=self.size, sha256=self.sha256)


def _cannot_open(path: Path, error: OSError) -> Exception:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return HostError(
            "there are more files in the bundle than may be open at one time",
            hint="`ulimit -n 65536` allows more of them",
        )
    if error.errno == errno.ELOOP:
        return BundleError(f"{path} is a symbolic link, which is not exported")
    return BundleError(f"{path} cannot be read: {error.strerror}")


def open_all(files: Sequence[Outgoing], stack: ExitStack) -> None:
    """Open all files; ``stack`` closes them. Raises BundleError, HostError."""
    for file in files:
        file.open(stack)


def find_digests(files: Sequence[Outgoing], progress: Progress) -> None:
    """Compute missing digests. Raises BundleError for a file that differs from its record,
    PathError, and what ``progress`` raises."""
    unknown = [file for file in files if not file.sha256]
    total = sum(file.size for file in unknown)
    done = 0
    for file in unknown:
        digest = hashlib.sha256()
        crcs = None if file.expected is None else Crcs(file.expected)
        for data in file.pieces():
            digest.update(data)
            if crcs is not None:
                with _damage(file):
                    crcs.update(data)
            done += len(data)
            progress("checking", done, total)
        if crcs is not None:
            with _damage(file):
                crcs.check(file.size)
        file.sha256 = digest.hexdigest()


@contextlib.contextmanager
def _damage(file: Outgoing) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise BundleError(f"{file.path} is damaged: {error}") from error


def encode_manifest(bundle: Bundle) -> bytes:
    """Encode the manifest. Raises BundleError if no import would accept it."""
    data = bundle.encode()
    try:
        if len(data) > MANIFEST_MAX:
            raise ValueError(f"{len(bundle.files)} files are more than a bundle can have")
        if sum(file.size for file in bundle.files if file.name.endswith(".json")) > RECORDS_MAX:
            raise ValueError("the records of its checkpoints are more than a bundle can have")
        Bundle.from_json(parse_json(data))
    except ValueError as error:
        raise BundleError(f"{bundle.name!r} cannot be exported: {error}") from error
    return data


def write_bundle(
    bundle: Bundle, files: Sequence[Outgoing], write: Write, progress: Progress
) -> None:
    """Write a tar of the manifest and all files. Raises BundleError if a file has changed,
    PathError, and what ``write`` and ``progress`` raise."""
    manifest = encode_manifest(bundle)
    _write_member(MANIFEST, len(manifest), bundle, write, lambda: iter((manifest,)))
    total, done = bundle.size, 0

    def counted(file: Outgoing) -> Iterator[bytes]:
        nonlocal done
        digest = hashlib.sha256()
        for data in file.pieces():
            digest.update(data)
            yield data
            done += len(data)
            progress("writing", done, total)
        try:
            check_digest(file.member, digest.hexdigest())
        except ValueError as error:
            raise BundleError(f"{file.path or file.name}: {error}") from error

    for file in files:
        _write_member(file.name, file.size, bundle, write, lambda file=file: counted(file))  # type: ignore[misc]
    write(END)


def _write_member(
    name: str, size: int, bundle: Bundle, write: Write, pieces: Callable[[], Iterator[bytes]]
) -> None:
    write(encode_header(name, size, bundle.created))
    for data in pieces():
        write(data)
    if fill := padding(size):
        write(fill)
