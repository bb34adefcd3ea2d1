"""The store's gate, its limits, and the faults of a disk and of the host."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
from quicksand_smb import kernel
from quicksand_smb.node import Node
from quicksand_smb.store import Disposition, Limits, OpenOptions, Reason, Store, StoreError
from quicksand_smb.store_errors import store_error

from tests.unit.smb.attacks import changes_by_name, changes_by_node
from tests.unit.smb.conftest import StoreMaker
from tests.unit.smb.files_of_stores import RW, Raises, content, listed, make


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


def test_what_cannot_be_shared_is_refused_with_the_reason(tmp_path: Path) -> None:
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
