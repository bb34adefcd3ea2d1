"""The end that a save leaves: its manifest, and pieces of its files by digest."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from quicksand.base.errors import PathError, SaveError
from quicksand.base.paths import Paths
from quicksand.base.progress import Progress
from quicksand.saves.bundle.exporting import Outgoing, encode_manifest, planned_save
from quicksand.saves.bundle.manifest import Member
from quicksand.saves.finding import find_save


class SaveSource:
    """A save of this machine whose files are open: they stay unchanged, whatever happens to their
    names. `open` and `read` block."""

    def __init__(self, name: str | Path, places: Paths) -> None:
        self.name = str(name)
        self.manifest = b""
        self._places = places
        self._files: dict[str, Outgoing] = {}
        self._stack = ExitStack()

    def open(self, progress: Progress) -> None:
        """Open the save and, if it is here, the image below it. Unknown digests are computed.
        Raises as `quicksand.saves.export`, and the errors of ``progress``."""
        save = find_save(self.name, self._places)
        plan = self._stack.enter_context(
            planned_save(save, self._places, full=None, progress=progress)
        )
        self._files = {file.sha256: file for file in plan.files}
        self.manifest = encode_manifest(plan.bundle)

    def find(self, sha256: str) -> Member:
        """Describe the file with that digest. Raises SaveError."""
        if sha256 not in self._files:
            raise SaveError(f"the save {self.name!r} has no file {sha256!r:.80}")
        return self._files[sha256].member

    def read(self, sha256: str, offset: int, size: int) -> bytes:
        """Read a piece of a file; b"" at its end. Raises SaveError, PathError."""
        self.find(sha256)
        file = self._files[sha256]
        try:
            return os.pread(file.descriptor, size, offset)
        except OSError as error:
            raise PathError(f"cannot read {file.path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the files. Idempotent."""
        self._stack.close()
