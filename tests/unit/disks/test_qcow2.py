"""Our parser of qcow2 headers: takes what QEMU makes, refuses what could reach the host."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError
from quicksand.base.paths import paths
from quicksand.disks.images.disk_headers import check_qcow2
from quicksand.disks.images.disk_layers import create_overlay
from quicksand.disks.images.resolve import ImageResolver
from quicksand_disks.qcow2_header import VIRTUAL_SIZE_MAX

from tests.conftest import examples
from tests.each import each

GIB = 1024**3


def header(*, extensions: bytes = struct.pack(">II", 0, 0), **changes: Any) -> bytes:
    """A good image of 1 GiB (all its tables, no data), with fields replaced."""
    values: dict[str, Any] = {
        "magic": b"QFI\xfb",
        "version": 3,
        "backing_offset": 0,
        "backing_size": 0,
        "cluster_bits": 16,
        "size": GIB,
        "crypt": 0,
        "l1_size": 2,
        "l1_offset": 3 * 65536,
        "reftable_offset": 65536,
        "reftable_clusters": 1,
        "snapshots": 0,
        "snapshots_offset": 0,
        "incompatible": 0,
        "compatible": 0,
        "autoclear": 0,
        "refcount_order": 4,
        "header_length": 112,
        "compression": 0,
        **changes,
    }
    packed = struct.pack(">4sIQIIQIIQQIIQQQQIIQ", *values.values())
    # The last field is one byte and padding in the format.
    packed = packed[:104] + bytes([values["compression"]]) + bytes(7)
    return (packed + extensions).ljust(4 * 65536, b"\0")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return tmp_path / "image.qcow2"


def refusal(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(ImageError) as caught:
        check_qcow2(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_plain_image_is_taken(image: Path) -> None:
    image.write_bytes(header())
    found = check_qcow2(image)
    assert (found.version, found.virtual_size, found.cluster_bits) == (3, GIB, 16)
    assert found.backing_file is None


def test_version_2_has_a_shorter_header(image: Path) -> None:
    image.write_bytes(header(version=2, incompatible=0)[:72].ljust(4 * 65536, b"\0"))
    assert check_qcow2(image).version == 2


def test_our_own_overlays_are_taken_where_they_may_have_a_base(image: Path) -> None:
    create_overlay(image, backing=Path("/somewhere/base.qcow2"), size=GIB)
    assert check_qcow2(image, allow_backing=True).backing_file == "/somewhere/base.qcow2"
    with pytest.raises(ImageError, match="names a backing file"):
        check_qcow2(image)


@each("name", [b"/etc/shadow", b'json:{"driver":"file"}', b"nbd://host/x"])
def test_every_kind_of_backing_file_is_refused_for_a_base(image: Path, name: bytes) -> None:
    content = header(backing_offset=512, backing_size=len(name))
    content = content[:512] + name + content[512 + len(name) :]
    assert "backing file" in refusal(image, content)


@each(
    ("changes", "why"),
    [
        ({"magic": b"QFI\xfa"}, "does not begin"),
        ({"version": 1}, "the older format qcow"),
        ({"version": 4}, "version 4"),
        ({"cluster_bits": 8}, "cluster bits"),
        ({"cluster_bits": 22}, "cluster bits"),
        ({"crypt": 1}, "encrypted"),
        ({"crypt": 2}, "encrypted"),
        ({"size": 0}, "bytes"),
        ({"size": VIRTUAL_SIZE_MAX + 1}, "too large"),
        ({"size": 2**64 - 1}, "too large"),
        ({"l1_size": 2**32 - 1}, "too large"),
        ({"l1_size": 1}, "too small"),
        ({"l1_offset": 3 * 65536 + 8}, "not aligned"),
        ({"l1_offset": 2**63}, "cut off"),
        ({"l1_offset": 0}, "in its header"),
        ({"reftable_clusters": 2**32 - 1}, "too large"),
        ({"reftable_clusters": 0}, "no refcount table"),
        ({"reftable_offset": 4 * 65536}, "cut off"),
        ({"snapshots": 2**32 - 1}, "snapshots"),
        ({"snapshots": 1, "snapshots_offset": 4 * 65536}, "cut off"),
        ({"incompatible": 1 << 1}, "corrupt"),
        ({"incompatible": 1 << 2}, "external data file"),
        ({"incompatible": 1 << 5}, "features"),
        ({"incompatible": 1 << 63}, "features"),
        ({"incompatible": 1 << 3, "compression": 2}, "compression"),
        ({"incompatible": 1 << 4, "cluster_bits": 9, "size": 4096}, "subclusters"),
        ({"refcount_order": 7}, "refcounts"),
        ({"header_length": 96}, "header length"),
        ({"header_length": 2**31}, "header length"),
        ({"backing_offset": 512, "backing_size": 1024}, "too long"),
        ({"backing_offset": 2**40, "backing_size": 8}, "outside"),
    ],
)
def test_a_bad_field_is_refused_by_name(image: Path, changes: dict[str, Any], why: str) -> None:
    assert why in refusal(image, header(**changes))


def test_an_image_with_an_external_data_file_is_refused_for_that(image: Path) -> None:
    """And not since no kernel lies beside it."""
    image.write_bytes(header(incompatible=1 << 2))
    with pytest.raises(ImageError, match="in an external data file"):
        ImageResolver(paths()).resolve(str(image), Architecture.host())
    image.write_bytes(header())
    with pytest.raises(ImageError, match=r"is incomplete: .*\.kernel does not exist"):
        ImageResolver(paths()).resolve(str(image), Architecture.host())


def test_an_external_data_file_is_refused_without_its_feature_bit(image: Path) -> None:
    name = b"/etc/passwd".ljust(16, b"\0")
    extension = struct.pack(">II", 0x44415441, 11) + name + struct.pack(">II", 0, 0)
    assert "external data file" in refusal(image, header(extensions=extension))


@each("length", [8, 2**31, 2**32 - 1])
def test_extensions_without_an_end_are_refused(image: Path, length: int) -> None:
    endless = struct.pack(">II", 0x12345678, length) + bytes(8)
    assert "extensions" in refusal(image, header(extensions=endless * 4000))


@each("size", [0, 3, 4, 71, 72, 100, 111, 65536, 3 * 65536, 3 * 65536 + 15])
def test_a_truncated_image_is_refused(image: Path, size: int) -> None:
    refusal(image, header()[:size])


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, tmp_path, tmp_path / "missing"):
        with pytest.raises(ImageError, match=str(path)):
            check_qcow2(path)


@settings(max_examples=examples(300))
@given(flips=st.lists(st.tuples(st.integers(0, 199), st.integers(0, 255)), min_size=1, max_size=8))
def test_damaged_headers_are_taken_or_refused_never_anything_else(
    tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]]
) -> None:
    content = bytearray(header())
    for position, value in flips:
        content[position] = value
    path = tmp_path_factory.getbasetemp() / "flipped.qcow2"
    path.write_bytes(content)
    try:
        found = check_qcow2(path)
    except ImageError:
        return
    assert 0 < found.virtual_size <= VIRTUAL_SIZE_MAX
    assert found.backing_file is None


@settings(max_examples=examples(200))
@given(content=st.binary(max_size=2000))
def test_arbitrary_bytes_are_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "arbitrary.qcow2"
    path.write_bytes(b"QFI\xfb" + content)
    with pytest.raises(ImageError):
        check_qcow2(path)
