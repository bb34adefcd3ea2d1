"""Metadata behind an image and beside it: QEMU does not mind it, a guest cannot forge it, and what
is damaged is refused by name."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quicksand.base.errors import ConfigError, DiskSpaceError, ImageError, PathError
from quicksand.disks.images.disk_layers import create_overlay, write_merged
from quicksand.saves.portable import (
    DEPTH_MAX,
    MAGIC,
    TRAILER_MAX,
    read_metadata,
    sidecar,
    write_metadata,
)
from quicksand_disks.qcow2.writing import CLUSTER

from tests.conftest import examples
from tests.each import each
from tests.faults import Fault, fault
from tests.unit.disks.diff.disks import write_clusters
from tests.unit.disks.test_overlay import QemuImg, qemu_img
from tests.unit.qcow2_layers import read_disk

__all__ = ["fault", "qemu_img"]

MIB = 1024 * 1024
VALUE = {
    "schema_version": 1,
    "base": "sha256:0123",
    "note": "ein Häuschen",
    "sizes": [1, 2.5, None],
}
OTHER = {"schema_version": 1, "note": "another"}
DISK = random.Random(1).randbytes(3 * CLUSTER)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return make_image(tmp_path)


def make_image(directory: Path) -> Path:
    layer, path = directory / "layer", directory / "snapshot.qcow2"
    create_overlay(layer, backing=None, size=8 * CLUSTER)
    write_clusters(layer, {n: DISK[n * CLUSTER : (n + 1) * CLUSTER] for n in range(3)})
    write_merged([layer], path, backing=None)
    layer.unlink()
    return path


def lay_trailer(path: Path, text: bytes, *, length: int | None = None) -> None:
    """Append what looks like one."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(-(-size // CLUSTER) * CLUSTER)
        file.seek(0, os.SEEK_END)
        file.write(text + struct.pack(">Q8s", len(text) if length is None else length, MAGIC))


def test_what_is_written_is_read_from_the_file_alone_and_from_beside_it(image: Path) -> None:
    size = image.stat().st_size
    write_metadata(image, VALUE)
    assert json.loads(sidecar(image).read_bytes()) == VALUE
    assert image.stat().st_size % 512 == 0
    assert image.stat().st_size <= size + 1024
    sidecar(image).unlink()
    assert read_metadata(image) == VALUE


def test_the_trailer_counts_where_both_are_there(image: Path) -> None:
    write_metadata(image, VALUE)
    sidecar(image).write_text(json.dumps(OTHER))
    assert read_metadata(image) == VALUE
    sidecar(image).write_text("damaged")
    assert read_metadata(image) == VALUE


def test_writing_again_replaces_both(image: Path) -> None:
    write_metadata(image, {"long": "x" * 100_000})
    write_metadata(image, VALUE)
    first = image.stat().st_size
    for _ in range(3):
        write_metadata(image, OTHER)
        write_metadata(image, VALUE)
    assert image.stat().st_size == first
    assert read_metadata(image) == VALUE
    assert json.loads(sidecar(image).read_bytes()) == VALUE
    assert b"xxxx" not in image.read_bytes()


@each("options", ["", "refcount_bits=1,", "refcount_bits=64,", "compat=0.10,"])
@each("cluster", ["512", "64k", "2M"])
def test_qemu_takes_every_kind_of_image_with_a_trailer(
    tmp_path: Path, qemu_img: QemuImg, options: str, cluster: str
) -> None:
    path, raw = tmp_path / "disk.qcow2", tmp_path / "raw"
    raw.write_bytes(DISK + DISK[:-3000] + bytes(3000))
    made = f"{options}cluster_size={cluster}"
    qemu_img.run("convert", "-f", "raw", "-O", "qcow2", "-c", "-o", made, raw, path)
    before = qemu_img.info(path)
    for value in (VALUE, OTHER, VALUE):
        write_metadata(path, value)
        sidecar(path).unlink()
        assert read_metadata(path) == value
    write_metadata(path, VALUE)
    info = qemu_img.info(path)
    for key in ("virtual-size", "cluster-size", "format-specific"):
        assert info[key] == before[key]
    found = qemu_img.check(path)
    assert found["check-errors"] == 0
    assert not {"corruptions", "leaks"} & found.keys()
    qemu_img.run("compare", "-f", "raw", "-F", "qcow2", raw, path)
    again = tmp_path / "again.qcow2"
    qemu_img.run("convert", "-f", "qcow2", "-O", "qcow2", path, again)
    with pytest.raises(ImageError, match=r"again\.qcow2 has no metadata .*again\.qcow2\.json"):
        read_metadata(again)
    sidecar(path).rename(sidecar(again))
    assert read_metadata(again) == VALUE


def test_an_image_that_qemu_lets_grow_loses_the_trailer_not_its_data(
    image: Path, qemu_img: QemuImg
) -> None:
    write_metadata(image, VALUE)
    program = qemu_img.program.with_name("qemu-io")
    if not program.exists():
        pytest.skip("no qemu-io on this host")
    subprocess.run(
        [program, "-f", "qcow2", "-c", f"write -P 0x77 {4 * CLUSTER} {3 * CLUSTER}", image],
        env={**os.environ, **qemu_img.env},
        check=True,
        capture_output=True,
        timeout=120,
    )
    assert not {"corruptions", "leaks"} & qemu_img.check(image).keys()
    assert read_metadata(image) == VALUE  # from the file beside it
    write_metadata(image, OTHER)
    sidecar(image).unlink()
    assert read_metadata(image) == OTHER
    disk = read_disk(image)
    assert disk[: 3 * CLUSTER] == DISK
    assert disk[4 * CLUSTER : 7 * CLUSTER] == b"\x77" * 3 * CLUSTER


def test_a_guest_cannot_forge_it(tmp_path: Path, qemu_img: QemuImg) -> None:
    """Its data may lie at the end of the file, and is neither read nor cut off."""
    forged = json.dumps({"base": "mine"}).encode()
    end = struct.pack(">Q8s", len(forged), MAGIC)
    content = bytes(MIB - len(forged + end)) + forged + end
    raw, path = tmp_path / "raw", tmp_path / "disk.qcow2"
    raw.write_bytes(content)
    qemu_img.run("convert", "-f", "raw", "-O", "qcow2", raw, path)
    data = path.read_bytes()
    place = data.index(forged + end) + len(forged + end)
    if place != len(data):
        # Have it at the very end: QEMU would, had it written its tables before.
        path.write_bytes(data[:place])
    with pytest.raises(ImageError, match="no metadata"):
        read_metadata(path)
    path.write_bytes(data)
    write_metadata(path, VALUE)
    assert read_metadata(path) == VALUE
    assert read_disk(path) == content


def test_an_image_that_was_not_closed_has_no_trustworthy_trailer(image: Path) -> None:
    write_metadata(image, VALUE)
    sidecar(image).write_text(json.dumps(OTHER))
    with image.open("r+b") as file:
        file.seek(72)
        file.write(struct.pack(">Q", 1))
    assert read_metadata(image) == OTHER


def test_without_either_the_file_is_named_and_what_to_do(image: Path) -> None:
    with pytest.raises(ImageError, match=r"snapshot\.qcow2 has no metadata") as caught:
        read_metadata(image)
    assert ".json" in caught.value.hint


HOSTILE = [
    (b"\xff\xfe", "codec"),
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b'{"a": 1} x', "not JSON"),
    (b'{"a": NaN}', "not a number"),
    (b'{"a": -Infinity}', "not a number"),
    (b'{"a": 1e999}', "not a number"),
    (b'{"a": ' + b"9" * 5000 + b"}", "digits"),
    (b'{"a":' * 200_000, "nested"),
    (b"[" * 500_000 + b"]" * 500_000, "nested"),
    (b'{"a":' * (DEPTH_MAX + 1) + b"1" + b"}" * (DEPTH_MAX + 1), "nested"),
    (b"[]", "not a JSON object"),
    (b"null", "not a JSON object"),
    (b'"text"', "not a JSON object"),
    (b"7", "not a JSON object"),
]
IDS = [text[:12].decode("latin-1") for text, _ in HOSTILE]


@each(("text", "said"), HOSTILE, ids=IDS)
def test_a_trailer_that_is_no_metadata_is_refused_by_name(
    image: Path, text: bytes, said: str
) -> None:
    lay_trailer(image, text)
    sidecar(image).write_text(json.dumps(VALUE))  # it does not cover up the damage
    with pytest.raises(ImageError, match=rf"snapshot\.qcow2 is damaged: .*{said}"):
        read_metadata(image)


@each(("text", "said"), HOSTILE, ids=IDS)
def test_a_file_beside_it_that_is_no_metadata_is_refused_by_name(
    image: Path, text: bytes, said: str
) -> None:
    sidecar(image).write_bytes(text)
    with pytest.raises(ImageError, match=rf"snapshot\.qcow2\.json is damaged: .*{said}"):
        read_metadata(image)


@each("length", [TRAILER_MAX, 2**31, 2**63, 2**64 - 1])
def test_a_length_that_cannot_be_is_refused_by_name(image: Path, length: int) -> None:
    lay_trailer(image, b"{}", length=length)
    with pytest.raises(ImageError, match=rf"snapshot\.qcow2 is damaged: .*{length} bytes"):
        read_metadata(image)
    with pytest.raises(ImageError, match=rf"{length} bytes"):
        write_metadata(image, VALUE)


def test_a_length_that_leads_into_the_image_is_no_trailer(image: Path) -> None:
    lay_trailer(image, b"{}", length=CLUSTER)
    with pytest.raises(ImageError, match="no metadata"):
        read_metadata(image)


def test_a_file_beside_it_is_read_only_if_it_is_one(image: Path, tmp_path: Path) -> None:
    beside = sidecar(image)
    beside.write_bytes(b" " * (TRAILER_MAX + 1))
    with pytest.raises(ImageError, match=r"\.json is longer"):
        read_metadata(image)
    beside.unlink()
    beside.mkdir()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ImageError, match=r"and no file"):
        read_metadata(image)
    assert len(os.listdir("/proc/self/fd")) <= before
    beside.rmdir()
    os.mkfifo(beside)
    with pytest.raises(ImageError, match=r"and no file"):
        read_metadata(image)
    beside.unlink()
    beside.symlink_to("/dev/zero")
    with pytest.raises(ImageError, match=r"and no file"):
        read_metadata(image)


@each("call", [read_metadata, lambda path: write_metadata(path, VALUE)])
def test_what_is_no_image_is_refused_by_name(
    tmp_path: Path, call: Callable[[Path], object]
) -> None:
    path = tmp_path / "file"
    for content in (None, b"", b"x" * 1000):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ImageError, match=str(path)):
            call(path)
    assert not sidecar(path).exists()


@each(
    "value",
    [
        [],
        "text",
        {"a": object()},
        {"a": float("nan")},
        {"a": {1, 2}},
        {"a": "x" * TRAILER_MAX},
        {b"a": 1},
    ],
    ids=["list", "text", "object", "nan", "set", "long", "key"],
)
def test_what_cannot_be_kept_is_refused_and_nothing_changed(image: Path, value: Any) -> None:
    before = image.read_bytes()
    with pytest.raises(ConfigError, match="no metadata"):
        write_metadata(image, value)
    assert image.read_bytes() == before
    assert not sidecar(image).exists()


def test_the_largest_metadata_fits(image: Path) -> None:
    room = TRAILER_MAX - 16 - len(json.dumps({"a": ""}, indent=1)) - 1
    write_metadata(image, {"a": "x" * room})
    assert read_metadata(image) == {"a": "x" * room}
    sidecar_only = image.read_bytes()[: -TRAILER_MAX // 2]
    image.write_bytes(sidecar_only)
    assert read_metadata(image) == {"a": "x" * room}
    with pytest.raises(ConfigError, match="more than"):
        write_metadata(image, {"a": "x" * (room + 1)})


@pytest.mark.parametrize("old", [None, OTHER], ids=["first", "again"])
def test_a_full_disk_at_any_write_leaves_the_old_or_the_new(
    image: Path, fault: Fault, old: dict[str, Any] | None
) -> None:
    bare = image.read_bytes()
    for number in range(1, 50):
        sidecar(image).unlink(missing_ok=True)
        image.write_bytes(bare)
        if old is not None:
            write_metadata(image, old)
        with fault.at(number, image.parent):
            try:
                write_metadata(image, VALUE)
            except (DiskSpaceError, PathError):
                pass
            else:
                assert not fault.struck
                break
        assert fault.struck
        assert image.read_bytes()[: len(bare)] == bare
        if old is None:
            assert image.read_bytes() == bare
            assert list(image.parent.iterdir()) == [image]
        else:
            assert read_metadata(image) in (old, VALUE)
            assert {*image.parent.iterdir()} == {image, sidecar(image)}
    assert number > 4
    assert read_metadata(image) == VALUE


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=40)
@given(values=st.lists(st.dictionaries(st.text(), JSON, max_size=5), min_size=1, max_size=2))
def test_any_json_comes_back(values: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        image = make_image(Path(directory))
        for value in values:
            write_metadata(image, value)
        assert read_metadata(image) == values[-1]
        sidecar(image).unlink()
        assert read_metadata(image) == values[-1]
        assert read_disk(image)[: len(DISK)] == DISK


@pytest.fixture(scope="module")
def with_trailer(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    image = make_image(tmp_path_factory.mktemp("trailer"))
    write_metadata(image, VALUE)
    return image.read_bytes()


@settings(max_examples=examples(200))
@given(
    flips=st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), min_size=1, max_size=6),
    cut=st.integers(0, 600),
)
def test_damaged_trailers_are_read_or_refused_never_anything_else(
    with_trailer: bytes, flips: list[tuple[int, int]], cut: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        image = Path(directory, "snapshot.qcow2")
        data = bytearray(with_trailer)
        for position, value in flips:
            data[-1 - position] = value
        image.write_bytes(data[: len(data) - cut] if cut > 300 else data)
        try:
            found = read_metadata(image)
        except ImageError as error:
            assert str(image) in str(error)
        else:
            assert isinstance(found, dict)
