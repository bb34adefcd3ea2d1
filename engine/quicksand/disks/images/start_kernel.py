"""Finds the form of an image's kernel that QEMU starts fastest.

A bzImage decompresses itself in the guest, which takes half a second when the CPU is emulated. Most
hold an ELF file that QEMU can start directly (PVH), which is extracted on first use.

An arm64 kernel for EFI (zboot, such as Alpine's) decompresses itself too, but only after firmware,
which no machine here has. So its kernel is extracted in the same way.
"""

from __future__ import annotations

import os
from pathlib import Path

from quicksand.base.errors import ImageError
from quicksand.base.regular import open_regular, read_file
from quicksand.disks.images.boot_files import keep, place_of
from quicksand.disks.images.kernel_arch import is_zboot

SUFFIX = ".elf"

_BZIMAGE, _BZIMAGE_AT = b"HdrS", 0x202
"""The field "header" (Linux Documentation/arch/x86/boot.rst)."""
_HEAD = _BZIMAGE_AT + len(_BZIMAGE)


def start_kernel(kernel: Path, cache: Path) -> Path:
    """Return the file for QEMU's -kernel when a guest boots: the contents of ``kernel``, extracted
    once and kept in ``cache``; or ``kernel`` itself if it is not packed in a known way or if QEMU
    cannot start its contents. Blocks for I/O.

    Raises ImageError if ``kernel`` is damaged or cannot be read, DiskSpaceError, PathError.
    """
    if not _is_packed(kernel):
        return kernel
    made = keep(cache, SUFFIX, [kernel], lambda: _start_file(kernel))
    return kernel if _is_empty(made) else made


def check_kernel(kernel: Path) -> None:
    """Raise ImageError if ``kernel`` is packed and damaged, or cannot be read. Blocks for I/O."""
    if _is_packed(kernel):
        _start_file(kernel)


def start_file_of(kernel: Path, cache: Path) -> Path:
    """Return the place where `start_kernel` keeps the file made from ``kernel``. Raises OSError."""
    return place_of(cache, SUFFIX, [kernel])


def _is_packed(kernel: Path) -> bool:
    try:
        descriptor = open_regular(kernel)
        try:
            head = os.pread(descriptor, _HEAD, 0)
            return head.startswith(_BZIMAGE, _BZIMAGE_AT) or is_zboot(head)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ImageError(f"{kernel} cannot be read: {error.strerror or error}") from error


def _start_file(kernel: Path) -> bytes:
    """Return the bytes of the file that QEMU starts; b"" if there is none, which is kept, too."""
    # Once per kernel: other starts do not need the decompressors.
    from quicksand.disks.images import vmlinux  # noqa: PLC0415

    try:
        packed = read_file(kernel)
        if is_zboot(packed):
            return vmlinux.extract_zboot(packed)
        return vmlinux.shrink_elf(vmlinux.extract_vmlinux(packed))
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
        # Cleaning has it aside while it looks for starts; it finds this one and gives it back.
        return False
