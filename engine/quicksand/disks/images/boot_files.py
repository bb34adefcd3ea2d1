"""Boot files of guests that are made from an image's files: each is made once and kept in the
cache, those with equal contents as hard links."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from quicksand.base.errors import ImageError
from quicksand.base.files import map_os_errors
from quicksand.base.footprint import Footprint
from quicksand.base.listing import TEMPORARY, own_files
from quicksand.base.paths import make_private_dir
from quicksand.base.regular import create, read_file
from quicksand.base.sharing import link_file

PLACE = "initrd"
"""The directory of these files in the cache, at first only for initrds."""

KEPT_BYTES = 512 * 1024**2
"""The most bytes of all of them together; those of Debian's kernel take 60 MiB."""

STARTING_S = 3600.0
"""Seconds after its last use for which a file is not removed: a start uses it by its path until
QEMU has opened it."""

_NAMES = re.compile(
    rf"[0-9a-f]{{32}}\.(cpio|elf)|\.[0-9a-f]{{32}}\.(cpio|elf){TEMPORARY}|\.[0-9a-f]{{16}}"
)


def list_boot_files(cache: Path) -> list[Path]:
    """List the files that `keep` has made in ``cache``, including those that a killed process has
    left unfinished, or set aside to remove them. Blocks for I/O."""
    return own_files(cache / PLACE, _NAMES)


def set_aside(file: Path) -> Path:
    """Return a free name for a file that is about to be removed, under which no start finds it."""
    return file.with_name(f".{secrets.token_hex(8)}")


def place_of(cache: Path, suffix: str, sources: Sequence[Path]) -> Path:
    """Return the place of the file that is made from ``sources``. Raises OSError."""
    return cache / PLACE / f"{_key(*sources)}{suffix}"


def keep(cache: Path, suffix: str, sources: Sequence[Path], make: Callable[[], bytes]) -> Path:
    """Return the file in ``cache`` made from ``sources``; make it with the result of ``make`` if
    there is none. Blocks for I/O.

    Raises the errors of ``make``, ImageError if a source cannot be read, DiskSpaceError, PathError.
    """
    try:
        target = place_of(cache, suffix, sources)
        if target.is_file():
            _note_use(target)
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
            if not _link_same(content, suffix, temporary):
                with create(temporary) as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            temporary.replace(target)
            _note_use(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def trim(cache: Path, used: Callable[[], Collection[Path]]) -> None:
    """Remove the files that were not used for the longest time, while all take more than
    `KEPT_BYTES`. ``used`` tells which of them machines use. Blocks for I/O."""
    files = list_boot_files(cache)
    if Footprint(*files).size <= KEPT_BYTES:
        return
    last_use = {}
    for path in files:
        with contextlib.suppress(FileNotFoundError):
            last_use[path] = path.stat().st_atime
    before = time.time() - STARTING_S
    old = sorted((when, path) for path, when in last_use.items() if when < before)
    in_use = used() if old else ()
    for _, path in old:
        if path not in in_use:
            with contextlib.suppress(OSError):  # a start needs no space that it cannot free
                path.unlink()
            files.remove(path)
            if Footprint(*files).size <= KEPT_BYTES:
                return


def _note_use(file: Path) -> None:
    """Set the time of access, which not every file system updates by itself."""
    with contextlib.suppress(OSError):  # cleaning has it aside for a moment
        os.utime(file, ns=(time.time_ns(), file.stat().st_mtime_ns))


def _link_same(content: bytes, suffix: str, target: Path) -> bool:
    """Make ``target`` a hard link to an existing file with the same content, such as that of
    another image with the same kernel; return whether there is one. Raises OSError."""
    for path in list_boot_files(target.parent.parent):
        with contextlib.suppress(FileNotFoundError):
            is_like = path.suffix == suffix and path.stat().st_size == len(content)
            if is_like and read_file(path) == content:
                return link_file(path, target)
    return False


def _key(*files: Path) -> str:
    """Identify files by inode, size and time, since published files never change in place."""
    parts = []
    for file in files:
        found = file.stat()
        parts.append(f"{found.st_dev}\0{found.st_ino}\0{found.st_size}\0{found.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
