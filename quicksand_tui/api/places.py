"""Where the API keeps what it knows."""

from __future__ import annotations

from pathlib import Path

from quicksand.base.paths import Paths


def api_dir(paths: Paths) -> Path:
    """The directory with its keys and records. docs/internals/layout.md has the files."""
    return paths.data / "api"
