"""What was found out about programs, so that nobody has to run them again to know it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quicksand.host.files import read_json, write_json
from quicksand.host.paths import make_private_dir, paths

KEPT_MAX = 50
"""Findings in a file, the latest: nobody has more QEMUs."""


class Findings:
    """A JSON file in the cache. Losing it, or a part of it, costs time and nothing else."""

    def __init__(self, name: str) -> None:
        self._path = paths().cache / name

    def get(self, key: str) -> Any:
        """None if nothing is known."""
        return self._read().get(key)

    def put(self, key: str, value: Any) -> None:
        """Remember ``value``, which JSON can hold. Raises HostError."""
        known = self._read()  # anew: others find out things, too
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
    """Names a program as it is now, wherever links lead to it from. Raises OSError."""
    real = program.resolve()
    found = real.stat()
    return f"{real}:{found.st_size}:{found.st_mtime_ns}"
