"""Copying the guest memory that a checkpoint needs, as little as possible of it in the pause.

The way depends on how the kernel tracks written pages (tracking.py). Where it does, only pages
written since the last checkpoint are copied. As long as there are many of them, they are copied in
rounds while the guest runs, each round those written during the round before; the rest is copied to
memory in the pause, and to the file after it. The rounds go to the file if the guest runs on. If
its memory is overwritten at once, they go to the memory of a file (page_buffer.py), where they
survive the death of any process. For a guest that stays paused, nothing needs to be copied in the
pause. Where nothing is tracked, all anonymous pages are copied to memory in the pause.

Tracking is useful only if its beginning is known. A file beside QEMU's sockets, the mark
(`MachineDir.tracked`), names the level, and the checkpoint in whose pause the tracking began anew
or from which a revert goes on (`track_from`). The mark is removed before that and written when that
checkpoint is committed; without it the next checkpoint copies all anonymous pages.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

from quicksand.base.capacity import available_memory
from quicksand.base.error_text import size_text
from quicksand.base.errors import MachineError
from quicksand.base.files import write_word
from quicksand.base.regular import read_word
from quicksand.base.threads import in_stoppable_thread, in_thread_to_the_end
from quicksand.snapshots.guest_ram import PAGE, GuestRam, Runs, count_pages, unite_runs
from quicksand.snapshots.page_buffer import PageBuffer
from quicksand.snapshots.pages import PageRun
from quicksand.snapshots.storing import Storage
from quicksand.snapshots.tracking import ANONYMOUS, Level, start_tracking

SLACK = 2 * 1024 * 1024
"""Bytes of prefaulted memory for the guest's writes between the last count and the pause, some two
milliseconds. If it writes more, the pause is some milliseconds longer."""

ROUNDS = 6
"""Rounds of copying before the pause, at most: a guest may write as fast as pages are copied."""

ROUND_MIN = 4 * 1024 * 1024
"""Bytes above which a round before the pause is worthwhile: fewer are copied in two milliseconds.
"""

HELD_MAX = 640 * 1024 * 1024
"""The most bytes that are held in memory for a guest that will be overwritten; never more than a
quarter of the host's available memory."""

HELD_ROUND_MIN = 320 * 1024 * 1024
"""Bytes above which a round to memory is worthwhile before such a guest is paused. Pages copied in
a round are protected again, and overwriting a protected page takes as much time as copying it in
the pause."""

NOT_YET = "nothing tracked what was written since the last checkpoint"


class Fate(enum.Enum):
    """The guest's fate after the pause in which it is captured."""

    RUNS_ON = "runs on"
    """The guest runs again at once: what counts is that the pause is short."""
    STAYS_PAUSED = "stays paused"
    """The guest runs no further, and its memory stays until the checkpoint is on disk."""
    OVERWRITTEN = "overwritten"
    """The guest's memory is overwritten right after the beginning of the pause, so everything is
    copied by then: the duration of the whole call counts."""


class Taken(NamedTuple):
    """The pages of a paused guest that may differ from those on disk."""

    since: str | None
    """The checkpoint with which all other pages agree; None for the image that QEMU maps."""
    runs: Runs


class Copier:
    """Copies the pages for one checkpoint to its storage.

    Call `prepare`, `copy_before` and `reserve` while the VM runs, `copy_rest` while it is paused,
    `store` after that, and `commit` when the checkpoint is on disk; `close` after a failure. Raises
    MachineError, HostError.
    """

    def __init__(
        self, ram: GuestRam, mark: Path, run: str, storage: Storage, *, fate: Fate, held_at: Path
    ) -> None:
        """``held_at``: the file for the pages of a guest that will be overwritten."""
        self._held_at = held_at
        self._ram = ram
        self._mark = mark
        self._run = run
        self._storage = storage
        self._fate = fate
        self._level = Level(name=ANONYMOUS)
        self._since: str | None = None
        self._exact = False
        """Whether the tracker lists every page that is still to be copied."""
        self._rest = 0
        """Bytes that were still to be copied at the last count."""
        self._held: PageBuffer | None = None
        """The pages that were copied to memory."""
        self._left: Runs = []
        """The pages to be copied from the paused VM."""
        self._taken: Runs = []
        self._is_paused = False

    @property
    def note(self) -> str:
        """The pages that are copied, and the reason why not fewer, in words for people."""
        if self._since is not None:
            return f"the pages written since the last checkpoint were copied ({self._level.name})"
        why = self._level.why if self._level.tracker is None else NOT_YET
        return f"all pages written since the start were copied: {why}"

    def prepare(self) -> int:
        """Choose the level; returns the bytes to copy."""
        known = self._storage.open()
        self._level = start_tracking(self._ram)
        self._storage.is_compared_later = self._level.tracker is None
        tracked = self._level.tracker is not None and known is not None
        if tracked and known and is_tracked_since(self._mark, self._run, known, self._level):
            self._since = known
            self._exact = True
            self._storage.expect_new_pages()
        self._count()
        if self._fate is Fate.OVERWRITTEN:
            # The guest may write as much again meanwhile.
            wanted = 2 * self._rest + HELD_ROUND_MIN
            most = min(wanted, HELD_MAX, available_memory() // 4)
            if self._rest > most:
                raise _too_much(most)
            self._held = PageBuffer(most // PAGE, self._held_at)
        return self._rest

    def _count(self) -> Runs:
        """Count the bytes that are still to be copied; returns their pages."""
        tracker = self._level.tracker if self._exact else None
        runs = self._ram.written() if tracker is None else tracker.look()
        self._rest = count_pages(runs) * PAGE
        return runs

    async def copy_before(self, pause: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        """Copy most pages while the VM runs, if the kernel tracks writes. ``pause`` pauses the VM
        for a moment. Raises CancelledError within a step."""
        rounds = ROUNDS if self._level.tracker is not None and not self._lets_vm_wait else 0
        least = ROUND_MIN
        if self._held is not None:
            least = min(HELD_ROUND_MIN, self._kept_back * PAGE)
            # Already here, while other parts are being prepared.
            wanted = (self._rest + SLACK) // PAGE
            await in_thread_to_the_end(lambda: self._prefault(wanted))
        while rounds and self._rest > least:
            if self._exact and self._level.needs_stop:
                async with pause():
                    runs = await asyncio.to_thread(self._take)
            else:
                runs = await asyncio.to_thread(self._take)
            before = self._rest
            await in_stoppable_thread(functools.partial(self._copy_round, runs))
            rounds = rounds - 1 if self._rest < before // 2 else 0

    @property
    def _lets_vm_wait(self) -> bool:
        """Whether pages are copied from the paused VM after everything else. If the VM runs
        nevertheless, which only a tracker notices, the checkpoint is useless."""
        return self._fate is Fate.STAYS_PAUSED and self._level.tracker is not None

    @property
    def _kept_back(self) -> int:
        """Pages of the memory that no round may take, reserved for those copied in the pause."""
        assert self._held is not None
        return min(HELD_ROUND_MIN // PAGE, self._held.capacity // 2)

    def _take(self) -> Runs:
        """The pages to copy now; from here on the tracker lists later writes."""
        runs = self._list()
        self._taken = unite_runs(self._taken, runs)
        return runs

    def _list(self) -> Runs:
        tracker = self._level.tracker
        if tracker is None:
            return self._ram.written()
        self._mark.unlink(missing_ok=True)
        if self._exact:
            return tracker.take() if self._is_tracked_on else tracker.look()
        # Cleared first: a page written in between is then both copied now and listed later.
        tracker.clear()
        self._exact = True
        return self._ram.written()

    @property
    def _is_tracked_on(self) -> bool:
        """Whether the kernel must track later writes. It need not if the guest is paused and will
        be overwritten, which is faster without tracking."""
        return not (self._is_paused and self._fate is Fate.OVERWRITTEN)

    @property
    def taken(self) -> Taken:
        """All pages that were copied, or will be copied from the paused VM."""
        return Taken(self._since, self._taken)

    def _copy_round(self, runs: Runs, check: Callable[[], None]) -> None:
        check()
        if self._held is None:
            self._storage.add(runs, self._ram, check)
        elif self._held.copy(runs, self._ram, leave=self._kept_back):
            raise _too_much(self._held.capacity * PAGE)
        self._count()

    def _prefault(self, pages: int) -> None:
        assert self._held is not None
        self._held.prefault(pages)

    def reserve(self) -> None:
        """Allocate memory for the pages that are copied in the pause."""
        if self._lets_vm_wait:
            return
        runs = self._count()
        if self._held is None:
            self._held = PageBuffer((self._rest + SLACK) // PAGE)
        self._prefault(count_pages(self._held.missing(runs)) + SLACK // PAGE)

    def copy_rest(self) -> None:
        """Copy the remaining pages. The VM must be paused."""
        self._is_paused = True
        runs = self._take()
        if self._lets_vm_wait:
            self._left = runs
            return
        assert self._held is not None, "reserve comes first"
        surplus = self._held.copy(runs, self._ram)
        if surplus and self._fate is Fate.OVERWRITTEN:
            raise _too_much(self._held.capacity * PAGE)
        # More memory for them could be more than the host has.
        self._storage.add(surplus, self._ram, is_paused=True)

    @property
    def held(self) -> Sequence[PageRun]:
        """The places in the file of the pages of a guest that will be overwritten."""
        assert self._held is not None
        return self._held.places

    def store(self) -> None:
        """Write the pages copied to memory. Raises MachineError if the VM was to stay paused and
        did not."""
        if self._held is not None:
            # After all pages in the file: held pages were copied later, or are only here.
            self._storage.add(self._held.runs, self._held)
            self.close()
            return
        self._storage.add(self._left, self._ram)
        assert self._level.tracker is not None
        if self._level.tracker.look():
            raise MachineError(
                "the guest was resumed while its memory was copied", hint="try it again"
            )

    def close(self) -> None:
        """Free the memory. Idempotent."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def commit(self, node: str) -> None:
        """Write the mark: the checkpoint ``node`` is on disk, and writes since its pause are
        tracked."""
        if self._level.tracker is not None:
            _write_mark(self._mark, self._run, node, self._level)


def _too_much(most: int) -> MachineError:
    return MachineError(f"more than {size_text(most)} were written since the last checkpoint")


def track_from(node: str, ram: GuestRam, mark: Path, run: str) -> None:
    """Have the kernel track, if possible, the writes of a machine whose memory is exactly that of
    the checkpoint ``node`` at this moment. The VM must not run. Raises MachineError."""
    level = start_tracking(ram)
    if level.tracker is not None:
        level.tracker.clear()
        _write_mark(mark, run, node, level)


def is_tracked_since(mark: Path, run: str, node: str, level: Level) -> bool:
    """Whether the kernel has tracked QEMU's writes in this run since the checkpoint ``node``."""
    try:
        return level.tracker is not None and read_word(mark).split(" ") == [run, node, level.name]
    except (OSError, ValueError):
        return False


def _write_mark(mark: Path, run: str, node: str, level: Level) -> None:
    # A missing mark costs only time.
    with contextlib.suppress(OSError):
        write_word(mark, f"{run} {node} {level.name}")
