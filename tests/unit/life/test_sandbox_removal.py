"""Removing a sandbox that runs: it ends, and its last instant is kept where that is possible."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest
from quicksand.base.errors import HistoryError, PathError, StateError
from quicksand.base.paths import Paths
from quicksand.base.removal import MARK
from quicksand.life import sandbox_removal
from quicksand.life.sandbox_removal import SandboxTrash, remove_sandbox
from quicksand.records.layout import runtime_dir
from quicksand.records.registry import Registry, publish_state
from quicksand.records.sandboxes import Record
from quicksand.snapshots import last_checkpoint

from quicksand_tui.cli.this_host import doctor
from quicksand_tui.model.remedy_words import hint_of
from tests.unit.records.making import RUN, machine_of, make


@pytest.fixture
def registry(places: Paths) -> Registry:
    return Registry(places)


class Running:
    """A sandbox that runs, as far as files and locks tell."""

    def __init__(self, registry: Registry, monkeypatch: pytest.MonkeyPatch, **facts: Any) -> None:
        self.record: Record = make(registry, **facts)
        self._lock = registry.lock(self.record.id)
        self._runtime = runtime_dir(registry.paths, self.record.id)
        publish_state(machine_of(registry, self.record), RUN)
        self.ends: list[str] = []

        async def stop(*_: object, **__: object) -> None:
            self.end("killed")

        async def answer(*_: object) -> None: ...

        monkeypatch.setattr(sandbox_removal, "stop_machine", stop)
        monkeypatch.setattr(sandbox_removal, "_sync_guest", answer)

    def end(self, how: str) -> None:
        """As its keeper does it."""
        self.ends.append(how)
        shutil.rmtree(self._runtime.root)
        os.close(self._lock)


async def test_it_is_refused_unless_it_may_be_stopped(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running(registry, monkeypatch)
    with pytest.raises(StateError, match="running") as refused:
        await remove_sandbox(registry, "box")
    assert "`quicksand-tui rm -f box`" in hint_of(refused.value)
    assert running.ends == []
    running.end("by the test")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (HistoryError("there is no space"), "there is no space"),
        (TimeoutError(), "that took longer than 30 s"),
        (OSError(5, "Input/output error"), "[Errno 5] Input/output error"),
    ],
)
async def test_where_the_last_checkpoint_cannot_be_taken_it_says_so(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    running = Running(registry, monkeypatch)

    async def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(last_checkpoint, "end_with_checkpoint", fail)
    removed = await remove_sandbox(registry, "box", stop=True)
    assert running.ends == ["killed"]
    assert (removed.ran, removed.not_kept) == (True, why)
    assert removed.trashed is not None and removed.trashed.instant == ""
    assert registry.list() == []


@pytest.mark.parametrize("facts", [{}, {"discard": True}], ids=["now", "to be discarded"])
async def test_what_goes_for_good_takes_no_checkpoint(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any]
) -> None:
    running = Running(registry, monkeypatch, **facts)
    monkeypatch.delattr(last_checkpoint, "end_with_checkpoint")
    removed = await remove_sandbox(registry, "box", stop=True, now=not facts)
    assert running.ends == ["killed"]
    assert removed.trashed is None and removed.not_kept == ""
    assert registry.list() == [] and SandboxTrash(registry).list() == []


# Damaged ones that are stopped


@pytest.mark.parametrize("now", [False, True])
@pytest.mark.parametrize("damage", ["mark", "lock"])
async def test_one_whose_mark_or_lock_is_damaged_is_removed(
    registry: Registry, damage: str, now: bool
) -> None:
    record = make(registry)
    place = registry.place(record.id)
    if damage == "mark":
        (place.root / MARK).write_bytes(b"")
    else:
        place.lock.unlink()
        place.lock.mkdir()
        with pytest.raises(PathError, match="lock cannot be locked: it is a directory") as refused:
            await remove_sandbox(registry, "box", now=now)
        assert "`quicksand-tui rm -f box`" in hint_of(refused.value)
    removed = await remove_sandbox(registry, "box", now=now, stop=True)
    assert not place.root.exists()
    assert (removed.trashed is None) is now
    trash = SandboxTrash(registry)
    if not now:
        if damage == "lock":
            trash.restore("box")
            await remove_sandbox(registry, "box", stop=True)
        trash.empty([record.id])
    assert trash.list() == []
    assert registry.strangers() == {}


async def test_runtime_files_that_are_not_ours_keep_no_sandbox_alive(registry: Registry) -> None:
    record = make(registry)
    runtime = runtime_dir(registry.paths, record.id)
    runtime.root.mkdir(parents=True, mode=0o700)
    (runtime.root / "thesis").write_text("theirs")
    await remove_sandbox(registry, "box", now=True, stop=True)
    assert (runtime.root / "thesis").read_text() == "theirs"
    assert runtime.root in registry.strangers()
    shutil.rmtree(runtime.root)


async def test_one_that_nothing_proves_ours_is_named_and_left_alone(registry: Registry) -> None:
    record = make(registry)
    place = registry.place(record.id)
    (place.root / MARK).write_bytes(b"")
    place.record.write_text("{")
    with pytest.raises(PathError, match="is damaged, or not ours") as refused:
        await remove_sandbox(registry, record.id, now=True, stop=True)
    assert str(place.root) in str(refused.value)
    assert "remove it yourself" in refused.value.hint
    assert place.record.read_text() == "{"
    assert "damaged" in registry.strangers()[place.root]


async def test_doctor_says_how_to_get_rid_of_what_is_damaged(registry: Registry) -> None:
    place = registry.place(make(registry).id)
    place.lock.unlink()
    place.lock.mkdir()
    (check,) = [one for one in await doctor._leftovers() if one.found.startswith("box is")]
    assert "is broken: it is a directory, and no file" in check.found
    assert "`quicksand-tui rm -f box`" in check.hint
