"""Pages that are held in memory, against a model: a dictionary of pages."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base import buffers
from quicksand.base.errors import MachineError, MemoryBudgetError
from quicksand.snapshots import page_buffer
from quicksand.snapshots.guest_ram import PAGE, GuestRam, count_pages
from quicksand.snapshots.page_buffer import PageBuffer

from tests.each import each
from tests.unit.snapshots.test_storing import filled, runs_of

PAGES = 24


class Ram:
    """A guest's memory; each page is filled with one byte."""

    def __init__(self) -> None:
        self.pages = bytearray(PAGES)

    def read_to(
        self, runs: Sequence[tuple[int, int]], into: memoryview, places: Sequence[int]
    ) -> None:
        for (first, count), place in zip(runs, places, strict=True):
            for page in range(count):
                at = (place + page) * PAGE
                into[at : at + PAGE] = filled(self.pages[first + page])


def held(buffer: PageBuffer) -> dict[int, int]:
    """What the buffer gives back, page by page."""
    data = memoryview(bytearray(count_pages(buffer.runs) * PAGE))
    buffer.read(buffer.runs, data)
    numbers = [page for first, count in buffer.runs for page in range(first, first + count)]
    for at in range(len(numbers)):
        assert data[at * PAGE : (at + 1) * PAGE] == filled(data[at * PAGE])
    return {page: data[at * PAGE] for at, page in enumerate(numbers)}


SETS = st.sets(st.integers(0, PAGES - 1), max_size=12)


@given(
    capacity=st.integers(0, PAGES),
    steps=st.lists(st.tuples(SETS, st.integers(0, 6), st.integers(0, 30)), max_size=8),
)
def test_pages_are_held_as_they_were_copied_last(
    capacity: int, steps: list[tuple[set[int], int, int]]
) -> None:
    ram, model = Ram(), dict[int, int]()
    buffer = PageBuffer(capacity)
    for number, (pages, leave, ahead) in enumerate(steps, 1):
        ram.pages[:] = bytes([number]) * PAGES
        buffer.prefault(ahead)
        new = sorted(pages - model.keys())
        fitting = new[: max(0, capacity - len(model) - leave)]
        assert buffer.missing(runs_of(list(pages))) == runs_of(new)
        more = buffer.copy(runs_of(list(pages)), cast(GuestRam, ram), leave=leave)
        assert runs_of([p for first, count in more for p in range(first, first + count)]) == (
            runs_of(new[len(fitting) :])
        )
        model |= dict.fromkeys((pages & model.keys()) | set(fitting), number)
        assert buffer.room == capacity - len(model)
        assert held(buffer) == model
    buffer.close()
    buffer.close()


def test_a_copy_that_fails_leaves_what_was_held() -> None:
    class Gone(Ram):
        def read_to(self, *_: object) -> None:
            raise MachineError("QEMU ended")

    ram, buffer = Ram(), PageBuffer(8)
    ram.pages[3] = 7
    buffer.copy([(3, 1)], cast(GuestRam, ram))
    with pytest.raises(MachineError):
        buffer.copy([(4, 2)], cast(GuestRam, Gone()))
    assert held(buffer) == {3: 7}
    assert buffer.copy([(0, 7)], cast(GuestRam, ram)) == []
    buffer.close()


def test_a_host_without_memory_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(page_buffer, "new_plain_buffer", refuse)
        with pytest.raises(MemoryBudgetError, match=r"no 8 MiB of memory.*checkpoint"):
            PageBuffer(2048)
    buffer = PageBuffer(8)
    monkeypatch.setattr(page_buffer, "prefault", refuse)
    with pytest.raises(MemoryBudgetError):
        buffer.prefault(2)
    buffer.close()


@each("is_old", [False, True])
def test_prefaulting_leaves_the_contents(monkeypatch: pytest.MonkeyPatch, is_old: bool) -> None:
    """Also in a kernel that cannot do it."""
    if is_old:
        monkeypatch.setattr(buffers, "POPULATE_WRITE", 9999)
    memory = buffers.new_buffer(8 * PAGE)
    memory[5] = memory[3 * PAGE] = 7
    buffers.prefault(memory, 1, 8 * PAGE)
    assert (memory[5], memory[3 * PAGE], memory[7 * PAGE]) == (7, 7, 0)
    memory.close()


def test_closing_frees_the_memory_even_if_somebody_looks_at_it() -> None:
    ram, buffer = Ram(), PageBuffer(8)
    ram.pages[3] = 7
    buffer.copy([(3, 1)], cast(GuestRam, ram))
    with memoryview(buffer._memory) as view:
        assert view[0] == 7
        buffer.close()
        assert view[0] == 0
    buffer.close()
    assert buffer._memory.closed
