"""Which pages are copied when, under a kernel that tracks writes, played by a fake."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import cast

import pytest
from quicksand.base.errors import MachineError
from quicksand.snapshots import memory_copying
from quicksand.snapshots.guest_ram import PAGE, GuestRam, count_pages
from quicksand.snapshots.image import PageSource
from quicksand.snapshots.memory_copying import Copier, Fate
from quicksand.snapshots.storing import Storage
from quicksand.snapshots.tracking import ANONYMOUS, SOFT_DIRTY, WRITE_PROTECT, Level

from tests.unit.snapshots.test_storing import filled, runs_of


class TrackedRam:
    """Memory of a process under a kernel that tracks writes. ``busy`` writes at the worst moment:
    after each look at the bits, as a guest that runs does."""

    def __init__(self, atomic: bool) -> None:
        self.atomic = atomic
        self.pages: dict[int, int] = {}
        self.dirty: set[int] = set()
        self.still = False
        self.busy: list[dict[int, int]] = []
        self.copied: list[int] = []

    def write_pages(self, pages: dict[int, int]) -> None:
        self.pages |= pages
        self.dirty |= set(pages)

    def _meanwhile(self) -> None:
        if self.busy and not self.still:
            self.write_pages(self.busy.pop(0))

    def written(self) -> list[tuple[int, int]]:
        found = runs_of(list(self.pages))
        self._meanwhile()
        return found

    def look(self) -> list[tuple[int, int]]:
        found = runs_of(list(self.dirty))
        self._meanwhile()
        return found

    def clear(self) -> None:
        self.dirty = set()
        self._meanwhile()

    def take(self) -> list[tuple[int, int]]:
        """Atomic, or the VM is paused."""
        assert self.still or self.atomic
        found = runs_of(list(self.dirty))
        self.clear()
        return found

    def read(self, runs: Sequence[tuple[int, int]], into: memoryview) -> None:
        numbers = [page for first, count in runs for page in range(first, first + count)]
        into[:] = b"".join(filled(self.pages[page]) for page in numbers)
        self.copied.append(len(numbers))
        self._meanwhile()

    def read_to(
        self, runs: Sequence[tuple[int, int]], into: memoryview, places: Sequence[int]
    ) -> None:
        numbers = [page for first, count in runs for page in range(first, first + count)]
        targets = [
            at + page for (_, count), at in zip(runs, places, strict=True) for page in range(count)
        ]
        for page, at in zip(numbers, targets, strict=True):
            into[at * PAGE : (at + 1) * PAGE] = filled(self.pages[page])
        self.copied.append(len(numbers))
        self._meanwhile()

    @contextlib.asynccontextmanager
    async def pause(self) -> AsyncIterator[None]:
        self.still = True
        yield
        self.still = False


class Shelf:
    """A storage that keeps what it gets in memory."""

    def __init__(self, known: str | None) -> None:
        self._known = known
        self.pages: dict[int, int] = {}

    def open(self) -> str | None:
        return self._known

    def expect_new_pages(self) -> None:
        pass

    def add(
        self,
        runs: Sequence[tuple[int, int]],
        source: PageSource,
        check: Callable[[], None] = lambda: None,
        *,
        is_paused: bool = False,
    ) -> None:
        if not runs:
            return
        check()
        data = memoryview(bytearray(count_pages(runs) * PAGE))
        source.read(list(runs), data)
        numbers = [page for first, count in runs for page in range(first, first + count)]
        self.pages |= {page: data[at * PAGE] for at, page in enumerate(numbers)}


@pytest.fixture(params=[WRITE_PROTECT, SOFT_DIRTY])
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def ram(level: str) -> TrackedRam:
    return TrackedRam(atomic=level == WRITE_PROTECT)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "tracked"


@pytest.fixture(autouse=True)
def tracking(monkeypatch: pytest.MonkeyPatch, ram: TrackedRam, level: str) -> None:
    found = Level(name=level, tracker=ram)
    monkeypatch.setattr(memory_copying, "start_tracking", lambda _: found)
    monkeypatch.setattr(memory_copying, "ROUND_MIN", 4 * PAGE)
    monkeypatch.setattr(memory_copying, "SLACK", 2 * PAGE)
    monkeypatch.setattr(memory_copying, "HELD_MAX", 64 * PAGE)
    monkeypatch.setattr(memory_copying, "HELD_ROUND_MIN", 8 * PAGE)
    monkeypatch.setattr(memory_copying, "available_memory", lambda: 1024 * PAGE)


async def take(
    ram: TrackedRam,
    mark: Path,
    known: str | None,
    *,
    run: str = "run",
    paused: bool = False,
    fate: Fate = Fate.RUNS_ON,
) -> tuple[Copier, dict[int, int]]:
    """As a checkpoint does, up to its commit; returns the pages that were copied, too."""
    shelf = Shelf(known)
    held = mark.with_name(f"held-{len(list(mark.parent.iterdir()))}")
    storage = cast(Storage, shelf)
    copier = Copier(cast(GuestRam, ram), mark, run, storage, fate=fate, held_at=held)
    with contextlib.closing(copier):
        copier.prepare()
        if not paused:
            await copier.copy_before(ram.pause)
        copier.reserve()
        async with ram.pause():
            copier.copy_rest()
            if fate is Fate.OVERWRITTEN:
                ram.pages = dict.fromkeys(ram.pages, 99)
            ram.still = fate is Fate.STAYS_PAUSED
            copier.store()
    return copier, shelf.pages


def is_since_the_last(copier: Copier) -> bool:
    return "since the last checkpoint were copied" in copier.note


async def test_the_second_checkpoint_copies_what_was_written_since_the_first(
    ram: TrackedRam, mark: Path, level: str
) -> None:
    ram.write_pages({1: 1, 2: 1, 9: 1})
    copier, copy = await take(ram, mark, None)
    assert (copy, is_since_the_last(copier)) == ({1: 1, 2: 1, 9: 1}, False)
    assert "since the start" in copier.note
    copier.commit("a")
    ram.write_pages({2: 5, 3: 5})
    copier, copy = await take(ram, mark, "a")
    assert (copy, is_since_the_last(copier)) == ({2: 5, 3: 5}, True)
    assert level in copier.note
    copier.commit("b")
    copier, copy = await take(ram, mark, "b")
    assert (copy, is_since_the_last(copier)) == ({}, True)


@pytest.mark.parametrize(
    ("known", "run"), [(None, "run"), ("other", "run"), ("a", "another"), ("a", "")]
)
async def test_bits_that_count_from_elsewhere_are_not_believed(
    ram: TrackedRam, mark: Path, known: str | None, run: str
) -> None:
    ram.write_pages({1: 1, 2: 1})
    copier, _ = await take(ram, mark, None)
    copier.commit("a")
    ram.write_pages({2: 2})
    copier, copy = await take(ram, mark, known, run=run)
    assert (copy, is_since_the_last(copier)) == ({1: 1, 2: 2}, False)
    assert memory_copying.NOT_YET in copier.note


async def test_after_a_checkpoint_that_was_never_committed_all_is_copied(
    ram: TrackedRam, mark: Path
) -> None:
    ram.write_pages({1: 1})
    copier, _ = await take(ram, mark, None)
    copier.commit("a")
    ram.write_pages({2: 2})
    await take(ram, mark, "a")  # clears the bits, and then its client dies
    assert not mark.exists()
    copier, copy = await take(ram, mark, "a")
    assert (copy, is_since_the_last(copier)) == ({1: 1, 2: 2}, False)


async def test_the_mark_is_gone_before_the_bits_are(
    ram: TrackedRam, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copier, _ = await take(ram, mark, None)
    copier.commit("a")

    def fail() -> None:
        assert not mark.exists()
        raise MachineError("killed here")

    monkeypatch.setattr(ram, "clear", fail)
    with pytest.raises(MachineError):
        await take(ram, mark, "a")


@pytest.mark.parametrize("text", ["", "run", "run ", " a", "run a\n", "\xff"])
async def test_a_torn_mark_is_ignored(ram: TrackedRam, mark: Path, text: str) -> None:
    ram.write_pages({1: 1})
    ram.dirty = set()
    mark.write_text(text, encoding="latin-1")
    _, copy = await take(ram, mark, "a")
    assert copy == {1: 1}


@pytest.mark.parametrize("first", [True, False])
async def test_no_write_is_lost_whenever_it_comes(ram: TrackedRam, mark: Path, first: bool) -> None:
    """The guest writes between any two steps; the copy is what the memory is in the pause."""
    known = None
    if not first:
        ram.write_pages(dict.fromkeys(range(100, 120), 1))
        copier, _ = await take(ram, mark, None)
        copier.commit("a")
        known = "a"
    ram.write_pages(dict.fromkeys(range(50), 1))
    ram.busy = [{n: n, n + 1: n, 60 + n: n} for n in range(2, 30)]
    copier, copy = await take(ram, mark, known)
    assert is_since_the_last(copier) is (known is not None)
    expected = {p: c for p, c in ram.pages.items() if first or p < 100}
    assert copy == expected
    copier.commit("b")
    ram.busy = []
    ram.write_pages({7: 77})
    _, copy = await take(ram, mark, "b")
    assert copy[7] == 77


async def test_most_is_copied_before_the_pause(ram: TrackedRam, mark: Path) -> None:
    ram.write_pages(dict.fromkeys(range(50), 1))
    ram.busy = [{}, {}, {}, {3: 9}]
    _, copy = await take(ram, mark, None)
    assert ram.copied == [50, 1]
    assert copy[3] == 9


async def test_a_guest_that_writes_all_the_time_does_not_keep_us(
    ram: TrackedRam, mark: Path
) -> None:
    ram.write_pages(dict.fromkeys(range(50), 1))
    ram.busy = [dict.fromkeys(range(50), n) for n in range(2, 99)]
    _, copy = await take(ram, mark, None)
    assert len(ram.copied) <= memory_copying.ROUNDS + 2
    assert copy == ram.pages


async def test_a_vm_that_stands_still_already_is_copied_at_once(
    ram: TrackedRam, mark: Path
) -> None:
    ram.write_pages(dict.fromkeys(range(50), 1))
    _, copy = await take(ram, mark, None, paused=True)
    assert copy == ram.pages
    assert ram.copied == [50]


async def test_more_than_was_reserved_is_stored_in_the_pause(
    ram: TrackedRam, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ram.write_pages({1: 1})
    copier, _ = await take(ram, mark, None)
    copier.commit("a")
    reserve = Copier.reserve

    def reserve_and_write(self: Copier) -> None:
        reserve(self)
        ram.write_pages(dict.fromkeys(range(10, 40), 7))

    monkeypatch.setattr(Copier, "reserve", reserve_and_write)
    ram.copied = []
    _, copy = await take(ram, mark, "a")
    assert copy == dict.fromkeys(range(10, 40), 7)
    assert ram.copied == [2, 28]


async def test_a_guest_that_runs_no_further_is_copied_when_all_else_is_done(
    ram: TrackedRam, mark: Path
) -> None:
    ram.write_pages({1: 1, 2: 1})
    copier, copy = await take(ram, mark, None, fate=Fate.STAYS_PAUSED)
    assert copy == {1: 1, 2: 1}
    copier.commit("a")
    ram.write_pages(dict.fromkeys(range(50), 2))
    ram.copied = []
    copier, copy = await take(ram, mark, "a", fate=Fate.STAYS_PAUSED)
    assert copy == dict.fromkeys(range(50), 2)
    assert ram.copied == [50]
    assert is_since_the_last(copier)


async def test_if_such_a_guest_is_resumed_the_copy_is_not_believed(
    ram: TrackedRam, mark: Path
) -> None:
    shelf = Shelf(None)
    storage = cast(Storage, shelf)
    held = mark.with_name("held")
    fate = Fate.STAYS_PAUSED
    copier = Copier(cast(GuestRam, ram), mark, "run", storage, fate=fate, held_at=held)
    ram.write_pages({1: 1, 2: 1})
    copier.prepare()
    copier.reserve()
    async with ram.pause():
        copier.copy_rest()
    ram.write_pages({5: 1})
    with pytest.raises(MachineError, match="resumed"):
        copier.store()
    assert not mark.exists()


@pytest.mark.parametrize("written", [0, 5, 50, 60, 200])
@pytest.mark.parametrize("first", [True, False])
async def test_what_is_overwritten_after_the_pause_was_kept_whatever_the_guest_wrote_meanwhile(
    ram: TrackedRam, mark: Path, written: int, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_copying, "HELD_MAX", 1024 * PAGE)
    known, before = None, {300: 1, 301: 1}
    ram.write_pages(before)
    if not first:
        copier, _ = await take(ram, mark, None)
        copier.commit("a")
        known = "a"
    ram.write_pages(dict.fromkeys(range(written), 1))
    ram.busy = [{n: n, n + 1: n, 60 + n: n, 250 + n: n} for n in range(2, 30)]
    expected: dict[int, int] = {}
    copy_rest = Copier.copy_rest

    def remember(self: Copier) -> None:
        expected.update(ram.pages)
        copy_rest(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Copier, "copy_rest", remember)
        copier, copy = await take(ram, mark, known, fate=Fate.OVERWRITTEN)
    assert is_since_the_last(copier) is not first
    assert copy == {page: what for page, what in expected.items() if first or page not in before}


async def test_little_that_is_overwritten_is_copied_once_in_the_pause(
    ram: TrackedRam, mark: Path
) -> None:
    ram.write_pages(dict.fromkeys(range(8), 1))
    await take(ram, mark, None, fate=Fate.OVERWRITTEN)
    assert ram.copied == [8]


async def test_of_much_that_is_overwritten_only_what_changed_meanwhile_waits_for_the_pause(
    ram: TrackedRam, mark: Path
) -> None:
    ram.write_pages(dict.fromkeys(range(48), 1))
    ram.busy = [{}, {}, {}, {3: 9}]
    _, copy = await take(ram, mark, None, fate=Fate.OVERWRITTEN)
    assert ram.copied == [48, 1]
    assert copy[3] == 9


@pytest.mark.parametrize("available", [0, 3 * PAGE, 40 * PAGE])
async def test_a_guest_of_which_too_much_would_be_held_is_not_overwritten(
    ram: TrackedRam, mark: Path, available: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_copying, "available_memory", lambda: available)
    ram.write_pages(dict.fromkeys(range(20), 1))
    with pytest.raises(MachineError, match="written since the last checkpoint"):
        await take(ram, mark, None, fate=Fate.OVERWRITTEN)
    assert not ram.copied


async def test_a_guest_that_writes_too_much_meanwhile_is_not_overwritten(
    ram: TrackedRam, mark: Path
) -> None:
    ram.write_pages(dict.fromkeys(range(60), 1))
    ram.busy = [dict.fromkeys(range(n * 20, n * 20 + 100), n) for n in range(2, 20)]
    with pytest.raises(MachineError, match="written since the last checkpoint"):
        await take(ram, mark, None, fate=Fate.OVERWRITTEN)


async def test_if_keeping_what_will_be_overwritten_fails_the_next_checkpoint_has_everything(
    ram: TrackedRam, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ram.write_pages({1: 1})
    copier, _ = await take(ram, mark, None)
    copier.commit("a")
    ram.write_pages({2: 2})

    def fail(*_: object) -> None:
        raise MachineError("no such process")

    with monkeypatch.context() as patch:
        patch.setattr(ram, "read_to", fail)
        with pytest.raises(MachineError):
            await take(ram, mark, "a", fate=Fate.OVERWRITTEN)
    ram.still = False
    copier, copy = await take(ram, mark, "a")
    assert copy == {1: 1, 2: 2}
    assert not is_since_the_last(copier)


async def test_without_tracking_all_anonymous_pages_are_copied_in_the_pause(
    ram: TrackedRam, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = Level(name=ANONYMOUS, why="no such kernel")
    monkeypatch.setattr(memory_copying, "start_tracking", lambda _: none)
    ram.write_pages(dict.fromkeys(range(50), 1))
    for known in (None, "a"):
        copier, copy = await take(ram, mark, known)
        assert (copy, is_since_the_last(copier)) == (ram.pages, False)
        assert "no such kernel" in copier.note
        copier.commit("a")
        assert not mark.exists()
