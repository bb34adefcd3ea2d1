"""Streams: packed or not they are read whole or refused; a new file is there when it is whole."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import PathError
from quicksand.saves.bundle import streams
from quicksand.saves.bundle.streams import PIECE, BundleSource, open_source, open_target
from quicksand_disks import zstd

from tests.each import each

TEXT = b"the same again and again, and yet " * 50_000


def pack(data: bytes, step: int = PIECE) -> bytes:
    out: list[bytes] = []
    packer = zstd.Packer(out.append)
    for at in range(0, len(data), step):
        packer.feed(data[at : at + step])
    packer.finish()
    return b"".join(out)


def read_all(data: bytes, step: int = 100_000) -> bytes:
    source = BundleSource(io.BytesIO(data))
    parts = iter(lambda: source.read(step), b"")
    found = b"".join(parts)
    source.close()
    return found


@each("packer", [bytes, gzip.compress, pack])
def test_it_is_known_by_what_it_begins_with(packer: object) -> None:
    assert callable(packer)
    packed = packer(TEXT)
    assert read_all(packed) == TEXT
    assert BundleSource(io.BytesIO(packed)).is_packed is (packer is not bytes)


@given(st.binary(max_size=3000), st.integers(1, 500), st.integers(1, 500))
def test_pieces_of_any_size_make_the_same(data: bytes, one: int, other: int) -> None:
    assert read_all(pack(data, one), other) == data


def test_the_program_zstd_reads_ours_and_we_read_its(tmp_path: Path) -> None:
    path = tmp_path / "x.zst"
    path.write_bytes(pack(TEXT))
    assert subprocess.check_output(["zstd", "-dc", path]) == TEXT
    theirs = subprocess.check_output(["zstd", "-c", "-19"], input=TEXT)
    assert read_all(theirs) == TEXT


@each("packer", [gzip.compress, pack])
def test_packed_streams_that_are_damaged_are_refused(packer: object) -> None:
    assert callable(packer)
    packed = packer(TEXT)
    for cut in (5, len(packed) // 2, len(packed) - 1):
        with pytest.raises(ValueError, match=r"cut off|damaged"):
            read_all(packed[:cut])
    for more in (b"x", packed, bytes(5)):
        with pytest.raises(ValueError, match="something follows"):
            read_all(packed + more)
    for at in range(10, len(packed), 7):
        flipped = packed[:at] + bytes([packed[at] ^ 0x55]) + packed[at + 1 :]
        try:
            assert read_all(flipped) == TEXT
        except ValueError:
            continue


def test_a_stream_that_wants_much_memory_is_refused() -> None:
    """`zstd --ultra --long=31` asks its reader for 2 GiB."""
    huge = subprocess.check_output(["zstd", "-c", "--ultra", "--long=31"], input=TEXT)
    with pytest.raises(ValueError, match="damaged"):
        read_all(huge)


SKIPPABLE = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"note"
"""A frame that readers skip (RFC 8878, 3.1.2)."""


def test_what_is_unpacked_whole_may_have_the_window_of_linux() -> None:
    """Linux compresses its kernel with a window of 128 MiB, which a stream may not have."""
    content = os.urandom(1 << 20)
    packed = subprocess.run(
        ["zstd", "-c", "--ultra", "-22", "--long=27"],
        input=content,
        capture_output=True,
        check=True,
    ).stdout
    assert zstd.decompress(packed, len(content)) == content
    with pytest.raises(ValueError, match="compressed data"):
        b"".join(zstd.unpack(iter([packed])))


def test_a_frame_to_skip_is_neither_skipped_nor_taken_for_a_bundle() -> None:
    packed = pack(TEXT)
    with pytest.raises(ValueError, match="something follows"):
        read_all(packed + SKIPPABLE)
    assert not BundleSource(io.BytesIO(SKIPPABLE + packed)).is_packed
    with pytest.raises(ValueError, match="something follows"):
        list(zstd.unpack(iter([SKIPPABLE, packed])))


def test_a_bomb_comes_in_small_pieces() -> None:
    packed = pack(bytes(1 << 28), 1 << 22)
    assert len(packed) < 1 << 15
    tracemalloc.start()
    try:
        sizes = [len(piece) for piece in zstd.unpack(iter([packed]))]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(sizes) == 1 << 28
    assert max(sizes) <= zstd.PIECE
    assert most < 1 << 22


@each("size", [0, 1, len(TEXT) - 1, len(TEXT) + 1, 1 << 40])
def test_a_frame_of_another_size_than_it_must_have_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="damaged"):
        zstd.decompress(pack(TEXT), size)


def test_one_frame_is_read_and_what_follows_it_is_not() -> None:
    packed = pack(TEXT)
    for more in (b"", b"x", packed, SKIPPABLE, bytes(500)):
        assert zstd.decompress(packed + more, len(TEXT)) == TEXT
    for cut in range(0, len(packed), 97):
        with pytest.raises(ValueError, match="damaged"):
            zstd.decompress(packed[:cut], len(TEXT))


def test_a_pipe_is_waited_for_and_the_wait_can_be_ended() -> None:
    class Enough(Exception):
        pass

    read, write = os.pipe()
    waits: Iterator[int] = iter(range(100))

    def stop() -> None:
        if next(waits) == 1:
            raise Enough

    with pytest.raises(Enough), os.fdopen(read, "rb") as file, open_source(file, stop):
        pass
    os.close(write)


def test_a_pipe_brings_all_of_it() -> None:
    read, write = os.pipe()
    packed = pack(os.urandom(300_000) + TEXT)

    def send() -> None:
        with os.fdopen(write, "wb") as file:
            file.write(packed)

    thread = threading.Thread(target=send)
    thread.start()
    with os.fdopen(read, "rb") as file, open_source(file) as (source, size):
        assert size is None
        assert source.read(10**9)[300_000:] == TEXT
    thread.join()


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(PathError, match=str(path)), open_source(path):
            pass


# Writing


@pytest.fixture(params=["unnamed", "named"])
def target(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In a directory of its own, where files without a name can or cannot be."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE")
    directory = tmp_path / "target"
    directory.mkdir()
    return directory / "bundle"


@each("old", [None, b"old"])
def test_a_file_is_there_when_it_is_whole(target: Path, old: bytes | None) -> None:
    if old is not None:
        target.write_bytes(old)
    with open_target(target, compress=False) as write:
        write(b"new ")
        write(b"one")
        assert (target.read_bytes() if target.exists() else None) == old
    assert target.read_bytes() == b"new one"
    assert target.stat().st_mode & 0o777 == 0o600
    assert list(target.parent.iterdir()) == [target]


def test_a_failure_leaves_the_old_file_and_no_other(target: Path) -> None:
    target.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), open_target(target, compress=True) as write:
        write(TEXT)
        raise KeyboardInterrupt
    assert target.read_bytes() == b"old"
    assert list(target.parent.iterdir()) == [target]


@each("kind", ["directory", "link", "device"])
def test_only_a_file_is_replaced(kind: str, tmp_path: Path) -> None:
    """/dev/null is to stay what it is."""
    path = tmp_path / "x"
    if kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        os.mkfifo(path)
    before = path.lstat()
    with (
        pytest.raises(PathError, match="not a regular") as caught,
        open_target(path, compress=False),
    ):
        pass
    assert "stdout" in caught.value.hint
    assert path.lstat().st_ino == before.st_ino


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(PathError, match="missing"),
        open_target(tmp_path / "missing" / "x", compress=False),
    ):
        pass


def test_a_stream_gets_the_same(tmp_path: Path) -> None:
    out = io.BytesIO()
    with open_target(out, compress=True) as write:
        write(TEXT)
    assert read_all(out.getvalue()) == TEXT
    assert out.getvalue()[:2] != streams.GZIP_MAGIC
