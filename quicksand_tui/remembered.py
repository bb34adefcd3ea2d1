"""What the app remembers of its user from one run to the next: small values, in one JSON file.

Nothing that counts: what cannot be read is forgotten, and what cannot be written is not kept.
"""

from __future__ import annotations

import contextlib
import threading

from quicksand_tui.state_files import StateFile, state_dir

FILE_NAME = "app.json"


def memory() -> Remembered:
    """That of this user."""
    return Remembered(StateFile(state_dir() / FILE_NAME))


class Remembered:
    """Values by name. Without a file nothing is remembered beyond this run."""

    def __init__(self, file: StateFile | None = None) -> None:
        self._file = file
        self._values = file.read() if file is not None else {}
        self._writing = threading.Lock()

    def get(self, name: str) -> object:
        """None if there is none. It may be anything: the file may have been edited."""
        return self._values.get(name)

    def put(self, name: str, value: object) -> bool:
        """Remember a value that JSON can hold; returns whether that is another one than before,
        and so one to `write`."""
        is_new = bool(self._values.get(name) != value)
        self._values[name] = value
        return is_new

    def write(self, name: str) -> None:
        """Keep a value for the next run. Blocks; called in a thread."""
        if self._file is None:
            return
        with self._writing, contextlib.suppress(OSError):
            # Another app may have written other values meanwhile.
            kept = self._file.read()
            kept[name] = self._values[name]
            self._file.write(kept)
