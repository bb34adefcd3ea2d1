"""File systems that mke2fs and debugfs made, compared by our own reader."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quicksand_disks.comparing.side_by_side import compare
from quicksand_disks.errors import MalformedError
from quicksand_disks.ext4 import filesystem as module
from quicksand_disks.ext4.filesystem import FileSystem
from quicksand_disks.qcow2.layers import Ranges
from quicksand_images.toolbox import Tool

from tests.conftest import examples
from tests.each import each
from tests.unit.disks.diff.disks import MIB, OURS, Maker, MemoryDisk, brief, diff_bytes, fill

KINDS = {
    "ours": (OURS, ("-b", "4096", "-I", "256")),
    "small blocks": (OURS, ("-b", "1024", "-I", "256")),
    "small inodes": (OURS, ("-b", "1024", "-I", "128")),
    "blocks of 64 KiB": (OURS, ("-b", "65536", "-I", "256")),
    "ext2": ("none,filetype,sparse_super,ext_attr", ("-b", "1024")),
    "ext2 without types": ("none,ext_attr", ("-b", "1024")),
    "data in inodes": (OURS + ",inline_data", ("-b", "1024", "-I", "256")),
    "meta groups": (OURS + ",meta_bg", ("-b", "1024", "-I", "256", "-g", "1024")),
    "two copies": (OURS + ",meta_bg,sparse_super2", ("-b", "1024", "-g", "1024")),
    "clusters": (OURS + ",bigalloc", ("-b", "1024", "-C", "4096")),
}
SIZES = {"blocks of 64 KiB": 32 * MIB}

BEFORE: dict[str, bytes | str | None] = {
    "etc/passwd": b"root:x:0:0\n",
    "etc/grown": b"a" * 100,
    "etc/same": b"same",
    "etc/edited": b"b" * 5000,
    "etc/tail": b"c" * 5000,
    "gone/deep/file": b"1",
    "link": "etc/passwd",
    "long link": "x" * 80,
    "turned": b"file",
    "large": random.Random(2).randbytes(700_000),
    "moved": b"moved",
}
AFTER: dict[str, bytes | str | None] = {
    "etc/passwd": b"root:x:0:0\n",
    "etc/grown": b"a" * 200_000,
    "etc/same": b"same",
    "etc/edited": b"b" * 2000 + b"X" + b"b" * 2999,
    "etc/tail": b"c" * 4999 + b"d",
    "link": "etc/same",
    "long link": "x" * 79 + "y",
    "turned/in": b"it",
    "large": random.Random(2).randbytes(700_000),
    "new/moved": b"moved",
    "new/empty": None,
    "tiny": b"",
    **{f"many/{n:03}-{'x' * 50}": b"" for n in range(300)},
}
CHANGES = {
    "/etc/grown": "changed content 100 200000",
    "/etc/edited": "changed content 5000 5000",
    "/etc/tail": "changed content 5000 5000",
    "/gone": "removed - -",
    "/gone/deep": "removed - -",
    "/gone/deep/file": "removed 1 -",
    "/link": "changed target 10 8",
    "/long link": "changed target 80 80",
    "/turned": "type-changed 4 -",
    "/turned/in": "added - 2",
    "/moved": "removed 5 -",
    "/new": "added - -",
    "/new/moved": "added - 5",
    "/new/empty": "added - -",
    "/tiny": "added - 0",
    "/many": "added - -",
    **{f"/many/{n:03}-{'x' * 50}": "added - 0" for n in range(300)},
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_different_is_found_and_nothing_else(
    maker: Maker, tmp_path: Path, kind: str
) -> None:
    features, options = KINDS[kind]
    size = SIZES.get(kind, 8 * MIB)
    a, b = (
        maker.filesystem(
            fill(tmp_path / name, files), features=features, options=options, size=size
        )
        for name, files in (("a", BEFORE), ("b", AFTER))
    )
    changes = diff_bytes(a, b)
    assert brief(changes) == CHANGES
    paths = [os.fsencode(change.path) for change in changes]
    assert paths == sorted(paths)
    back = {path.replace("added", "removed") for path in brief(diff_bytes(b, a))}
    assert back == set(CHANGES)
    assert diff_bytes(a, a) == diff_bytes(b, b) == []


def test_file_systems_of_different_shapes_are_compared_too(maker: Maker, tmp_path: Path) -> None:
    a = maker.filesystem(fill(tmp_path / "a", BEFORE), size=8 * MIB)
    b = maker.filesystem(
        fill(tmp_path / "b", AFTER), options=("-b", "4096", "-I", "128"), size=6 * MIB
    )
    found = brief(diff_bytes(a, b))
    found.pop("/lost+found", None)
    assert found == CHANGES


def test_kinds_owners_permissions_attributes_and_devices(maker: Maker, tmp_path: Path) -> None:
    files = dict.fromkeys(("mode", "owner", "time", "read", "attribute", "flag", "both"), b"")
    a = maker.filesystem(fill(tmp_path / "a", files))
    a = maker.debug(a, "mknod device c 1 3", "mknod fifo p", "ea_set both user.big " + "v" * 900)
    b = maker.debug(
        a,
        "set_inode_field mode mode 0100755",
        "set_inode_field owner uid 70000",
        "set_inode_field time mtime @1700000009",
        "set_inode_field read atime @1800000000",
        "set_inode_field read ctime @1800000000",
        "ea_set attribute user.note hello",
        "ea_set both user.big " + "w" * 900,
        "set_inode_field flag flags 0x80010",
        "rm device",
        "mknod device c 1 5",
        "set_inode_field / mode 040700",
    )
    found = brief(diff_bytes(a, b))
    assert found.pop("/device").startswith("changed device")
    assert found == {
        "/": "changed mode - -",
        "/mode": "changed mode 0 0",
        "/owner": "changed owner 0 0",
        "/time": "changed mtime 0 0",
        "/attribute": "changed attributes 0 0",
        "/both": "changed attributes 0 0",
        "/flag": "changed attributes 0 0",
    }


def test_names_of_any_bytes_are_kept(maker: Maker, tmp_path: Path) -> None:
    a = maker.filesystem(fill(tmp_path / "tree", {}))
    odd = os.fsdecode(b"\xff\x1b[2J\n\xe2\x80\xae")
    b = maker.filesystem(fill(tmp_path / "tree", {odd: b"x"}))
    (change,) = diff_bytes(a, b)
    assert os.fsencode(change.path) == b"/\xff\x1b[2J\n\xe2\x80\xae"


def sparse_pair(maker: Maker, tmp_path: Path) -> tuple[bytes, int]:
    """A disk, and the number of a block that belongs to /large on it."""
    a = maker.filesystem(fill(tmp_path / "tree", BEFORE), size=8 * MIB)
    block = int(maker.ask(a, "bmap /large 300").split()[-1])
    return a, block


def test_a_file_whose_inode_tells_nothing_is_compared_where_it_was_written_to(
    maker: Maker, tmp_path: Path
) -> None:
    """The guest's root may write to the disk beneath the file system."""
    a, block = sparse_pair(maker, tmp_path)
    b = bytearray(a)
    b[block * 1024 + 17] ^= 1
    touched = Ranges([(block * 1024, block * 1024 + 1)])
    both = FileSystem(MemoryDisk(a)), FileSystem(MemoryDisk(bytes(b)))
    assert brief(compare(*both, touched)) == {"/large": "changed content 700000 700000"}


def test_only_what_may_differ_is_read(
    maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, block = sparse_pair(maker, tmp_path)
    read: list[int] = []
    original = FileSystem.read_blocks

    def watched(self: FileSystem, first: int, count: int) -> bytes:
        read.append(first)
        return original(self, first, count)

    monkeypatch.setattr(module.FileSystem, "read_blocks", watched)
    both = FileSystem(MemoryDisk(a)), FileSystem(MemoryDisk(a))
    assert compare(*both, Ranges([])) == []
    assert read == []
    assert compare(*both, Ranges([(block * 1024, block * 1024 + 1)])) == []
    assert read


# What cannot be read


@each(
    ("offset", "content", "said"),
    [
        (0, b"", "there is nothing where"),
        (100, b"x", "there is something else"),
        (510, b"\x55\xaa", "a partition table .MBR."),
        (512, b"EFI PART", "a partition table .GPT."),
        (0, b"XFSB", "there is XFS"),
        (0x10040, b"_BHRfS_M", "there is Btrfs"),
    ],
)
def test_something_else_is_named(offset: int, content: bytes, said: str) -> None:
    with pytest.raises(MalformedError, match=said):
        FileSystem(MemoryDisk(bytes(offset) + content + bytes(MIB)))


@pytest.mark.parametrize(
    ("bit", "name"), [(0x10000, "encryption"), (0x1, "compression"), (0x80000, "0x80000")]
)
def test_a_feature_that_is_not_read_is_named(
    maker: Maker, tmp_path: Path, bit: int, name: str
) -> None:
    disk = bytearray(maker.filesystem(fill(tmp_path / "tree", {})))
    at = 1024 + 0x60
    struct.pack_into("<I", disk, at, struct.unpack_from("<I", disk, at)[0] | bit)
    with pytest.raises(MalformedError, match=f"not read here: {name}"):
        FileSystem(MemoryDisk(bytes(disk)))


def inode_of(maker: Maker, disk: bytes, path: str) -> int:
    """Where in a disk an inode begins."""
    place = maker.ask(disk, f"imap {path}")
    block = int(place.split("located at block ")[1].split(",")[0])
    return block * 1024 + int(place.split("offset ")[1].split()[0], 16)


def test_a_directory_in_itself_is_refused(maker: Maker, tmp_path: Path) -> None:
    a = maker.filesystem(fill(tmp_path / "tree", {"d/e": None}))
    with pytest.raises(MalformedError, match="two places"):
        diff_bytes(a, maker.debug(a, "link d d/e/loop"))


def test_a_tree_of_extents_that_leads_to_itself_is_refused(maker: Maker, tmp_path: Path) -> None:
    a, block = sparse_pair(maker, tmp_path)
    at = inode_of(maker, a, "large") + 40
    node = struct.pack("<HHHHI", 0xF30A, 4, 4, 5, 0)
    node += struct.pack("<IIHH", 0, block, 0, 0) * 4
    inner = struct.pack("<HHHHI", 0xF30A, 84, 84, 4, 0) + struct.pack("<IIHH", 0, block, 0, 0) * 84
    b = bytearray(a)
    b[at : at + len(node)] = node
    b[block * 1024 : block * 1024 + len(inner)] = inner
    with pytest.raises(MalformedError, match="uneven"):
        diff_bytes(a, bytes(b))


def test_one_indirect_block_for_everything_ends_soon(maker: Maker, tmp_path: Path) -> None:
    """Three levels of blocks that all name one block: 16 million names of it."""
    features, options = KINDS["ext2"]
    a = maker.filesystem(fill(tmp_path / "tree", BEFORE), features=features, options=options)
    block = int(maker.ask(a, "bmap /large 300").split()[-1])
    b = bytearray(a)
    at = inode_of(maker, a, "large") + 40
    b[at : at + 60] = struct.pack("<I", block) * 15
    b[block * 1024 : (block + 1) * 1024] = struct.pack("<I", block) * 256
    with pytest.raises(MalformedError, match=r"too many pieces|more files"):
        diff_bytes(a, bytes(b))


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory, tools: tuple[Tool, Tool]) -> list[bytes]:
    """Small disks of several kinds."""
    place = tmp_path_factory.mktemp("victims")
    made = Maker(*tools, place)
    files = {name: content for name, content in AFTER.items() if not name.startswith("many")}
    tree = fill(place / "tree", files)
    found = [
        made.filesystem(tree, features=KINDS[kind][0], options=KINDS[kind][1], size=4 * MIB)
        for kind in ("small blocks", "ext2", "data in inodes", "meta groups")
    ]
    return [made.debug(disk, "ea_set etc/same user.big " + "v" * 600) for disk in found]


def structures(disk: bytes) -> list[int]:
    """Offsets of bytes that mean something, the contents of /large and zeros left out."""
    found: list[int] = []
    for start in range(1024, len(disk), 1024):
        block = disk[start : start + 1024]
        if 1 < len(set(block)) < 200:
            found += [start + at for at, byte in enumerate(block) if byte]
    return found


@settings(max_examples=examples(250), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_flipped_bytes_raise_anything_but_our_error(
    victims: list[bytes], data: st.DataObject, offsets: dict[int, list[int]]
) -> None:
    number = data.draw(st.integers(0, len(victims) - 1))
    disk = bytearray(victims[number])
    places = offsets[number]
    for _ in range(data.draw(st.integers(1, 12))):
        at = places[data.draw(st.integers(0, len(places) - 1))]
        disk[at] = data.draw(st.integers(0, 255) | st.just(disk[at] ^ 1))
    try:
        diff_bytes(victims[number], bytes(disk))
    except MalformedError as error:
        assert str(error)


@pytest.fixture(scope="module")
def offsets(victims: list[bytes]) -> dict[int, list[int]]:
    return {number: structures(disk) for number, disk in enumerate(victims)}
