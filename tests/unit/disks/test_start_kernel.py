"""What QEMU starts of an image's kernel, and the cache of files that are made of images'."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from quicksand.base.errors import DiskSpaceError, ImageError
from quicksand.disks.images import boot_files, vmlinux
from quicksand.disks.images.boot_files import (
    PLACE,
    check_kernel,
    list_boot_files,
    start_file_of,
    start_kernel,
)

from tests.unit.disks.kernels import (
    ARM64,
    OTHER_NOTE,
    make_bzimage,
    make_elf,
    pack_gzip,
    write_bzimage,
)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir(mode=0o700)
    return tmp_path / "cache"


def refuse(*_: object) -> bytes:
    raise AssertionError("it was made again")


def test_the_elf_file_of_a_bzimage_is_made_once(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = write_bzimage(tmp_path / "kernel")
    made = start_kernel(kernel, cache)
    assert made == start_file_of(kernel, cache)
    assert made.read_bytes() == vmlinux.shrink_elf(make_elf())
    assert made.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(vmlinux, "extract_vmlinux", refuse)
    assert start_kernel(kernel, cache) == made
    assert list_boot_files(cache) == [made]


def test_images_with_the_same_kernel_have_one_elf_file_on_the_disk(
    tmp_path: Path, cache: Path
) -> None:
    """Though each image has its kernel as a copy of its own."""
    made = [start_kernel(write_bzimage(tmp_path / name), cache) for name in "abc"]
    assert len(set(made)) == 3
    assert len({path.stat().st_ino for path in made}) == 1


def test_the_files_that_were_not_used_for_the_longest_time_go_if_all_are_too_large(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But none that a machine has, or that a start under way may have by its path."""
    kernels = [write_bzimage(tmp_path / f"{n}", make_elf(zeros=n)) for n in range(1, 6)]
    made = [start_kernel(kernel, cache) for kernel in kernels]
    for age, path in enumerate(made[:4]):
        then = path.stat().st_mtime_ns - (age + 2) * 3600 * 10**9
        os.utime(path, ns=(then, path.stat().st_mtime_ns))
    boot_files.trim(cache, lambda: pytest.fail("nothing is too large"))
    start_kernel(kernels[2], cache)  # used again
    size = sum(path.stat().st_blocks * 512 for path in made)
    monkeypatch.setattr(boot_files, "KEPT_BYTES", size - 1)
    boot_files.trim(cache, lambda: {made[3]})
    assert list_boot_files(cache) == sorted(set(made) - {made[1]})
    monkeypatch.setattr(boot_files, "KEPT_BYTES", 0)
    boot_files.trim(cache, set)
    assert list_boot_files(cache) == sorted([made[2], made[4]])


def test_another_kernel_in_its_place_gets_an_elf_file_of_its_own(
    tmp_path: Path, cache: Path
) -> None:
    kernel = write_bzimage(tmp_path / "kernel")
    first = start_kernel(kernel, cache)
    kernel.unlink()
    write_bzimage(kernel, make_elf(zeros=5000))
    second = start_kernel(kernel, cache)
    assert first != second
    assert second.read_bytes() == vmlinux.shrink_elf(make_elf(zeros=5000))


@pytest.mark.parametrize(
    "content",
    [vmlinux.shrink_elf(make_elf()), ARM64, b"", b"kernel"],
    ids=["elf", "arm64", "", "x"],
)
def test_what_is_no_bzimage_is_started_as_it_is(
    tmp_path: Path, cache: Path, content: bytes
) -> None:
    """Images of earlier versions have the ELF file itself."""
    kernel = tmp_path / "kernel"
    kernel.write_bytes(content)
    assert start_kernel(kernel, cache) == kernel
    check_kernel(kernel)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    "bzimage",
    [
        make_bzimage(pack_gzip(make_elf(notes=OTHER_NOTE))),
        make_bzimage(pack_gzip(b"\x7fELF\x01\x01" + bytes(100))),
        make_bzimage(b"BZh9" + bytes(100)),
        make_bzimage(pack_gzip(make_elf()), version=0x0207),
    ],
    ids=["without PVH", "32 bits", "bzip2", "old"],
)
def test_a_kernel_whose_inside_qemu_cannot_start_is_started_as_it_is(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, bzimage: bytes
) -> None:
    kernel = tmp_path / "kernel"
    kernel.write_bytes(bzimage)
    assert start_kernel(kernel, cache) == kernel
    check_kernel(kernel)
    # That is found out once, too.
    monkeypatch.setattr(vmlinux, "extract_vmlinux", refuse)
    assert start_kernel(kernel, cache) == kernel
    assert list_boot_files(cache) == [start_file_of(kernel, cache)]


def test_a_damaged_kernel_is_named_and_nothing_is_made_of_it(tmp_path: Path, cache: Path) -> None:
    kernel = write_bzimage(tmp_path / "kernel")
    whole = kernel.read_bytes()
    kernel.write_bytes(whole[: len(whole) // 2])
    for look in (lambda: start_kernel(kernel, cache), lambda: check_kernel(kernel)):
        with pytest.raises(ImageError, match="is damaged: it is cut off") as caught:
            look()
        assert str(kernel) in str(caught.value)
        assert "image anew" in caught.value.hint
    assert list(cache.iterdir()) == []
    kernel.write_bytes(whole)
    assert start_kernel(kernel, cache) != kernel


@pytest.mark.parametrize("kind", ["missing", "fifo", "directory"])
def test_a_kernel_that_cannot_be_read_is_named(tmp_path: Path, cache: Path, kind: str) -> None:
    kernel = tmp_path / "kernel"
    if kind == "fifo":
        os.mkfifo(kernel)
    elif kind == "directory":
        kernel.mkdir()
    with pytest.raises(ImageError, match=r"kernel cannot be read: ") as caught:
        start_kernel(kernel, cache)
    assert str(kernel) in str(caught.value)


def test_two_starts_at_once_make_one_file(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = write_bzimage(tmp_path / "kernel")
    both = threading.Barrier(2, timeout=60)
    shrink = vmlinux.shrink_elf

    def together(elf: bytes) -> bytes:
        both.wait()
        return shrink(elf)

    monkeypatch.setattr(vmlinux, "shrink_elf", together)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: start_kernel(kernel, cache), range(2))
    assert first == second
    assert first.read_bytes() == shrink(make_elf())
    assert list((cache / PLACE).iterdir()) == [first]


def test_a_start_that_cleaning_overtakes_keeps_its_file(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cleaning takes it aside, finds the start, and gives it back."""
    kernel = write_bzimage(tmp_path / "kernel")
    made = start_kernel(kernel, cache)
    is_file = Path.is_file

    def just_before(path: Path) -> bool:
        found = is_file(path)
        if path == made:
            made.rename(boot_files.set_aside(made))
        return found

    monkeypatch.setattr(Path, "is_file", just_before)
    assert start_kernel(kernel, cache) == made


def test_a_failed_write_leaves_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = write_bzimage(tmp_path / "kernel")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(DiskSpaceError, match="no space left"):
        start_kernel(kernel, cache)
    assert list((cache / PLACE).iterdir()) == []
