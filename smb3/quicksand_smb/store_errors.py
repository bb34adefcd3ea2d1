"""Failures of operations on the host's files, in our own terms.

A StoreError means that the guest or the state of the host's files is at fault; `reason` says how.
The protocol maps reasons to NTSTATUS. The guest never sees paths or messages of the host.
"""

from __future__ import annotations

import errno

from quicksand_smb.minimal_stdlib import Enum, auto


class Reason(Enum):
    """The part of a failure that the guest may know."""

    NOT_FOUND = auto()
    """The last name does not exist."""
    NO_PATH = auto()
    """A name before the last does not exist or is no directory."""
    EXISTS = auto()
    IS_DIRECTORY = auto()
    NOT_DIRECTORY = auto()
    NOT_EMPTY = auto()
    READ_ONLY = auto()
    DENIED = auto()
    NO_SPACE = auto()
    """The disk, a quota, or all but the reserve (`Limits.reserve`) is used up."""
    TOO_LARGE = auto()
    BAD_NAME = auto()
    LOOP = auto()
    """A symlink stands in the middle of the path; `StoreError.depth` says where."""
    BUSY = auto()
    GONE = auto()
    """The share was taken away, or the file was closed."""
    UNSUPPORTED = auto()
    IO = auto()
    TOO_MANY = auto()
    """Too many open files, or too many links to one file."""
    CROSS_DEVICE = auto()
    """The two names lie in different file systems below the share."""
    INVALID = auto()
    """Numbers are out of range, or a directory would move into itself."""


class StoreError(Exception):
    """An operation was refused or failed. It has changed nothing unless it says otherwise.

    For LOOP, `depth` counts the names up to and including the symlink. Otherwise it is 0.
    """

    def __init__(self, reason: Reason, detail: str = "", *, depth: int = 0) -> None:
        super().__init__(detail or reason.name)
        self.reason = reason
        self.depth = depth


_REASONS = {
    errno.ENOENT: Reason.NOT_FOUND,
    errno.ENODATA: Reason.NOT_FOUND,
    errno.EEXIST: Reason.EXISTS,
    errno.EISDIR: Reason.IS_DIRECTORY,
    errno.ENOTDIR: Reason.NOT_DIRECTORY,
    errno.ENOTEMPTY: Reason.NOT_EMPTY,
    errno.EROFS: Reason.READ_ONLY,
    errno.EACCES: Reason.DENIED,
    errno.EPERM: Reason.DENIED,
    errno.ETXTBSY: Reason.BUSY,
    errno.EBUSY: Reason.BUSY,
    errno.EAGAIN: Reason.BUSY,
    errno.ENOSPC: Reason.NO_SPACE,
    errno.EFBIG: Reason.TOO_LARGE,
    errno.E2BIG: Reason.TOO_LARGE,
    errno.ERANGE: Reason.TOO_LARGE,
    errno.ENAMETOOLONG: Reason.BAD_NAME,
    errno.EILSEQ: Reason.BAD_NAME,
    errno.ELOOP: Reason.LOOP,
    errno.EMFILE: Reason.TOO_MANY,
    errno.ENFILE: Reason.TOO_MANY,
    errno.EMLINK: Reason.TOO_MANY,
    errno.EXDEV: Reason.CROSS_DEVICE,
    errno.EINVAL: Reason.INVALID,
    errno.EOVERFLOW: Reason.INVALID,
    errno.EBADF: Reason.DENIED,
    errno.ENXIO: Reason.DENIED,
    errno.ENODEV: Reason.DENIED,
    errno.ENOSYS: Reason.UNSUPPORTED,
    errno.EOPNOTSUPP: Reason.UNSUPPORTED,
    errno.ENOTTY: Reason.UNSUPPORTED,
}
# These are missing on some systems, or equal to others above.
for _name, _reason in {
    "EDQUOT": Reason.NO_SPACE,
    "ENOTSUP": Reason.UNSUPPORTED,
    "ESTALE": Reason.GONE,
    "ENOATTR": Reason.NOT_FOUND,
}.items():
    if hasattr(errno, _name):
        _REASONS.setdefault(getattr(errno, _name), _reason)


def store_error(error: BaseException) -> StoreError:
    """Return the StoreError for a system error. Numbers out of range become INVALID, and unknown
    errors become IO."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, OSError):
        return StoreError(_REASONS.get(error.errno or 0, Reason.IO), error.strerror or "")
    return StoreError(Reason.INVALID, str(error))
