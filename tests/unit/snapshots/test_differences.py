"""Sorting copied pages, against a model that looks at one page at a time."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from quicksand.snapshots.differences import BLOCK, Comparer, address_of, sort_pages, stretches
from quicksand.snapshots.guest_ram import PAGE
from quicksand.snapshots.pages import ZEROS, PageRun, merge_runs

from tests.conftest import examples
from tests.each import each


def page_of(content: int) -> bytes:
    """0 is a page of zeros; others differ from each other in their last byte only."""
    return bytes(PAGE - 1) + bytes([content])


@dataclass
class Scene:
    """Guest pages that were written (page -> content), and what is known of them."""

    written: dict[int, int]
    known: list[PageRun]
    files: list[list[int]]

    pieces: int = 1
    """Of the copy: its pages are dealt out to them."""

    def runs(self) -> list[PageRun]:
        """Where the copy's pages are."""
        n = self.pieces
        return merge_runs(
            [PageRun(page, 1, k % n, k // n) for k, page in enumerate(sorted(self.written))]
        )

    def sort(self) -> tuple[list[PageRun], list[PageRun]]:
        contents = [page_of(self.written[page]) for page in sorted(self.written)]
        copied = [bytearray(b"".join(contents[n :: self.pieces])) for n in range(self.pieces)]
        files = [bytearray(b"".join(map(page_of, file))) for file in self.files]
        return sort_pages(
            self.runs(),
            [address_of(memoryview(piece)) for piece in copied],
            self.known,
            [address_of(memoryview(file)) for file in files],
            new_file=len(files),
        )


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    files = draw(
        st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=50), min_size=1, max_size=3)
    )
    known, page = [], 0
    for _ in range(draw(st.integers(0, 5))):
        file = draw(st.sampled_from([*range(len(files)), ZEROS]))
        room = 50 if file == ZEROS else len(files[file])
        count = draw(st.integers(1, room))
        at = 0 if file == ZEROS else draw(st.integers(0, room - count))
        page += draw(st.integers(0, 4))
        known.append(PageRun(page, count, file, at))
        page += count
    # Mostly what is known already: as it is with a guest.
    contents = {
        run.first + n: 0 if run.file == ZEROS else files[run.file][run.at + n]
        for run in known
        for n in range(run.count)
    }
    written, first = {}, 0
    for _ in range(draw(st.integers(0, 6))):
        first += draw(st.integers(0, 10))
        other = draw(st.integers(0, 3))
        for n in range(draw(st.integers(1, 40))):
            written[first + n] = contents.get(first + n, other)
        first = max(written) + 1
    for changed in draw(st.lists(st.sampled_from(sorted(written) or [0]), max_size=6)):
        if changed in written:
            written[changed] = draw(st.integers(0, 3))
    return Scene(written, known, files, draw(st.integers(1, 2)))


def expected(scene: Scene) -> tuple[dict[int, tuple[int, int]], list[int]]:
    """Where each page is, and the positions in the copy of those that are new."""
    known = {
        run.first + n: (run.file, 0 if run.file == ZEROS else run.at + n)
        for run in scene.known
        for n in range(run.count)
    }
    where: dict[int, tuple[int, int]] = {}
    new: list[int] = []
    for position, (page, content) in enumerate(sorted(scene.written.items())):
        file, at = known.get(page, (None, 0))
        if file is not None and content == (0 if file == ZEROS else scene.files[file][at]):
            where[page] = (file, at)
        elif content == 0:
            where[page] = (ZEROS, 0)
        else:
            where[page] = (len(scene.files), len(new))
            new.append(position)
    return where, new


@settings(max_examples=examples(150))
@given(scenes())
def test_every_page_is_where_a_look_at_it_alone_would_find_it(scene: Scene) -> None:
    runs, new = scene.sort()
    where: dict[int, tuple[int, int]] = {}
    for run in runs:
        for n in range(run.count):
            assert run.first + n not in where
            where[run.first + n] = (run.file, 0 if run.file == ZEROS else run.at + n)
    pages, positions = expected(scene)
    assert where == pages
    n = scene.pieces
    found = [(run.file, run.at + k) for run in new for k in range(run.count)]
    assert found == [(position % n, position // n) for position in positions]
    assert [run.first + k for run in new for k in range(run.count)] == [
        sorted(scene.written)[position] for position in positions
    ]
    assert [run.first for run in runs] == sorted(run.first for run in runs)


def test_nothing_written_is_nothing_new() -> None:
    assert Scene({}, [PageRun(0, 1, 0, 0)], [[1]]).sort() == ([], [])


@each("count", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_pages_that_are_known_stay_one_run(count: int) -> None:
    scene = Scene(dict.fromkeys(range(count), 2), [PageRun(0, count, 0, 0)], [[2] * count])
    assert scene.sort() == ([PageRun(0, count, 0, 0)], [])


@each("count", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_zeros_are_never_stored(count: int) -> None:
    scene = Scene(dict.fromkeys(range(count), 0), [], [])
    assert scene.sort() == ([PageRun(0, count, ZEROS, 0)], [])


def test_a_page_that_became_zero_is_not_stored_again() -> None:
    assert Scene({4: 0}, [PageRun(4, 1, 0, 0)], [[3]]).sort() == ([PageRun(4, 1, ZEROS, 0)], [])


# Stretches


@given(st.lists(st.booleans(), max_size=80))
def test_stretches_are_the_verdicts_of_the_pages(verdicts: list[bool]) -> None:
    found = list(stretches(bytes(verdicts)))
    flat = [verdict for _, pages, verdict in found for _ in range(pages)]
    assert flat == verdicts
    starts: Sequence[int] = [first for first, _, _ in found]
    assert starts == [sum(pages for _, pages, _ in found[:n]) for n in range(len(found))]
    assert all(a[2] is not b[2] for a, b in itertools.pairwise(found))


@each("at", [0, 1, 8, PAGE - 1])
def test_single_bytes_decide(at: int) -> None:
    compare = Comparer()
    a, b = (ctypes.create_string_buffer((BLOCK + 3) * PAGE) for _ in range(2))
    here, there = ctypes.addressof(a), ctypes.addressof(b)
    assert compare.equal(here, there, BLOCK + 3)
    assert compare.find_zeros(here, BLOCK + 3) == bytes([1]) * (BLOCK + 3)
    a[(BLOCK + 1) * PAGE + at] = b"\1"
    assert not compare.equal(here, there, BLOCK + 3)
    assert compare.equal(here, there, BLOCK + 1)
    expected = bytes([1]) * (BLOCK + 1) + b"\0\1"
    assert compare.find_zeros(here, BLOCK + 3) == expected
    assert compare.find_equal(here, there, BLOCK + 3) == expected
