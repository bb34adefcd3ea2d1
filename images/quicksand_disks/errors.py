"""The errors of this package::

    DisksError                    base of all; ``hint`` is a remedy, or ""
    ├── DiskFileError             a file cannot be read as a disk; the message names it
    ├── MalformedError (ValueError)   a disk makes no sense, or exceeds a limit; no file is named
    │   └── UnfitDiskError        QEMU could use the disk, but it is not accepted here
    └── ImpossibleDiskError (ValueError)  the caller asks for a disk that cannot be
        └── LongNameError         the name of a backing file has more bytes than qcow2 has room for

Where a file cannot be written, an OSError names it as its ``filename``.
"""

from __future__ import annotations


class DisksError(Exception):
    """Base of all errors of this package. ``hint`` is a remedy, or ""."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class DiskFileError(DisksError):
    """A file cannot be read as a disk. The message names it; what is wrong with it may be the
    cause."""


class MalformedError(DisksError, ValueError):
    """A disk makes no sense, or exceeds a limit. The message names no file."""


class UnfitDiskError(MalformedError):
    """QEMU could use the disk, but it is not accepted here."""


class ImpossibleDiskError(DisksError, ValueError):
    """The caller asks for a disk that cannot be."""


class LongNameError(ImpossibleDiskError):
    """The name of a backing file has more bytes than qcow2 has room for."""


def require(condition: object, message: str) -> None:
    """Raise MalformedError with ``message`` unless ``condition`` holds."""
    if not condition:
        raise MalformedError(message)
