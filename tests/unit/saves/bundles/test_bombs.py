"""Bundles of next to nothing that want to become gigabytes: refused by what they begin with."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from quicksand.base.errors import ConfigError, PathError
from quicksand.saves.bundle import streams
from quicksand.saves.bundle.receiving import DiskWatch
from quicksand.saves.bundle.streams import END, encode_header, open_source, padding

from tests.each import each
from tests.unit.disks.test_qcow2 import header
from tests.unit.saves.bundles.making import Home, forge, gzipped, members, sign
from tests.unit.saves.bundles.refusing import refusal

GIB = 1 << 30
SIZE = 3 * GIB

SMALL = header()
"""Of a disk of 1 GiB."""

LARGE = header(size=10 * GIB, l1_size=20)
"""Of 10 GiB, with nothing in it."""

FULL = LARGE[: 3 * 65536] + struct.pack(">20Q", *(range(1 << 20, 21 << 20, 1 << 20)))
"""Of 10 GiB, with tables everywhere."""


def zstandard(*parts: bytes | int) -> bytes:
    data = b"".join(bytes(part) if isinstance(part, int) else part for part in parts)
    return subprocess.run(["zstd", "-1", "-c"], input=data, stdout=PIPE, check=True).stdout


def member(name: str, data: bytes) -> bytes:
    return encode_header(name, len(data), 1.0) + data + padding(len(data))


def with_layer(bundle: bytes, size: int) -> bytes:
    """What stands before a first layer of ``size`` bytes, whatever those are."""
    files = members(bundle)
    manifest: dict[str, Any] = json.loads(files["manifest.json"])
    facts = {"size": size, "sha256": hashlib.sha256(b"").hexdigest()}
    manifest["files"][0].update(facts)
    manifest["save"]["layers"][0].update(facts)
    return member("manifest.json", sign(manifest)) + encode_header("overlays/0.qcow2", size, 1.0)


@pytest.fixture
def bundle(here: Home, tmp_path: Path) -> bytes:
    return here.export(tmp_path / "good", full=True)


@pytest.mark.parametrize("packer", [gzipped, zstandard])
@pytest.mark.parametrize(
    ("begin", "reason"),
    [
        (b"", "does not begin like one"),
        (SMALL, "its header leads to 2048 MiB at the most"),
        (LARGE, "its header leads to 0 MiB at the most"),
    ],
    ids=["zeros", "small", "nothing-in-it"],
)
def test_three_gigabytes_of_zeros_are_no_layer_and_no_image(
    there: Home,
    bundle: bytes,
    tmp_path: Path,
    packer: Callable[..., bytes],
    begin: bytes,
    reason: str,
) -> None:
    rest = 64 << 20  # it is not read so far
    layer = packer(with_layer(bundle, SIZE), begin, rest)
    assert reason in refusal(there, layer, tmp_path)
    image = packer(encode_header("image.qcow2", SIZE, 1.0), begin, rest, END)
    assert reason in refusal(there, image, tmp_path)


def test_three_gigabytes_are_refused_in_no_time(there: Home, bundle: bytes, tmp_path: Path) -> None:
    """The time that it takes is in `refusal`."""
    bomb = gzipped(with_layer(bundle, SIZE), LARGE, SIZE - len(LARGE))
    assert "its header leads to 0 MiB" in refusal(there, bomb, tmp_path)


@pytest.mark.parametrize("name", ["image.kernel", "image.initrd"])
def test_what_is_loaded_before_there_is_a_disk_is_small(
    there: Home, bundle: bytes, tmp_path: Path, name: str
) -> None:
    bomb = gzipped(encode_header(name, SIZE, 1.0), 1 << 24)
    assert "3072 MiB, more than" in refusal(there, bomb, tmp_path)

    def claim(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        del files[name]
        for file in manifest["files"]:
            if file["name"] == name:
                file["size"] = SIZE

    assert "3072 MiB, more than" in refusal(there, forge(bundle, claim), tmp_path)


def test_a_file_that_is_here_already_has_the_size_that_it_has_here(
    there: Home, bundle: bytes, tmp_path: Path
) -> None:
    there.add_image()

    def claim(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        del files["image.qcow2"]
        for file in manifest["files"]:
            if file["name"] == "image.qcow2":
                file["size"] = SIZE

    assert "its size is not that of its digest" in refusal(there, forge(bundle, claim), tmp_path)


def test_a_stream_longer_than_its_header_says_is_refused_there(
    there: Home, bundle: bytes, tmp_path: Path
) -> None:
    files = members(bundle)
    layer = files["overlays/0.qcow2"]
    bomb = gzipped(with_layer(bundle, len(layer)), layer, SIZE)
    assert "is damaged: its digest" in refusal(there, bomb, tmp_path)


def watch(data: bytes, size: int, step: int, **options: bool) -> None:
    found = DiskWatch("disk", size, **options)
    for start in range(0, len(data), step):
        found.look(data[start : start + step])


@each("step", [100, 70_000, 1 << 20])
def test_tables_that_lead_somewhere_allow_what_they_lead_to(step: int) -> None:
    watch(FULL.ljust(1 << 20, b"\0"), SIZE, step)
    watch(LARGE, 60 << 20, step)
    with pytest.raises(Exception, match="leads to 0 MiB"):
        watch(LARGE.ljust(1 << 20, b"\0"), SIZE, step)


def empty_blocks(count: int) -> bytes:
    """A gzip stream of blocks that hold nothing."""
    return gzip.compress(b"x")[:10] + b"\x00\x00\x00\xff\xff" * count


def test_packed_data_with_nothing_in_them_come_to_an_end(there: Home, tmp_path: Path) -> None:
    assert "next to nothing" in refusal(there, empty_blocks(2_000_000), tmp_path)
    name = b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 10_000_000
    assert "next to nothing" in refusal(there, name, tmp_path)
    read, write = os.pipe()

    def send() -> None:
        with os.fdopen(write, "wb") as file:
            try:
                file.write(empty_blocks(1))
                while True:
                    file.write(b"\x00\x00\x00\xff\xff" * 100_000)
            except BrokenPipeError:
                return

    thread = threading.Thread(target=send)
    thread.start()
    with (
        os.fdopen(read, "rb") as file,
        pytest.raises(ValueError, match="next to nothing"),
        open_source(file) as (source, _),
    ):
        source.read(1000)
    thread.join()


@each("brings", [0, 1], ids=["nothing", "next-to-nothing"])
def test_a_pipe_that_brings_nothing_is_given_up(
    monkeypatch: pytest.MonkeyPatch, brings: int
) -> None:
    read, write = os.pipe()
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(streams, "STOP_POLL_S", 0.001)

    def stop() -> None:
        clock[0] += 10
        os.write(write, bytes(brings))

    with (
        os.fdopen(read, "rb") as file,
        pytest.raises(PathError, match="does not come") as caught,
        open_source(file, stop) as (source, _),
    ):
        source.read(1 << 20)
    os.close(write)
    assert streams.SILENCE_S < clock[0] < streams.SILENCE_S + 100
    assert caught.value.hint


LIMITS = [
    ("memory", "10000T", "too much"),
    ("memory", "2T", "too much"),
    ("disk_size", "17T", "too large"),
    ("disk_size", "2000000T", "out of range"),
    ("cpus", 100_000, "must be 1 to 255"),
    ("port_forwards", [{"host": 0, "guest": 80}] * 1001, "too many"),
    ("boot_timeout", 1e300, "at most"),
]


@pytest.mark.parametrize(("option", "value", "reason"), LIMITS, ids=str)
def test_limits_are_those_of_the_command_line(
    there: Home, bundle: bytes, tmp_path: Path, option: str, value: object, reason: str
) -> None:
    from quicksand.records.config import SandboxConfig

    def change(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        manifest["save"]["config"][option] = value

    assert reason in refusal(there, forge(bundle, change), tmp_path)
    with pytest.raises(ConfigError, match=reason):
        SandboxConfig.parse({"image": "debian", option: value})
