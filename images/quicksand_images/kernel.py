"""Makes the kernel that QEMU starts fastest from a distribution's bzImage, and an initrd with
modules.

A bzImage decompresses itself in the guest, which takes most of a second when the CPU is emulated.
It contains an ELF file that QEMU can start directly (PVH) if the kernel was built with CONFIG_PVH.
"""

from __future__ import annotations

import gzip
import lzma
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from quicksand.base import zstd
from quicksand.base.errors import ImageError
from quicksand.disks.images.cpio import CpioEntry

VMLINUX_MAX = 512 * 1024 * 1024
"""Bytes; a vmlinux without symbols has about 60 MB."""

PVH_ENTRY_NOTE = 18
"""XEN_ELFNOTE_PHYS32_ENTRY (Xen public/elfnote.h)."""

_PT_LOAD = 1
_PT_NOTE = 4
_PAGE = 4096
_EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
_PHDR = struct.Struct("<IIQQQQQQ")


def start_file(bzimage: bytes) -> bytes:
    """Return the file for QEMU's -kernel: a small ELF file if possible, else ``bzimage``.

    Raises ImageError if ``bzimage`` is not an x86 Linux kernel.
    """
    try:
        return shrink_elf(extract_vmlinux(bzimage))
    except LookupError:
        return bzimage


def extract_vmlinux(bzimage: bytes) -> bytes:
    """Extract the ELF file inside a bzImage (Linux arch/x86/boot.rst, boot protocol 2.08 and
    later).

    Raises ImageError if it is not a bzImage, LookupError if this host cannot decompress it.
    """
    if len(bzimage) < 0x250 or bzimage[0x202:0x206] != b"HdrS":
        raise ImageError("the kernel of that package is not a bzImage")
    setup_sectors = bzimage[0x1F1] or 4
    offset, length = struct.unpack_from("<II", bzimage, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload = bzimage[start : start + length]
    if len(payload) != length or length < 8:
        raise ImageError("the kernel of that package is cut off")
    return _decompress(payload)


def _decompress(payload: bytes) -> bytes:
    # The length of the content is appended, unless the format itself ends with it (gzip).
    (size,) = struct.unpack("<I", payload[-4:])
    if size > VMLINUX_MAX:
        raise ImageError(f"the kernel claims to be {size} bytes long")
    if payload.startswith(b"\x1f\x8b"):
        return gzip.decompress(payload)
    if payload.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor().decompress(payload, max_length=size)
    if payload.startswith(b"\x28\xb5\x2f\xfd"):
        return _unzstd(payload[:-4], size)
    raise LookupError("the kernel is compressed in a way that is not known here")


def _unzstd(data: bytes, size: int) -> bytes:
    try:
        return zstd.decompress(data, size)
    except ValueError as error:
        raise ImageError("the kernel of that package cannot be decompressed") from error


def shrink_elf(elf: bytes) -> bytes:
    """Reduce an ELF file to what is loaded: no trailing zeros, sections or relocations.

    Raises LookupError if it has no PVH entry point, ImageError if it is not a 64-bit ELF file.
    """
    try:
        return _shrink(elf)
    except (struct.error, IndexError) as error:
        raise ImageError("the kernel of that package is a damaged ELF file") from error


def _shrink(elf: bytes) -> bytes:
    header = _EHDR.unpack_from(elf)
    ident, table, entry_size, count = header[0], header[5], header[9], header[10]
    if ident[:6] != b"\x7fELF\x02\x01" or entry_size != _PHDR.size or not 0 < count < 64:
        raise ImageError("the kernel of that package holds no 64-bit ELF file")
    segments = [_PHDR.unpack_from(elf, table + number * _PHDR.size) for number in range(count)]
    loads = [segment for segment in segments if segment[0] == _PT_LOAD]
    note = next((segment for segment in segments if segment[0] == _PT_NOTE), None)
    if note is None or PVH_ENTRY_NOTE not in _note_kinds(elf[note[2] : note[2] + note[5]]):
        raise LookupError("the kernel has no PVH entry point")
    body = bytearray()
    begin = -(-(_EHDR.size + _PHDR.size * (len(loads) + 1)) // _PAGE) * _PAGE
    packed = []
    for kind, flags, offset, virtual, physical, size, memory, _ in loads:
        if offset + size > len(elf):
            raise ImageError("the kernel of that package is cut off")
        # The loader clears the memory behind a segment, so zeros at its end can go.
        content = elf[offset : offset + size].rstrip(b"\0")
        new = begin + len(body)
        packed.append((kind, flags, new, virtual, physical, len(content), memory, _PAGE))
        body += content
        body += bytes(-len(body) % _PAGE)
        if offset <= note[2] and note[2] + note[5] <= offset + len(content):
            packed.append((*note[:2], new + note[2] - offset, *note[3:]))
    if len(packed) != len(loads) + 1:
        raise LookupError("the kernel's notes are outside of what is loaded")
    packed.sort(key=lambda segment: segment[0])
    fields = (*header[:5], _EHDR.size, 0, header[7], _EHDR.size, _PHDR.size, len(packed), 0, 0, 0)
    head = _EHDR.pack(*fields) + b"".join(_PHDR.pack(*segment) for segment in packed)
    return head.ljust(begin, b"\0") + bytes(body)


def _note_kinds(notes: bytes) -> set[int]:
    kinds = set()
    position = 0
    while position + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, position)
        name = notes[position + 12 : position + 12 + name_size].rstrip(b"\0")
        if name == b"Xen":
            kinds.add(kind)
        position += 12 + -(-name_size // 4) * 4 + -(-size // 4) * 4
    return kinds


def initrd_entries(modules: Path, wanted: Iterable[str]) -> list[CpioEntry]:
    """List the entries of an initrd with the modules ``wanted`` of the tree ``modules``,
    uncompressed, and with ``/quicksand/modules``, which lists them for the agent in the order of
    dependencies.

    Modules that are built into the kernel are left out. Raises ImageError for an unknown one.
    """
    files = {_plain(path): path for path in sorted(modules.rglob("*.ko*"))}
    built_in = {_plain(Path(line)) for line in _lines(modules / "modules.builtin")}
    ordered: dict[str, bytes] = {}
    for name in wanted:
        _add_module(name.replace("-", "_"), files, built_in, ordered)
    listed = "".join(f"/quicksand/ko/{name}.ko\n" for name in ordered)
    return [
        # The kernel opens this console for the first process.
        CpioEntry(name="dev", mode=0o040755),
        CpioEntry(name="dev/console", mode=0o020600, device=(5, 1)),
        CpioEntry(name="quicksand", mode=0o040700),
        CpioEntry(name="quicksand/ko", mode=0o040700),
        *(
            CpioEntry(name=f"quicksand/ko/{name}.ko", mode=0o100600, data=data)
            for name, data in ordered.items()
        ),
        CpioEntry(name="quicksand/modules", mode=0o100600, data=listed.encode()),
    ]


def _add_module(
    name: str, files: Mapping[str, Path], built_in: set[str], ordered: dict[str, bytes]
) -> None:
    if name in ordered or name in built_in:
        return
    if name not in files:
        raise ImageError(f"the kernel has no module {name!r}")
    data = read_module(files[name])
    for needed in module_dependencies(data):
        _add_module(needed, files, built_in, ordered)
    ordered[name] = data


def read_module(path: Path) -> bytes:
    """Read a .ko, .ko.xz or .ko.gz file, decompressed. Raises OSError, LZMAError."""
    data = path.read_bytes()
    match path.suffix:
        case ".xz":
            return lzma.decompress(data)
        case ".gz":
            return gzip.decompress(data)
        case _:
            return data


def module_dependencies(module: bytes) -> list[str]:
    """Return the names in ``depends=`` of a module's section .modinfo (NUL-terminated texts)."""
    start = module.find(b"\0depends=")
    if start < 0:
        return []
    text = module[start + 9 : module.index(b"\0", start + 9)].decode("ascii", "replace")
    return [name.replace("-", "_") for name in text.split(",") if name]


def _plain(path: Path) -> str:
    return path.name.split(".ko", 1)[0].replace("-", "_")


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()
