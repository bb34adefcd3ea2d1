"""Files that guests boot with and that are made of an image's: each is made once and kept in the
cache."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from quicksand.base.errors import ImageError
from quicksand.base.files import map_os_errors
from quicksand.base.listing import TEMPORARY, own_files
from quicksand.base.paths import make_private_dir
from quicksand.base.regular import create

PLACE = "initrd"
"""Their directory in the cache; first it held initrds alone."""

_NAMES = re.compile(
    rf"[0-9a-f]{{32}}\.(cpio|elf)|\.[0-9a-f]{{32}}\.(cpio|elf){TEMPORARY}|\.[0-9a-f]{{16}}"
)


def list_boot_files(cache: Path) -> list[Path]:
    """Files that `keep` has made in ``cache``, also those that a killed process has left
    unfinished, or set aside to remove them. Blocks for I/O."""
    return own_files(cache / PLACE, _NAMES)


def set_aside(file: Path) -> Path:
    """A free name for a file that is about to be removed, by which no start finds it."""
    return file.with_name(f".{secrets.token_hex(8)}")


def place_of(cache: Path, suffix: str, sources: Sequence[Path]) -> Path:
    """Where `keep` keeps what is made of ``sources``. Raises OSError."""
    return cache / PLACE / f"{_key(*sources)}{suffix}"


def keep(cache: Path, suffix: str, sources: Sequence[Path], make: Callable[[], bytes]) -> Path:
    """Return the file in ``cache`` that was made of ``sources``; if there is none yet, it gets what
    ``make`` returns. Blocks for I/O.

    Raises what ``make`` raises, ImageError if a source cannot be read, DiskSpaceError, PathError.
    """
    try:
        target = place_of(cache, suffix, sources)
        if target.is_file():
            return target
        content = make()
    except OSError as error:
        raise ImageError(
            f"{error.filename or sources[0]} cannot be read: {error.strerror or error}"
        ) from error
    make_private_dir(target.parent)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with map_os_errors(target):
            with create(temporary) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def _key(*files: Path) -> str:
    """Identify files by inode, size and time, since published files never change in place."""
    parts = []
    for file in files:
        found = file.stat()
        parts.append(f"{found.st_dev}\0{found.st_ino}\0{found.st_size}\0{found.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
