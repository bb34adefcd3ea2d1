"""Whatever a guest does with names, a directory that is served ends as one that is worked on."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand_smb.store import Disposition, OpenOptions, Reason, Store, StoreError
from quicksand_smb.store_errors import store_error

from tests.unit.smb.conftest import WALKS

names = st.sampled_from(
    [("a",), ("b",), ("d",), ("d", "a"), ("d", "e"), ("d", "e", "a"), ("l",), ("l", "a")]
)
START: list[tuple[object, ...]] = [("mkdir", ("d",)), ("symlink", ("l",)), ("make", ("a",))]
steps = st.one_of(
    st.tuples(st.sampled_from(["make", "mkdir", "unlink", "rmdir", "symlink", "append"]), names),
    st.tuples(st.sampled_from(["rename", "rename_new", "link"]), names, names),
)

Names = tuple[str, ...]


def by_store(store: Store) -> dict[str, Callable[..., object]]:
    def make(at: Names, *, directory: bool) -> None:
        wish = OpenOptions(disposition=Disposition.CREATE, directory=directory, mode=0o755)
        store.open(at, wish)[0].close()

    def append(at: Names) -> None:
        if store.look(at).kind.name == "SYMLINK":
            raise StoreError(Reason.LOOP)
        node, _ = store.open(at, OpenOptions(append=True, directory=False))
        node.write(memoryview(b"x"), 0)
        node.close()

    return {
        "make": lambda at: make(at, directory=False),
        "mkdir": lambda at: make(at, directory=True),
        "append": append,
        "unlink": lambda at: store.remove(at, directory=False),
        "rmdir": lambda at: store.remove(at, directory=True),
        "symlink": lambda at: store.symlink("d", at),
        "rename": lambda old, new: store.rename(old, new, replace=True),
        "rename_new": lambda old, new: store.rename(old, new, replace=False),
        "link": lambda old, new: store.link(old, new, replace=False),
    }


def by_hand(root: str) -> dict[str, Callable[..., object]]:
    """The same by paths, except that no symlink is followed."""

    def path(at: Names) -> str:
        here = root
        for name in at[:-1]:
            here = os.path.join(here, name)
            if os.path.islink(here):
                raise StoreError(Reason.LOOP)
        return os.path.join(here, at[-1])

    def rename_new(old: Names, new: Names) -> None:
        source, target = path(old), path(new)
        os.lstat(source)
        if os.path.lexists(target):
            raise FileExistsError(17, "")
        os.rename(source, target)

    def append(at: Names) -> None:
        with open(os.open(path(at), os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW), "ab") as file:
            file.write(b"x")

    exclusive = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    return {
        "make": lambda at: os.close(os.open(path(at), exclusive, 0o755)),
        "mkdir": lambda at: os.mkdir(path(at), 0o755),
        "append": append,
        "unlink": lambda at: os.unlink(path(at)),
        "rmdir": lambda at: os.rmdir(path(at)),
        "symlink": lambda at: os.symlink("d", path(at)),
        "rename": lambda old, new: os.rename(path(old), path(new)),
        "rename_new": rename_new,
        "link": lambda old, new: os.link(path(old), path(new), follow_symlinks=False),
    }


def outcome(step: tuple[object, ...], does: dict[str, Callable[..., object]]) -> bool:
    verb, *arguments = step
    try:
        does[str(verb)](*arguments)
    except (OSError, StoreError) as error:
        assert store_error(error).reason is not Reason.IO, error
        return False
    return True


def picture(root: str) -> list[object]:
    found: list[object] = []
    for directory, directories, files in os.walk(root):
        for name in sorted(directories + files):
            path = os.path.join(directory, name)
            status = os.lstat(path)
            regular = stat.S_ISREG(status.st_mode)
            data = Path(path).read_bytes() if regular else b""
            found.append((os.path.relpath(path, root), status.st_mode, status.st_nlink, data))
    return sorted(found, key=str)


@pytest.mark.parametrize("way", WALKS)
@given(st.lists(steps, max_size=25))
def test_a_served_directory_ends_as_one_that_is_worked_on(
    way: str, steps: list[tuple[object, ...]]
) -> None:
    with tempfile.TemporaryDirectory() as served, tempfile.TemporaryDirectory() as twin:
        store = Store(served, read_only=False, walk=WALKS[way])
        try:
            for step in START + steps:
                mine, theirs = outcome(step, by_store(store)), outcome(step, by_hand(twin))
                assert mine == theirs, step
                assert picture(served) == picture(twin), step
        finally:
            store.close()
