"""The memory of one checkpoint by page, and writing it to the memory of a QEMU.

Pages are written straight from the mapped files, up to a thousand runs in one system call. To read
them to a buffer first is no faster, and neither are two threads, since most of the time goes into
the first touch of QEMU's pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from quicksand.base.errors import HistoryError
from quicksand.records.layout import SandboxDir
from quicksand.records.nodes import BLANK, Node
from quicksand.snapshots.differences import Comparer, MemoryDiffersError, address_of
from quicksand.snapshots.guest_ram import PAGE, GuestRam, Runs, join_runs, without_runs
from quicksand.snapshots.image import image_extents, not_of_image, own_pages
from quicksand.snapshots.pages import ZEROS, MappedFile, PageIndex, PageRun, overlay_runs
from quicksand.snapshots.storing import find_image, load_index
from quicksand.snapshots.verified import Verified

PAGES_AT_ONCE = 4096
"""Pages that are written to a QEMU at once: 16 MiB, whose first touch can take 40 ms. After each
such part a cancellation is noticed."""

ZEROS_AT_ONCE = 1024
"""Pages of zeros that are written as one piece."""

GAP = 64
"""The most unwanted pages between two wanted ones that are fetched from a file, too: a disk reads
more at once than asked for anyway."""

Check = Callable[[], None]
"""Called now and then; may stop the work by an exception."""


def _go_on() -> None: ...


class PageSet:
    """The memory of the checkpoint ``node``, with all of its files open and compared with their
    checksums. Call `close` at the end. Raises HistoryError naming a file that is missing or
    damaged."""

    def __init__(
        self, place: SandboxDir, node: Node, verified: Verified, check: Check = _go_on
    ) -> None:
        """Files that ``verified`` knows are not read."""
        self._place = place
        self._node = node
        self._index = load_index(place, node)
        files = list(node.pages)
        self._image = _number_of_image(node)
        path = find_image(place, node.memory)
        self._is_blank = path is None
        if path is not None:
            if node.image is None:
                raise HistoryError(f"the checkpoint {node.tag!r} has no checksums of {path}")
            if self._image == len(files):
                files.append(node.image)
        self._over = not_of_image(self._index.runs, self._image)
        extents = [] if path is None else image_extents(path)
        self._image_data = join_runs(
            (start // PAGE, -(-end // PAGE) - start // PAGE) for start, end in extents
        )
        """The pages of the image that are not in its holes."""
        self._stack = ExitStack()
        try:
            self._files = [
                self._stack.enter_context(
                    MappedFile(place.memory / file.name, file, verified, check)
                )
                for file in files
            ]
        except BaseException:
            self._stack.close()
            raise

    @property
    def size(self) -> int:
        """Bytes of the memory."""
        return self._index.size

    def runs_for(self, wanted: Runs) -> list[PageRun]:
        """The place of each of the pages ``wanted``: in the file of that number, or ZEROS."""
        return overlay_runs(list(_clip(self._over, wanted)), self._unlisted(wanted))

    def _unlisted(self, wanted: Runs) -> list[PageRun]:
        """The places of pages that are not listed: in the image or, without one, nowhere."""
        own = own_pages(wanted, self._image)
        return [replace(run, file=ZEROS, at=0) for run in own] if self._is_blank else own

    def zeros_of(self, wanted: Runs) -> Runs:
        """Return the pages of ``wanted`` that hold only zeros according to the files."""
        runs = self.runs_for(wanted)
        zeros = [(run.first, run.count) for run in runs if run.file == ZEROS]
        imaged = [(run.first, run.count) for run in runs if run.file == self._image]
        return join_runs(sorted([*zeros, *without_runs(imaged, self._image_data)]))

    def listed(self) -> Runs:
        """The pages that its index lists; all others are as in the memory image."""
        return join_runs((run.first, run.count) for run in self._index.runs)

    def differing(self, other: Node) -> Runs:
        """The pages whose place differs in the checkpoint ``other`` of this sandbox, so that their
        contents may differ. Raises HistoryError if its index is damaged or of another memory."""
        index = load_index(self._place, other)
        if index.size != self.size:
            raise HistoryError(
                f"the checkpoints {self._node.tag!r} and {other.tag!r} have memory of "
                f"{self.size} and {index.size} bytes"
            )
        pages = self.size // PAGE
        return _compare(_places(self._node, self._index, pages), _places(other, index, pages))

    def require_same(self, ram: GuestRam) -> None:
        """Raise MemoryDiffersError, naming pages, unless a guest has this memory; MachineError."""
        wrong = []
        for run in self.runs_for([(0, self.size // PAGE)]):
            for part in _cut(run, PAGES_AT_ONCE):
                wrong += self._differing_from(ram, part)
        if wrong:
            first = ", ".join(map(str, wrong[:8]))
            raise MemoryDiffersError(
                f"the guest's memory is not the checkpoint's: {len(wrong)} of "
                f"{self.size // PAGE} pages differ, the first are {first}"
            )

    def _differing_from(self, ram: GuestRam, run: PageRun) -> list[int]:
        with memoryview(bytearray(run.count * PAGE)) as data:
            ram.read([(run.first, run.count)], data)
            compare = Comparer()
            here = address_of(data)
            if run.file == ZEROS:
                same = compare.find_zeros(here, run.count)
            else:
                there = address_of(self._files[run.file].data) + run.at * PAGE
                same = compare.find_equal(here, there, run.count)
        return [run.first + page for page, equal in enumerate(same) if not equal]

    def fetch(self, wanted: Runs, check: Check = _go_on) -> None:
        """Read the contents of the pages ``wanted`` from the disk, unless they are in memory, and
        map them, which leaves much less to do for `write`. Other threads run meanwhile."""
        by_file: dict[int, list[tuple[int, int]]] = {}
        for run in self.runs_for(wanted):
            if run.file != ZEROS:
                by_file.setdefault(run.file, []).append((run.at, run.at + run.count))
        for number, ranges in by_file.items():
            mapped = self._files[number]
            for start, end in _bridge(ranges):
                for at in range(start, end, PAGES_AT_ONCE):
                    check()
                    mapped.fetch(at * PAGE, min(at + PAGES_AT_ONCE, end) * PAGE)

    def write(self, ram: GuestRam, wanted: Runs, check: Check = _go_on) -> None:
        """Write the pages ``wanted`` to the memory of a QEMU, whose VM must be paused. Raises
        MachineError."""
        self._write(ram, self.runs_for(wanted), check)

    def load(self, ram: GuestRam, check: Check = _go_on) -> None:
        """Write all pages to the memory of a fresh QEMU that does not have them yet, since it maps
        the checkpoint's image privately or, if there is none, nothing. Raises MachineError.

        Pages that QEMU itself has written at its start (on some machines the kernel, for instance)
        are restored as well.
        """
        over = [run for run in self._over if not (self._is_blank and run.file == ZEROS)]
        self._write(ram, overlay_runs(over, self._unlisted(ram.written())), check)

    def _write(self, ram: GuestRam, runs: Iterable[PageRun], check: Check) -> None:
        if ram.size != self.size:
            raise HistoryError(
                f"the checkpoint {self._node.tag!r} has {self.size} bytes of memory, not {ram.size}"
            )
        by_file: dict[int, list[PageRun]] = {}
        for run in runs:
            by_file.setdefault(run.file, []).append(run)
        zeros = by_file.pop(ZEROS, [])
        if zeros:
            size = min(max(run.count for run in zeros), ZEROS_AT_ONCE)
            data = memoryview(bytearray(size * PAGE))
            for part in _parts(zeros, piece=size):
                check()
                ram.write_from([(run.first, run.count) for run in part], data, [0] * len(part))
        for number, found in by_file.items():
            data = self._files[number].data
            for part in _parts(found):
                check()
                places = [run.at for run in part]
                ram.write_from([(run.first, run.count) for run in part], data, places)

    def close(self) -> None:
        """Close all files. Idempotent."""
        self._stack.close()


def _number_of_image(node: Node) -> int:
    """The memory image's number among the checkpoint's files, or the next free one."""
    names = [file.name for file in node.pages]
    return names.index(node.memory) if node.memory in names else len(names)


def _clip(runs: Iterable[PageRun], wanted: Runs) -> Iterator[PageRun]:
    """The parts of ``runs`` that lie in ``wanted``; both are ascending."""
    rest = iter(wanted)
    first, count = next(rest, (0, 0))
    for run in runs:
        start = run.first
        while count and start < run.end:
            end = min(run.end, first + count)
            if end > max(start, first):
                yield run.part(max(start, first), end)
            start = max(start, end)
            if first + count <= run.end:
                first, count = next(rest, (0, 0))
            else:
                break


def _cut(run: PageRun, piece: int) -> Iterator[PageRun]:
    for first in range(run.first, run.end, piece):
        yield run.part(first, min(first + piece, run.end))


def _parts(runs: Iterable[PageRun], piece: int = PAGES_AT_ONCE) -> Iterator[list[PageRun]]:
    """Split ``runs`` into parts of PAGES_AT_ONCE pages, at most, with runs of at most ``piece``."""
    part: list[PageRun] = []
    room = PAGES_AT_ONCE
    for run in runs:
        first = run.first
        while first < run.end:
            end = min(run.end, first + min(piece, room))
            part.append(run if end - first == run.count else run.part(first, end))
            first, room = end, room - (end - first)
            if not room:
                yield part
                part, room = [], PAGES_AT_ONCE
    if part:
        yield part


def _bridge(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join ranges (start, end) that overlap or have no more than GAP pages between them."""
    start = end = -1
    for first, last in sorted(ranges):
        if start < 0:
            start, end = first, last
        elif first - end <= GAP:
            end = max(end, last)
        else:
            yield start, end
            start, end = first, last
    if start >= 0:
        yield start, end


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of consecutive pages, up to the page ``end``. Two pages of the same number are at
    the same place if ``file`` and ``shift`` are equal."""

    end: int
    file: str
    """"" for zeros."""
    shift: int
    """The page's number in the file less its number in the memory."""


def _places(node: Node, index: PageIndex, pages: int) -> list[_Place]:
    """The places of all pages of a checkpoint's memory, listed or not."""
    # A new image has other places for pages that nobody has written, but their origin is the same.
    origin = node.line
    names = [*(file.name for file in node.pages), origin]
    rest = PageRun(0, pages, ZEROS if origin == BLANK else len(node.pages), 0)
    return [
        _Place(run.end, "", 0)
        if run.file == ZEROS
        else _Place(run.end, names[run.file], run.at - run.first)
        for run in overlay_runs(index.runs, [rest])
    ]


def _compare(mine: Sequence[_Place], theirs: Sequence[_Place]) -> Runs:
    """The pages whose places differ; both lists are of the same pages, all of them."""
    found: Runs = []
    others = iter(theirs)
    at, other = 0, next(others)
    for place in mine:
        while at < place.end:
            if other.end <= at:
                other = next(others)
            end = min(place.end, other.end)
            if (place.file, place.shift) != (other.file, other.shift):
                found.append((at, end - at))
            at = end
    return join_runs(found)
