"""What the app remembers of its user from one run to the next: small values, in one JSON file.

Nothing that counts: what cannot be read is forgotten, and what cannot be written is not kept.
"""

from __future__ import annotations

import contextlib

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

    def get(self, name: str) -> object:
        """None if there is none. It may be anything: the file may have been edited."""
        return self._values.get(name)

    def put(self, name: str, value: object) -> None:
        """Remember a value that JSON can hold. Writes a small file: call it for what a person has
        done, not for what happens by itself."""
        if self._values.get(name) == value:
            return
        self._values[name] = value
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.write(self._values)
