"""The ELF file inside a bzImage. Kernels come from elsewhere: none of their claims is trusted."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable

import pytest
from quicksand.disks.images.vmlinux import VMLINUX_MAX, extract_vmlinux, shrink_elf

from tests.each import each
from tests.unit.disks.kernels import (
    OTHER_NOTE,
    PACKERS,
    XEN_ENTRY,
    elf_of,
    make_bzimage,
    make_elf,
    pack_gzip,
    pack_xz,
    pack_zstd,
    size_of,
)

BY_PACKER = pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS.keys())
Pack = Callable[[bytes], bytes]


@BY_PACKER
def test_the_elf_file_is_found_inside_a_bzimage(pack: Pack) -> None:
    elf = make_elf()
    assert extract_vmlinux(make_bzimage(pack(elf))) == elf


def test_shrinking_keeps_what_is_loaded_and_where() -> None:
    elf = make_elf()
    small = shrink_elf(elf)
    assert len(small) < len(elf) - 4000
    assert b"relocations" not in small
    load = struct.unpack_from("<IIQQQQQQ", small, 64)
    note = struct.unpack_from("<IIQQQQQQ", small, 64 + 56)
    assert (load[0], load[4], load[6]) == (1, 0x1000000, 64 + 600 + 9000 + 512)
    assert small[load[2] :].startswith(XEN_ENTRY)
    assert small[note[2] : note[2] + note[5]] == XEN_ENTRY
    assert shrink_elf(small) == small


@each("size", [0x208, 0x24F, 5 * 512, 5 * 512 + 20])
def test_a_bzimage_that_is_cut_off_is_damaged(size: int) -> None:
    whole = make_bzimage(pack_gzip(make_elf()))
    with pytest.raises(ValueError, match="cut off"):
        extract_vmlinux(whole[:size])


@BY_PACKER
@pytest.mark.parametrize("at", [0.4, 0.7])
def test_a_flipped_byte_is_noticed(pack: Pack, at: float) -> None:
    packed = bytearray(pack(make_elf()))
    packed[int(len(packed) * at)] ^= 0xFF
    with pytest.raises(ValueError, match="compressed data are damaged"):
        extract_vmlinux(make_bzimage(bytes(packed)))


@BY_PACKER
@pytest.mark.parametrize("wrong", [-1, 1])
def test_a_wrong_size_is_noticed(pack: Pack, wrong: int) -> None:
    elf = make_elf()
    packed = pack(elf)[:-4] + struct.pack("<I", len(elf) + wrong)
    with pytest.raises(ValueError, match="compressed data are damaged"):
        extract_vmlinux(make_bzimage(packed))


@BY_PACKER
def test_compressed_data_that_end_early_are_noticed(pack: Pack) -> None:
    elf = make_elf()
    packed = pack(elf)
    with pytest.raises(ValueError, match="compressed data are damaged"):
        extract_vmlinux(make_bzimage(packed[: len(packed) // 2] + size_of(elf)))


@each(
    ("pack", "size", "claimed", "why"),
    [
        (pack_gzip, 1 << 26, 1000, "compressed data are damaged"),
        (pack_gzip, 1000, VMLINUX_MAX + 1, f"claims to hold {VMLINUX_MAX + 1} bytes"),
        (pack_xz, 1 << 26, 1000, "compressed data are damaged"),
        (pack_zstd, 1 << 26, 1000, "compressed data are damaged"),
    ],
)
def test_a_bomb_is_refused_before_it_takes_memory(
    pack: Pack, size: int, claimed: int, why: str
) -> None:
    # Packed here: that takes a second, and each process collects all tests.
    bzimage = make_bzimage(pack(bytes(size))[:-4] + struct.pack("<I", claimed))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=why):
            extract_vmlinux(bzimage)
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


@each(
    ("kernel", "why"),
    [
        (b"", "not a bzImage"),
        (b"\x7fELF" + bytes(1000), "not a bzImage"),
        (make_bzimage(pack_gzip(make_elf()), version=0x0207), "boot protocol 2.07"),
        (make_bzimage(b""), "not known here"),
        (make_bzimage(b"BZh9" + bytes(100)), "not known here"),
        (make_bzimage(b"\x02\x21\x4c\x18" + bytes(100)), "not known here"),  # LZ4
    ],
)
def test_other_kernels_are_no_error_but_another_kind(kernel: bytes, why: str) -> None:
    with pytest.raises(LookupError, match=why):
        extract_vmlinux(kernel)


@each(
    ("elf", "why"),
    [
        (make_elf(notes=OTHER_NOTE), "no PVH entry"),
        (elf_of((1, 5, 0, 0, 0, 64, 64, 0)), "no PVH entry"),
        (b"\x7fELF\x01\x01" + bytes(100), "no 64-bit ELF file"),
        (b"", "no 64-bit ELF file"),
    ],
)
def test_what_qemu_cannot_start_is_no_error_but_another_kind(elf: bytes, why: str) -> None:
    with pytest.raises(LookupError, match=why):
        shrink_elf(elf)


@each("size", [10, 63, 100, 0x1020, 0x1100])
def test_an_elf_file_that_is_cut_off_is_damaged(size: int) -> None:
    with pytest.raises(ValueError, match="cut off"):
        shrink_elf(make_elf()[:size])


NOTE = (4, 4, 0x1000, 0, 0, len(XEN_ENTRY), len(XEN_ENTRY), 4)
LOAD = (1, 5, 0, 0, 0, 0x1000, 0x1000, 0)


@each(
    ("head", "why"),
    [
        (elf_of(*[LOAD] * 30, NOTE), "overlap"),
        (elf_of(*[LOAD] * 63, NOTE), "wrong table"),
        (elf_of(NOTE, table=1 << 62), "cut off"),
        (elf_of(NOTE, table=(1 << 64) - 1), "cut off"),
        (elf_of((1, 5, 1 << 63, 0, 0, 1 << 63, 0, 0), NOTE), "cut off"),
    ],
)
def test_the_claims_of_an_elf_file_are_checked(head: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        shrink_elf(head.ljust(0x1000, b"\0") + XEN_ENTRY)
