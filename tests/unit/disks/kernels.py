"""Kernels made for tests: bzImages with an ELF file inside."""

from __future__ import annotations

import gzip
import lzma
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

from quicksand.disks.images.vmlinux import PVH_ENTRY_NOTE
from quicksand_disks import zstd

XEN_ENTRY = struct.pack("<III4sQ", 4, 8, PVH_ENTRY_NOTE, b"Xen\0", 0x1000C43)
OTHER_NOTE = struct.pack("<III4sQ", 4, 8, 6, b"GNU\0", 0)

ARM64 = bytes(56) + b"ARMd" + bytes(4096)
"""The beginning of an arm64 kernel (Linux Documentation/arch/arm64/booting.rst)."""


def make_zboot(payload: bytes, *, machine: int = 0xAA64) -> bytes:
    """A kernel as it is packed for EFI. The size behind what is packed is not told with it, unless
    the format itself has one."""
    told = len(payload) if payload.startswith(b"\x1f\x8b") else max(0, len(payload) - 4)
    head = b"MZ\0\0zimg" + struct.pack("<II", 0x200, told) + bytes(8) + b"gzip"
    head = head.ljust(0x38, b"\0") + bytes.fromhex("cd238281") + struct.pack("<I", 0x40)
    head += b"PE\0\0" + struct.pack("<H", machine)
    return head.ljust(0x200, b"\0") + payload + b"rest"


def make_elf(*, notes: bytes = XEN_ENTRY, zeros: int = 9000) -> bytes:
    """A kernel of one segment: the notes, some content, zeros; then what is not loaded."""
    content = notes.ljust(64, b"\0") + b"kernel" * 100 + bytes(zeros)
    offset = 0x1000
    load = (1, 5, offset, 0xFFFFFFFF81000000, 0x1000000, len(content), len(content) + 512, 0x1000)
    note = (4, 4, offset, 0xFFFFFFFF81000000, 0x1000000, len(notes), len(notes), 4)
    return elf_of(load, note).ljust(offset, b"\0") + content + b"sections and relocations"


def elf_of(*segments: tuple[int, ...], table: int = 64) -> bytes:
    """The headers of an ELF file."""
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head = struct.pack(
        "<16sHHIQQQIHHHHHH",
        ident, 2, 62, 1, 0x1000000, table, 0, 0, 64, 56, len(segments), 64, 0, 0,
    )  # fmt: skip
    return head + b"".join(struct.pack("<IIQQQQQQ", *segment) for segment in segments)


def make_bzimage(payload: bytes, *, version: int = 0x020F) -> bytes:
    image = bytearray(5 * 512)
    image[0x1F1] = 4
    image[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", image, 0x206, version)
    struct.pack_into("<II", image, 0x248, 0, len(payload))
    return bytes(image) + payload + b"rest"


def write_bzimage(path: Path, elf: bytes | None = None) -> Path:
    """A kernel as an image has it."""
    path.write_bytes(make_bzimage(pack_gzip(make_elf() if elf is None else elf)))
    return path


def size_of(data: bytes) -> bytes:
    return struct.pack("<I", len(data))


def pack_gzip(data: bytes) -> bytes:
    # Without the time: bytes are parts of tests' names, which are the same in all processes.
    return gzip.compress(data, mtime=0)


def pack_xz(data: bytes) -> bytes:
    return lzma.compress(data, check=lzma.CHECK_CRC32) + size_of(data)


def pack_zstd(data: bytes) -> bytes:
    pieces: list[bytes] = []
    packer = zstd.Packer(pieces.append)
    packer.feed(data)
    packer.finish()
    return b"".join(pieces) + size_of(data)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": pack_gzip,
    "xz": pack_xz,
    "zstd": pack_zstd,
}


def gzip_bomb(size: int, claimed: int) -> bytes:
    """Much that packs well, with another size in its trailer."""
    packer = zlib.compressobj(9, wbits=31)
    packed = packer.compress(bytes(size)) + packer.flush()
    return packed[:-4] + struct.pack("<I", claimed)
