"""The attacks on names and files fail on the store and succeed on its naive variant."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from quicksand_smb import kernel, walk
from quicksand_smb.store import Disposition, FileKind, OpenOptions, Reason, Store, StoreError

from tests.unit.smb.attacks import ATTACKS, READ, SECRET, Breach, Target, naive_store, run
from tests.unit.smb.conftest import WALKS, StoreMaker
from tests.unit.smb.naive import NaiveStore


@pytest.mark.parametrize("way", WALKS)
@pytest.mark.parametrize("name", ATTACKS)
def test_attack_fails(name: str, way: str, tmp_path: Path) -> None:
    run(name, tmp_path, lambda *a, **k: Store(*a, walk=WALKS[way], **k), naive=False)


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_succeeds_on_path_strings(name: str, tmp_path: Path) -> None:
    with pytest.raises(Breach):
        run(name, tmp_path, naive_store, naive=True)


@pytest.mark.skipif(os.getuid() != 0, reason="not root: the tests above ran as an ordinary user")
def test_attacks_fail_for_an_ordinary_user() -> None:
    place = Path(tempfile.mkdtemp(prefix="qst-"))
    try:
        command = [sys.executable, "-m", "tests.unit.smb.attacks", str(place), "65534"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
    finally:
        shutil.rmtree(place)


def test_attacks_fail_where_descriptors_cannot_only_name(tmp_path: Path) -> None:
    """macOS has no O_PATH: what is no file or directory is then listed, but not opened."""
    code = (
        "import os, sys; del os.O_PATH; from pathlib import Path;"
        "from tests.unit.smb.attacks import all_as;"
        "sys.exit(all_as(Path(sys.argv[1]), os.getuid()))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_a_system_without_descriptors_of_directories_is_refused(tmp_path: Path) -> None:
    """Windows: everything imports there, and a share is refused rather than served by paths."""
    code = (
        "import os, sys; sys.platform = 'win32'; os.supports_dir_fd = set();"
        "[delattr(os, n) for n in dir(os) if n in ('O_PATH', 'O_NOFOLLOW', 'O_DIRECTORY', 'preadv',"
        " 'O_CLOEXEC', 'O_NONBLOCK', 'O_NOCTTY', 'pwrite', 'sendfile', 'getxattr', 'SEEK_DATA')];"
        "from quicksand_smb import confine; from quicksand_smb.store import Store, StoreError\n"
        "try: Store(sys.argv[1], read_only=True)\n"
        "except StoreError as error: print(error.reason.name)\n"
        "print(*confine.confine([]), sep='; ')"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    reason, report = done.stdout.splitlines()
    assert reason == "UNSUPPORTED"
    assert "landlock: no" in report and "seccomp: no" in report


class Swapped:
    """Right after a name was looked at, the guest puts a symlink in its place, and back."""

    def __init__(self, way: walk.Walk, path: Path, target: Path) -> None:
        self.way = way
        self.path = path
        self.target = target
        self.swaps = 0

    def __call__(self, root: int, names: list[bytes], flags: int, mode: int = 0) -> int:
        found = self.way(root, names, flags, mode)
        self.swap()
        return found

    def swap(self) -> None:
        self.swaps += 1
        if self.swaps == 1:
            self.path.rename(self.path.with_name("aside"))
            self.path.symlink_to(self.target)


@pytest.mark.parametrize("way", WALKS)
@pytest.mark.parametrize("name", ["file", "dir"])
def test_a_swap_between_look_and_use_gains_nothing(way: str, name: str, tmp_path: Path) -> None:
    target = Target(tmp_path, Store, naive=False)
    target.close()
    swapped = Swapped(WALKS[way], target.share / name, target.outside)
    if name == "file":
        swapped.target = target.outside / "secret"
    store = Store(str(target.share), read_only=False, walk=swapped)
    names = ("file",) if name == "file" else ("dir", "secret")
    wish = OpenOptions(read=True, write=True, disposition=Disposition.OPEN_IF)
    try:
        node, _ = store.open(names, wish)
        buffer = bytearray(64)
        node.read_into(memoryview(buffer), 0)
        assert SECRET not in buffer
        node.write(memoryview(b"planted"), 0)
    except StoreError:
        assert name == "dir"
    assert swapped.swaps
    store.close()
    target.untouched()


@pytest.mark.parametrize("way", WALKS)
def test_a_swap_gains_nothing_without_proc(way: str, tmp_path: Path) -> None:
    """There a file is opened by its name once more: another file in its place is not it."""
    target = Target(tmp_path, Store, naive=False)
    (target.share / "other").write_bytes(b"other")
    swapped = Swapped(WALKS[way], target.share / "file", Path())
    store = Store(str(target.share), read_only=False, walk=swapped)

    def swap() -> None:
        swapped.swaps += 1
        os.replace(target.share / "other", target.share / "file")
        (target.share / "other").write_bytes(b"other")

    with (
        mock.patch.object(swapped, "swap", swap),
        mock.patch.object(kernel, "own_path", lambda _descriptor: b"/nothing/here"),
        mock.patch("os.path.exists", return_value=False),
        pytest.raises(StoreError) as caught,
    ):
        store.open(("file",), READ)
    assert caught.value.reason is Reason.BUSY
    assert 2 < swapped.swaps < 100
    store.close()
    target.close()


def test_the_same_swap_fools_a_check_of_the_resolved_path(tmp_path: Path) -> None:
    target = Target(tmp_path, naive_store, naive=True)
    store = NaiveStore(str(target.share), checked=True)
    store.between = Swapped(walk.by_steps, target.share / "file", target.outside / "secret").swap
    node, _ = store.open(("file",), READ)
    buffer = bytearray(64)
    node.read_into(memoryview(buffer), 0)
    node.close()
    assert SECRET in buffer


TRIES = 400


def test_races_with_a_swapping_guest_gain_nothing(make_store: StoreMaker, share: Path) -> None:
    """A directory and a symlink to the outside take turns under one name, as fast as they can."""
    outside = share.parent / "outside"
    before = (outside / "secret").stat()
    store = make_store()
    (share / "real").mkdir()
    (share / "real" / "secret").write_text("inside")
    (share / "link").symlink_to(outside)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for other in ("real", "link"):
                os.rename(share / other, share / "turn")
                os.rename(share / "turn", share / other)

    guest = threading.Thread(target=swap)
    guest.start()
    met = set()
    try:
        for _ in range(TRIES):
            for use in (
                partial(check_inside, store),
                partial(store.look, ("turn", "secret")),
                partial(open_and_close, store, "new", MAKING),
                partial(open_and_close, store, "dir", MAKING_DIR),
                lambda: store.remove(("turn", "dir"), directory=True),
                lambda: store.rename(("turn", "new"), ("turn", "m"), replace=True),
                lambda: store.remove(("turn", "m"), directory=False),
                lambda: store.link(("turn", "secret"), ("turn", "l"), replace=True),
            ):
                try:
                    use()
                    met.add("done")
                except StoreError as error:
                    met.add(error.reason.name)
    finally:
        stop.set()
        guest.join()
    after = (outside / "secret").stat()
    assert os.listdir(outside) == ["secret"]
    assert (before.st_mtime_ns, before.st_nlink) == (after.st_mtime_ns, after.st_nlink)
    assert met & {"LOOP", "NO_PATH", "NOT_FOUND"}, "nothing raced"


MAKING = OpenOptions(write=True, disposition=Disposition.OPEN_IF)
MAKING_DIR = OpenOptions(directory=True, disposition=Disposition.OPEN_IF, mode=0o755)


def open_and_close(store: Store, name: str, wish: OpenOptions) -> None:
    store.open(("turn", name), wish)[0].close()


def check_inside(store: Store) -> None:
    node, _ = store.open(("turn", "secret"), OpenOptions(read=True, write=True))
    buffer = bytearray(16)
    count = node.read_into(memoryview(buffer), 0)
    node.set_times(written_ns=1)
    node.close()
    assert node.kind is FileKind.FILE and buffer[:count] == b"inside"
