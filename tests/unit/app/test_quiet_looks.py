"""Looks at those sandboxes only of which something may have changed."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand.base.disk_changes import DiskChanges
from quicksand.base.files import try_lock
from quicksand.base.paths import Paths, make_private_dir
from quicksand.base.removal import make_marked
from quicksand.records.layout import runtime_dir
from quicksand.records.registry import Registry
from quicksand.things.status import Status

from quicksand_tui.door import far_end, look
from quicksand_tui.door.look import Reader
from quicksand_tui.door.stamps import dir_stamp
from quicksand_tui.model.world import World
from tests.unit.app.fakes import until
from tests.unit.app.test_reader import make

NOBODY: frozenset[str] = frozenset()
TOLD_S = 60.0


def stamped(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The directories whose stamps are asked for, as they are asked for."""
    asked: list[Path] = []
    real = dir_stamp

    def stamping(path: Path) -> tuple[int, ...]:
        asked.append(path)
        return real(path)

    monkeypatch.setattr(look, "dir_stamp", stamping)
    return asked


def test_a_look_asks_one_thing_of_each_stopped_sandbox_and_a_quiet_one_nothing(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [make(places, number) for number in range(5)]
    reader = Reader()
    world = reader.read(NOBODY)
    assert len([*reader.directories()]) > len(made)
    rest = len([*reader.directories()])
    assert rest <= len([places.sandboxes, places.runtime, places.images, places.data])
    asked = stamped(monkeypatch)
    assert reader.read(NOBODY).sandboxes == world.sandboxes
    assert sorted(asked) == sorted(places.sandboxes / record.id for record in made)
    asked.clear()
    assert reader.read(NOBODY, is_quiet=True).sandboxes == world.sandboxes
    assert not asked
    reader.read(frozenset({made[0].id}), is_quiet=True)
    assert asked == [places.sandboxes / made[0].id], "what is shown is looked at"


def test_what_could_not_be_read_is_looked_at_again_however_quiet(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "USAGE_EVERY_S", 0.0)
    record = make(places, 0)
    file = Registry(places).place(record.id).record
    text = file.read_text()
    file.write_text("{")
    reader = Reader()
    assert [view.state for view in reader.read(NOBODY).sandboxes] == [Status.BROKEN]
    file.write_text(text)  # in place: no name changes
    views = reader.read(NOBODY, is_quiet=True).sandboxes
    assert [view.state for view in views] == [Status.STOPPED]


@pytest.fixture
def held() -> Iterator[list[int]]:
    descriptors: list[int] = []
    yield descriptors
    for descriptor in descriptors:
        os.close(descriptor)


def happenings(places: Paths, held: list[int]) -> list[Callable[[], object]]:
    """What can happen to the sandboxes 0 and 1."""
    registry = Registry(places)
    one, two = f"{0:012x}", f"{1:012x}"
    runtime = runtime_dir(places, one)

    def begin() -> None:
        lock = try_lock(registry.place(one).lock)
        assert lock is not None
        held.append(lock)
        make_private_dir(places.runtime)
        make_marked(runtime.root, of=runtime.of)

    def end() -> None:
        os.close(held.pop())
        registry.clear_runtime(one)

    def rename() -> None:
        entry = registry.inspect(one)
        assert entry is not None
        assert entry.record is not None
        registry.save(replace(entry.record, name="renamed"))

    def replace_directory() -> None:
        place = registry.place(two).root
        shutil.copytree(place, places.sandboxes / ".copy")
        registry.remove(two)
        (places.sandboxes / ".copy").rename(place)
        registry.place(two).record.unlink()

    def crash() -> None:
        registry.place(one).qemu_log.touch()

    return [
        lambda: make(places, 0),
        lambda: make(places, 1),
        begin,
        end,
        rename,
        crash,
        replace_directory,
        lambda: make(places, 2),
        lambda: registry.remove(one),
    ]


async def test_with_what_the_system_tells_quiet_looks_miss_nothing(
    places: Paths, held: list[int]
) -> None:
    make_private_dir(places.sandboxes)
    make_private_dir(places.runtime)
    changes, reader, has_changed = DiskChanges(), Reader(), True
    for happen in happenings(places, held):
        # As the far end does (`door.far_end`).
        for _ in range(3):
            world = reader.read(NOBODY, is_quiet=not has_changed)
            has_changed = changes.follow_also([*reader.directories()])
        assert not has_changed
        assert changes.is_whole
        assert world.sandboxes == Reader().read(NOBODY).sandboxes
        happen()
        has_changed = await changes.wait(TOLD_S)
        assert has_changed
    changes.close()


class OneClient:
    """The channel of a client that asks for nothing."""

    def __init__(self) -> None:
        self.told = b""

    async def send(self, _: object, data: bytes) -> None:
        self.told += data


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each look was a quiet one."""
    quiet: list[bool] = []
    real = Reader.read

    def reading(self: Reader, visible: frozenset[str], **how: bool) -> World:
        quiet.append(how["is_quiet"])
        return real(self, visible, **how)

    monkeypatch.setattr(Reader, "read", reading)
    monkeypatch.setattr(far_end, "LOOK_EVERY_S", 0.01)
    return quiet


async def test_a_far_end_looks_at_all_after_a_change_only_and_tells_it(
    places: Paths, looks: list[bool]
) -> None:
    make(places, 0)
    make_private_dir(places.runtime)
    client = OneClient()
    watch = far_end._Watch(client)  # type: ignore[arg-type]
    task = asyncio.create_task(watch.tell())
    await until(lambda: looks[-5:] == [True] * 5)
    assert not looks[0]
    before = looks.count(False)
    await asyncio.to_thread(make, places, 1)
    await until(lambda: b"box-1" in client.told)
    await until(lambda: looks[-5:] == [True] * 5)
    assert looks.count(False) > before
    task.cancel()
    await asyncio.wait([task])
    watch.close()


async def test_a_far_end_looks_at_all_now_and_then_whatever_it_is_told(
    places: Paths, looks: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(far_end, "LOOK_AT_ALL_EVERY_S", 0.0)
    make(places, 0)
    watch = far_end._Watch(OneClient())  # type: ignore[arg-type]
    task = asyncio.create_task(watch.tell())
    await until(lambda: len(looks) > 10)
    assert not any(looks)
    task.cancel()
    await asyncio.wait([task])
    watch.close()
