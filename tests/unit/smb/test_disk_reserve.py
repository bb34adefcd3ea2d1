"""What stays free for the host on a disk that is really full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from quicksand_smb import disk_reserve, kernel
from quicksand_smb.node import Node
from quicksand_smb.store import Store
from quicksand_smb.store_errors import Reason, StoreError
from quicksand_smb.store_types import Disposition, OpenOptions

from tests.unit.smb.conftest import StoreMaker

MIB = 1 << 20
DISK = 64 * MIB
WRITE = OpenOptions(read=True, write=True, disposition=Disposition.OPEN_IF)

# The attacks, each as a function that gets a root on a small disk.


def fill(node: Node, *, start: int = 0, step: int = MIB, size: int = MIB) -> int:
    """Write at every `step` bytes until it is refused; where."""
    data = memoryview(b"x" * size)
    for at in range(start, 1 << 40, step):
        try:
            done = node.write(data, at)
        except StoreError as error:
            assert error.reason is Reason.NO_SPACE
            return at
        assert done == size, "the disk itself was full"
    raise AssertionError


def new(store: Store, name: str) -> Node:
    return store.open((name,), WRITE)[0]


def holes_behind_what_is_allocated(root: str) -> None:
    """A file that has as many blocks as bytes, none of them where it is written."""
    store = Store(root, read_only=False)
    node = new(store, "file")
    half = DISK // 3
    node.resize(half)
    node.allocate(half, half, keep_size=True)
    fill(new(store, "other"))
    fill(node)


def bytes_in_many_holes(root: str) -> None:
    """Each byte takes a block."""
    store = Store(root, read_only=False)
    fill(new(store, "file"), step=disk_reserve.BLOCK, size=1)


def several_servers(root: str) -> None:
    """Each has looked at the disk when it was empty."""
    stores = [Store(root, read_only=False) for _ in range(3)]
    nodes = [new(store, f"{number}") for number, store in enumerate(stores)]
    for node in nodes:
        node.write(memoryview(b"x"), 0)
    for node in reversed(nodes):
        fill(node)


def names_of_several_servers(root: str) -> None:
    """The inodes of the disk, which are few."""
    stores = [Store(root, read_only=False) for _ in range(8)]
    for number, store in enumerate(stores):
        new(store, f"first{number}").close()
    for number, store in enumerate(reversed(stores)):
        try:
            for count in range(1 << 20):
                new(store, f"{number}-{count}").close()
        except StoreError as error:
            assert error.reason is Reason.NO_SPACE


def attributes(root: str) -> None:
    store = Store(root, read_only=False)
    node = new(store, "file")
    fill(new(store, "other"))
    try:
        for number in range(100):
            node.set_attribute(f"a{number}", b"x" * 60_000)
    except StoreError as error:
        assert error.reason in (Reason.NO_SPACE, Reason.UNSUPPORTED)


ATTACKS = {
    one.__name__: one
    for one in (
        holes_behind_what_is_allocated,
        bytes_in_many_holes,
        several_servers,
        names_of_several_servers,
        attributes,
    )
}


@pytest.mark.parametrize("name", ATTACKS)
def test_the_reserve_stays_whatever_the_guest_writes(name: str, tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this host lets nobody have a mount namespace")
    options = f"size={DISK},nr_inodes=20000"
    script = f'mount -t tmpfs -o {options} none "$0" && exec {sys.executable} -m {__name__} $1 "$0"'
    command = ["unshare", "-rm", "sh", "-c", script, str(tmp_path), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    free, names = map(int, done.stdout.split())
    spare = DISK // 20
    assert free >= spare - MIB, f"{free >> 10} KiB of {spare >> 10} are left"
    assert names >= 1000 - 8 * 16, f"{names} inodes are left"


def test_a_hole_and_what_is_shared_have_no_blocks_of_their_own(
    make_store: StoreMaker, share: Path
) -> None:
    path = share / "file"
    path.write_bytes(b"x" * MIB)
    with path.open("r+b") as file:
        if kernel.file_system(file.fileno()) not in disk_reserve._REWRITING:
            pytest.skip("this file system takes new blocks for everything that is written")
        os.fsync(file.fileno())
        assert disk_reserve.is_allocated(file.fileno(), 0, MIB)
        assert disk_reserve.is_allocated(file.fileno(), 5000, 10)
        assert not disk_reserve.is_allocated(file.fileno(), MIB - 1, 2), "beyond the end"
        os.ftruncate(file.fileno(), 3 * MIB)
        assert not disk_reserve.is_allocated(file.fileno(), MIB - 1, 2)
        assert not disk_reserve.is_allocated(file.fileno(), 2 * MIB, 1)
        assert disk_reserve.is_allocated(file.fileno(), 0, MIB)
        kernel.fallocate(file.fileno(), kernel.FALLOC_PUNCH_HOLE | 1, 4096 * 16, 4096)
        assert not disk_reserve.is_allocated(file.fileno(), 0, MIB)
        assert disk_reserve.is_allocated(file.fileno(), 0, 4096 * 16)


if __name__ == "__main__":
    ATTACKS[sys.argv[1]](sys.argv[2])
    found = os.statvfs(sys.argv[2])
    print(found.f_bavail * found.f_frsize, found.f_favail)
