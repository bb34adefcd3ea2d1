"""A share behaves as a POSIX file system does, within its limits; each test by both ways."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import socket
import stat
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
from quicksand_smb import kernel
from quicksand_smb.node import Node
from quicksand_smb.store import (
    Action,
    Disposition,
    FileKind,
    Limits,
    OpenOptions,
    Reason,
    Store,
    StoreError,
)
from quicksand_smb.store_errors import store_error

from tests.unit.smb.attacks import changes_by_name, changes_by_node
from tests.unit.smb.conftest import StoreMaker

RW = OpenOptions(read=True, write=True)
NEW = OpenOptions(read=True, write=True, disposition=Disposition.CREATE, mode=0o640)


class Raises:
    """The reason of a StoreError that must come."""

    def __init__(self, *reasons: Reason) -> None:
        self.reasons = reasons

    def __enter__(self) -> Raises:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> bool:
        assert isinstance(error, StoreError), f"not refused: {error!r}"
        assert error.reason in self.reasons, error.reason
        self.error = error
        return True


def make(store: Store, *names: str, data: bytes = b"") -> Node:
    node, action = store.open(names, NEW)
    assert action is Action.CREATED
    if data:
        assert node.write(memoryview(data), 0) == len(data)
    return node


def make_dir(store: Store, *names: str) -> None:
    wish = OpenOptions(directory=True, disposition=Disposition.CREATE, mode=0o755)
    store.open(names, wish)[0].close()


def content(node: Node, count: int = 100, offset: int = 0) -> bytes:
    buffer = bytearray(count)
    return bytes(buffer[: node.read_into(memoryview(buffer), offset)])


def listed(store: Store, pattern: str = "*", names: tuple[str, ...] = ()) -> list[str]:
    node, _ = store.open(names, OpenOptions(read=True))
    found = sorted(entry.name for entry in node.entries(pattern))
    node.close()
    return found


# Opening


DISPOSITIONS = [
    # what there is, disposition -> action or reason, whether the data stays
    (True, Disposition.OPEN, Action.OPENED, True),
    (True, Disposition.OPEN_IF, Action.OPENED, True),
    (True, Disposition.CREATE, Reason.EXISTS, True),
    (True, Disposition.OVERWRITE, Action.OVERWRITTEN, False),
    (True, Disposition.OVERWRITE_IF, Action.OVERWRITTEN, False),
    (True, Disposition.SUPERSEDE, Action.SUPERSEDED, False),
    (False, Disposition.OPEN, Reason.NOT_FOUND, False),
    (False, Disposition.OVERWRITE, Reason.NOT_FOUND, False),
    (False, Disposition.OPEN_IF, Action.CREATED, False),
    (False, Disposition.CREATE, Action.CREATED, False),
    (False, Disposition.OVERWRITE_IF, Action.CREATED, False),
    (False, Disposition.SUPERSEDE, Action.CREATED, False),
]


@pytest.mark.parametrize(("there", "disposition", "expected", "kept"), DISPOSITIONS)
def test_dispositions(
    store: Store, share: Path, there: bool, disposition: Disposition, expected: object, kept: bool
) -> None:
    if there:
        (share / "f").write_bytes(b"data")
    wish = OpenOptions(read=True, disposition=disposition)
    if isinstance(expected, Reason):
        with Raises(expected):
            store.open(("f",), wish)
    else:
        node, action = store.open(("f",), wish)
        assert action is expected
        assert content(node) == (b"data" if kept else b"")
        with Raises(Reason.DENIED):  # to empty a file is no right to write to it
            node.write(memoryview(b"x"), 0)
    assert (share / "f").exists() is (there or isinstance(expected, Action))


def test_what_is_missing_is_told_apart(store: Store, share: Path) -> None:
    (share / "file").touch()
    for names, reason in {
        ("x",): Reason.NOT_FOUND,
        ("x", "y"): Reason.NO_PATH,
        ("file", "y"): Reason.NO_PATH,
        ("x", "y", "z"): Reason.NO_PATH,
    }.items():
        with Raises(reason):
            store.look(names)
        with Raises(reason):
            store.open(names, RW)
        with Raises(reason):
            store.remove(names, directory=False)
    for wish in (NEW, OpenOptions(directory=True, disposition=Disposition.CREATE)):
        for names in (("x", "y"), ("file", "y")):
            with Raises(Reason.NO_PATH):
                store.open(names, wish)


def test_a_symlink_on_the_way_is_named_by_its_depth(store: Store, share: Path) -> None:
    (share / "a").mkdir()
    (share / "a" / "link").symlink_to("b")
    for use in (store.look, store.read_link, lambda names: store.open(names, NEW)):
        for names in (("a", "link", "c"), ("a", "link", "c", "d")):
            with Raises(Reason.LOOP) as caught:
                use(names)
            assert caught.error.depth == 2
    assert store.read_link(("a", "link")) == "b"


def test_a_symlink_is_opened_as_itself(store: Store, share: Path) -> None:
    (share / "target").write_bytes(b"x")
    store.symlink("target", ("link",))
    assert os.readlink(share / "link") == "target"
    node, action = store.open(("link",), RW)
    assert (node.kind, action, node.read_link()) == (FileKind.SYMLINK, Action.OPENED, "target")
    node.set_times(written_ns=10**9)
    assert (share / "link").lstat().st_mtime == 1
    assert (share / "target").stat().st_mtime != 1
    with Raises(Reason.DENIED):
        store.open(("link",), OpenOptions(disposition=Disposition.OVERWRITE))
    with Raises(Reason.EXISTS):
        store.symlink("x", ("link",))
    store.remove(("link",), directory=False)
    assert (share / "target").exists()


def test_directory_or_not(store: Store, share: Path) -> None:
    (share / "d").mkdir()
    (share / "f").touch()
    with Raises(Reason.IS_DIRECTORY):
        store.open(("d",), OpenOptions(directory=False))
    with Raises(Reason.NOT_DIRECTORY):
        store.open(("f",), OpenOptions(directory=True))
    with Raises(Reason.IS_DIRECTORY):
        store.open(("d",), OpenOptions(disposition=Disposition.SUPERSEDE))
    with Raises(Reason.EXISTS):
        make_dir(store, "d")
    with Raises(Reason.IS_DIRECTORY):
        content(store.open(("d",), RW)[0])
    with Raises(Reason.NOT_DIRECTORY):
        store.open(("f",), RW)[0].entries("*")


def test_modes_are_those_of_the_guest(store: Store, share: Path) -> None:
    before = os.umask(0)
    try:
        node = make(store, "f")
        make_dir(store, "d")
    finally:
        os.umask(before)
    assert node.stat().mode == 0o640
    node.set_mode(0o7751)
    assert (share / "f").stat().st_mode & 0o7777 == 0o1751
    (share / "d").chmod(0o2755)
    directory, _ = store.open(("d",), OpenOptions())
    directory.set_mode(0o4700)
    assert stat.S_IMODE((share / "d").stat().st_mode) == 0o2700


def test_the_root_is_a_directory_like_others_but_stays(store: Store) -> None:
    assert store.look(()).kind is FileKind.DIRECTORY
    node, action = store.open((), OpenOptions(read=True, disposition=Disposition.OPEN_IF))
    assert (node.kind, action) == (FileKind.DIRECTORY, Action.OPENED)
    assert store.where(node) == ()
    changes: list[Callable[[], object]] = [
        lambda: store.remove((), directory=True),
        lambda: store.rename((), ("x",), replace=True),
        lambda: store.rename(("x",), (), replace=True),
        lambda: store.symlink("x", ()),
    ]
    for change in changes:
        with Raises(Reason.DENIED, Reason.NOT_FOUND):
            change()


def test_case_counts(store: Store) -> None:
    make(store, "Case", data=b"upper")
    make(store, "case", data=b"lower")
    assert content(store.open(("Case",), RW)[0]) == b"upper"
    assert listed(store) == ["Case", "case"]


# Data


def test_reading_and_writing(store: Store, share: Path) -> None:
    node = make(store, "f", data=b"hello")
    assert node.write(memoryview(b"!"), 10) == 1
    assert (share / "f").read_bytes() == b"hello" + bytes(5) + b"!"
    assert content(node, offset=100) == b""
    node.resize(2)
    assert content(node) == b"he"
    node.sync(data_only=True)
    node.sync()
    store.open((), OpenOptions())[0].sync()
    assert node.stat().size == 2 and node.stat().nlink == 1


def test_appending_goes_to_the_end_and_nowhere_else(store: Store, share: Path) -> None:
    make(store, "f", data=b"one")
    node, _ = store.open(("f",), OpenOptions(append=True))
    node.write(memoryview(b"two"), 0)
    assert (share / "f").read_bytes() == b"onetwo"
    for wrong in (lambda: node.resize(0), lambda: content(node), lambda: node.punch(0, 3)):
        with Raises(Reason.DENIED):
            wrong()


def test_rights_of_the_open_count_for_data(store: Store, share: Path) -> None:
    make(store, "f", data=b"one")
    reader, _ = store.open(("f",), OpenOptions(read=True))
    looker, _ = store.open(("f",), OpenOptions())
    for node in (reader, looker):
        for change in (
            lambda: node.write(memoryview(b"x"), 0),  # noqa: B023
            lambda: node.resize(0),  # noqa: B023
            lambda: node.copy_from(reader, 0, 0, 1),  # noqa: B023
        ):
            with Raises(Reason.DENIED):
                change()
    with Raises(Reason.DENIED):
        content(looker)
    assert (share / "f").read_bytes() == b"one"


def test_sending_to_a_socket(store: Store) -> None:
    node = make(store, "f", data=b"x" * 1000)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert node.send_to(ours.fileno(), 900, 5000) == 100
        assert theirs.recv(5000) == b"x" * 100
        assert node.send_to(ours.fileno(), 2000, 10) == 0
        ours.setblocking(False)
        node.resize(1 << 24)
        with pytest.raises(BlockingIOError):
            while True:
                node.send_to(ours.fileno(), 0, 1 << 24)
        theirs.close()
        with pytest.raises(ConnectionError):
            node.send_to(ours.fileno(), 0, 10)


def test_holes(store: Store, share: Path) -> None:
    node = make(store, "f", data=b"x" * 65536)
    node.resize(1 << 20)
    node.write(memoryview(b"y" * 4096), 1 << 19)
    node.punch(8192, 8192)
    assert content(node, 8192, 8192) == bytes(8192)
    ranges = node.ranges(0, 1 << 40)
    assert ranges == [(0, 8192), (16384, 65536 - 16384), (1 << 19, 4096)]
    assert node.ranges(0, 1 << 40, at_most=1) == ranges[:1]
    assert node.ranges(4096, 8192) == [(4096, 4096)]
    assert node.ranges(1 << 30, 10) == []
    node.allocate(1 << 20, 4096, keep_size=True)
    assert node.stat().size == 1 << 20
    assert node.stat().allocated < 1 << 18


def test_copies(store: Store, share: Path) -> None:
    data = bytes(range(256)) * 20
    one, other = make(store, "one", data=data), make(store, "other")
    assert other.copy_from(one, 100, 0, 1 << 20) == len(data) - 100
    assert content(other, 9000) == data[100:]
    assert other.copy_from(one, 1 << 20, 0, 10) == 0
    assert one.copy_from(one, 0, 1000, 3000) == 3000
    assert content(one, 9000) == data[:1000] + data[:3000] + data[4000:]
    assert one.copy_from(one, 1000, 0, 3000) == 3000
    assert content(one, 9000)[:3000] == data[:3000]


@pytest.mark.parametrize("shift", [-5000, -1, 1, 5000])
def test_copies_without_help_of_the_kernel(store: Store, shift: int) -> None:
    data = os.urandom(3 << 20)
    node = make(store, "f", data=data)
    expected = bytearray(data)
    start, count = 10000, (2 << 20) + 5
    expected[start + shift : start + shift + count] = data[start : start + count]
    failing = mock.Mock(side_effect=OSError(errno.EXDEV, ""))
    with mock.patch("os.copy_file_range", failing):
        assert node.copy_from(node, start, start + shift, count) == count
    assert content(node, 4 << 20) == expected


def test_clones_or_says_that_it_cannot(store: Store) -> None:
    one, other = make(store, "one", data=b"x" * 8192), make(store, "other")
    try:
        other.clone_from(one, 0, 0, 4096)
    except StoreError as error:
        assert error.reason is Reason.UNSUPPORTED
    else:
        assert content(other, 9000) == b"x" * 4096


def test_the_clone_is_what_the_kernel_expects(store: Store) -> None:
    one, other = make(store, "one", data=b"x" * 8192), make(store, "other")
    with mock.patch.object(fcntl, "ioctl") as ioctl:
        other.clone_from(one, 4096, 0, 4096)
    _fd, number, argument = ioctl.call_args.args
    # struct file_clone_range: s64 src_fd, u64 src_offset, src_length, dest_offset
    words = [int.from_bytes(argument[at : at + 8], sys.byteorder) for at in (8, 16, 24)]
    assert (number, words, len(argument)) == (0x4020940D, [4096, 4096, 0], 32)


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


# Gates, limits, faults


def all_changes(store: Store, node: Node) -> Iterator[Callable[[], object]]:
    target = mock.Mock(names=lambda text: (text,))
    yield from changes_by_name(target, store)
    yield from changes_by_node(node)


def test_a_name_that_has_grown_is_looked_for_and_not_kept(store: Store, share: Path) -> None:
    """A guest could have thousands of files open below a directory, and rename that to the longest
    name there is."""
    (share / "a" / "below").mkdir(parents=True)
    (share / "far" / "away").mkdir(parents=True)
    node = make(store, "a", "below", "f")
    other = make(store, "other")
    store.rename(("a",), ("b",), replace=False)
    assert (node.path, store.known_name(node)) == (b"b/below/f", ("b", "below", "f"))
    store.rename(("b",), ("far", "away", "b"), replace=False)
    assert node.path is None
    assert store.known_name(node) == ("far", "away", "b", "below", "f")
    assert store.known_name(other) == ("other",)
    assert store.is_open_below(("far", "away"))
    assert store.is_open_below(("far", "away", "b", "below"))
    assert not store.is_open_below(("a",))
    store.rename(("far", "away", "b", "below", "f"), ("f",), replace=False)
    assert not store.is_open_below(("far",))
    assert store.known_name(node) == ("f",)


def test_every_method_that_changes_something_passes_the_gate(
    make_store: StoreMaker, share: Path
) -> None:
    """A method that is new must be told to the attacks, and stand behind the gate."""
    changing = {name for name, value in vars(Node).items() if getattr(value, "changes", False)}
    assert changing == {
        "allocate", "clone_from", "copy_from", "punch", "remove_attribute", "resize",
        "set_attribute", "set_mode", "set_times", "write",
    }  # fmt: skip
    assert {name for name in vars(Store) if not name.startswith("_")} == {
        "close", "forget", "is_open_below", "known_name", "link", "look", "make_node", "may_remove",
        "open", "own_path", "read_link", "record_change", "remove", "rename", "root_again", "space",
        "symlink", "where", "with_directory",
    }  # fmt: skip
    (share / "file").write_bytes(b"data")
    (share / "dir").mkdir()
    store = make_store(read_only=True)
    node, _ = store.open(("file",), OpenOptions(read=True))
    for change in all_changes(store, node):
        with Raises(Reason.READ_ONLY):
            change()
    with Raises(Reason.EXISTS):
        store.open(("dir",), OpenOptions(directory=True, disposition=Disposition.CREATE))


def test_a_share_that_is_taken_away_is_gone_at_once(store: Store, share: Path) -> None:
    (share / "dir").mkdir()
    node = make(store, "file", data=b"data")
    root, _ = store.open((), OpenOptions())
    (share / "more").touch()
    listing = root.entries("*")
    next(listing)
    store.close()
    store.close()
    uses: list[Callable[[], object]] = [
        *all_changes(store, node), node.stat, node.sync, node.attributes, lambda: content(node),
        lambda: next(listing), lambda: store.look(()), store.space, lambda: node.send_to(1, 0, 1),
    ]  # fmt: skip
    for use in uses:
        with Raises(Reason.GONE):
            use()
    assert (share / "file").read_bytes() == b"data"
    node.close()


def test_closing_while_others_read_never_reads_another_file(store: Store, share: Path) -> None:
    (share / "right").write_bytes(b"right")
    (share / "wrong").write_bytes(b"wrong")
    seen: set[bytes] = set()
    current = [store.open(("right",), OpenOptions(read=True))[0]]
    done = threading.Event()

    def reader() -> None:
        while not done.is_set():
            try:
                seen.add(content(current[0]))
            except StoreError as error:
                seen.add(error.reason.name.encode())

    threads = [threading.Thread(target=reader) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        current[0].close()
        wrong, _ = store.open(("wrong",), OpenOptions(read=True))  # takes the number that is free
        wrong.close()
        current[0] = store.open(("right",), OpenOptions(read=True))[0]
    done.set()
    for thread in threads:
        thread.join()
    assert seen <= {b"right", b"GONE"}


def test_open_files_are_limited_and_given_back(make_store: StoreMaker) -> None:
    store = make_store(limits=Limits(nodes=3))
    nodes = [store.open((), OpenOptions())[0] for _ in range(3)]
    for _ in range(2):
        with Raises(Reason.TOO_MANY):
            store.open((), OpenOptions())
        nodes.pop().close()
        nodes.append(store.open((), OpenOptions())[0])


def test_descriptors_that_run_out_are_too_many(store: Store) -> None:
    store.look(())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        with Raises(Reason.TOO_MANY):
            store.open((), OpenOptions())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    store.open((), OpenOptions())[0].close()


def test_a_file_beyond_the_limit_of_the_process_is_too_large(store: Store) -> None:
    node = make(store, "f")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10000, hard))
    try:
        assert node.write(memoryview(bytes(20000)), 0) == 10000
        with Raises(Reason.TOO_LARGE):
            node.write(memoryview(b"x"), 10000)
        with Raises(Reason.TOO_LARGE):
            node.resize(20000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk(store: Store) -> None:
    node = make(store, "f", data=b"old data")
    with (
        mock.patch("os.pwrite", side_effect=OSError(errno.ENOSPC, "full")),
        Raises(Reason.NO_SPACE),
    ):
        node.write(memoryview(b"x"), 0)
    parts = [5, OSError(errno.ENOSPC, "full")]
    with mock.patch("os.pwrite", side_effect=parts):
        assert node.write(memoryview(b"0123456789"), 0) == 5
    assert content(node) == b"old data"


FULL_DISK = """
import os, sys
from quicksand_smb.store import Disposition, Limits, Reason, Store, StoreError, OpenOptions

new = OpenOptions(read=True, write=True, disposition=Disposition.CREATE)
store = Store(sys.argv[1], read_only=False, limits=Limits(reserve=0, reserve_names=0))
node, _ = store.open(("big",), new)
done = 0
try:
    while True:
        done += node.write(memoryview(bytes(100_000)), done)
except StoreError as error:
    assert error.reason is Reason.NO_SPACE, error.reason
assert 900_000 < done <= 1 << 20, done
assert node.stat().size == done
node.write(memoryview(b"again"), 0)
try:
    node.allocate(done, 1 << 20)
except StoreError as error:
    assert error.reason is Reason.NO_SPACE, error.reason
store.remove(("big",), directory=False)
node.close()
names = 0
try:
    while True:
        store.open((f"n{names}",), new)[0].close()
        names += 1
except StoreError as error:
    assert error.reason is Reason.NO_SPACE, error.reason
assert 10 < names < 30, names
store.remove(("n0",), directory=False)
store.open(("again",), new)[0].close()
print("done")
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount a small disk")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    mount = 'mount -t tmpfs -o size=1m,nr_inodes=30 none "$1" && exec "$2" -c "$3" "$1"'
    script = ["sh", "-c", mount, "sh", str(tmp_path), sys.executable, FULL_DISK]
    done = subprocess.run(
        ["unshare", "--mount", *script], capture_output=True, text=True, check=False
    )
    if "mount:" in done.stderr or "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert done.stdout == "done\n", done.stderr


def test_the_reserve_leaves_what_is_there_writable(store: Store) -> None:
    node = make(store, "f", data=b"x" * 8192)
    node.sync()
    found = mock.Mock(f_frsize=4096, f_blocks=1 << 25, f_bavail=10, f_files=0)
    store.disk_reserve._budget = 0
    with mock.patch("os.fstatvfs", return_value=found):
        assert node.write(memoryview(b"y" * 8192), 0) == 8192
        with Raises(Reason.NO_SPACE):
            node.write(memoryview(b"y"), 8192)


def test_the_host_may_remove_or_replace_the_directory(store: Store, share: Path) -> None:
    outside = share.parent / "outside"
    node = make(store, "f", data=b"data")
    share.rename(share.with_name("moved"))
    share.symlink_to(outside)
    assert listed(store) == ["f"]
    with Raises(Reason.NOT_FOUND):
        store.look(("secret",))
    os.unlink(share.with_name("moved") / "f")
    share.with_name("moved").rmdir()
    with Raises(Reason.NOT_FOUND):
        make(store, "new")
    assert listed(store) == [] and content(node) == b"data"
    assert os.listdir(outside) == ["secret"]


def test_a_share_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for root, reason in {
        tmp_path / "none": Reason.NOT_FOUND,
        tmp_path / "file": Reason.NOT_DIRECTORY,
        "a\0b": Reason.INVALID,
    }.items():
        with Raises(reason):
            Store(str(root), read_only=True)


def test_names_are_walked_without_proc(make_store: StoreMaker, share: Path) -> None:
    """Where /proc is not mounted, an open looks twice, and takes only the same file."""
    (share / "f").write_bytes(b"data")
    store = make_store()
    with (
        mock.patch.object(kernel, "own_path", lambda _fd: b"/nothing/here"),
        mock.patch("os.path.exists", return_value=False),
    ):
        assert content(store.open(("f",), RW)[0]) == b"data"


def test_errors_of_the_system_have_a_reason() -> None:
    assert store_error(OSError(errno.EDQUOT, "")).reason is Reason.NO_SPACE
    assert store_error(OSError(errno.EIO, "")).reason is Reason.IO
    assert store_error(OverflowError()).reason is Reason.INVALID
    assert store_error(OSError("no number")).reason is Reason.IO


def test_the_store_starts_without_what_is_slow() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules);"
        "import quicksand_smb.store, quicksand_smb.confine;"
        "print(*{'re', 'dataclasses', 'typing', 'pathlib', 'asyncio', 'contextlib', 'inspect'}"
        " & set(sys.modules))"
    )
    where = str(Path(kernel.__file__).parents[1])
    command = [sys.executable, "-I", "-S", "-c", code, where]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
