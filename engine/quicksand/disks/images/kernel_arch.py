"""The architecture of a kernel, by its first bytes."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError
from quicksand.base.regular import open_regular

KERNEL_HEAD = 4096
"""Bytes of a kernel that tell its architecture."""

_ELF_MACHINES = {62: Architecture.X86_64, 183: Architecture.ARM64}
"""e_machine in an ELF header (elf.h: EM_X86_64, EM_AARCH64)."""

_PE_MACHINES = {0x8664: Architecture.X86_64, 0xAA64: Architecture.ARM64}
"""Machine in a PE header, whose place is said at 0x3C (Microsoft's PE format)."""

_ZBOOT, _ZBOOT_AT = b"zimg", 4


def kernel_arch(head: bytes) -> Architecture | None:
    """The architecture of a Linux kernel by its first bytes; None if they do not tell.

    x86: Linux Documentation/arch/x86/boot.rst ("HdrS"); arm64: Documentation/arch/arm64/booting.rst
    (magic number 0x644d5241).
    """
    if is_zboot(head):
        at = int.from_bytes(head[0x3C:0x40], "little") + 4
        return _PE_MACHINES.get(int.from_bytes(head[at : at + 2], "little"))
    if head[0x202:0x206] == b"HdrS":
        return Architecture.X86_64
    if head[0x38:0x3C] == b"ARM\x64":
        return Architecture.ARM64
    if head[:4] == b"\x7fELF" and len(head) >= 20:
        return _ELF_MACHINES.get(struct.unpack_from("<H", head, 18)[0])
    return None


def is_zboot(head: bytes) -> bool:
    """Whether a kernel with these first bytes is an EFI zboot image, in which Linux for arm64 may
    be packed (CONFIG_EFI_ZBOOT; Linux drivers/firmware/efi/libstub/zboot-header.S)."""
    return head.startswith(b"MZ") and head.startswith(_ZBOOT, _ZBOOT_AT)


def check_kernel_arch(name: str, kernel: Path, arch: Architecture) -> None:
    """Raise ImageError if the kernel of the image ``name`` cannot be read, or is not for ``arch``:
    QEMU would start such a kernel and nothing would happen. Blocks for I/O."""
    try:
        descriptor = open_regular(kernel)
        try:
            found = kernel_arch(os.pread(descriptor, KERNEL_HEAD, 0))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ImageError(f"{kernel} cannot be read: {error.strerror or error}") from error
    if found not in (None, arch):
        assert found is not None
        raise ImageError(
            f"the image {name!r} is used as one for {arch.debian}, and its kernel {kernel} is for "
            f"{found.debian}",
            hint=f"set arch to {found.debian!r}, or put the right kernel there",
        )
