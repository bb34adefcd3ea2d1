"""Names, times and attributes in the store."""

from __future__ import annotations

import os
import stat
import tracemalloc
from pathlib import Path
from unittest import mock

import pytest
from quicksand_smb import kernel
from quicksand_smb.store import FileKind, OpenOptions, Reason, Store

from tests.unit.smb.files_of_stores import RW, Raises, content, listed, make, make_dir

# Names


def test_an_open_file_outlives_its_name(store: Store) -> None:
    node = make(store, "f", data=b"data")
    assert store.where(node) == ("f",)
    store.remove(("f",), directory=False)
    assert listed(store) == []
    assert content(node) == b"data"
    node.write(memoryview(b"D"), 0)
    assert (content(node), node.stat().nlink, store.where(node)) == (b"Data", 0, None)
    node.close()


def test_a_full_directory_stays(store: Store, share: Path) -> None:
    make_dir(store, "d")
    make(store, "d", "f")
    with Raises(Reason.NOT_EMPTY):
        store.remove(("d",), directory=True)
    with Raises(Reason.IS_DIRECTORY):
        store.remove(("d",), directory=False)
    with Raises(Reason.NOT_DIRECTORY):
        store.remove(("d", "f"), directory=True)
    assert (share / "d" / "f").exists()


def test_rename_as_posix_has_it(store: Store, share: Path) -> None:
    one, two = make(store, "one", data=b"1"), make(store, "two", data=b"2")
    make_dir(store, "d")
    with Raises(Reason.EXISTS):
        store.rename(("one",), ("two",), replace=False)
    assert content(two) == b"2" and (share / "two").read_bytes() == b"2"
    store.rename(("one",), ("d", "three"), replace=False)
    store.rename(("d", "three"), ("two",), replace=True)
    assert listed(store) == ["d", "two"]
    assert (content(one), content(two)) == (b"1", b"2")
    assert store.where(one) == ("two",)
    store.rename(("two",), ("two",), replace=True)
    with Raises(Reason.NOT_DIRECTORY):
        store.rename(("d",), ("two",), replace=True)
    with Raises(Reason.NOT_FOUND):
        store.rename(("none",), ("two",), replace=True)
    assert (share / "two").read_bytes() == b"1"


def test_rename_without_the_newest_call(store: Store, share: Path) -> None:
    make(store, "one"), make(store, "two")
    with mock.patch.object(kernel, "rename_no_replace", side_effect=kernel.missing()):
        with Raises(Reason.EXISTS):
            store.rename(("one",), ("two",), replace=False)
        store.rename(("one",), ("three",), replace=False)
    assert listed(store) == ["three", "two"]


def test_hard_links(store: Store, share: Path) -> None:
    node = make(store, "f", data=b"x")
    make(store, "other", data=b"lost")
    store.link(("f",), ("g",), replace=False)
    with Raises(Reason.EXISTS):
        store.link(("f",), ("other",), replace=False)
    store.link(("f",), ("other",), replace=True)
    store.link(("f",), ("g",), replace=True)  # the same file already
    assert node.stat().nlink == 3
    assert listed(store) == ["f", "g", "other"]
    store.remove(("f",), directory=False)
    assert (share / "other").read_bytes() == b"x"
    with Raises(Reason.DENIED):
        make_dir(store, "d")
        store.link(("d",), ("e",), replace=False)


def test_fifos_and_sockets(store: Store, share: Path) -> None:
    store.make_node(("fifo",), FileKind.FIFO, 0o7644)
    store.make_node(("socket",), FileKind.SOCKET, 0o600)
    assert stat.S_ISFIFO((share / "fifo").stat().st_mode)
    assert (share / "fifo").stat().st_mode & 0o7000 == 0
    assert {e.name: e.stat.kind for e in store.open((), OpenOptions())[0].entries("*")} == {
        "fifo": FileKind.FIFO,
        "socket": FileKind.SOCKET,
    }


@pytest.mark.parametrize(
    "name", [b"caf\xe9", b"a:b", b"back\\slash", "ä".encode(), b"\x01", b"end "]
)
def test_odd_names_are_found_as_they_are_listed(store: Store, share: Path, name: bytes) -> None:
    (share / os.fsdecode(name)).write_bytes(b"data")
    (found,) = listed(store)
    assert content(store.open((found,), RW)[0]) == b"data"
    assert store.where(store.open((found,), RW)[0]) == (found,)
    store.rename((found,), ("plain",), replace=False)
    store.rename(("plain",), (found,), replace=False)
    assert os.listdir(os.fsencode(share)) == [name]


def test_listing_by_pattern(store: Store, share: Path) -> None:
    for name in ("a.txt", "b.txt", "c", "d:e"):
        (share / name).touch()
    assert listed(store, "*.txt") == ["a.txt", "b.txt"]
    assert listed(store, "c") == ["c"]
    assert listed(store, "d\uf022e") == ["d:e"]
    assert listed(store, "d?e") == ["d:e"]
    for nothing in ("none", "..", "a/b", "x" * 300):
        assert listed(store, nothing) == []


def test_a_listing_begins_anew_and_two_do_not_disturb_each_other(store: Store, share: Path) -> None:
    for index in range(100):
        (share / f"f{index}").touch()
    node, _ = store.open((), OpenOptions())
    one, two = node.entries("*"), node.entries("*")
    names = [(next(one).name, next(two).name) for _ in range(100)]
    assert len({first for first, _ in names}) == len({second for _, second in names}) == 100
    assert len(list(node.entries("*"))) == 100


def test_a_large_listing_takes_little_memory(store: Store, share: Path) -> None:
    for index in range(3000):
        os.close(os.open(share / f"{'x' * 100}{index}", os.O_CREAT))
    node, _ = store.open((), OpenOptions())
    tracemalloc.start()
    try:
        assert sum(1 for _ in node.entries("*")) == 3000
        assert tracemalloc.get_traced_memory()[1] < 60_000  # a file has more than 400 bytes
    finally:
        tracemalloc.stop()


@pytest.mark.soak
def test_a_hundred_thousand_entries(store: Store, share: Path) -> None:
    for index in range(100_000):
        os.close(os.open(share / f"{index:06}", os.O_CREAT))
    node, _ = store.open((), OpenOptions())
    tracemalloc.start()
    try:
        assert sum(1 for _ in node.entries("*")) == 100_000
        assert sum(1 for _ in node.entries("*?*?*?*5*")) == 27_100  # a 5 after three others
        assert tracemalloc.get_traced_memory()[1] < 60_000
    finally:
        tracemalloc.stop()


def test_what_vanishes_while_it_is_listed_is_left_out(store: Store, share: Path) -> None:
    for index in range(5):
        (share / f"f{index}").touch()
    found = store.open((), OpenOptions())[0].entries("*")
    first = next(found).name
    for name in os.listdir(share):
        os.unlink(share / name)
    assert [entry.name for entry in found] == []
    assert first.startswith("f")


# Times and attributes


def test_times(store: Store, share: Path) -> None:
    node = make(store, "f")
    born = node.stat().born_ns
    node.set_times(written_ns=1_234_567_891_123_456_789)
    before = node.stat()
    node.set_times(accessed_ns=987_654_321_987_654_321)
    after = node.stat()
    assert after.written_ns == before.written_ns == 1_234_567_891_123_456_789
    assert after.accessed_ns == 987_654_321_987_654_321
    assert after.born_ns == born == store.look(("f",)).born_ns
    node.set_times(written_ns=-1)
    assert node.stat().written_ns == -1
    node.set_times()
    assert node.stat().written_ns == -1


def test_stat_is_that_of_the_host(store: Store, share: Path) -> None:
    node = make(store, "f", data=b"x" * 5000)
    node.sync()
    real = (share / "f").stat()
    for found in (
        node.stat(),
        store.look(("f",)),
        next(store.open((), OpenOptions())[0].entries("f")).stat,
    ):
        assert (found.inode, found.size, found.allocated) == (
            real.st_ino, real.st_size, real.st_blocks * 512,
        )  # fmt: skip
        assert (found.mode, found.nlink, found.uid, found.gid) == (
            stat.S_IMODE(real.st_mode), 1, real.st_uid, real.st_gid,
        )  # fmt: skip
        assert (found.accessed_ns, found.written_ns, found.changed_ns) == (
            real.st_atime_ns, real.st_mtime_ns, real.st_ctime_ns,
        )  # fmt: skip


def test_stat_without_statx(store: Store, share: Path) -> None:
    node = make(store, "f", data=b"x" * 5000)
    full = node.stat()
    with mock.patch.object(kernel, "_statx", None):
        poor, listed = node.stat(), next(store.open((), OpenOptions())[0].entries("*")).stat
    for found in (poor, listed):
        for name in set(found.__slots__) - {"born_ns", "device"}:
            assert getattr(found, name) == getattr(full, name), name


def test_attributes(store: Store, share: Path) -> None:
    make(store, "f")
    node, _ = store.open(("f",), OpenOptions())
    for name, value in (
        ("one", b"1"),
        ("two.three", bytes(range(256))),
        ("empty", b""),
        ("ä", b""),
    ):
        node.set_attribute(name, value)
        assert node.attribute(name) == value
    assert sorted(node.attributes()) == ["empty", "one", "two.three", "ä"]
    assert os.getxattr(share / "f", "user.one") == b"1"
    node.remove_attribute("one")
    for missing in (node.attribute, node.remove_attribute):
        with Raises(Reason.NOT_FOUND):
            missing("one")
    for bad in ("", "a\0b", "\ud800", "DOSATTRIB"):
        with Raises(Reason.BAD_NAME, Reason.INVALID):
            node.set_attribute(bad, b"")
    store.symlink("x", ("link",))
    with Raises(Reason.UNSUPPORTED):
        store.open(("link",), OpenOptions())[0].set_attribute("a", b"")
