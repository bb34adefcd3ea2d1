"""The store opens files, and reads and writes them."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from quicksand_smb.store import (
    Action,
    Disposition,
    FileKind,
    OpenOptions,
    Reason,
    Store,
    StoreError,
)

from tests.unit.smb.files_of_stores import NEW, RW, Raises, content, listed, make, make_dir

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
