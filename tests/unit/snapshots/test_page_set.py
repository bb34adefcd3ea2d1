"""The memory of checkpoints by page, against a model: a dictionary of pages for each checkpoint."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quicksand.base.errors import HistoryError
from quicksand.base.threads import Stopped
from quicksand.records.layout import SandboxDir
from quicksand.records.nodes import BLANK, Node
from quicksand.snapshots import pages
from quicksand.snapshots.guest_ram import PAGE, GuestRam, Runs
from quicksand.snapshots.page_set import PageSet
from quicksand.snapshots.pages import ZEROS, PageIndex
from quicksand.snapshots.storing import load_index
from quicksand.snapshots.verified import Verified

from tests.conftest import examples
from tests.unit.snapshots.test_storing import PAGES, STEPS, Sandbox, filled, place, runs_of, small

__all__ = ["place", "small"]


@contextlib.contextmanager
def opened(box: Sandbox, node: Node) -> Iterator[PageSet]:
    found = PageSet(box.place, node, Verified.of_user())
    try:
        yield found
    finally:
        found.close()
        found.close()


def numbers(runs: Runs) -> list[int]:
    return [page for first, count in runs for page in range(first, first + count)]


def places_of(box: Sandbox, node: Node) -> dict[int, tuple[str, int] | None]:
    """Where each page is, page by page; None for zeros. For a page that is not listed it is the
    place in the image from which the line comes."""
    origin = node.origin or node.memory
    found: dict[int, tuple[str, int] | None] = {
        page: None if origin == BLANK else (origin, page) for page in range(PAGES)
    }
    for run in load_index(box.place, node).runs:
        for n in range(run.count):
            file = "" if run.file == ZEROS else node.pages[run.file].name
            found[run.first + n] = (file, run.at + n) if file else None
    return found


def content_of(box: Sandbox, node: Node, source: tuple[int, int]) -> int:
    file, at = source
    if file == ZEROS:
        return 0
    names = [*(found.name for found in node.pages), node.memory]
    data = (box.place.memory / names[file]).read_bytes()[at * PAGE : (at + 1) * PAGE]
    assert data == filled(data[0])
    return data[0]


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=STEPS,
    wanted=st.sets(st.integers(0, PAGES - 1)),
    pair=st.tuples(st.integers(0, 99), st.integers(0, 99)),
)
def test_what_is_written_over_any_state_is_the_memory_of_the_checkpoint(
    steps: list[Any], wanted: set[int], pair: tuple[int, int]
) -> None:
    """The pages that differ between two checkpoints and those written since the one: no more are
    needed to come from it to the other."""
    with tempfile.TemporaryDirectory() as directory:
        box = Sandbox(SandboxDir(Path(directory) / "box"))
        for what, *values in [*steps, ("checkpoint",)]:
            nodes = box.history.nodes()
            if what == "write":
                box.write(*values)
            elif what == "checkpoint":
                box.checkpoint(*values)
            elif what == "restore" and nodes:
                box.restore(nodes[values[0] % len(nodes)], values[1])
        nodes = box.history.nodes()
        start, goal = (nodes[number % len(nodes)] for number in pair)
        places = places_of(box, goal), places_of(box, start)
        box.restore(start, {})
        box.ram.dirty = set()
        box.write(40, 9, 5)
        with opened(box, goal) as found:
            zeros = set(numbers(found.zeros_of([(0, PAGES)])))
            model = box.models[goal.id]
            assert not [page for page in zeros if model.get(page)], "zeros that are none"
            assert zeros >= {page for page, place in places[0].items() if place is None}
            differing = found.differing(start)
            assert numbers(differing) == [p for p in range(PAGES) if places[0][p] != places[1][p]]
            sources: dict[int, tuple[int, int]] = {
                run.first + n: (run.file, run.at + n)
                for run in found.runs_for(runs_of(list(wanted)))
                for n in range(run.count)
            }
            assert sorted(sources) == sorted(wanted)
            for page, source in sources.items():
                assert content_of(box, goal, source) == box.models[goal.id].get(page, 0)
            needed = runs_of([*box.ram.dirty, *numbers(differing)])
            found.fetch(needed)
            found.write(cast(GuestRam, box.ram), needed)
        assert box.ram.memory() == box.models[goal.id]


def test_a_new_image_makes_no_page_differ_that_was_never_written(place: SandboxDir) -> None:
    box = Sandbox(place)
    box.write(0, 2, 1)
    first = box.checkpoint()
    box.write(10, 60, 2)
    second = box.checkpoint()
    assert first.memory != second.memory
    box.restore(second, {})
    box.write(5, 1, 3)
    third = box.checkpoint()
    with opened(box, first) as found:
        assert found.differing(second) == [(0, 2), (10, 60)]
    with opened(box, third) as found:
        assert found.differing(first) == [(0, 2), (5, 1), (10, 60)]
        assert found.differing(second) == [(5, 1)]


def test_only_the_pages_that_are_wanted_are_written(place: SandboxDir) -> None:
    box = Sandbox(place)
    box.write(0, 60, 1)
    box.checkpoint()
    box.write(10, 20, 2)
    box.write(20, 5, 0)
    node = box.checkpoint()
    box.ram.own = {page: filled(9) for page in range(PAGES)}
    with opened(box, node) as found:
        found.write(cast(GuestRam, box.ram), [(8, 4), (22, 4), (59, 2)])
    model = dict.fromkeys(range(PAGES), 9)
    model |= {8: 1, 9: 1, 10: 2, 11: 2, 25: 2, 59: 1}
    del model[22], model[23], model[24], model[60]
    assert box.ram.memory() == model


@pytest.mark.parametrize("what", ["pages", "index"])
def test_damage_is_found_before_anything_is_written(place: SandboxDir, what: str) -> None:
    box = Sandbox(place)
    box.write(0, 2, 1)
    node = box.checkpoint()
    name = place.memory / node.pages[0].name
    path = name if what == "pages" else place.checkpoints / node.id / "pages.index"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(HistoryError, match=f"{path.name} is damaged"):
        PageSet(place, node, Verified.of_user())


def test_a_memory_of_another_size_is_refused(place: SandboxDir) -> None:
    box = Sandbox(place)
    box.write(0, 2, 1)
    node = box.checkpoint()
    other = box.checkpoint()
    index = place.checkpoints / other.id / "pages.index"
    index.write_bytes(PageIndex(2 * PAGES * PAGE, ()).encode())
    changed = replace(
        other, index=pages.write_file(index.with_name("x"), iter([index.read_bytes()]))
    )
    with opened(box, node) as found:
        with pytest.raises(HistoryError, match="have memory of"):
            found.differing(changed)
        box.ram.size = 2 * PAGES * PAGE
        with pytest.raises(HistoryError, match="bytes of memory, not"):
            found.write(cast(GuestRam, box.ram), [(0, 1)])


def test_writing_and_fetching_can_be_broken_off(place: SandboxDir) -> None:
    box = Sandbox(place)
    box.write(0, 2, 1)
    node = box.checkpoint()

    def stop() -> None:
        raise Stopped

    with opened(box, node) as found:
        with pytest.raises(Stopped):
            found.fetch([(0, 2)], stop)
        with pytest.raises(Stopped):
            found.write(cast(GuestRam, box.ram), [(0, 2)], stop)
