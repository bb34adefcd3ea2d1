"""Journals: what e2fsprogs replays, we read without replaying."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quicksand_disks.errors import MalformedError
from quicksand_disks.ext4.filesystem import FileSystem
from quicksand_disks.ext4.journal import MAGIC
from quicksand_images.toolbox import Tool

from tests.conftest import examples
from tests.unit.disks.diff.disks import MIB, OURS, Maker, MemoryDisk, brief, diff_bytes, fill

BLOCK = 1024
KINDS = {
    "version 1": ("none,has_journal,filetype,extent", "jo"),
    "64 bits": ("none,has_journal,filetype,extent,64bit", "jo"),
    "checksums of version 2": (OURS, "jo -c -v 2"),
    "checksums of version 3": (OURS, "jo -c -v 3"),
    "version 3, 32 bits": ("none,has_journal,filetype,extent,metadata_csum", "jo -c -v 3"),
}


def make(maker: Maker, tmp_path: Path, features: str) -> bytes:
    tree = fill(tmp_path / "tree", {"a": b"a" * 5000, "b": b"b" * 5000, "c": b""})
    return maker.filesystem(tree, features=features, size=8 * MIB)


def blocks_of(maker: Maker, disk: bytes, name: str) -> list[int]:
    return [int(maker.ask(disk, f"bmap /{name} {n}").split()[-1]) for n in range(5)]


@pytest.fixture
def logged(tmp_path: Path) -> Path:
    """Two blocks to log; the second begins as blocks of a journal do, so that it is escaped."""
    path = tmp_path / "logged"
    path.write_bytes(b"L" * BLOCK + struct.pack(">I", MAGIC) + b"M" * (BLOCK - 4))
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_committed_blocks_count_and_revoked_ones_do_not(
    maker: Maker, tmp_path: Path, logged: Path, kind: str
) -> None:
    features, opening = KINDS[kind]
    clean = make(maker, tmp_path, features)
    a, b = blocks_of(maker, clean, "a"), blocks_of(maker, clean, "b")
    dirty = maker.debug(
        clean,
        opening,
        f"jw -b {a[0]},{a[1]} {logged}",
        f"jw -b {b[0]},{b[1]} {logged}",
        f"jw -r {b[0]}",
        "jc",
    )
    filesystem = FileSystem(MemoryDisk(dirty))
    assert set(filesystem.logged) == {a[0], a[1], b[1]}
    data = logged.read_bytes()
    assert filesystem.read_block(a[0]) + filesystem.read_block(a[1]) == data
    assert filesystem.read_blocks(b[0], 2) == b"b" * BLOCK + data[BLOCK:]
    assert brief(diff_bytes(clean, dirty)) == {
        "/a": "changed content 5000 5000",
        "/b": "changed content 5000 5000",
    }
    assert diff_bytes(dirty, maker.debug(dirty, "jr")) == []


def test_a_revoked_block_that_is_logged_again_counts(
    maker: Maker, tmp_path: Path, logged: Path
) -> None:
    clean = make(maker, tmp_path, OURS)
    first, second, *_ = blocks_of(maker, clean, "a")
    again = f"jw -b {first},{second} {logged}"
    dirty = maker.debug(clean, "jo -c -v 3", again, f"jw -r {first}", again, "jc")
    assert set(FileSystem(MemoryDisk(dirty)).logged) == {first, second}
    assert diff_bytes(dirty, maker.debug(dirty, "jr")) == []


def test_many_transactions_with_many_tags_and_revocations(maker: Maker, tmp_path: Path) -> None:
    """More tags than one descriptor holds."""
    big = fill(tmp_path / "tree", {"big": random.Random(3).randbytes(400 * BLOCK)})
    clean = maker.filesystem(big, size=8 * MIB)
    first = int(maker.ask(clean, "bmap /big 0").split()[-1])
    content = tmp_path / "content"
    content.write_bytes(random.Random(4).randbytes(300 * BLOCK))
    dirty = maker.debug(
        clean,
        "jo -c -v 3",
        f"jw -b {first}-{first + 299} {content}",
        f"jw -r {first + 20}-{first + 220}",
        f"jw -b {first + 100}-{first + 399} {content}",
        "jc",
    )
    found = FileSystem(MemoryDisk(dirty))
    assert len(found.logged) == 400 - 80
    assert diff_bytes(dirty, maker.debug(dirty, "jr")) == []


def commits(disk: bytes) -> list[int]:
    """Where blocks begin that commit a transaction."""
    mark = struct.pack(">II", MAGIC, 2)
    return [at for at in range(0, len(disk), BLOCK) if disk[at : at + 8] == mark]


def test_what_was_not_committed_does_not_count(maker: Maker, tmp_path: Path, logged: Path) -> None:
    clean = make(maker, tmp_path, OURS)
    a, b = blocks_of(maker, clean, "a"), blocks_of(maker, clean, "b")
    dirty = bytearray(
        maker.debug(
            clean,
            "jo -c -v 3",
            f"jw -b {a[0]},{a[1]} {logged}",
            f"jw -b {b[0]},{b[1]} {logged}",
            "jc",
        )
    )
    _, last = commits(bytes(dirty))
    dirty[last : last + BLOCK] = bytes(BLOCK)
    assert set(FileSystem(MemoryDisk(bytes(dirty))).logged) == {a[0], a[1]}


def journal_at(maker: Maker, disk: bytes) -> int:
    return int(maker.ask(disk, "bmap <8> 0").split()[-1]) * BLOCK


def dirty_disk(maker: Maker, tmp_path: Path, logged: Path) -> bytes:
    clean = make(maker, tmp_path, OURS)
    first, second, *_ = blocks_of(maker, clean, "a")
    write = f"jw -b {first},{second} {logged}"
    return maker.debug(clean, "jo -c -v 3", write, f"jw -r {first}", write, "jc")


@pytest.mark.parametrize(
    ("offset", "value", "said"),
    [
        (0, 1, "no journal"),
        (12, 4096, "another size"),
        (16, 1 << 30, "too large"),
        (20, 0, "no room"),
        (28, 1 << 20, "beyond its end"),
        (40, 0x20, "fast commits"),
        (40, 0x4000, "0x4000"),
    ],
)
def test_a_journal_that_makes_no_sense_is_refused(
    maker: Maker, tmp_path: Path, logged: Path, offset: int, value: int, said: str
) -> None:
    disk = bytearray(dirty_disk(maker, tmp_path, logged))
    struct.pack_into(">I", disk, journal_at(maker, bytes(disk)) + offset, value)
    with pytest.raises(MalformedError, match=said):
        FileSystem(MemoryDisk(bytes(disk)))


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory, tools: tuple[Tool, Tool]) -> tuple[bytes, int]:
    """A disk with a journal that is needed, and where that begins."""
    place = tmp_path_factory.mktemp("victim")
    maker = Maker(*tools, place)
    content = place / "logged"
    content.write_bytes(b"L" * 2 * BLOCK)
    disk = dirty_disk(maker, place, content)
    return disk, journal_at(maker, disk)


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flips=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 63), st.integers(0, 255))))
def test_no_flipped_bytes_of_a_journal_raise_anything_but_our_error(
    victim: tuple[bytes, int], flips: list[tuple[int, int, int]]
) -> None:
    disk, journal = bytearray(victim[0]), victim[1]
    for block, at, value in flips:
        disk[journal + block * BLOCK + at] = value
    try:
        diff_bytes(victim[0], bytes(disk))
    except MalformedError as error:
        assert str(error)
