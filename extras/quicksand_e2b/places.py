"""The directories of the API's records."""

from __future__ import annotations

from pathlib import Path

from quicksand.extending import Paths


def api_dir(paths: Paths) -> Path:
    """Returns the directory with the API's keys and records (docs/internals/layout.md)."""
    return paths.data / "api"
