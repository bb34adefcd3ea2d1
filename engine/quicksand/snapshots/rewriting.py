"""Writing the memory of a checkpoint over that of a guest, but only what differs."""

from __future__ import annotations

import os

from quicksand.base.errors import MachineError
from quicksand.base.hypervisor import GENERATION_AT
from quicksand.records.layout import MachineDir
from quicksand.records.nodes import Head, Node
from quicksand.snapshots import comparing
from quicksand.snapshots.differences import Comparer, address_of
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
from quicksand.snapshots.history import History
from quicksand.snapshots.memory_copying import Taken, is_tracked_since, track_from
from quicksand.snapshots.page_set import PageSet
from quicksand.snapshots.storing import load_index
from quicksand.snapshots.tracking import start_tracking
from quicksand.snapshots.verified import Verified

GENERATION = slice(GENERATION_AT, GENERATION_AT + 16)
"""The bytes of the generation in its page."""

LOOK = 256
"""Pages that one step compares with one buffer: threads would keep larger ones."""


class Rewriting:
    """The memory of one guest, which is to become that of the checkpoint ``node``; its QEMU maps
    the image below the checkpoint's pages. Call `find` while the guest is paused, and `write` with
    the result; then `watch` and `finish`; `close` in any case. Blocks for I/O. Raises HistoryError
    naming a damaged file, MachineError."""

    def __init__(
        self, history: History, node: Node, ram: GuestRam, head: Head, machine: MachineDir, run: str
    ) -> None:
        """``head``: the sandbox's head now; ``run``: the present run of the QEMU in ``machine``."""
        self._node = node
        self._ram = ram
        self._seen = bytearray(LOOK * PAGE)
        self._pages = PageSet(history.place, node, Verified.of_user())
        try:
            level = start_tracking(ram)
            self._tracker = level.tracker
            self._since: str | None = None
            listed = self._pages.listed()
            self._differs: dict[str | None, Runs] = {None: listed}
            if (before := node_of_run(history, head, run)) is not None:
                # The pages in its list are not as in the common image of both lines.
                theirs = join_runs(
                    (r.first, r.count) for r in load_index(history.place, before).runs
                )
                self._differs = {
                    None: unite_runs(listed, theirs),
                    before.id: self._pages.differing(before),
                }
                if is_tracked_since(machine.tracked, run, before.id, level):
                    self._since = before.id
            self.expected = self.find(None)
            """The pages that would have to be written at this moment."""
            self._pages.fetch(self.expected)
        except BaseException:
            self._pages.close()
            raise

    @property
    def size(self) -> int:
        """Bytes of the memory."""
        return self._pages.size

    def find(self, captured: Taken | None) -> Runs:
        """The pages that may differ from the checkpoint's. ``captured`` are those that a capture
        has listed before: the kernel does not list them again."""
        taken = captured or Taken(self._since, [])
        if self._tracker is None or (captured is None and self._since is None):
            written = self._ram.written()
        else:
            written = self._tracker.look()
        return unite_runs(taken.runs, written, self._differs[taken.since])

    def zeros_of(self, runs: Runs) -> Runs:
        """Return the pages of ``runs`` that will hold only zeros."""
        return self._pages.zeros_of(runs)

    def write(self, runs: Runs, filler: int | None) -> None:
        """Write these pages. With ``filler``, each must be full of that byte. Otherwise
        MachineError is raised: the guest has something else at its address, and QEMU may still have
        translations of it. With a filler of 0, for the pages of `zeros_of`, nothing is written."""
        if filler is not None:
            self._require_filled(runs, filler)
        if filler != 0:
            self._pages.write(self._ram, runs)

    def _require_filled(self, runs: Runs, filler: int) -> None:
        compare, filled = Comparer(), memoryview(bytearray([filler]) * (LOOK * PAGE))
        for part in split_runs(runs, lambda: LOOK):
            count = count_pages(part)
            with memoryview(self._seen)[: count * PAGE] as data:
                self._ram.read(part, data)
                if not compare.equal(address_of(data), address_of(filled), count):
                    raise MachineError("the guest has put something else over its memory")

    def watch(self, written: Runs) -> None:
        """Let only later writes count for `finish`. Pages that were written in addition to
        ``written``, the intended ones, are written once more."""
        if self._tracker is not None:
            self._pages.write(self._ram, without_runs(self._tracker.take(), written))
            self._tracker.clear()

    def finish(self, machine: MachineDir, run: str, generation: bytes | None) -> None:
        """Write once more the pages that QEMU has written meanwhile. From now on the kernel tracks
        the writes of the ``run`` in ``machine``.

        QEMU has written ``generation`` (`Hypervisor.generation`), of which it also tells the guest.
        The guest must find a generation that it has never seen: then it renews its random generator
        before any program runs."""
        written = self._ram.written() if self._tracker is None else self._tracker.look()
        page = None if generation is None else self._find_generation(written, generation)
        self._pages.write(self._ram, written)
        if comparing.is_on():
            self._pages.require_same(self._ram)
        track_from(self._node.id, self._ram, machine.tracked, run)
        if page is not None:
            with memoryview(self._seen)[:PAGE] as data:
                self._ram.read([(page, 1)], data)
                data[GENERATION] = os.urandom(16)
                self._ram.write([(page, 1)], data)

    def _find_generation(self, written: Runs, generation: bytes) -> int | None:
        """The one of these pages that has the generation."""
        for part in split_runs(written, lambda: LOOK):
            pages = [page for first, count in part for page in range(first, first + count)]
            with memoryview(self._seen)[: len(pages) * PAGE] as data:
                self._ram.read(part, data)
                for page, at in zip(pages, range(0, len(data), PAGE), strict=True):
                    if data[at : at + PAGE][GENERATION] == generation:
                        return page
        return None

    def close(self) -> None:
        """Close the files. Idempotent."""
        self._pages.close()


def node_of_run(history: History, head: Head, run: str) -> Node | None:
    """The checkpoint from which the memory of a QEMU's ``run`` descends; None if none is known."""
    return history.get(head.node) if head.node is not None and head.run == run else None


def why_not(history: History, head: Head, run: str, node: Node) -> str:
    """The reason why the memory of a QEMU's ``run`` cannot become that of ``node``; "" if it can.
    Raises HistoryError."""
    before = node_of_run(history, head, run)
    if head.memory == node.memory or (before is not None and before.line == node.line):
        return ""
    return "QEMU maps another memory image than the checkpoint's"
