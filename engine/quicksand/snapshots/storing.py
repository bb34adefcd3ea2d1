"""Writing the guest's pages to disk while they are copied, through a small buffer.

Pages of the last checkpoint are only referred to. New ones are appended to a file of their own. If
many pages already differ from the memory image, all of the memory is written to a new image, and
pages that the guest writes meanwhile are appended to a file of pages over it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quicksand.base.capacity import check_space
from quicksand.base.errors import DiskSpaceError, HistoryError
from quicksand.base.files import map_os_errors
from quicksand.base.regular import read_file
from quicksand.records.layout import SandboxDir
from quicksand.records.nodes import BLANK, File, Head, Node
from quicksand.snapshots.differences import address_of, sort_pages
from quicksand.snapshots.guest_ram import PAGE, Runs, count_pages, in_order, join_runs, split_runs
from quicksand.snapshots.history import History
from quicksand.snapshots.image import (
    Content,
    PageSource,
    Plan,
    can_pay,
    count_bytes,
    identify_image,
    image_extents,
    not_of_image,
    own_pages,
    write_image,
)
from quicksand.snapshots.pages import (
    ZEROS,
    MappedFile,
    PageIndex,
    PageRun,
    RunMap,
    merge_runs,
    overlay_runs,
    verify,
    write_file,
)
from quicksand.snapshots.stepwise import PagesFile
from quicksand.snapshots.verified import Verified

SAMPLE = 1024
"""Pages in the sample by which the share of new pages is estimated."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint's memory on disk."""

    runs: tuple[PageRun, ...]
    files: tuple[File, ...]
    memory: str
    image: File | None
    origin: str
    """See `Node.origin`."""
    written: int
    """Bytes that were written for it."""
    stored: int
    """The new value of `Head.stored`."""

    def describe(self, directory: Path, size: int, firmware: File | None) -> dict[str, Any]:
        """Write the index of a guest's memory of ``size`` bytes to the checkpoint's directory, and
        the devices' state there once more, synced; returns the fields of `Node` that describe them.
        Raises HistoryError, HostError."""
        devices = _seal_devices(directory / "devices")
        index = write_file(directory / "pages.index", iter([PageIndex(size, self.runs).encode()]))
        return {
            "bytes_written": self.written + index.size + devices.size,
            "memory": self.memory,
            "pages": self.files,
            "index": index,
            "devices": devices,
            "firmware": firmware,
            "image": self.image,
            "origin": self.origin,
        }


@dataclass(frozen=True, slots=True)
class KnownPages:
    """The part of the captured run's memory that is on disk already.

    Pages that are not in ``runs`` are as in the image ``memory``. They are also as in the image
    that QEMU itself maps, and as in the line's first image (`Node.origin`), even if these are
    different images, because:

    - the run's first checkpoint, or one whose predecessor is lost, names the image that QEMU maps
      and lists all pages that are not as there: those that were ever written (anonymous ones). So
      nothing may give such a page back (no balloon, no free page reporting, no MADV_DONTNEED);
    - a run that continues from a checkpoint takes over its list. A new QEMU maps that one's image;
      in one that has run before, pages that were written stay anonymous, whatever they hold now;
    - a page that was ever listed in a run stays listed;
    - a new image is made of the one before it and of the listed pages, so a page that is not listed
      at that time is the same in both, and a page that is not listed later was not listed then.
    """

    runs: list[PageRun]
    files: list[File]
    memory: str
    image: File | None
    origin: str
    """See `Node.origin`."""

    def number_of_image(self) -> int:
        """The image's number among the files, or an unused number if no page refers to it."""
        names = [file.name for file in self.files]
        return names.index(self.memory) if self.memory in names else len(names)


class Storage:
    """Writes the pages of one checkpoint to disk, while they are copied from the guest.

    Call `open`, then `add` for each part of them, then `finish`; `close` in any case. Raises
    HistoryError, HostError, MachineError; the files may or may not be there then.
    """

    def __init__(self, history: History, id_: str, head: Head, *, run: str, size: int) -> None:
        """``run``: the captured run of QEMU; ``head``: the head at that time; ``size``: the guest's
        memory in bytes."""
        self._history = history
        self._place = history.place
        self._pages_path, self._image_path = memory_files(history.place, id_)
        self._head = head
        self._verified = Verified.of_user()
        self._run = run
        self._size = size
        self._stack = ExitStack()
        self._known = KnownPages([], [], head.memory, None, head.memory)
        self._data: list[memoryview] = []
        """The contents of the known files."""
        self._addresses: list[int] = []
        self._below = RunMap([])
        """The places of the pages with which those of the guest are compared."""
        self._here: list[PageRun] = []
        """The places of the added pages; new ones are in the file after the known ones."""
        self._pages: PagesFile | None = None
        self._image: File | None = None
        self._imaged: list[PageRun] = []
        """The pages that are listed and in the new image."""
        self._chosen = False
        self.is_compared_later = False
        """Whether the next checkpoints read this one's pages, to compare them."""

    def open(self) -> str | None:
        """Open the part of this run's memory that is on disk. Returns the id of the checkpoint that
        has it, if its files are undamaged; else all pages count as new."""
        try:
            self.open_known()
        except HistoryError:
            self._data = []
            name = self._head.memory
            self._known = KnownPages([], [], name, self._find_image(name), name)
            return None
        return self._head.node

    def open_known(self) -> None:
        """Open the files of the checkpoint that has the part of this run's memory that is on disk.
        Raises HistoryError if there is none, or if one of them is damaged."""
        self._known = self._map_known()
        self._addresses = [address_of(data) for data in self._data]
        self._below = RunMap(self._known.runs)

    def expect_new_pages(self) -> None:
        """Note that all pages to be added were written since the known checkpoint. They are not
        compared with its pages: reading those would take longer than writing the few that are the
        same again."""
        self._below = RunMap([])

    def _map_known(self) -> KnownPages:
        head = self._head
        if head.node is None or head.run != self._run:
            raise HistoryError("no checkpoint has pages of this run")
        node = self._history.get(head.node)
        index = load_index(self._place, node)
        for file in node.pages:
            path = self._place.memory / file.name
            mapped = self._stack.enter_context(MappedFile(path, file, self._verified))
            self._data.append(mapped.data)
        image = node.image or self._find_image(node.memory)
        return KnownPages(list(index.runs), list(node.pages), node.memory, image, node.line)

    def _find_image(self, name: str) -> File | None:
        """The checksums of the image of that name: from a checkpoint's record, else computed."""
        path = find_image(self._place, name)
        if path is None:
            return None
        for node in self._history.all_nodes():
            if node.image is not None and node.image.name == name:
                return node.image
        return identify_image(path)

    def add(
        self,
        runs: Runs,
        source: PageSource,
        check: Callable[[], None] = lambda: None,
        *,
        is_paused: bool = False,
    ) -> None:
        """Copy the guest's pages ``runs`` from ``source``; they supersede pages added before.
        ``check`` is called now and then, and may raise. While the VM ``is_paused`` no image is
        written."""
        if not runs:
            return
        if not self._chosen and not is_paused:
            self._chosen = True
            content = self._plan_image(runs, source)
            if content is not None:
                self._add_as_image(content, check)
                return
        pages = self._open_pages()
        found: list[PageRun] = []
        for part in split_runs(runs, lambda: pages.room):
            check()
            with pages.free() as data:
                here, new = self._sort(part, source, data[: count_pages(part) * PAGE])
            pages.keep([(run.at, run.count) for run in new])
            found += here
        self._here = overlay_runs(found, self._here)

    def _open_pages(self) -> PagesFile:
        if self._pages is None:
            self._pages = PagesFile(self._pages_path, cached=self.is_compared_later)
            self._stack.callback(self._pages.close)
        return self._pages

    def _sort(
        self, part: Runs, source: PageSource, data: memoryview
    ) -> tuple[list[PageRun], list[PageRun]]:
        """Copy pages from the guest to ``data``, and find each one's present or future place on
        disk. Returns these places, and the new pages with their places in ``data``."""
        source.read(part, data)
        placed = [
            PageRun(first, count, 0, at)
            for (first, count), at in zip(part, in_order(part), strict=True)
        ]
        known = list(self._below.within(part[0][0], sum(part[-1])))
        stored = self._pages.pages if self._pages is not None else 0
        new_file = len(self._known.files)
        return sort_pages(placed, [address_of(data)], known, self._addresses, new_file, stored)

    def _plan_image(self, runs: Runs, source: PageSource) -> Content | None:
        """The sources of a new image, if one pays. The number of new pages is estimated from a
        sample."""
        known, total = self._known, count_pages(runs) * PAGE
        number = known.number_of_image()
        over = total + count_bytes(not_of_image(known.runs, number))
        if not can_pay(over=over, stored=self._head.stored + total):
            return None
        base = find_image(self._place, known.memory)
        zeros = [PageRun(first, count, ZEROS, 0) for first, count in runs]
        rest = overlay_runs(zeros, known.runs)
        plan = Plan.make(rest, number, image_extents(base) if base is not None else [])
        sample = _spread(runs, SAMPLE)
        scratch = memoryview(bytearray(count_pages(sample) * PAGE))
        here, new = self._sort(sample, source, scratch)
        share = total / count_pages(sample)

        def estimate(found: Iterable[PageRun]) -> int:
            return int(share * sum(run.count for run in found))

        data = [run for run in here if run.file != ZEROS]
        old = [run for run in data if run.file < len(known.files)]
        over = estimate([*new, *not_of_image(old, number)])
        stored = self._head.stored + estimate(new)
        if not plan.pays(over=over, data=estimate(data), stored=stored):
            return None
        try:
            check_space(self._place.memory, plan.size + estimate(data))
        except DiskSpaceError:
            return None
        below = None
        if base is not None and known.image is not None:
            verify(base, known.image, self._verified)
            below = (base, known.image)
        return Content(
            plan=plan,
            files=self._data,
            guest=runs,
            source=source,
            base=below,
            is_read_soon=self.is_compared_later,
        )

    def _add_as_image(self, content: Content, check: Callable[[], None]) -> None:
        self._image = write_image(self._image_path, self._size, content, self._verified, check)
        zeros = [PageRun(first, count, ZEROS, 0) for first, count in content.guest]
        self._imaged = overlay_runs(zeros, self._known.runs)
        # Pages added later lie over the image and over everything that was on disk before.
        self._below = RunMap([])

    def finish(self) -> Stored:
        """Sync the files, and return the place of every page."""
        new = self._finish_pages()
        appended = new.size if new is not None else 0
        known, number = self._known, len(self._known.files)
        if self._image is None:
            every = overlay_runs(self._here, known.runs)
            files = [*known.files, *([new] if new is not None else [])]
            memory, image = known.memory, known.image
            written, stored = appended, self._head.stored + appended
        else:
            over = [
                replace(run, file=1) if run.file == number else run
                for run in self._here
                if run.file in (number, ZEROS)
            ]
            # The other added pages are as they were on disk, and so in the image.
            listed = overlay_runs(self._here, self._imaged)
            own = own_pages(join_runs((run.first, run.count) for run in listed), 0)
            every = overlay_runs(over, own)
            files = [self._image, *([new] if new is not None else [])]
            memory, image = self._image.name, self._image
            written = self._image_path.stat().st_blocks * 512 + appended
            stored = appended
        runs, used = _forget_unused(every, files)
        if new is not None and new not in used:
            self._pages_path.unlink()
        return Stored(tuple(runs), tuple(used), memory, image, known.origin, written, stored)

    def _finish_pages(self) -> File | None:
        """Sync the file of new pages; remove it if it has none."""
        if self._pages is None or self._pages.pages:
            return self._pages.finish(self._verified) if self._pages is not None else None
        self._pages.close()
        self._pages_path.unlink()
        return None

    def close(self) -> None:
        """Close all files. Idempotent."""
        self._data, self._below = [], RunMap([])
        self._stack.close()


def _spread(runs: Runs, most: int) -> Runs:
    """Return ``runs`` or, if they have more than ``most`` pages, so many pages spread over them."""
    total = count_pages(runs)
    if total <= most:
        return runs
    wanted = iter(range(0, total * most, total))
    found: Runs = []
    before, at = 0, next(wanted) // most
    for first, count in runs:
        while before <= at < before + count:
            found.append((first + at - before, 1))
            at = next(wanted, total * most) // most
        before += count
    return join_runs(found)


def _seal_devices(path: Path) -> File:
    """Write the devices' state again, synced and with checksums, without a moment without it."""
    sealed = path.with_name("devices.sealed")
    with map_os_errors(path):
        sealed.unlink(missing_ok=True)
        found = write_file(sealed, iter([read_file(path)]))
        sealed.replace(path)
    return replace(found, name=path.name)


def memory_files(place: SandboxDir, id_: str) -> tuple[Path, Path]:
    """The files that storing a checkpoint may create, apart from held pages: pages, image."""
    return place.memory / f"{id_}.pages", place.memory / f"{id_}.ram"


def find_image(place: SandboxDir, name: str) -> Path | None:
    """The path of the memory image of that name; None for BLANK."""
    return None if name == BLANK else place.memory / name


def load_index(place: SandboxDir, node: Node) -> PageIndex:
    """Read the index of a checkpoint's pages. Raises HistoryError if it is missing or damaged."""
    if node.index is None:
        raise HistoryError(f"the checkpoint {node.tag!r} has no pages")
    path = place.checkpoints / node.id / "pages.index"
    with MappedFile(path, node.index) as mapped:
        try:
            return PageIndex.decode(bytes(mapped.data), files=[f.size // PAGE for f in node.pages])
        except ValueError as error:
            raise HistoryError(f"{path} is damaged: {error}") from error


def _forget_unused(runs: list[PageRun], files: list[File]) -> tuple[list[PageRun], list[File]]:
    """Drop files of which no page is used any more, and renumber the others."""
    used = sorted({run.file for run in runs if run.file < len(files)})
    if len(used) < len(files):
        number = {old: new for new, old in enumerate(used)} | {ZEROS: ZEROS}
        runs = [PageRun(run.first, run.count, number[run.file], run.at) for run in runs]
    return merge_runs(runs), [files[old] for old in used]
