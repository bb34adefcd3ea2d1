"""Finding the new pages among those copied from a guest, by comparison with the pages on disk."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Sequence

from quicksand.base.errors import HistoryError
from quicksand.snapshots.guest_ram import PAGE
from quicksand.snapshots.pages import ZEROS, PageRun


class MemoryDiffersError(HistoryError):
    """Raised when a guest's memory is not as expected. Only tests compare it."""


BLOCK = 512
"""Pages whose first words are compared together."""

_WORDS = PAGE // 8
_Words = ctypes.c_uint64 * (BLOCK * _WORDS)


class Comparer:
    """Compares pages by address. Loops in Python are far slower than memory, so a page's first word
    is compared before the whole page: pages differ there more often than not."""

    def __init__(self) -> None:
        self._memcmp = ctypes.CDLL(None).memcmp
        self._memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        self._page = ctypes.create_string_buffer(PAGE)
        self._zeros = ctypes.addressof(self._page)

    def equal(self, a: int, b: int, pages: int) -> bool:
        return bool(self._memcmp(a, b, pages * PAGE) == 0)

    def find_zeros(self, a: int, pages: int) -> bytes:
        """A 1 for each page that is all zeros, else a 0."""
        found = bytearray(pages)
        for page, word in enumerate(_first_words(a, pages)):
            if not word:
                found[page] = self.equal(a + page * PAGE, self._zeros, 1)
        return bytes(found)

    def find_equal(self, a: int, b: int, pages: int) -> bytes:
        """A 1 for each page that is the same at both addresses, else a 0."""
        if self.equal(a, b, pages):
            return b"\1" * pages
        found = bytearray(pages)
        words = zip(_first_words(a, pages), _first_words(b, pages), strict=True)
        for page, (one, other) in enumerate(words):
            if one == other:
                found[page] = self.equal(a + page * PAGE, b + page * PAGE, 1)
        return bytes(found)


def _first_words(address: int, pages: int) -> list[int]:
    found: list[int] = []
    for first in range(0, pages, BLOCK):
        count = min(BLOCK, pages - first)
        found += _Words.from_address(address + first * PAGE)[0 : count * _WORDS : _WORDS]
    return found


def address_of(view: memoryview) -> int:
    """The address of a writable view's bytes; valid as long as the view."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) if view.nbytes else 0


def stretches(verdicts: bytes) -> Iterator[tuple[int, int, bool]]:
    """Split pages, each with its verdict 0 or 1, into stretches of the same: (first, pages,
    verdict), ascending."""
    for found in _STRETCH.finditer(verdicts):
        yield found.start(), found.end() - found.start(), bool(found[0][0])


_STRETCH = re.compile(rb"\x00+|\x01+")


def sort_pages(
    written: Sequence[PageRun],
    copied: Sequence[int],
    known: Sequence[PageRun],
    addresses: Sequence[int],
    new_file: int,
    new_at: int = 0,
) -> tuple[list[PageRun], list[PageRun]]:
    """Find for each copied page where its contents are stored.

    ``written``: the guest's pages, in the pieces of memory at the addresses ``copied``.
    ``known``: where the last checkpoint has its pages, in files mapped at ``addresses``.
    Returns runs for all of ``written``, with new pages in file ``new_file`` in order from its page
    ``new_at`` on, and the parts of ``written`` that are new.
    """
    found = _Sorted(copied, addresses, new_file, new_at)
    rest = iter(known)
    below = next(rest, None)
    for copy in written:
        page = copy.first
        while page < copy.end:
            while below is not None and below.end <= page:
                below = next(rest, None)
            if below is None or below.first >= copy.end:
                found.add_unknown(copy.part(page, copy.end))
                page = copy.end
            elif below.first > page:
                found.add_unknown(copy.part(page, below.first))
                page = below.first
            else:
                stop = min(below.end, copy.end)
                found.add_known(below.part(page, stop), copy.part(page, stop))
                page = stop
    return found.runs, found.new


class _Sorted:
    """The pages sorted so far; the parameters are those of `sort_pages`."""

    def __init__(
        self, copied: Sequence[int], addresses: Sequence[int], new_file: int, new_at: int
    ) -> None:
        self.runs: list[PageRun] = []
        self.new: list[PageRun] = []
        self._compare = Comparer()
        self._copied = copied
        self._addresses = addresses
        self._file = new_file
        self._next = new_at

    def add_known(self, run: PageRun, copy: PageRun) -> None:
        """Add pages that the last checkpoint has at ``run`` and the guest's copy at ``copy``."""
        here = self._copied[copy.file] + copy.at * PAGE
        if run.file == ZEROS:
            same = self._compare.find_zeros(here, run.count)
        else:
            there = self._addresses[run.file] + run.at * PAGE
            same = self._compare.find_equal(here, there, run.count)
        for start, pages, is_same in stretches(same):
            first, end = run.first + start, run.first + start + pages
            if is_same:
                self.runs.append(run.part(first, end))
            else:
                self.add_unknown(copy.part(first, end))

    def add_unknown(self, copy: PageRun) -> None:
        """Add pages that are not in the last checkpoint; pages of zeros need not be stored."""
        zeros = self._compare.find_zeros(self._copied[copy.file] + copy.at * PAGE, copy.count)
        for start, pages, is_zero in stretches(zeros):
            part = copy.part(copy.first + start, copy.first + start + pages)
            if is_zero:
                self.runs.append(PageRun(part.first, pages, ZEROS, 0))
            else:
                self._add_new(part)

    def _add_new(self, part: PageRun) -> None:
        self.runs.append(PageRun(part.first, part.count, self._file, self._next))
        self.new.append(part)
        self._next += part.count
