"""Remembers facts about programs, so that these need not be run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quicksand.base.files import read_json, write_json
from quicksand.base.paths import make_private_dir, paths

KEPT_MAX = 50
"""The latest facts that a file keeps: no host has more QEMUs."""


class Findings:
    """A JSON file in the cache. Losing any of it only costs time."""

    def __init__(self, name: str) -> None:
        self._path = paths().cache / name

    def get(self, key: str) -> Any:
        """Return the value for ``key``, or None if it is unknown."""
        return self._read().get(key)

    def put(self, key: str, value: Any) -> None:
        """Remember ``value``, which must fit into JSON. Raises DiskSpaceError, PathError."""
        known = self._read()  # read again: other processes add facts too
        known.pop(key, None)
        known = dict([*known.items()][-KEPT_MAX + 1 :])
        make_private_dir(self._path.parent)
        write_json(self._path, {**known, key: value}, durable=False)

    def _read(self) -> dict[str, Any]:
        try:
            return read_json(self._path)
        except (OSError, ValueError):
            return {}


def program_key(program: Path) -> str:
    """Return a key for a program that changes with its file; links are resolved. Raises OSError."""
    real = program.resolve()
    found = real.stat()
    return f"{real}:{found.st_size}:{found.st_mtime_ns}"
