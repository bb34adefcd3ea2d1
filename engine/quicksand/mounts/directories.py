"""What is asked of a directory of the host before it is mounted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from quicksand.errors import MountError
from quicksand.host.paths import Paths
from quicksand.mounts.mount import Mount


def check_directory(mount: Mount, places: Paths) -> None:
    """Raise MountError if the host's side of a mount is no directory, or may not be written by a
    guest. Blocks for I/O."""
    try:
        found = os.stat(mount.host)  # noqa: PTH116 - a text, not a path to walk
    except OSError as error:
        raise MountError(
            f"{mount.host} cannot be mounted: {error.strerror}",
            hint="the host's side of a mount must be a directory that exists",
        ) from error
    if not stat.S_ISDIR(found.st_mode):
        raise MountError(
            f"{mount.host} is no directory", hint="mount the directory that it lies in"
        )
    if mount.readonly:
        return
    here = Path(mount.host).resolve()
    for place in (places.data, places.cache, places.runtime):
        own = place.resolve()
        if own == here or own in here.parents or here in own.parents:
            raise MountError(
                f"{mount.host} holds quicksand's own files ({own}), which no guest may change",
                hint="mount it read-only, or a directory in it",
            )
