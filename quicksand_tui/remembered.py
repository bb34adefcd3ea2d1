"""What the app remembers of its user from one run to the next: small values, in one JSON file.

Nothing that counts: what cannot be read is forgotten, and what cannot be written is not kept.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

FILE_MAX = 256 * 1024
"""Bytes; what is larger is none of ours."""


def memory_path() -> Path:
    """The file of this user."""
    from quicksand_tui.last_used import state_file

    return state_file().with_name("app.json")


class Remembered:
    """Values by name. ``path`` None remembers nothing beyond this run."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._values: dict[str, object] = _read(path) if path is not None else {}

    def get(self, name: str) -> object:
        """None if there is none. It may be anything: the file may have been edited."""
        return self._values.get(name)

    def put(self, name: str, value: object) -> None:
        """Remember a value that JSON can hold. Writes a small file: call it for what a person has
        done, not for what happens by itself."""
        if self._values.get(name) == value:
            return
        self._values[name] = value
        if self._path is not None:
            with contextlib.suppress(OSError):
                _write(self._path, self._values)


def _read(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(FILE_MAX))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(path: Path, values: dict[str, object]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Two instances may write at once: the last one counts, and none is torn.
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    new.replace(path)
