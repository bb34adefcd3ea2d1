"""Finds the file that QEMU starts fastest of an image's kernel.

A bzImage decompresses itself in the guest, which takes half a second when the CPU is emulated.
Most hold an ELF file that QEMU can start directly (PVH). It is made of the bzImage on first use.
"""

from __future__ import annotations

import os
from pathlib import Path

from quicksand.base.errors import ImageError
from quicksand.base.regular import open_regular, read_file
from quicksand.disks.images.boot_files import keep, place_of

SUFFIX = ".elf"

_BZIMAGE, _BZIMAGE_AT = b"HdrS", 0x202
"""The field "header" (Linux Documentation/arch/x86/boot.rst)."""


def start_kernel(kernel: Path, cache: Path) -> Path:
    """Return the file for QEMU's -kernel when a guest boots: the ELF file inside ``kernel``, made
    once and kept in ``cache``, or ``kernel`` itself if it is no bzImage or if QEMU cannot start
    what is inside. Blocks for I/O.

    Raises ImageError if ``kernel`` is damaged or cannot be read, DiskSpaceError, PathError.
    """
    if not _is_bzimage(kernel):
        return kernel
    made = keep(cache, SUFFIX, [kernel], lambda: _start_file(kernel))
    return kernel if _is_empty(made) else made


def check_kernel(kernel: Path) -> None:
    """Raise ImageError if ``kernel`` is a bzImage and damaged, or cannot be read. Blocks for
    I/O."""
    if _is_bzimage(kernel):
        _start_file(kernel)


def start_file_of(kernel: Path, cache: Path) -> Path:
    """Where `start_kernel` keeps the file that it makes of ``kernel``. Raises OSError."""
    return place_of(cache, SUFFIX, [kernel])


def _is_bzimage(kernel: Path) -> bool:
    try:
        descriptor = open_regular(kernel)
        try:
            return os.pread(descriptor, len(_BZIMAGE), _BZIMAGE_AT) == _BZIMAGE
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ImageError(f"{kernel} cannot be read: {error.strerror or error}") from error


def _start_file(kernel: Path) -> bytes:
    """The small ELF file; nothing, which is kept as well, if there is none that QEMU can start."""
    # Once per kernel: other starts do without the decompressors.
    from quicksand.disks.images.vmlinux import extract_vmlinux, shrink_elf  # noqa: PLC0415

    try:
        return shrink_elf(extract_vmlinux(read_file(kernel)))
    except LookupError:
        return b""
    except ValueError as error:
        raise ImageError(
            f"the kernel {kernel} is damaged: {error}",
            hint="put a whole one there, or build or import the image anew",
        ) from error


def _is_empty(made: Path) -> bool:
    try:
        return made.stat().st_size == 0
    except FileNotFoundError:
        # Cleaning has it aside while it looks for starts, finds this one and gives it back.
        return False
