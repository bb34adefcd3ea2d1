"""Files that several images have, such as a kernel: each lies in the store once, with several
names."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from quicksand.base.regular import open_file
from quicksand.base.sharing import link_file
from quicksand.disks.images.stored_image import StoredImage


def sha256_file(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file. Blocks for I/O. Raises OSError."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def link_same(path: Path, facts: Mapping[str, Any], stored: Iterable[StoredImage]) -> None:
    """Make a finished file a hard link to one with the same content in the store, if there is one
    and links are possible. ``facts`` are its size and digest. Blocks for I/O; raises OSError."""
    same = (facts["size"], facts["sha256"])
    for image in stored:
        for other in image.files.values():
            if (other["size"], other["sha256"]) == same and _take(image, other, path):
                return


def _take(image: StoredImage, other: Mapping[str, Any], path: Path) -> bool:
    """Put a link to a stored file in the place of ``path``, if the stored file still matches its
    manifest and nobody else can change it. Raises OSError."""
    link = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if link_file(image.root / str(other["name"]), link):
                found = link.lstat()
                is_own = found.st_uid == os.geteuid() and not found.st_mode & 0o022
                if stat.S_ISREG(found.st_mode) and is_own and sha256_file(link) == other["sha256"]:
                    link.replace(path)
                    return True
        return False
    finally:
        link.unlink(missing_ok=True)
