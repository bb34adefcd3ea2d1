"""Writing the pages that were copied in a pause to disk, while the VM runs again.

Pages that the last checkpoint has are only referred to. New ones are written to a file of their
own or, if many pages differ from the memory image already, all of the memory to a new image.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from quicksand.errors import DiskSpaceError, HistoryError
from quicksand.host.space import check_space
from quicksand.layout import SandboxDir
from quicksand.snapshots.copying import Copy
from quicksand.snapshots.differences import address_of, sort_pages
from quicksand.snapshots.guest_ram import PAGE, count_pages
from quicksand.snapshots.history import History
from quicksand.snapshots.image import Plan, identify_image, image_extents, own_pages, write_image
from quicksand.snapshots.pages import (
    MappedFile,
    PageIndex,
    Run,
    merge_runs,
    overlay_runs,
    verify,
    write_file,
)
from quicksand.snapshots.records import BLANK, File, Head, Node
from quicksand.snapshots.verified import Verified


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint's memory on disk."""

    runs: tuple[Run, ...]
    files: tuple[File, ...]
    memory: str
    image: File | None
    written: int
    """Bytes that were written for it."""
    stored: int
    """The new value of `Head.stored`."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is on disk already of the memory of the run that is captured.

    Pages that are not in ``runs`` are as in the image ``memory``. They are also as in the image
    that the run itself maps, whether or not that is the same one, because:

    - the run's first checkpoint, or one whose predecessor is lost, names the image that the run
      maps and lists all pages that the run has written (anonymous ones);
    - a run that continues from a checkpoint maps that one's image and takes over its list;
    - lists only grow: a page that was ever listed in a run stays listed;
    - a new image is made of the one before it and of the listed pages, so a page that is not listed
      at that time is the same in both, and a page that is not listed later was not listed then.
    """

    runs: list[Run]
    files: list[File]
    memory: str
    image: File | None

    def number_of_image(self) -> int:
        """The image's number among the files, or an unused number if no page refers to it."""
        names = [file.name for file in self.files]
        return names.index(self.memory) if self.memory in names else len(names)


class Storage:
    """Writes the pages of one checkpoint to disk."""

    def __init__(self, history: History, id_: str, head: Head, *, run: str, size: int) -> None:
        """``run``: the run of QEMU that is captured; ``head``: the head at that time; ``size``: the
        guest's memory in bytes."""
        self._history = history
        self._place = history.place
        self._pages, self._image = memory_files(history.place, id_)
        self._head = head
        self._verified = Verified.of_user()
        self._run = run
        self._size = size

    def find_known(self) -> str | None:
        """The id of the checkpoint that has pages of this run, if its files are undamaged."""
        with ExitStack() as stack, contextlib.suppress(HistoryError):
            self._map_known(stack)
            return self._head.node
        return None

    def store(self, copy: Copy) -> Stored:
        """Write the copied pages. Raises HostError, HistoryError; the files may or may not be there
        then."""
        with ExitStack() as stack:
            known, data = self._find_known(stack, copy.since)
            pieces = [address_of(piece) for piece in copy.pieces]
            here, new = sort_pages(
                copy.runs, pieces, known.runs, [address_of(d) for d in data], len(data)
            )
            every = overlay_runs(here, known.runs)
            written = count_pages((run.first, run.count) for run in new) * PAGE
            stored = self._head.stored + written
            # Where the pages are at this moment: the new ones are still in the copy's pieces.
            moved = [replace(run, file=run.file + len(data)) for run in new]
            sources = [*data, *copy.pieces]
            now = overlay_runs(moved, every)
            image = self._store_image(known, now, sources, stored)
            if image is not None:
                runs = own_pages([(run.first, run.count) for run in every], 0)
                runs, files = _forget_unused(runs, [image])
                size = self._image.stat().st_blocks * 512
                return Stored(tuple(runs), tuple(files), image.name, image, size, 0)
        new_files = [self._store_pages(new, copy)] if new else []
        every, files = _forget_unused(every, [*known.files, *new_files])
        return Stored(tuple(every), tuple(files), known.memory, known.image, written, stored)

    def _find_known(self, stack: ExitStack, since: str | None) -> tuple[Known, list[memoryview]]:
        """What the last checkpoint has of this run's memory, and the contents of its files, which
        ``stack`` unmaps. If that checkpoint was removed or is damaged, all copied pages count as
        new; but if only pages written ``since`` it were copied, HistoryError is raised."""
        try:
            return self._map_known(stack)
        except HistoryError:
            if since is not None:
                raise
            head = self._head
            return Known([], [], head.memory, self._find_image(head.memory)), []

    def _map_known(self, stack: ExitStack) -> tuple[Known, list[memoryview]]:
        head = self._head
        if head.node is None or head.run != self._run:
            raise HistoryError("no checkpoint has pages of this run")
        node = self._history.get(head.node)
        index = load_index(self._place, node)
        data = [stack.enter_context(self._map(file)).data for file in node.pages]
        image = node.image or self._find_image(node.memory)
        return Known(list(index.runs), list(node.pages), node.memory, image), data

    def _map(self, file: File) -> MappedFile:
        return MappedFile(self._place.memory / file.name, file, self._verified)

    def _find_image(self, name: str) -> File | None:
        """The checksums of the image of that name: a checkpoint's record of them, else computed."""
        path = find_image(self._place, name)
        if path is None:
            return None
        for node in self._history.all_nodes():
            if node.image is not None and node.image.name == name:
                return node.image
        return identify_image(path)

    def _store_image(
        self, known: Known, now: list[Run], sources: list[memoryview], stored: int
    ) -> File | None:
        """Write all of the memory, ``now`` over the present image, to a new image if that pays;
        else return None."""
        base = find_image(self._place, known.memory)
        # Its number must be unused: the copy's pieces are numbered after the files.
        number = known.number_of_image()
        if number >= len(known.files):
            number = len(sources)
        plan = Plan.make(now, number, image_extents(base) if base is not None else [])
        if not plan.pays(stored):
            return None
        try:
            check_space(self._place.memory, plan.size)
        except DiskSpaceError:
            return None
        below = None
        if base is not None and known.image is not None:
            verify(base, known.image, self._verified)
            below = (base, known.image)
        return write_image(self._image, self._size, plan, sources, below, self._verified)

    def _store_pages(self, new: list[Run], copy: Copy) -> File:
        def pieces() -> Iterator[memoryview]:
            for run in new:
                yield copy.pieces[run.file][run.at * PAGE : (run.at + run.count) * PAGE]

        return write_file(self._pages, pieces(), self._verified)


def memory_files(place: SandboxDir, id_: str) -> tuple[Path, Path]:
    """The files that storing a checkpoint may create: pages, image."""
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


def _forget_unused(runs: list[Run], files: list[File]) -> tuple[list[Run], list[File]]:
    """Drop files of which no page is used any more, and renumber the others."""
    used = sorted({run.file for run in runs if run.file < len(files)})
    number = {old: new for new, old in enumerate(used)}
    renumbered = [
        replace(run, file=number[run.file]) if run.file in number else run for run in runs
    ]
    return merge_runs(renumbered), [files[old] for old in used]
