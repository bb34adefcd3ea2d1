"""The files of a save that are here, as an import reads them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand.base.files import map_os_errors
from quicksand.base.regular import open_regular
from quicksand.base.sharing import share_file
from quicksand.saves.bundle.receiving import check_digest, unlike

if TYPE_CHECKING:
    from hashlib import _Hash

    from quicksand.records.nodes import File
    from quicksand.saves.bundle.manifest import Member
    from quicksand.saves.bundle.receiving import Watch

PIECE = 1024 * 1024
"""Bytes that are read in one step."""


class FileMembers:
    """Files by their digests (`Members`). Each is read once more, completely, and then linked, or
    copied where that is not possible: the file on disk may have been replaced since."""

    def __init__(self, files: Mapping[str, Path], stop: Callable[[], None]) -> None:
        """``stop`` is called for each piece, and may raise."""
        self._files = files
        self._stop = stop

    def skip(self, member: Member) -> None:
        """See `Members.skip`."""

    def end(self) -> None:
        """See `Members.end`."""

    def require_space(self, root: Path, need: int) -> None:
        """Do nothing: links need no space, and a copy that finds none raises an error."""

    def write(
        self,
        member: Member,
        path: Path,
        expected: File | None = None,
        watch: Watch | None = None,
    ) -> None:
        """See `Members.write`."""
        if expected is not None and expected.size != member.size:
            raise unlike(expected)
        source = self._files.get(member.sha256)
        if source is None:
            raise ValueError(f"{member.name} has not arrived")
        with map_os_errors(source):
            descriptor = open_regular(source, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            digest, at = hashlib.sha256(), 0
            while data := os.pread(descriptor, PIECE, at):
                self._stop()
                if watch is not None:
                    watch.look(data)
                digest.update(data)
                at += len(data)
            check_digest(member, digest.hexdigest())
        finally:
            os.close(descriptor)
        share_file(source, path)


def hash_file(descriptor: int) -> _Hash:
    """Return the digest of an open file's contents, which can be continued. Raises OSError."""
    digest, at = hashlib.sha256(), 0
    while data := os.pread(descriptor, PIECE, at):
        digest.update(data)
        at += len(data)
    return digest
