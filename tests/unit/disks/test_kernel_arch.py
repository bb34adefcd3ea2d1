"""For which processor a kernel is, and kernels for arm64 that are packed for EFI."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError
from quicksand.base.paths import paths
from quicksand.disks.images.boot_files import check_kernel, kernel_arch, start_kernel
from quicksand.disks.images.disk_layers import create_overlay
from quicksand.disks.images.resolve import ImageResolver
from quicksand.disks.images.vmlinux import extract_zboot

from tests.each import each
from tests.unit.disks.kernels import (
    ARM64,
    PACKERS,
    gzip_bomb,
    make_bzimage,
    make_elf,
    make_zboot,
    pack_gzip,
)

X86, ARM = Architecture.X86_64, Architecture.ARM64


@each(
    ("kernel", "expected"),
    [
        (make_bzimage(pack_gzip(make_elf())), X86),
        (make_elf(), X86),
        (ARM64, ARM),
        (make_zboot(pack_gzip(ARM64)), ARM),
        (make_zboot(b"", machine=0x8664), X86),
        (make_zboot(b"", machine=0x5064), None),  # RISC-V
        (b"MZ\0\0zimg".ljust(0x3C, b"\0") + b"\xff" * 4, None),
        (b"MZ\0\0zimg", None),
        (b"\x7fELF", None),
        (b"", None),
    ],
)
def test_the_first_bytes_tell_the_processor(kernel: bytes, expected: Architecture | None) -> None:
    assert kernel_arch(kernel[:4096]) is expected


@each(
    ("kernel", "arch", "is_fit"),
    [
        (ARM64, ARM, True),
        (ARM64, X86, False),
        (make_zboot(pack_gzip(ARM64)), X86, False),
        (make_elf(), X86, True),
        (make_elf(), ARM, False),
        (b"something else", ARM, True),
    ],
)
def test_a_kernel_for_another_processor_is_refused_by_its_path(
    tmp_path: Path, kernel: bytes, arch: Architecture, is_fit: bool
) -> None:
    disk = tmp_path / "own.qcow2"
    create_overlay(disk, backing=None, size=1 << 30)
    disk.with_suffix(".kernel").write_bytes(kernel)
    disk.with_suffix(".initrd").write_bytes(b"")
    resolver = ImageResolver(paths())
    if is_fit:
        assert resolver.resolve(str(disk), arch).guest_arch is arch
        return
    other = X86 if arch is ARM else ARM
    with pytest.raises(ImageError, match=rf"own\.kernel is for {other.debian}") as caught:
        resolver.resolve(str(disk), arch)
    assert other.debian in caught.value.hint


@each("pack", PACKERS.values(), ids=PACKERS)
def test_the_kernel_is_taken_out_of_its_efi_program(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    kernel = tmp_path / "kernel"
    kernel.write_bytes(make_zboot(pack(ARM64)))
    made = start_kernel(kernel, tmp_path / "cache")
    assert made.read_bytes() == ARM64
    assert start_kernel(kernel, tmp_path / "cache") == made
    check_kernel(kernel)


@each(
    ("kernel", "why"),
    [
        (lambda: make_zboot(pack_gzip(ARM64))[:0x210], "cut off"),
        (lambda: make_zboot(pack_gzip(ARM64))[:10], "cut off"),
        (lambda: make_zboot(pack_gzip(ARM64)[:-30] + bytes(30)), "damaged"),
        (lambda: make_zboot(gzip_bomb(1 << 26, 1000)), "damaged"),
        (lambda: make_zboot(gzip_bomb(1000, 1 << 30)), "claims to hold"),
    ],
)
def test_a_damaged_one_is_named_and_nothing_is_made_of_it(
    tmp_path: Path, kernel: Callable[[], bytes], why: str
) -> None:
    path = tmp_path / "kernel"
    path.write_bytes(kernel())
    with pytest.raises(ImageError, match=why) as caught:
        start_kernel(path, tmp_path / "cache")
    assert str(path) in str(caught.value)


@each(
    "kernel",
    [make_zboot(pack_gzip(make_elf())), make_zboot(b"LZ4" + bytes(100))],
    ids=["x86", "lz4"],
)
def test_what_cannot_be_taken_out_is_left_to_qemu(tmp_path: Path, kernel: bytes) -> None:
    path = tmp_path / "kernel"
    path.write_bytes(kernel)
    with pytest.raises(LookupError):
        extract_zboot(kernel)
    assert start_kernel(path, tmp_path / "cache") == path
