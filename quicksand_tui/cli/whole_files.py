"""Writes files that others may be reading."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(file: Path, text: str, mode: int = 0o600) -> None:
    """Writes a file so that readers see the old text or the new one. Raises OSError."""
    new = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            stream.write(text.encode("utf-8", "surrogateescape"))
            stream.flush()
            os.fsync(descriptor)
        new.replace(file)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
