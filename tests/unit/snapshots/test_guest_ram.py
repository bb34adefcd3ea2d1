"""A process's memory seen from outside: a small child of the test plays QEMU."""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quicksand.base.errors import MachineError
from quicksand.snapshots import guest_ram
from quicksand.snapshots.guest_ram import (
    PAGE,
    GuestRam,
    Runs,
    count_pages,
    join_runs,
    split_runs,
    unite_runs,
    without_runs,
)

from tests.conftest import examples

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")

PAGES = 3000
SIZE = PAGES * PAGE

CHILD = """
import hashlib, json, mmap, os, sys
descriptor = os.open(sys.argv[1], os.O_RDONLY)
memory = mmap.mmap(descriptor, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
P = mmap.PAGESIZE
for line in sys.stdin:
    what, *values = json.loads(line)
    answer = None
    if what == "write":
        for page, byte in values:
            memory[page * P : (page + 1) * P] = bytes([byte]) * P
    elif what == "look":
        answer = [memory[page * P] for page in values]
    elif what == "hash":
        answer = hashlib.sha256(memory).hexdigest()
    print(json.dumps(answer), flush=True)
"""


class Child:
    """A process that maps an image privately, as QEMU does."""

    def __init__(self, image: Path) -> None:
        self.image = image
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", CHILD, str(image)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ask("ready")

    def ask(self, *request: object) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def write(self, pages: dict[int, int]) -> None:
        self.ask("write", *pages.items())

    def ram(self) -> GuestRam:
        return GuestRam.find(self.process.pid, self.image, SIZE)

    def kill(self) -> None:
        """Dead, but not yet collected: as QEMU is for an instant."""
        self.process.kill()
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate()


Start = Callable[[str], Child]


def image_byte(page: int) -> int:
    return page % 251


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    children: list[Child] = []

    def start(name: str = "image") -> Child:
        path = tmp_path / name
        path.write_bytes(b"".join(bytes([image_byte(page)]) * PAGE for page in range(PAGES)))
        children.append(Child(path))
        return children[-1]

    yield start
    for child in children:
        child.close()


@pytest.fixture
def child(start: Start) -> Child:
    return start("image")


def runs_of(pages: set[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for page in sorted(pages):
        if found and sum(found[-1]) == page:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((page, 1))
    return found


# Finding it


@pytest.mark.parametrize(
    "name",
    [
        "two words",
        "x (deleted)",
        " ends in a space ",
        "a\nb",
        "a\rb",
        "\x0b\x0c\x1c\u2028\x85",
        "é€",
    ],
)
def test_an_image_of_any_name_is_found(start: Start, name: str) -> None:
    found = start(name)
    found.write({7: 1})
    assert found.ram().written() == [(7, 1)]


def test_names_that_are_not_utf_8_harm_nobody(child: Child, tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff\xfe\n\xc3"
    os.link(child.image, odd)
    other = Child(Path(os.fsdecode(odd)))
    assert other.ram().size == SIZE
    other.close()


def test_it_is_found_by_inode_under_any_name_that_the_file_has(child: Child) -> None:
    moved = child.image.rename(child.image.with_name("moved"))
    other = moved.with_name("other")
    os.link(moved, other)
    found = [GuestRam.find(child.process.pid, path, SIZE) for path in (moved, other)]
    assert found[0] == found[1]


def test_an_image_whose_name_is_gone_cannot_be_found(child: Child) -> None:
    child.image.unlink()
    with pytest.raises(MachineError, match="cannot be found"):
        child.ram()


def test_another_file_of_the_same_name_is_not_taken_for_it(child: Child) -> None:
    child.image.rename(child.image.with_name("moved"))
    child.image.write_bytes(bytes(SIZE))
    with pytest.raises(MachineError, match="does not map"):
        child.ram()


def test_a_file_system_whose_devices_differ_in_stat_is_known_by_the_path(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "minor", lambda _: 255)
    assert child.ram().written() == []


@pytest.mark.parametrize("size", [SIZE - PAGE, SIZE + PAGE, 0])
def test_a_mapping_of_another_size_is_refused(child: Child, size: int) -> None:
    with pytest.raises(MachineError, match="does not map"):
        GuestRam.find(child.process.pid, child.image, size)


# Which pages are written


def test_nothing_is_written_at_first_and_reading_writes_nothing(child: Child) -> None:
    assert child.ram().written() == []
    child.ask("hash")
    assert child.ram().written() == []


def test_exactly_the_written_pages_are_seen(child: Child) -> None:
    pages = {0, 1, 2, 5, 511, 512, 513, 1024, PAGES - 2, PAGES - 1, *range(2000, 2100)}
    child.write(dict.fromkeys(pages, 9))
    assert child.ram().written() == runs_of(pages)


def test_a_page_written_with_what_it_had_counts_as_written(child: Child) -> None:
    child.write({3: image_byte(3)})
    assert child.ram().written() == [(3, 1)]


@pytest.mark.parametrize("part", [7, PAGES, 2 * PAGES])
def test_everything_written_is_one_run(
    child: Child, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(guest_ram, "PART", part)
    child.write(dict.fromkeys(range(PAGES), 1))
    assert child.ram().written() == [(0, PAGES)]


# Moving pages


SCATTERED = [(page, 1) for page in range(0, PAGES, 2)]
"""More runs than one call takes."""


@pytest.mark.parametrize("call_max", [PAGE, 3 * PAGE, 256 * 1024 * 1024])
@pytest.mark.parametrize("runs", [SCATTERED, [(0, PAGES)], [(5, 7), (100, 1), (2000, 1000)], []])
def test_what_is_read_is_what_the_process_has(
    child: Child, monkeypatch: pytest.MonkeyPatch, runs: list[tuple[int, int]], call_max: int
) -> None:
    monkeypatch.setattr(guest_ram, "CALL_MAX", call_max)
    child.write({100: 255})
    into = bytearray(count_pages(runs) * PAGE)
    child.ram().read(runs, memoryview(into))
    pages = [page for first, count in runs for page in range(first, first + count)]
    assert bytes(into) == b"".join(
        bytes([255 if page == 100 else image_byte(page)]) * PAGE for page in pages
    )


def test_pages_are_read_to_their_places(child: Child) -> None:
    child.write({100: 255})
    into = bytearray(b"-" * 60 * PAGE)
    child.ram().read_in_place([(60, 1), (90, 2), (100, 10)], memoryview(into), 60)
    read = {60, 90, 91, *range(100, 110)}
    for page in range(60, 120):
        expected = (255 if page == 100 else image_byte(page)) if page in read else ord("-")
        assert into[(page - 60) * PAGE :][:PAGE] == bytes([expected]) * PAGE


@pytest.mark.parametrize("call_max", [3 * PAGE, 256 * 1024 * 1024])
def test_what_is_written_is_what_the_process_sees_and_nothing_else(
    child: Child, monkeypatch: pytest.MonkeyPatch, call_max: int
) -> None:
    monkeypatch.setattr(guest_ram, "CALL_MAX", call_max)
    before = child.image.read_bytes()
    data = bytearray(b"".join(bytes([(page + 100) % 256]) * PAGE for page, _ in SCATTERED))
    ram = child.ram()
    ram.write(SCATTERED, memoryview(data))
    expected = [(p + 100) % 256 if p % 2 == 0 else image_byte(p) for p in range(PAGES)]
    assert child.ask("look", *range(PAGES)) == expected
    assert ram.written() == SCATTERED
    assert child.image.read_bytes() == before


@pytest.mark.parametrize("function", ["read", "write"])
def test_a_buffer_that_does_not_fit_is_a_mistake(child: Child, function: str) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        getattr(child.ram(), function)([(0, 2)], memoryview(bytearray(PAGE)))


def test_pages_that_the_process_does_not_have_are_an_error(child: Child) -> None:
    far = GuestRam(child.process.pid, PAGE, SIZE)
    with pytest.raises(MachineError, match="cannot be copied"):
        far.read([(0, 1)], memoryview(bytearray(PAGE)))


@pytest.mark.parametrize("collected", [False, True])
def test_a_dead_process_is_an_error_everywhere(child: Child, collected: bool) -> None:
    ram = child.ram()
    child.kill()
    if collected:
        child.close()
    buffer = memoryview(bytearray(PAGE))
    with pytest.raises(MachineError):
        child.ram()
    with pytest.raises(MachineError):
        ram.written()
    with pytest.raises(MachineError):
        ram.read([(0, 1)], buffer)
    with pytest.raises(MachineError):
        ram.write([(0, 1)], buffer)


# Pure parts


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 40)), max_size=40), st.integers(1, 12))
def test_batches_are_all_pages_in_order_and_none_is_too_large(
    gaps: list[tuple[int, int]], room: int
) -> None:
    runs, page = [], 0
    for gap, count in gaps:
        runs.append((page + gap, count))
        page += gap + count
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guest_ram, "CALL_MAX", room * PAGE)
        patch.setattr(guest_ram, "IOV_MAX", 4)
        batches = list(guest_ram._batches(runs, guest_ram.in_order(runs)))
    assert all(0 < sum(n for _, n, _ in batch) <= room and len(batch) <= 4 for batch in batches)
    moved = [
        (first + p, place + p) for batch in batches for first, n, place in batch for p in range(n)
    ]
    pages = [p for first, n in runs for p in range(first, first + n)]
    assert moved == [(page, place) for place, page in enumerate(pages)]


@given(st.binary(max_size=300), st.data())
def test_the_patterns_say_what_the_bits_mean(tops: bytes, data: st.DataObject) -> None:
    marks = tops.translate(guest_ram._IS_WRITTEN)
    assert list(marks) == [int(bool(top & 0xC0) and not top & 0x20) for top in tops]
    found = [n for m in guest_ram._WRITTEN.finditer(tops) for n in range(m.start(), m.end())]
    assert found == [n for n, mark in enumerate(marks) if mark]
    below = data.draw(st.binary(min_size=len(tops), max_size=len(tops)))
    dirty = below.translate(guest_ram._IS_SOFT_DIRTY)
    assert list(dirty) == [byte >> 7 for byte in below]
    assert list(guest_ram._and(marks, dirty)) == [a & b for a, b in zip(marks, dirty, strict=True)]


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    written=st.sets(st.integers(0, PAGES - 1)),
    wanted=st.sets(st.integers(0, PAGES - 1)),
    near=st.sampled_from([0, 1, 5, guest_ram.NEAR]),
)
def test_of_any_pages_those_that_were_written_are_told(
    monkeypatch: pytest.MonkeyPatch, written: set[int], wanted: set[int], near: int
) -> None:
    monkeypatch.setattr(guest_ram, "NEAR", near)
    with mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        here = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for page in written:
            memory[page * PAGE] = 1
        found = GuestRam(os.getpid(), here, SIZE).written_of(runs_of(wanted))
        assert join_runs(found) == runs_of(written & wanted)


def test_pages_are_moved_between_any_places(child: Child) -> None:
    ram = child.ram()
    buffer = memoryview(bytearray(6 * PAGE))
    ram.read_to([(7, 1), (2, 2)], buffer, [5, 0])
    assert [buffer[page * PAGE] for page in range(6)] == [
        *map(image_byte, (2, 3)),
        0,
        0,
        0,
        image_byte(7),
    ]
    ram.write_from([(30, 1), (20, 2)], buffer, [5, 0])
    ram.read([(20, 2), (30, 1)], buffer[: 3 * PAGE])
    assert [buffer[page * PAGE] for page in range(3)] == [*map(image_byte, (2, 3, 7))]


@pytest.mark.parametrize("place", [-1, 6, 5])
def test_no_page_is_moved_outside_of_the_buffer(child: Child, place: int) -> None:
    buffer = memoryview(bytearray(6 * PAGE))
    for move in (child.ram().read_to, child.ram().write_from):
        with pytest.raises(ValueError, match="outside"):
            move([(0, 2)], buffer, [place])


@given(sets=st.lists(st.sets(st.integers(0, 40)), max_size=4))
def test_runs_are_united(sets: list[set[int]]) -> None:
    assert unite_runs(*map(runs_of, sets)) == runs_of(set().union(*sets))


PAGE_SETS = st.sets(st.integers(0, 60), max_size=40)


@given(PAGE_SETS, PAGE_SETS, st.integers(1, 20))
def test_sets_of_pages(one: set[int], other: set[int], size: int) -> None:
    a, b = (join_runs((page, 1) for page in sorted(pages)) for pages in (one, other))
    assert pages_of(without_runs(a, b)) == sorted(one - other)
    assert pages_of(unite_runs(a, b)) == sorted(one | other)
    parts = list(split_runs(a, lambda: size))
    assert [page for part in parts for page in pages_of(part)] == sorted(one)
    assert all(count_pages(part) == size for part in parts[:-1])


def pages_of(runs: Runs) -> list[int]:
    return [page for first, count in runs for page in range(first, first + count)]
