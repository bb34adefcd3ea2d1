"""Memory that becomes a checkpoint's in the QEMU that runs, against a model: in any order of
writes, checkpoints and reverts of either kind, each revert gives the memory back and each
checkpoint is right."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quicksand.base.errors import MachineError
from quicksand.records.layout import MachineDir, SandboxDir
from quicksand.records.nodes import Head, Node, new_id
from quicksand.snapshots import rewriting
from quicksand.snapshots.guest_ram import PAGE, GuestRam, Runs, without_runs
from quicksand.snapshots.memory_copying import Taken
from quicksand.snapshots.rewriting import Rewriting
from quicksand.snapshots.tracking import Level

from tests.conftest import examples
from tests.each import each
from tests.unit.snapshots.test_storing import PAGES, STEPS, Sandbox, runs_of, small

__all__ = ["small"]

MACHINE = MachineDir(Path("/nowhere"))


@dataclass
class Tracker:
    box: Sandbox

    def look(self) -> Runs:
        return runs_of(list(self.box.ram.dirty))

    def clear(self) -> None:
        self.box.ram.dirty = set()

    def take(self) -> Runs:
        found = self.look()
        self.clear()
        return found


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A kernel that tracks what is written, or does not."""
    monkeypatch.setattr(rewriting, "start_tracking", lambda ram: level_of(box_of(ram)))
    monkeypatch.setattr(rewriting, "track_from", track_from)
    monkeypatch.setattr(rewriting, "is_tracked_since", is_tracked_since)
    yield
    boxes.clear()


boxes: dict[int, Sandbox] = {}
"""By what stands for their memory."""


def box_of(ram: object) -> Sandbox:
    return boxes[id(ram)]


def level_of(box: Sandbox) -> Level:
    return Level(name="write-protect", tracker=Tracker(box)) if box.tracked else Level(name="none")


def track_from(node: str, ram: object, _mark: Path, _run: str) -> None:
    box = box_of(ram)
    box.last, box.ram.dirty = node, set()


def is_tracked_since(_mark: Path, run: str, node: str, level: Level) -> bool:
    tracker = cast(Tracker | None, level.tracker)
    return tracker is not None and tracker.box.last == node and tracker.box.head.run == run


def go_back(
    box: Sandbox, node: Node, loaded: set[int], captured: bool, touched: Set[int] = frozenset()
) -> bool:
    """Revert in place, if that is possible; ``loaded`` are the pages that QEMU writes when it loads
    the devices, ``touched`` others that it writes before. ``captured``: the present is captured
    before."""
    boxes[id(box.ram)] = box
    head, run = box.history.head(), box.head.run or ""
    if rewriting.why_not(box.history, head, run, node):
        return False
    ram = cast(GuestRam, box.ram)
    work = Rewriting(box.history, node, ram, head, MACHINE, run)
    try:
        taken = None
        if captured:
            known = box.last if box.tracked and box.last == head.node else None
            exact = known is not None
            taken = Taken(known, runs_of(list(box.ram.dirty)) if exact else box.ram.written())
            box.ram.dirty = set()
        found = work.find(taken)
        zeros = work.zeros_of(found)
        for runs, filler in ((zeros, 0), (without_runs(found, zeros), 0xA5)):
            for first, count in runs:  # so QEMU forgets what it has translated of them
                box.ram.write([(first, count)], memoryview(bytearray([filler]) * count * PAGE))
            work.write(runs, filler)
        for page in touched:
            box.ram.write([(page, 1)], memoryview(b"\x08" * PAGE))
        work.watch(found)
        for page in loaded:
            box.ram.write([(page, 1)], memoryview(b"\x09" * PAGE))
        work.finish(MACHINE, run, None)
    finally:
        work.close()
    box.head = Head(layers=(), top=new_id(), node=node.id, run=new_id(), memory=head.memory)
    box.history.set_head(box.head)
    box.model = dict(box.models[node.id])
    return True


REVERTS = st.tuples(
    st.just("in place"),
    st.integers(0, 99),
    st.sets(st.integers(0, PAGES - 1), max_size=3),
    st.booleans(),
)


@pytest.mark.parametrize("tracked", [False, True])
@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.one_of(REVERTS, STEPS), max_size=6))
def test_each_revert_gives_the_memory_back(tracked: bool, steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        box = Sandbox(SandboxDir(Path(directory) / "box"), tracked=tracked)
        flat = [one for step in steps for one in (step if isinstance(step, list) else [step])]
        for what, *values in flat:
            nodes = box.history.nodes()
            if what == "write":
                box.write(*values)
            elif what == "checkpoint":
                box.checkpoint(*values)
            elif nodes and what == "restore":
                box.restore(nodes[values[0] % len(nodes)], values[1])
            elif nodes and what == "remove":
                box.remove(nodes[values[0] % len(nodes)])
            elif nodes:
                node = nodes[values[0] % len(nodes)]
                if not go_back(box, node, *values[1:]):
                    box.restore(node, {})
            assert box.ram.memory() == box.model, what
        box.check()


def test_a_line_goes_back_beyond_a_new_image(tmp_path: Path) -> None:
    """After much was written a checkpoint has an image of its own; the one before lies over
    another."""
    box = Sandbox(SandboxDir(tmp_path / "box"), tracked=True)
    box.write(0, 2, 1)
    before = box.checkpoint()
    box.write(0, PAGES, 2)
    after = box.checkpoint()
    assert after.memory != before.memory
    for node in (before, after, before):
        assert go_back(box, node, {1}, captured=False)
        assert box.ram.memory() == box.models[node.id]
    box.write(3, 1, 7)
    box.checkpoint()
    box.check()


def test_a_checkpoint_of_another_line_takes_a_new_qemu(tmp_path: Path) -> None:
    box = Sandbox(SandboxDir(tmp_path / "box"), tracked=True)
    node = box.checkpoint()
    other = replace(node, id=new_id(), origin="other.ram")
    head = replace(box.history.head(), memory="mapped.ram")
    why = rewriting.why_not(box.history, head, box.head.run or "", other)
    assert why == "QEMU maps another memory image than the checkpoint's"


def test_what_does_not_hit_the_guests_memory_is_noticed(tmp_path: Path) -> None:
    """The guest has put something else over some pages: QEMU may keep its translations of them."""
    box = Sandbox(SandboxDir(tmp_path / "box"), tracked=True)
    node = box.checkpoint()
    box.write(5, 3, 1)
    boxes[id(box.ram)] = box
    run = box.head.run or ""
    work = Rewriting(box.history, node, cast(GuestRam, box.ram), box.history.head(), MACHINE, run)
    try:
        found = work.find(None)
        for rest in (b"", b"\xa5" * (PAGE - 1) + b"\x01", b"\xa5" + bytes(PAGE - 1)):
            box.ram.write([(5, 2)], memoryview(b"\xa5" * 2 * PAGE))
            if rest:
                box.ram.write([(7, 1)], memoryview(bytearray(rest)))
            with pytest.raises(MachineError, match="has put something else over its memory"):
                work.write(found, 0xA5)
    finally:
        work.close()


@each("tracked", [False, True])
def test_the_guest_finds_an_identity_that_was_never_there(tmp_path: Path, tracked: bool) -> None:
    """QEMU writes its own, which the guest may have had before."""
    box = Sandbox(SandboxDir(tmp_path / "box"), tracked=tracked)
    box.write(0, PAGES, 3)
    ours = bytes(range(16))
    page = bytearray(b"\x03" * PAGE)
    page[40:56] = ours
    box.ram.write([(4, 1)], memoryview(page))
    node = box.checkpoint()
    boxes[id(box.ram)] = box
    run, found = box.head.run or "", []
    for _ in range(2):
        box.ram.write([(4, 1)], memoryview(page))  # as QEMU does
        ram = cast(GuestRam, box.ram)
        work = Rewriting(box.history, node, ram, box.history.head(), MACHINE, run)
        try:
            work.finish(MACHINE, run, ours)
        finally:
            work.close()
        now = bytearray(box.ram.page(4))
        found.append(bytes(now[40:56]))
        now[40:56] = ours
        assert now == page
        assert 4 in box.ram.dirty, "the next checkpoint would miss it"
    assert len({ours, *found}) == 3


def test_what_qemu_writes_besides_is_put_right(tmp_path: Path) -> None:
    box = Sandbox(SandboxDir(tmp_path / "box"), tracked=True)
    box.write(0, PAGES, 3)
    node = box.checkpoint()
    box.write(5, 3, 1)
    assert go_back(box, node, {1}, captured=False, touched={9})
    assert box.ram.memory() == box.models[node.id]
