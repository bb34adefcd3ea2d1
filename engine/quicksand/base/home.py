"""The home directory of this user, which a user without an entry in passwd may not have."""

from __future__ import annotations

from pathlib import Path

from quicksand.base.errors import PathError


def home() -> Path:
    """Return the home directory. Raises PathError if the system knows none."""
    try:
        return Path.home()
    except RuntimeError as error:
        raise PathError(
            "this user has no home directory: the system knows none, and HOME is not set",
            hint="set HOME, or QUICKSAND_DATA_DIR, QUICKSAND_CACHE_DIR and QUICKSAND_STATE_DIR",
        ) from error


def expand(path: str) -> Path:
    """Return a path that a user wrote, with its ``~`` expanded. Raises PathError if the home
    directory that it means is unknown."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise PathError(
            f"{path}: the home directory that it means is not known", hint="write it in full"
        ) from error
