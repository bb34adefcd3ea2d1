"""The content of kernels that decompress themselves: the ELF file of a bzImage, reduced to the
parts that QEMU loads, and the arm64 kernel of an EFI zboot image. The kernel may come from
elsewhere, so its headers are checked."""

from __future__ import annotations

import lzma
import struct
import zlib

from quicksand_disks import zstd

VMLINUX_MAX = 512 * 1024 * 1024
"""Bytes; a vmlinux without symbols has about 60 MB."""

XZ_MEMORY_MAX = 256 * 1024 * 1024
"""Bytes for decompression; Linux compresses its kernel with a dictionary of 128 MiB at most
(scripts/xz_wrap.sh)."""

PVH_ENTRY_NOTE = 18
"""XEN_ELFNOTE_PHYS32_ENTRY (Xen public/elfnote.h)."""

_HEADER, _HEADER_AT = b"HdrS", 0x202
_VERSION_AT, _WITH_PAYLOAD = 0x206, 0x0208
_SETUP_SECTORS_AT, _PAYLOAD_AT = 0x1F1, 0x248
_SECTOR = 512
_ZBOOT_PAYLOAD_AT = 8
_ARM64, _ARM64_AT = b"ARM\x64", 0x38
_GZIP = b"\x1f\x8b"
_XZ = b"\xfd7zXZ\0"
_WBITS_GZIP = 16 + zlib.MAX_WBITS

_ELF64 = b"\x7fELF\x02\x01"
_PT_LOAD = 1
_PT_NOTE = 4
_SEGMENTS_MAX = 64
_NOTES_MAX = 64 * 1024
_PAGE = 4096
_EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
_PHDR = struct.Struct("<IIQQQQQQ")


def extract_vmlinux(bzimage: bytes) -> bytes:
    """Extract the kernel that a bzImage decompresses (Linux Documentation/arch/x86/boot.rst).

    Raises ValueError if it is damaged, LookupError if its boot protocol is older than 2.08, which
    does not tell the kernel's place, or if its compression is unknown here.
    """
    if not bzimage.startswith(_HEADER, _HEADER_AT):
        raise LookupError("it is not a bzImage")
    try:
        (version,) = struct.unpack_from("<H", bzimage, _VERSION_AT)
        if version < _WITH_PAYLOAD:
            raise LookupError(f"it has the boot protocol {version >> 8}.{version & 255:02}")
        offset, length = struct.unpack_from("<II", bzimage, _PAYLOAD_AT)
    except struct.error as error:
        raise ValueError("it is cut off") from error
    start = ((bzimage[_SETUP_SECTORS_AT] or 4) + 1) * _SECTOR + offset
    payload = bzimage[start : start + length]
    if len(payload) != length:
        raise ValueError("it is cut off")
    return _decompress(payload)


def extract_zboot(image: bytes) -> bytes:
    """Extract the arm64 kernel in an EFI zboot image. QEMU does so only from 8.1 on, and only if it
    is compressed by gzip.

    Raises ValueError if it is damaged, LookupError if its compression is unknown here, or if it
    holds something else.
    """
    try:
        offset, length = struct.unpack_from("<II", image, _ZBOOT_PAYLOAD_AT)
    except struct.error as error:
        raise ValueError("it is cut off") from error
    payload = image[offset : offset + length]
    if not payload.startswith(_GZIP):
        # The header gives the length without the length field of the content (ZBOOT_SIZE_LEN).
        length += 4
        payload = image[offset : offset + length]
    if len(payload) != length:
        raise ValueError("it is cut off")
    kernel = _decompress(payload)
    if not kernel.startswith(_ARM64, _ARM64_AT):
        raise LookupError("what it holds is no arm64 kernel")
    return kernel


def _decompress(payload: bytes) -> bytes:
    # The length of the content is appended, unless the format itself ends with it (gzip).
    size = int.from_bytes(payload[-4:], "little")
    kinds = {_GZIP: _ungzip, _XZ: _unxz, zstd.MAGIC: _unzstd}
    for magic, decompress in kinds.items():
        if payload.startswith(magic):
            if size > VMLINUX_MAX:
                raise ValueError(f"it claims to hold {size} bytes")
            return decompress(payload, size)
    raise LookupError("it is compressed in a way that is not known here")


def _ungzip(payload: bytes, size: int) -> bytes:
    stream = zlib.decompressobj(_WBITS_GZIP)
    try:
        # One byte more, so that the end of the stream is read, too.
        content = stream.decompress(payload, size + 1)
    except zlib.error as error:
        raise ValueError("its compressed data are damaged") from error
    return _whole(content, size, is_complete=stream.eof)


def _unxz(payload: bytes, size: int) -> bytes:
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_MAX)
    try:
        content = stream.decompress(payload[:-4], max_length=size + 1)
    except lzma.LZMAError as error:
        raise ValueError("its compressed data are damaged") from error
    return _whole(content, size, is_complete=stream.eof)


def _unzstd(payload: bytes, size: int) -> bytes:
    return zstd.decompress(payload[:-4], size)


def _whole(content: bytes, size: int, *, is_complete: bool) -> bytes:
    if len(content) != size or not is_complete:
        raise ValueError("its compressed data are damaged")
    return content


def shrink_elf(elf: bytes) -> bytes:
    """Reduce an ELF file to its loaded parts: no trailing zeros, sections or relocations.

    Raises LookupError if it is not a 64-bit ELF file with a PVH entry point (CONFIG_PVH),
    ValueError if it is damaged.
    """
    if not elf.startswith(_ELF64):
        raise LookupError("it is no 64-bit ELF file")
    try:
        return _shrink(elf)
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError("its ELF file is cut off") from error


def _shrink(elf: bytes) -> bytes:
    header = _EHDR.unpack_from(elf)
    table, entry_size, count = header[5], header[9], header[10]
    if entry_size != _PHDR.size or not 0 < count < _SEGMENTS_MAX:
        raise ValueError("its ELF file has a wrong table of segments")
    segments = [_PHDR.unpack_from(elf, table + number * _PHDR.size) for number in range(count)]
    loads = [segment for segment in segments if segment[0] == _PT_LOAD]
    note = next((segment for segment in segments if segment[0] == _PT_NOTE), None)
    if note is None or not _has_entry(elf[note[2] : note[2] + min(note[5], _NOTES_MAX)]):
        raise LookupError("it has no PVH entry point")
    if any(offset + size > len(elf) for _, _, offset, _, _, size, _, _ in loads):
        raise ValueError("its ELF file is cut off")
    if sum(segment[5] for segment in loads) > len(elf):
        raise ValueError("the segments of its ELF file overlap")
    return _pack(elf, header, loads, note)


def _pack(
    elf: bytes, header: tuple[int, ...], loads: list[tuple[int, ...]], note: tuple[int, ...]
) -> bytes:
    body = bytearray()
    begin = -(-(_EHDR.size + _PHDR.size * (len(loads) + 1)) // _PAGE) * _PAGE
    packed: list[tuple[int, ...]] = []
    for kind, flags, offset, virtual, physical, size, memory, _ in loads:
        # The loader clears the memory behind a segment, so zeros at its end can go.
        content = elf[offset : offset + size].rstrip(b"\0")
        new = begin + len(body)
        packed.append((kind, flags, new, virtual, physical, len(content), memory, _PAGE))
        body += content
        body += bytes(-len(body) % _PAGE)
        if offset <= note[2] and note[2] + note[5] <= offset + len(content):
            packed.append((*note[:2], new + note[2] - offset, *note[3:]))
    if len(packed) != len(loads) + 1:
        raise LookupError("its notes are outside of what is loaded")
    packed.sort(key=lambda segment: segment[0])
    fields = (*header[:5], _EHDR.size, 0, header[7], _EHDR.size, _PHDR.size, len(packed), 0, 0, 0)
    head = _EHDR.pack(*fields) + b"".join(_PHDR.pack(*segment) for segment in packed)
    return head.ljust(begin, b"\0") + bytes(body)


def _has_entry(notes: bytes) -> bool:
    position = 0
    while position + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, position)
        name = notes[position + 12 : position + 12 + name_size].rstrip(b"\0")
        if name == b"Xen" and kind == PVH_ENTRY_NOTE:
            return True
        position += 12 + -(-name_size // 4) * 4 + -(-size // 4) * 4
    return False
