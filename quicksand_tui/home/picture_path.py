"""The place of pictures of a sandbox's screen for which nobody gave a path."""

from __future__ import annotations

import errno
import time
from pathlib import Path

from platformdirs import user_pictures_path

from quicksand_tui.home.state import APP


def new_picture(sandbox: str, suffix: str) -> Path:
    """Returns the absolute path of a new picture, and makes its directory: "quicksand" in the
    user's pictures (XDG_PICTURES_DIR, also as user-dirs.dirs has it; else ~/Pictures). Raises
    OSError."""
    directory = user_pictures_path() / APP
    if not directory.is_absolute():
        raise OSError(errno.ENOENT, "this user has no home directory: set HOME")
    directory.mkdir(parents=True, exist_ok=True)
    return directory / f"{sandbox}-{time.strftime('%Y%m%d-%H%M%S')}{suffix}"
