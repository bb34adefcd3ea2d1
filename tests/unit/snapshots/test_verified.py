"""A file's checksums are compared once a boot, and again whenever the file was written to."""

from __future__ import annotations

import os
import zlib
from itertools import pairwise
from pathlib import Path

import pytest
from quicksand.base.errors import HistoryError
from quicksand.base.removal import MARK, remove
from quicksand.records.nodes import File
from quicksand.snapshots import pages, verified
from quicksand.snapshots.image import seal_image
from quicksand.snapshots.pages import MappedFile, verify, write_file
from quicksand.snapshots.verified import Verified

DATA = bytes(range(200))


class Counter:
    """Counts how often checksums were computed."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.passes = 0
        real = pages.checksums

        def counted(*arguments: object) -> object:
            self.passes += 1
            return real(*arguments)  # type: ignore[arg-type]

        patch.setattr(pages, "checksums", counted)


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    return Counter(monkeypatch)


@pytest.fixture
def memo(tmp_path: Path) -> Verified:
    return Verified(tmp_path / "verified", "boot-1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.pages"


@pytest.fixture
def file(path: Path) -> File:
    return write_file(path, iter([DATA]))


def test_a_file_is_read_once(counter: Counter, memo: Verified, path: Path, file: File) -> None:
    for _ in range(3):
        with MappedFile(path, file, memo) as mapped:
            assert bytes(mapped.data) == DATA
    assert counter.passes == 1


def test_a_file_that_was_just_written_need_not_be_read(
    counter: Counter, memo: Verified, path: Path
) -> None:
    verify(path, write_file(path, iter([DATA]), memo), memo)
    assert counter.passes == 0


def test_a_sealed_image_need_not_be_read(counter: Counter, memo: Verified, path: Path) -> None:
    path.write_bytes(DATA)
    verify(path, seal_image(path, memo), memo)
    assert counter.passes == 0


def test_another_name_of_the_same_file_is_known_too(
    counter: Counter, memo: Verified, path: Path, file: File
) -> None:
    verify(path, file, memo)
    other = path.with_name("clone")
    other.hardlink_to(path)
    verify(other, file, memo)
    assert counter.passes == 1


@pytest.mark.parametrize("at", [0, 100, 199])
def test_a_bit_that_is_flipped_by_writing_is_seen_at_once(
    memo: Verified, path: Path, at: int
) -> None:
    file = write_file(path, iter([DATA]), memo)
    with path.open("r+b") as opened:
        opened.seek(at)
        opened.write(bytes([DATA[at] ^ 4]))
    for _ in range(2):
        with pytest.raises(HistoryError, match=r"a\.pages is damaged: the checksum"):
            verify(path, file, memo)


def test_a_cut_file_is_refused_whatever_is_remembered(memo: Verified, path: Path) -> None:
    file = write_file(path, iter([DATA]), memo)
    found = path.stat()
    os.truncate(path, 199)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    with pytest.raises(HistoryError, match="199 bytes instead of 200"):
        verify(path, file, memo)


def test_other_checksums_are_compared_anew(memo: Verified, path: Path, file: File) -> None:
    verify(path, file, memo)
    with pytest.raises(HistoryError, match="checksum"):
        verify(path, File(name=file.name, size=file.size, crcs=(1,)), memo)


def test_after_a_boot_all_is_read_again_and_the_old_boot_is_forgotten(
    counter: Counter, memo: Verified, path: Path, file: File, tmp_path: Path
) -> None:
    verify(path, file, memo)
    verify(path, file, Verified(tmp_path / "verified", "boot-2"))
    assert counter.passes == 2
    (left,) = (tmp_path / "verified").iterdir()
    with path.open("rb") as opened:
        assert memo.mark(opened.fileno(), file).parent != left


def test_the_number_of_files_that_are_remembered_is_bounded(
    monkeypatch: pytest.MonkeyPatch, memo: Verified, tmp_path: Path
) -> None:
    monkeypatch.setattr(verified, "ENTRIES_MAX", 4)
    monkeypatch.setattr(verified, "COUNTED_EVERY", 1)
    proofs = set()
    for number in range(20):
        write_file(tmp_path / f"{number}.pages", iter([DATA]), memo)
        (directory,) = (tmp_path / "verified").iterdir()
        assert len(list(directory.iterdir())) <= 4
        proofs.add((directory / MARK).stat().st_ino)
    assert len(proofs) == 1, "the directory is never without its proof, so it can be removed"
    remove(directory)
    assert not directory.exists()


def test_the_marks_are_counted_now_and_then(
    monkeypatch: pytest.MonkeyPatch, memo: Verified, tmp_path: Path
) -> None:
    monkeypatch.setattr(verified, "ENTRIES_MAX", 4)
    monkeypatch.setattr(verified, "COUNTED_EVERY", 8)
    sizes = []
    for number in range(200):
        write_file(tmp_path / f"{number}.pages", iter([DATA]), memo)
        (directory,) = (tmp_path / "verified").iterdir()
        sizes.append(len(list(directory.iterdir())))
    dropped = sum(after < before for before, after in pairwise(sizes))
    assert 0 < dropped < 100


def test_without_a_place_to_remember_files_are_read_each_time(
    counter: Counter, path: Path, file: File, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("not a directory")
    memo = Verified(tmp_path / "taken" / "verified", "boot")
    for _ in range(2):
        verify(path, file, memo)
    assert counter.passes == 2


def test_holes_are_not_read(monkeypatch: pytest.MonkeyPatch, path: Path, counter: Counter) -> None:
    with path.open("wb") as opened:
        opened.truncate(64 * pages.CHUNK + 5)
        opened.seek(3 * pages.CHUNK)
        opened.write(b"x" * 5000)
    found = seal_image(path)
    read: list[int] = []
    real = zlib.crc32

    def crc32(data: bytes) -> int:
        read.append(len(data))
        return real(data)

    monkeypatch.setattr(pages, "crc32", crc32)
    pages.crc_of_zeros.cache_clear()
    verify(path, found)
    # The chunk with data, and what a hole's checksum is: for a whole chunk and for the last one.
    assert sorted(read) == [5, pages.CHUNK, pages.CHUNK]
