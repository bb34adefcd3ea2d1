"""Boot files of guests that are made from an image's files: each is made once and kept in the
cache, those with equal contents as hard links."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import struct
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError
from quicksand.base.files import map_os_errors
from quicksand.base.footprint import Footprint
from quicksand.base.listing import TEMPORARY, own_files
from quicksand.base.paths import make_private_dir
from quicksand.base.regular import create, open_regular, read_file
from quicksand.base.sharing import link_file

PLACE = "initrd"
"""The directory of these files in the cache, at first only for initrds."""

KEPT_BYTES = 512 * 1024**2
"""The most bytes of all of them together; those of Debian's kernel take 60 MiB."""

STARTING_S = 3600.0
"""Seconds after its last use for which a file is not removed: a start uses it by its path until
QEMU has opened it."""

_NAMES = re.compile(
    rf"[0-9a-f]{{32}}\.(cpio|elf)|\.[0-9a-f]{{32}}\.(cpio|elf){TEMPORARY}|\.[0-9a-f]{{16}}"
)


def list_boot_files(cache: Path) -> list[Path]:
    """List the files that `keep` has made in ``cache``, including those that a killed process has
    left unfinished, or set aside to remove them. Blocks for I/O."""
    return own_files(cache / PLACE, _NAMES)


def set_aside(file: Path) -> Path:
    """Return a free name for a file that is about to be removed, under which no start finds it."""
    return file.with_name(f".{secrets.token_hex(8)}")


def place_of(cache: Path, suffix: str, sources: Sequence[Path]) -> Path:
    """Return the place of the file that is made from ``sources``. Raises OSError."""
    return cache / PLACE / f"{_key(*sources)}{suffix}"


def keep(cache: Path, suffix: str, sources: Sequence[Path], make: Callable[[], bytes]) -> Path:
    """Return the file in ``cache`` made from ``sources``; make it with the result of ``make`` if
    there is none. Blocks for I/O.

    Raises the errors of ``make``, ImageError if a source cannot be read, DiskSpaceError, PathError.
    """
    try:
        target = place_of(cache, suffix, sources)
        if target.is_file():
            _note_use(target)
            return target
        content = make()
    except OSError as error:
        raise ImageError(
            f"{error.filename or sources[0]} cannot be read: {error.strerror or error}"
        ) from error
    make_private_dir(target.parent)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with map_os_errors(target):
            if not _link_same(content, suffix, temporary):
                with create(temporary) as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            temporary.replace(target)
            _note_use(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def trim(cache: Path, used: Callable[[], Collection[Path]]) -> None:
    """Remove the files that were not used for the longest time, while all take more than
    `KEPT_BYTES`. ``used`` tells which of them machines use. Blocks for I/O."""
    files = list_boot_files(cache)
    if Footprint(*files).size <= KEPT_BYTES:
        return
    last_use = {}
    for path in files:
        with contextlib.suppress(FileNotFoundError):
            last_use[path] = path.stat().st_atime
    before = time.time() - STARTING_S
    old = sorted((when, path) for path, when in last_use.items() if when < before)
    in_use = used() if old else ()
    for _, path in old:
        if path not in in_use:
            with contextlib.suppress(OSError):  # a start needs no space that it cannot free
                path.unlink()
            files.remove(path)
            if Footprint(*files).size <= KEPT_BYTES:
                return


def _note_use(file: Path) -> None:
    """Set the time of access, which not every file system updates by itself."""
    with contextlib.suppress(OSError):  # cleaning has it aside for a moment
        os.utime(file, ns=(time.time_ns(), file.stat().st_mtime_ns))


def _link_same(content: bytes, suffix: str, target: Path) -> bool:
    """Make ``target`` a hard link to an existing file with the same content, such as that of
    another image with the same kernel; return whether there is one. Raises OSError."""
    for path in list_boot_files(target.parent.parent):
        with contextlib.suppress(FileNotFoundError):
            is_like = path.suffix == suffix and path.stat().st_size == len(content)
            if is_like and read_file(path) == content:
                return link_file(path, target)
    return False


def _key(*files: Path) -> str:
    """Identify files by inode, size and time, since published files never change in place."""
    parts = []
    for file in files:
        found = file.stat()
        parts.append(f"{found.st_dev}\0{found.st_ino}\0{found.st_size}\0{found.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


_MAGIC = b"070701"
_TRAILER = "TRAILER!!!"
_NAME_MAX = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CpioEntry:
    """A file, directory, symbolic link or device node, owned by root, with time 0."""

    name: str
    """The path without a leading slash."""
    mode: int
    """Type and permission bits, as in st_mode."""
    data: bytes = b""
    """The content of a file, or the target of a symbolic link."""
    device: tuple[int, int] = (0, 0)
    """The major and minor number of a device node."""


def build_cpio(entries: Iterable[CpioEntry]) -> bytes:
    """Make an archive of ``entries`` in their order. Raises ValueError for a bad name."""
    parts = [
        part
        for number, entry in enumerate(entries, start=1)
        for part in _encode(entry, inode=number)
    ]
    parts += _encode(CpioEntry(name=_TRAILER, mode=0), inode=0)
    archive = b"".join(parts)
    return archive + bytes(-len(archive) % 512)


def _encode(entry: CpioEntry, *, inode: int) -> list[bytes]:
    name = entry.name.encode()
    if not name or name.startswith(b"/") or b"\0" in name or len(name) >= _NAME_MAX:
        raise ValueError(f"{entry.name!r} cannot be a name in an archive")
    links = 2 if entry.mode & 0o170000 == 0o040000 else 1
    fields = (
        inode,
        entry.mode,
        0,
        0,
        links,
        0,
        len(entry.data),
        0,
        0,
        *entry.device,
        len(name) + 1,
        0,
    )
    header = _MAGIC + b"".join(b"%08X" % field for field in fields) + name + b"\0"
    return [header, bytes(-len(header) % 4), entry.data, bytes(-len(entry.data) % 4)]


AGENT = "quicksand-agent"
INITRD_SUFFIX = ".cpio"


def find_agent(arch: Architecture) -> Path:
    """Find the agent's binary for guests of ``arch``. Raises ImageError if there is none."""
    package = Path(__file__).resolve().parents[2]
    checkout = package.parents[1]
    for root in (package / "_agent", checkout / "guest-agent" / "prebuilt"):
        path = root / arch.value / AGENT
        if path.is_file():
            return path
    raise ImageError(f"this installation has no guest agent for {arch.value}")


def compose_initrd(initrd: Path, arch: Architecture, cache: Path) -> Path:
    """Return a file with ``initrd`` and the agent, made once and kept in ``cache``. Blocks for I/O.

    Raises ImageError if there is no agent, DiskSpaceError, PathError.
    """
    agent = find_agent(arch)
    return keep(cache, INITRD_SUFFIX, [initrd, agent], lambda: _with_agent(initrd, agent))


def _with_agent(initrd: Path, agent: Path) -> bytes:
    archive = build_cpio(
        [
            CpioEntry(name="quicksand", mode=0o040700),
            CpioEntry(name="quicksand/agent", mode=0o100700, data=agent.read_bytes()),
        ]
    )
    image = read_file(initrd)
    # An archive has to start on a 4-byte boundary (buffer-format.rst).
    return image + bytes(-len(image) % 4) + archive


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


KERNEL_SUFFIX = ".elf"

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
    made = keep(cache, KERNEL_SUFFIX, [kernel], lambda: _start_file(kernel))
    return kernel if _is_empty(made) else made


def check_kernel(kernel: Path) -> None:
    """Raise ImageError if ``kernel`` is packed and damaged, or cannot be read. Blocks for I/O."""
    if _is_packed(kernel):
        _start_file(kernel)


def start_file_of(kernel: Path, cache: Path) -> Path:
    """Return the place where `start_kernel` keeps the file made from ``kernel``. Raises OSError."""
    return place_of(cache, KERNEL_SUFFIX, [kernel])


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
