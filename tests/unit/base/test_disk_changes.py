"""Directories that are followed: what is told of them, and of those that cannot be followed."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from quicksand.base.disk_changes import DiskChanges

TOLD_S = 60.0
"""The kernel tells at once; this is for a busy machine."""
QUIET_S = 0.01


@pytest.fixture
async def changes() -> AsyncIterator[DiskChanges]:
    following = DiskChanges()
    yield following
    following.close()
    following.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "followed"
    directory.mkdir()
    return directory


async def test_a_name_that_comes_or_goes_is_told_once(changes: DiskChanges, place: Path) -> None:
    assert changes.follow([place])
    assert changes.is_whole
    assert not await changes.wait(QUIET_S)
    (place / "file").touch()
    (place / "other").touch()
    assert await changes.wait(TOLD_S)
    assert not await changes.wait(QUIET_S)
    (place / "file").unlink()
    assert await changes.wait(TOLD_S)


async def test_those_that_are_followed_stay_when_others_come(
    changes: DiskChanges, place: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert changes.follow([place])
    assert changes.follow_also([other, tmp_path / "none"])
    assert not changes.follow_also([other]), "nothing can have been missed"
    for directory in (place, other):
        (directory / "file").touch()
        assert await changes.wait(TOLD_S)
    assert not changes.follow([other])
    assert not await changes.wait(QUIET_S), "to follow one no longer is no change"
    (place / "another").touch()
    assert not await changes.wait(QUIET_S)


async def test_another_directory_of_the_same_name_is_followed_in_its_place(
    changes: DiskChanges, place: Path, tmp_path: Path
) -> None:
    changes.follow([place])
    place.rename(tmp_path / "moved")
    place.mkdir()
    assert changes.follow_also([place]), "something may have happened in it before"
    await changes.wait(QUIET_S)
    (tmp_path / "moved" / "file").touch()
    assert not await changes.wait(QUIET_S)
    (place / "file").touch()
    assert await changes.wait(TOLD_S)


async def test_a_directory_that_is_removed_is_told_and_can_come_again(
    changes: DiskChanges, place: Path
) -> None:
    changes.follow([place])
    place.rmdir()
    assert await changes.wait(TOLD_S)
    assert not changes.follow_also([place])
    assert changes.is_whole, "what is not there needs no watch"
    place.mkdir()
    assert changes.follow_also([place])
    (place / "file").touch()
    assert await changes.wait(TOLD_S)


async def test_two_names_of_one_directory_are_both_followed(
    changes: DiskChanges, place: Path, tmp_path: Path
) -> None:
    alias = tmp_path / "alias"
    alias.symlink_to(place)
    changes.follow([place, alias])
    for left in (place, alias):
        changes.follow([left])
        await changes.wait(QUIET_S)
        (place / left.name).touch()
        assert await changes.wait(TOLD_S)


class NoMoreWatches:
    """The C library on a system that has given all its watches away."""

    def inotify_add_watch(self, *_: object) -> int:
        ctypes.set_errno(errno.ENOSPC)
        return -1

    def inotify_rm_watch(self, *_: object) -> int:
        return 0


async def test_it_is_known_that_not_all_can_be_followed(
    changes: DiskChanges, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(changes, "_libc", NoMoreWatches())
        assert not changes.follow([place])
        assert not changes.is_whole
    assert changes.follow_also([place])
    assert changes.is_whole


async def test_without_inotify_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    changes = DiskChanges()
    assert not changes.follow([place])
    assert not changes.is_whole
    assert not await changes.wait(QUIET_S)
    changes.note()
    assert await changes.wait(TOLD_S)
    changes.close()
