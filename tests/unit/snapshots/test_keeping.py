"""The present that a revert in place has given up, and whose client was killed before it was a
checkpoint: it becomes one, whatever is killed at that."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import HistoryError
from quicksand.base.paths import Paths
from quicksand.base.processes import boot_id
from quicksand.records.layout import SandboxDir, sandbox_dir
from quicksand.records.nodes import BLANK, GivenUp, Head, Node, new_id, read_given_up
from quicksand.records.registry import Registry
from quicksand.snapshots import keeping
from quicksand.snapshots.guest_ram import PAGE
from quicksand.snapshots.history import History
from quicksand.snapshots.keeping import keep_given_up
from quicksand.snapshots.layers import add_layer
from quicksand.snapshots.page_buffer import HeldPages, PageBuffer
from quicksand.snapshots.pages import PageIndex
from quicksand.snapshots.reverting import last_automatic
from quicksand.snapshots.storing import load_index
from quicksand.things.checkpoint import DISK, PAGES

from tests.integration.snapshots.files import check_files
from tests.kills import kill_at_each
from tests.unit.snapshots.boxes import make_base, make_box
from tests.unit.snapshots.test_storing import filled

SIZE = 8 * PAGE
DEVICES = b"the devices' state"


@dataclass
class Left:
    """What a client has left that was killed after the commit."""

    place: SandboxDir
    known: Node
    given: GivenUp
    memory: bytes
    """The guest's, as it was given up."""

    @property
    def history(self) -> History:
        return History(self.place)

    @property
    def id(self) -> str:
        return self.given.node.id

    def keep(self) -> None:
        asyncio.run(keep_given_up(self.history))

    def require_kept(self) -> Node:
        """It is a checkpoint, whole, and nothing else is left of it."""
        self.history.sweep()
        node = last_automatic(self.history, "box")
        assert (node.id, node.tag, node.parent) == (self.id, "before revert", self.known.id)
        check_files(self.place, node)
        assert read_given_up(self.place) is None
        assert not self.place.held(self.id).exists()
        names = {path.name for path in (self.place.checkpoints / self.id).iterdir()}
        assert names == {"node.json", *(name for name, _ in node.own_files)}
        return node

    def require_memory(self) -> None:
        node = self.require_kept()
        assert node.tier is PAGES
        assert memory_of(self.place, node) == self.memory
        assert (self.place.checkpoints / self.id / "devices").read_bytes() == DEVICES


def memory_of(place: SandboxDir, node: Node) -> bytes:
    found = bytearray((place.memory / node.memory).read_bytes())
    for run in load_index(place, node).runs:
        data = (place.memory / node.pages[run.file].name).read_bytes()
        found[run.first * PAGE : run.end * PAGE] = data[run.at * PAGE :][: run.count * PAGE]
    return bytes(found)


class Ram:
    """A guest's memory, each page filled with one byte."""

    @staticmethod
    def read_to(runs: Any, into: memoryview, places: Any) -> None:
        for (first, count), at in zip(runs, places, strict=True):
            data = b"".join(filled(100 + page) for page in range(first, first + count))
            into[at * PAGE : (at + count) * PAGE] = data


@pytest.fixture
def left(places: Paths, tmp_path: Path) -> Left:
    registry = Registry(places)
    base = make_base(tmp_path)
    place = sandbox_dir(registry.paths, make_box(registry, base, "box").id)
    history = History(place)
    (known,) = history.nodes()
    head = replace(history.head(), run="r", memory=known.memory)
    id_, next_layer = new_id(), new_id()
    add_layer(place, next_layer, below=head.top)
    (place.checkpoints / id_).mkdir()
    (place.checkpoints / id_ / "devices").write_bytes(DEVICES)
    buffer = PageBuffer(SIZE // PAGE, place.held(id_))
    ram: Any = Ram
    buffer.copy([(1, 2), (5, 1)], ram)
    index = PageIndex(SIZE, tuple(buffer.places)).encode()
    place.held_index(id_).write_bytes(index)
    buffer.close()
    memory = bytearray(memory_of(place, known))
    for page in (1, 2, 5):
        memory[page * PAGE : (page + 1) * PAGE] = filled(100 + page)
    disk = replace(
        known, id=id_, tag="before revert", created=2.0, auto=True, tier=DISK, memory=BLANK,
        layers=(*head.layers, head.top), pages=(), index=None, devices=None, firmware=None,
        image=None, parent=None,
    )  # fmt: skip
    given = GivenUp(
        node=disk, head=head, run="r", size=SIZE, since=known.id, firmware=known.firmware,
        boot=boot_id(),
    )  # fmt: skip
    given.write(place)
    reverted = new_id()
    add_layer(place, reverted, below=head.layers[-1])
    history.set_head(Head(layers=head.layers, top=reverted, node=known.id, run="s"))
    return Left(place, known, given, bytes(memory))


def test_it_becomes_a_checkpoint_with_all_its_memory(left: Left) -> None:
    left.keep()
    left.require_memory()
    left.keep()
    left.require_memory()


def test_whoever_keeps_it_may_be_killed_at_any_step(left: Left, tmp_path: Path) -> None:
    before = tmp_path / "before"
    shutil.copytree(left.place.root, before, symlinks=True)

    def reset() -> None:
        shutil.rmtree(left.place.root)
        shutil.copytree(before, left.place.root, symlinks=True)

    def look() -> None:
        left.history.sweep()
        left.keep()
        left.require_memory()

    assert kill_at_each(left.place.root, left.keep, reset, look) > 20


def test_until_it_is_kept_a_sweep_removes_nothing_of_it(left: Left) -> None:
    left.history.sweep()
    left.keep()
    left.require_memory()


def reboot(left: Left) -> None:
    replace(left.given, boot="another").write(left.place)


def lose_index(left: Left) -> None:
    left.place.held_index(left.id).unlink()


def lose_pages(left: Left) -> None:
    left.place.held(left.id).unlink()


def damage_index(left: Left) -> None:
    left.place.held_index(left.id).write_bytes(b"QSPG")


@pytest.mark.parametrize("lose", [reboot, lose_index, lose_pages, damage_index])
def test_if_its_memory_is_lost_with_the_hosts_power_its_disk_is_kept(
    left: Left, lose: Callable[[Left], None]
) -> None:
    lose(left)
    left.keep()
    node = left.require_kept()
    assert (node.tier, node.tier_note) == (DISK, keeping.LOST)
    assert node.layers == left.given.node.layers


def test_if_what_its_memory_is_based_on_is_damaged_its_disk_is_kept_and_tells_why(
    left: Left,
) -> None:
    path = left.place.memory / left.known.pages[0].name
    path.write_bytes(bytes(path.stat().st_size))
    left.keep()
    node = left.require_kept()
    assert node.tier is DISK
    assert path.name in node.tier_note


def test_what_may_be_read_another_time_is_not_given_up(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise HistoryError("it cannot be read") from OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(HeldPages, "found", fail)
        left.keep()
    assert read_given_up(left.place) is not None
    assert "could not keep the state before" in left.place.engine_log.read_text()
    left.keep()
    left.require_memory()


def test_a_present_that_was_not_given_up_goes_on_and_leaves_no_checkpoint(left: Left) -> None:
    head = left.given.head
    left.history.set_head(replace(head, layers=(*head.layers, head.top), top=new_id()))
    left.keep()
    left.history.sweep()
    assert [node.id for node in left.history.all_nodes()] == [left.known.id]
    assert read_given_up(left.place) is None
    assert not (left.place.checkpoints / left.id).exists()


def test_while_it_is_not_known_which_machine_goes_on_it_stays(left: Left) -> None:
    head = left.history.head()
    left.history.set_head(replace(head, previous=left.given.head))
    left.keep()
    left.history.sweep()
    assert read_given_up(left.place) == left.given
    left.history.set_head(head)
    left.keep()
    left.require_memory()


def test_a_record_that_cannot_be_read_has_nothing_removed(left: Left) -> None:
    whole = left.place.given_up.read_bytes()
    left.place.given_up.write_bytes(whole[:-20])
    left.keep()
    left.history.sweep()
    left.place.given_up.write_bytes(whole)
    left.keep()
    left.require_memory()
