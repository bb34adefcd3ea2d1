"""Tar: what we write others read; of what others write only plain files are read."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.saves.bundle.streams import (
    END,
    OCTAL_MAX,
    PAX_MAX,
    Header,
    TarReader,
    encode_header,
    padding,
)

from tests.each import each

NAMES = st.from_regex(r"[a-z0-9./-]{0,99}[a-z]", fullmatch=True)


def read_all(data: bytes) -> list[tuple[str, bytes]]:
    reader = TarReader(io.BytesIO(data))
    found = []
    while (header := reader.next()) is not None:
        found.append((header.name, b"".join(reader.content())))
    return found


def plain(name: str, data: bytes) -> bytes:
    return encode_header(name, len(data), 1.0) + data + padding(len(data))


@given(st.lists(st.tuples(NAMES, st.binary(max_size=1500)), max_size=5))
def test_what_we_write_is_read_by_python_and_by_us(files: list[tuple[str, bytes]]) -> None:
    data = b"".join(plain(*file) for file in files) + END
    assert read_all(data) == files
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        found = [(info.name, info.uid, info.mode, info.mtime) for info in tar]
    assert found == [(name, 0, 0o600, 1) for name, _ in files]


@each("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_what_python_writes_is_read(kind: int) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as tar:
        for name, data in (("a", b"x" * 600), ("b/c", b"")):
            info = tarfile.TarInfo(name)
            # Beyond the whole second: pax has an extended header then, as of `TarFile.add`.
            info.size, info.mtime = len(data), 17.5 if kind == tarfile.PAX_FORMAT else 17
            tar.addfile(info, io.BytesIO(data))
    assert read_all(out.getvalue()) == [("a", b"x" * 600), ("b/c", b"")]


@each("size", [OCTAL_MAX - 1, OCTAL_MAX, 10 * 1024**4])
def test_large_sizes_are_understood_by_python_and_by_us(size: int, tmp_path: Path) -> None:
    header = encode_header("large", size, 1.0)
    assert TarReader(io.BytesIO(header)).next() == Header("large", size)
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + min(size + 1024, 9 << 30))
    with tarfile.open(path) as tar:
        first = tar.next()
    assert first is not None
    assert (first.name, first.size) == ("large", size)


def test_sizes_in_binary_are_understood() -> None:
    block = bytearray(encode_header("x", 0, 1.0))
    block[124:136] = b"\x80" + (9 << 30).to_bytes(11)
    assert TarReader(io.BytesIO(fix(block))).next() == Header("x", 9 << 30)


def fix(block: bytearray) -> bytes:
    """With the checksum that fits."""
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@each("kind", "123456SKLgZ")
def test_only_files_are_taken(kind: str) -> None:
    block = bytearray(encode_header("x", 0, 1.0))
    block[156] = ord(kind)
    with pytest.raises(ValueError, match=r"'x' is .*: only files"):
        read_all(fix(block) + END)


@each(
    "record",
    [
        b"path=../../etc/passwd",
        b"linkpath=/etc/passwd",
        b"GNU.sparse.size=10995116277760",
        b"GNU.sparse.map=0,1",
        b"SCHILY.realsize=5",
        b"hdrcharset=BINARY",
        b"size=-1",
        b"size=" + b"9" * 30,
        b"size=x",
        b"nothing",
    ],
)
def test_extended_headers_change_nothing_but_sizes(record: bytes) -> None:
    with pytest.raises(ValueError, match="extended header"):
        read_all(extended(b"%d %s\n" % (len(record) + 4, record)))


@each("data", [b"5 a=b", b"0 a=\n", b"99 mtime=1\n", b"x", b" \n", b"-5 m=\n"])
def test_malformed_extended_headers_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="extended header"):
        read_all(extended(data))


def extended(data: bytes) -> bytes:
    head = bytearray(encode_header("x", len(data), 1.0))
    head[156] = ord("x")
    return fix(head) + data + padding(len(data)) + plain("file", b"") + END


def test_an_extended_header_has_a_limit_and_stands_before_something() -> None:
    with pytest.raises(ValueError, match="more than"):
        read_all(extended(b"1" * (PAX_MAX + 1)))
    alone = extended(b"11 mtime=1\n")[:1024] + END
    with pytest.raises(ValueError, match="before nothing"):
        read_all(alone)


@each("cut", [1, 511, 512, 513, 1023, 1024, 1500, 2047])
def test_a_tar_that_is_cut_off_is_told_so(cut: int) -> None:
    data = plain("a", b"x" * 600) + END
    with pytest.raises(ValueError, match="cut off"):
        read_all(data[:cut])


def test_nothing_else_may_stand_anywhere() -> None:
    good = plain("a", b"x" * 600)
    for data in (
        good[:-1] + b"!" + END,
        good + bytes(512) + b"x" * 512,
        good + END + b"x",
        good + END + bytes(2 << 20),
    ):
        with pytest.raises(ValueError, match=r"something|cut off"):
            read_all(data)
    assert read_all(good + END + bytes(9 * 1024)) == [("a", b"x" * 600)]


def test_a_file_that_is_no_tar_is_told_so() -> None:
    for data in (b"QFI\xfb" * 200, b"#!/bin/sh\n" * 100, bytes(range(256)) * 4):
        with pytest.raises(ValueError, match="not a tar"):
            read_all(data)


def test_long_names_and_links_targets_are_refused() -> None:
    block = bytearray(encode_header("x", 0, 1.0))
    block[345:350] = b"/etc/"
    with pytest.raises(ValueError, match="too long"):
        read_all(fix(block))
    block = bytearray(encode_header("x", 0, 1.0))
    block[157:160] = b"/etc"[:3]
    with pytest.raises(ValueError, match="link's target"):
        read_all(fix(block))


@given(st.binary(max_size=2048), st.data())
def test_anything_is_read_or_refused(noise: bytes, data: st.DataObject) -> None:
    good = plain("a", b"x" * 600) + plain("b", b"") + END
    at = data.draw(st.integers(0, len(good)))
    for mixed in (noise, good[:at] + noise, good[:at] + noise + good[at + len(noise) :]):
        try:
            read_all(mixed)
        except ValueError:
            continue
