"""Pages of guest memory on disk: the index, overlays, and files known by their checksums."""

from __future__ import annotations

import errno
import itertools
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import DiskSpaceError, HistoryError, PathError
from quicksand.records.nodes import File
from quicksand.snapshots import pages
from quicksand.snapshots.guest_ram import PAGE
from quicksand.snapshots.pages import (
    ZEROS,
    MappedFile,
    PageIndex,
    PageRun,
    merge_runs,
    overlay_runs,
    write_file,
)

from tests.each import each

FILES = (64, 200, 1)


@st.composite
def run_lists(draw: st.DrawFn) -> list[PageRun]:
    """Ascending runs that never overlap, in FILES or zeros."""
    runs, page = [], 0
    for _ in range(draw(st.integers(0, 12))):
        file = draw(st.sampled_from([0, 1, 2, ZEROS]))
        room = 64 if file == ZEROS else FILES[file]
        count = draw(st.integers(1, min(room, 12)))
        at = 0 if file == ZEROS else draw(st.integers(0, room - count))
        page += draw(st.integers(0, 5))
        runs.append(PageRun(page, count, file, at))
        page += count
    return runs


def index_of(runs: list[PageRun]) -> PageIndex:
    return PageIndex((runs[-1].end if runs else 0) * PAGE, tuple(runs))


def by_page(runs: list[PageRun]) -> dict[int, tuple[int, int]]:
    found = {}
    for run in runs:
        for n in range(run.count):
            assert run.first + n not in found
            found[run.first + n] = (run.file, 0 if run.file == ZEROS else run.at + n)
    return found


# The index


@given(run_lists())
def test_an_index_comes_back_as_it_was(runs: list[PageRun]) -> None:
    index = index_of(runs)
    assert PageIndex.decode(index.encode(), files=FILES) == index


INDEX = index_of([PageRun(0, 3, 0, 1), PageRun(4, 1, ZEROS, 0), PageRun(9, 20, 1, 180)])


def test_every_truncation_is_refused() -> None:
    data = INDEX.encode()
    for length in range(len(data)):
        with pytest.raises(ValueError):
            PageIndex.decode(data[:length], files=FILES)
    with pytest.raises(ValueError):
        PageIndex.decode(data + b"\0", files=FILES)


def test_every_flipped_bit_is_refused() -> None:
    data = INDEX.encode()
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError):
            PageIndex.decode(bytes(damaged), files=FILES)


def sealed(data: bytes) -> bytes:
    return data + struct.pack("<I", zlib.crc32(data))


@each(
    ("header", "message"),
    [
        (b"QSPX" + struct.pack("<IQQ", 1, 0, 0), "this version"),
        (b"QSPG" + struct.pack("<IQQ", 2, 0, 0), "this version"),
        (b"QSPG" + struct.pack("<IQQ", 1, 0, 1), "length"),
        (b"QSPG" + struct.pack("<IQQ", 1, 0, 2**64 - 1), "length"),
    ],
)
def test_a_header_that_lies_is_refused(header: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PageIndex.decode(sealed(header), files=())


@each(
    "runs",
    [
        [PageRun(0, 2, 0, 0), PageRun(1, 1, 0, 0)],
        [PageRun(5, 1, 0, 0), PageRun(4, 1, 0, 0)],
        [PageRun(5, 1, 0, 0), PageRun(5, 1, ZEROS, 0)],
        [PageRun(0, 0, 0, 0)],
        [PageRun(9, 2, 0, 0)],
        [PageRun(2**64 - 1, 1, ZEROS, 0)],
        [PageRun(0, 1, 3, 0)],
        [PageRun(0, 1, 0, 64)],
        [PageRun(0, 2, 0, 63)],
        [PageRun(0, 1, 0, 2**64 - 1)],
    ],
)
def test_impossible_runs_are_refused(runs: list[PageRun]) -> None:
    header = b"QSPG" + struct.pack("<IQQ", 1, 10 * PAGE, len(runs))
    body = b"".join(struct.pack("<QIIQ", run.first, run.count, run.file, run.at) for run in runs)
    with pytest.raises(ValueError, match=r"overlap|no file"):
        PageIndex.decode(sealed(header + body), files=FILES)


# Overlays


@given(run_lists(), run_lists())
def test_an_overlay_is_as_one_dictionary_over_another(
    over: list[PageRun], under: list[PageRun]
) -> None:
    found = overlay_runs(over, under)
    assert by_page(found) == {**by_page(under), **by_page(over)}
    assert found == sorted(found, key=lambda run: run.first)
    assert merge_runs(found) == found


@given(run_lists())
def test_merged_runs_are_the_same_pages_in_as_few_runs_as_can_be(runs: list[PageRun]) -> None:
    split = [run.part(page, page + 1) for run in runs for page in range(run.first, run.end)]
    merged = merge_runs(split)
    assert by_page(merged) == by_page(runs)
    items = list(by_page(runs).items())
    breaks = sum(
        next_page != page + 1 or next_file != file or (file != ZEROS and next_at != at + 1)
        for (page, (file, at)), (next_page, (next_file, next_at)) in itertools.pairwise(items)
    )
    assert len(merged) == breaks + bool(items)


def test_runs_are_never_merged_to_more_than_the_index_can_say() -> None:
    runs = [PageRun(0, 2**32 - 1, ZEROS, 0), PageRun(2**32 - 1, 1, ZEROS, 0)]
    assert merge_runs(runs) == runs
    PageIndex(2**32 * PAGE, tuple(runs)).encode()


# Writing files

SMALL = 8


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "CHUNK", SMALL)


@each("size", [0, 1, SMALL - 1, SMALL, SMALL + 1, 2 * SMALL, 5 * SMALL + 3])
@each("piece", [1, 3, SMALL, 100])
def test_checksums_are_those_of_the_chunks_however_it_was_cut(
    small_chunks: None, tmp_path: Path, size: int, piece: int
) -> None:
    data = bytes(range(size))
    path = tmp_path / "a.pages"
    found = write_file(path, (data[n : n + piece] for n in range(0, size, piece)))
    chunks = [data[n : n + SMALL] for n in range(0, size, SMALL)]
    assert found == File(name="a.pages", size=size, crcs=tuple(map(zlib.crc32, chunks)))
    assert path.read_bytes() == data
    assert path.stat().st_mode & 0o777 == 0o600
    with MappedFile(path, found) as mapped:
        assert bytes(mapped.data) == data


def test_empty_pieces_are_nothing(tmp_path: Path) -> None:
    found = write_file(tmp_path / "a", iter([b"", b"xy", memoryview(b""), b""]))
    assert (found.size, found.crcs) == (2, (zlib.crc32(b"xy"),))


def test_short_writes_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:3]))
    found = write_file(tmp_path / "a", iter([b"0123456789"]))
    monkeypatch.undo()
    assert (tmp_path / "a").read_bytes() == b"0123456789"
    assert found.size == 10


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [5, 3]
    real = os.write

    def full(descriptor: int, data: memoryview) -> int:
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data[: left.pop()])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(DiskSpaceError, match=r"a\.pages"):
            write_file(tmp_path / "a.pages", iter([b"0123456789"]))
    assert list(tmp_path.iterdir()) == []


def test_pieces_that_fail_leave_nothing(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"x"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_file(tmp_path / "a", pieces())
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_exists_is_neither_overwritten_nor_removed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("another checkpoint's")
    with pytest.raises(PathError, match="exists"):
        write_file(path, iter([b"new"]))
    assert path.read_text() == "another checkpoint's"


def test_a_directory_that_is_missing_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(PathError, match="gone/a"):
        write_file(tmp_path / "gone" / "a", iter([b"x"]))


# Reading them


@pytest.fixture
def whole(small_chunks: None, tmp_path: Path) -> tuple[Path, File]:
    path = tmp_path / "memory.pages"
    return path, write_file(path, iter([bytes(range(100, 120))]))


def refused(path: Path, file: File, match: str) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(HistoryError, match=match) as caught:
        MappedFile(path, file)
    assert str(path) in str(caught.value)
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_a_missing_file_is_named(whole: tuple[Path, File]) -> None:
    path, file = whole
    path.unlink()
    refused(path, file, "No such file")


@each("size", [0, 1, 19, 21])
def test_a_file_of_another_length_is_named(whole: tuple[Path, File], size: int) -> None:
    path, file = whole
    os.truncate(path, size)
    refused(path, file, f"damaged: {size} bytes instead of 20")


@pytest.mark.parametrize("at", range(20))
def test_a_flipped_bit_is_named_with_its_chunk(whole: tuple[Path, File], at: int) -> None:
    path, file = whole
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)
    refused(path, file, f"checksum at byte {at // SMALL * SMALL} is wrong")


@each("crcs", [(), (1, 2), (1, 2, 3, 4)])
def test_checksums_that_are_too_few_or_too_many_are_refused(
    whole: tuple[Path, File], crcs: tuple[int, ...]
) -> None:
    path, file = whole
    refused(path, replace(file, crcs=crcs), "do not fit")


def test_writing_to_the_map_never_reaches_the_file(whole: tuple[Path, File]) -> None:
    path, file = whole
    with MappedFile(path, file) as mapped:
        mapped.data[0] = 0
    MappedFile(path, file).close()


def test_closing_twice_is_as_once(whole: tuple[Path, File]) -> None:
    mapped = MappedFile(*whole)
    mapped.close()
    mapped.close()


def test_an_error_is_not_hidden_by_a_view_that_is_still_held(whole: tuple[Path, File]) -> None:
    def use() -> None:
        with MappedFile(*whole) as mapped:
            part = mapped.data[1:3]
            raise RuntimeError(f"while {len(part)} bytes are in use")

    with pytest.raises(RuntimeError, match="2 bytes"):
        use()


@each(
    "runs",
    [
        (PageRun(0, 2, 0, 0), PageRun(1, 1, 0, 2)),
        (PageRun(3, 1, 0, 0), PageRun(1, 1, 0, 1)),
        (PageRun(7, 2, 0, 0),),
    ],
)
def test_an_index_that_nobody_could_read_is_not_written(runs: tuple[PageRun, ...]) -> None:
    with pytest.raises(HistoryError, match="of the memory"):
        PageIndex(8 * PAGE, runs).encode()
