"""Headers of disks, checked before any QEMU tool opens the file.

`quicksand_disks` does it. Its errors become the engine's here and in `disk_layers`, and nowhere
else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import quicksand_disks
from quicksand_disks import (
    DiskFileError,
    ImpossibleDiskError,
    LongNameError,
    MalformedError,
    Qcow2Header,
)

from quicksand.base.errors import ConfigError, ImageError, PathError


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """Turn the errors of `quicksand_disks` that name their file, and those about a request, into
    ImageError, ConfigError and PathError with the same words and causes."""
    try:
        yield
    except DiskFileError as error:
        raise ImageError(str(error), hint=error.hint) from error.__cause__ or error
    except LongNameError as error:
        raise PathError(str(error), hint=error.hint) from error
    except ImpossibleDiskError as error:
        raise ConfigError(str(error), hint=error.hint) from error


def check_qcow2(path: Path, *, allow_backing: bool = False) -> Qcow2Header:
    """Read and check the header of ``path``. Raises ImageError naming the file and what is wrong
    with it."""
    with disk_errors():
        return quicksand_disks.check_qcow2(path, allow_backing=allow_backing)


def require_sane_snapshots(path: Path, name: str) -> None:
    """Check the table of internal snapshots of a disk whose header was checked. Raises ImageError,
    with ``name`` as the file's name."""
    try:
        quicksand_disks.check_snapshots(path)
    except MalformedError as error:
        raise ImageError(f"{name} is refused: {error}") from error
    except OSError as error:
        raise ImageError(f"cannot read {path}: {error.strerror}") from error
