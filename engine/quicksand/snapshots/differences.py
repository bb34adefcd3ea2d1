"""Finding which pages copied from a guest are new, by comparing them with those on disk."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence

from quicksand.snapshots.guest_ram import PAGE
from quicksand.snapshots.pages import ZEROS, Run

BLOCK = 16
"""Pages that are compared at once; single pages are compared only if these differ."""

_ZERO = bytes(BLOCK * PAGE)


class Comparer:
    """Compares pages by address with memcmp(3): comparing memoryviews in Python is far slower."""

    def __init__(self) -> None:
        self._memcmp = ctypes.CDLL(None).memcmp
        self._memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        self._zeros = ctypes.create_string_buffer(BLOCK * PAGE)

    def equal(self, a: int, b: int, pages: int) -> bool:
        return bool(self._memcmp(a, b, pages * PAGE) == 0)

    def zero(self, a: int, pages: int) -> bool:
        """Whether ``pages`` pages, at most BLOCK, are all zeros."""
        return self.equal(a, ctypes.addressof(self._zeros), pages)


def address_of(view: memoryview) -> int:
    """The address of a writable view's bytes; valid as long as the view."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) if view.nbytes else 0


def stretches(
    count: int, test: Callable[[int, int], bool], *, whole: bool
) -> Iterator[tuple[int, int, bool]]:
    """Split ``count`` pages into parts for which ``test(first, pages)`` is true or false; yields
    (first, pages, result), ascending. With ``whole`` all pages are tested at once first."""
    if whole and test(0, count):
        yield 0, count, True
        return
    begin, verdict = 0, None
    for first, found in _verdicts(count, test):
        if verdict is None:
            verdict = found
        elif found is not verdict:
            yield begin, first - begin, verdict
            begin, verdict = first, found
    if verdict is not None:
        yield begin, count - begin, verdict


def _verdicts(count: int, test: Callable[[int, int], bool]) -> Iterator[tuple[int, bool]]:
    for block in range(0, count, BLOCK):
        pages = min(BLOCK, count - block)
        if test(block, pages):
            yield block, True
            continue
        for page in range(block, block + pages):
            yield page, pages > 1 and test(page, 1)


def sort_pages(
    written: Sequence[Run],
    copied: Sequence[int],
    known: Sequence[Run],
    addresses: Sequence[int],
    new_file: int,
) -> tuple[list[Run], list[Run]]:
    """Find for each copied page where its contents are stored.

    ``written``: the guest's pages, in the pieces of memory at the addresses ``copied``.
    ``known``: where the last checkpoint has its pages, in files mapped at ``addresses``.
    Returns runs for all of ``written``, with new pages in file ``new_file`` in order, and the parts
    of ``written`` that are new.
    """
    compare = Comparer()
    runs: list[Run] = []
    new: list[Run] = []
    stored = 0

    def add_new(part: Run) -> None:
        nonlocal stored
        runs.append(Run(part.first, part.count, new_file, stored))
        new.append(part)
        stored += part.count

    def add_unknown(copy: Run) -> None:
        base = copied[copy.file] + copy.at * PAGE

        def zero(page: int, pages: int) -> bool:
            return compare.zero(base + page * PAGE, pages)

        for start, pages, is_zero in stretches(copy.count, zero, whole=False):
            part = copy.part(copy.first + start, copy.first + start + pages)
            if is_zero:
                runs.append(Run(part.first, pages, ZEROS, 0))
            else:
                add_new(part)

    def add_known(run: Run, copy: Run) -> None:
        base = copied[copy.file] + copy.at * PAGE

        def same(page: int, pages: int) -> bool:
            here = base + page * PAGE
            if run.file == ZEROS:
                # `Comparer.zero` compares at most a block.
                return pages <= BLOCK and compare.zero(here, pages)
            return compare.equal(here, addresses[run.file] + (run.at + page) * PAGE, pages)

        for start, pages, is_same in stretches(run.count, same, whole=True):
            first, end = run.first + start, run.first + start + pages
            if is_same:
                runs.append(run.part(first, end))
            else:
                add_unknown(copy.part(first, end))

    rest = iter(known)
    below = next(rest, None)
    for copy in written:
        page = copy.first
        while page < copy.end:
            while below is not None and below.end <= page:
                below = next(rest, None)
            if below is None or below.first >= copy.end:
                add_unknown(copy.part(page, copy.end))
                page = copy.end
            elif below.first > page:
                add_unknown(copy.part(page, below.first))
                page = below.first
            else:
                stop = min(below.end, copy.end)
                add_known(below.part(page, stop), copy.part(page, stop))
                page = stop
    return runs, new
