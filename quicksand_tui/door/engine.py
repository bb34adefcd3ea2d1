"""Asks guests, on the engine's loop.

`door.service` imports this module on that loop at the first call, so that the engine's import
delays neither the first paint nor a key.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from quicksand.base.errors import HistoryError, QuicksandError
from quicksand.sandbox import Sandbox
from quicksand.things.sandbox_facts import GuestTraffic
from quicksand_disks.changes import ChangeKind, FileChange, FileType
from quicksand_panes.guest_terminal import named
from quicksand_pixels.encoding import fit, read_png

from quicksand_tui.door import diff_reader
from quicksand_tui.door.engine_screen import ScreenHere
from quicksand_tui.door.far_sandbox import ScreenThere, open_there, reach_there
from quicksand_tui.door.service_protocol import ShellView
from quicksand_tui.door.terminal_place import reach_here
from quicksand_tui.door.terminals import PANE_NAME, birth_of
from quicksand_tui.door.typed import running_of
from quicksand_tui.model.diffs import by_directory
from quicksand_tui.model.jobs import CommandOutput, Failure, OperationError
from quicksand_tui.model.shown_sandboxes import (
    ChangedPlace,
    Changes,
    Glance,
    GuestView,
    ProcessView,
)
from quicksand_tui.model.text import sanitise, sanitise_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from quicksand.things.sandbox_facts import GuestTraffic
    from quicksand_pixels import Cells

    from quicksand_tui.door.engine_screen import ScreenPlace
    from quicksand_tui.door.far_host import FarHost
    from quicksand_tui.door.silence import Silences
    from quicksand_tui.door.terminal_place import Guest
    from quicksand_tui.model.diffs import DiffSpec, DiffView, Losing, TextDiff


SHELLS_WAIT_S = 2.0
"""Seconds to wait for a guest to list its terminals."""
ANSWER_S = 5.0
"""Seconds to wait for a guest to report about itself."""
SCALE_THERE = 0.25
"""The scale of a tile's picture from another machine, sent every second: enough for 320 cells of a
usual screen."""
BUSIEST = 50
"""The most processes of a guest that are shown."""
COMMAND_LIMIT = 200
USER_LIMIT = 32
"""The most characters shown of a process's command and user."""
OUTPUT_MAX = 64 * 1024
"""The most bytes kept of a command's output; the rest is read and dropped, so that the command goes
on."""
LINES_MAX = 5000
"""The most lines kept of a command's output."""
ONE_STREAM = "exec 2>&1; "
"""Merges both streams in the guest: only there is the order of the writes known."""
PATIENCE_S = 15.0
"""Seconds to wait for the guest's answer after the command's own timeout."""


class Engine:
    """Questions to guests, on the engine's loop. Every method may raise QuicksandError, OSError or
    OperationError; callers ask by `EngineService.ask`, which raises OperationError alone."""

    def __init__(self, find_there: Callable[[str], tuple[FarHost, str] | None]) -> None:
        """``find_there`` returns the machine of a sandbox, and its id there; None if it is this
        machine's."""
        self._find_there = find_there

    def reach(self, sandbox_id: str) -> AbstractAsyncContextManager[Guest]:
        """Reaches a guest of any machine, as `door.terminal_place.Reach`."""
        there = self._find_there(sandbox_id)
        return reach_here(sandbox_id) if there is None else reach_there(*there)

    def opened(self, sandbox_id: str, *, must_run: bool = False) -> Sandbox:
        """Opens a sandbox of any machine."""
        if (there := self._find_there(sandbox_id)) is not None:
            return open_there(*there)
        return Sandbox.attach(sandbox_id) if must_run else Sandbox.open(sandbox_id)

    def screen(self, sandbox_id: str) -> ScreenPlace:
        """Returns the way to the screen of a sandbox of any machine."""
        there = self._find_there(sandbox_id)
        return ScreenHere(sandbox_id) if there is None else ScreenThere(*there)

    @contextlib.contextmanager
    def _opened(self, sandbox_id: str, *, must_run: bool = False) -> Iterator[Sandbox]:
        with contextlib.closing(self.opened(sandbox_id, must_run=must_run)) as sandbox:
            yield sandbox

    # Guests

    async def shells(self, sandbox_id: str) -> tuple[ShellView, ...]:
        """Returns the terminals in a guest, newest first. Raises TimeoutError."""
        async with asyncio.timeout(SHELLS_WAIT_S), self.reach(sandbox_id) as guest:
            listed = await guest.shells()
        shells = [
            ShellView(
                session=shell.session,
                command=named(running_of(shell).command),
                created=shell.created,
                birth=birth_of(shell),
                clients=shell.attached,
                is_pane=shell.name == PANE_NAME,
            )
            for shell in listed
            if shell.alive
        ]
        return tuple(sorted(shells, key=lambda shell: -shell.created))

    async def look_inside(self, sandbox_id: str) -> GuestView:
        """Asks the guest of a running sandbox about its state. Raises TimeoutError."""
        async with asyncio.timeout(ANSWER_S), self.reach(sandbox_id) as guest:
            stats = await guest.stats()
            processes = await guest.processes()
        busiest = sorted(processes, key=lambda process: -process.cpu_s)[:BUSIEST]
        return GuestView(
            memory_total=stats.guest_memory_total,
            memory_used=max(0, stats.guest_memory_total - stats.guest_memory_available),
            disk_total=stats.guest_disk_total,
            disk_used=max(0, stats.guest_disk_total - stats.guest_disk_free),
            load=stats.guest_load,
            processes=stats.guest_processes,
            uptime_s=stats.guest_uptime_s,
            traffic=stats.guest_traffic,
            busiest=tuple(
                ProcessView(
                    pid=process.pid,
                    user=sanitise(process.user, limit=USER_LIMIT),
                    rss=process.rss,
                    cpu_s=process.cpu_s,
                    command=sanitise(process.command, limit=COMMAND_LIMIT),
                )
                for process in busiest
            ),
        )

    async def look_at_screen(
        self, sandbox_id: str, room: tuple[int, int], *, at: str = ""
    ) -> Cells:
        """Returns the screen of a sandbox in at most so many columns and rows: as it is now, or
        with ``at`` as it was just before that checkpoint; () if the checkpoint has no picture."""
        with self._opened(sandbox_id) as sandbox:
            if not at:
                scale = None if self._find_there(sandbox_id) is None else SCALE_THERE
                async with asyncio.timeout(ANSWER_S):
                    image = await sandbox.screenshot(format="image", scale=scale)
                return await asyncio.to_thread(fit, image, *room)
            data = await sandbox.checkpoint_screen(at)
        if data is None:
            return ()
        try:
            return await asyncio.to_thread(lambda: fit(read_png(data), *room))
        except ValueError as error:
            raise HistoryError(f"the picture of the checkpoint cannot be shown: {error}") from error

    # Differences

    async def compare(self, spec: DiffSpec, report: Callable[[int], None]) -> DiffView:
        """Compares two disks, and returns the differences; ``report`` gets a growing number of
        steps, on another thread."""
        with self._opened(spec.sandbox_id, must_run=True) as sandbox:
            return await diff_reader.compare(sandbox, spec, report)

    async def compare_file(self, spec: DiffSpec, path: str) -> TextDiff:
        """Compares the contents of a path on two disks."""
        with self._opened(spec.sandbox_id, must_run=True) as sandbox:
            return await diff_reader.compare_file(sandbox, spec, path)

    async def write_patch(self, spec: DiffSpec, below: str, file: Path) -> int:
        """Writes the differences below a path into a new file, as a patch; returns the number of
        paths that no patch can have."""
        with self._opened(spec.sandbox_id, must_run=True) as sandbox:
            return await diff_reader.write_patch(sandbox, spec, below, file)

    async def losing(self, sandbox_id: str, checkpoint: str) -> Losing:
        """Finds the losses of going back to a checkpoint, by its id."""
        with self._opened(sandbox_id, must_run=True) as sandbox:
            return await diff_reader.losing(sandbox, checkpoint)

    async def shell_then(self, sandbox_id: str, checkpoint: str) -> Glance | None:
        """Finds a shell's last lines at a checkpoint; None if nobody kept them."""
        with self._opened(sandbox_id) as sandbox:
            return await diff_reader.shell_then(sandbox, checkpoint)

    async def changes(self, sandbox_id: str, before: str, after: str = "") -> Changes:
        """Returns the files that differ between two checkpoints of a sandbox, or with ``after`` ""
        between one and the present disk. Nothing is booted; it may take seconds."""
        with self._opened(sandbox_id) as sandbox:
            found = await sandbox.diff(before, after or None)
        return await asyncio.to_thread(lambda: Changes(places=by_directory(_places(found))))

    async def run_command(
        self, sandbox_id: str, command: str, *, timeout_s: float
    ) -> CommandOutput:
        """Runs a shell command as root in a running sandbox, and returns its result with the first
        64 KiB of output. The guest kills it after ``timeout_s``, or when this is cancelled.
        Raises OperationError if the guest does not answer."""
        kept, is_cut = bytearray(), False
        started = time.monotonic()
        try:
            async with (
                asyncio.timeout(timeout_s + PATIENCE_S),
                self.reach(sandbox_id) as guest,
                await guest.spawn(ONE_STREAM + command, timeout=timeout_s) as running,
            ):
                async for _, data in running.output():
                    room = OUTPUT_MAX - len(kept)
                    kept += data[:room]
                    is_cut = is_cut or len(data) > room
        except TimeoutError:
            raise OperationError(
                Failure(title="The command did not run", message="the guest does not answer")
            ) from None
        status = running.status
        assert status is not None
        lines = sanitise_lines(kept.decode("utf-8", "replace"))
        if lines and not lines[-1]:
            lines.pop()
        return CommandOutput(
            exit_code=status.exit_code,
            seconds=time.monotonic() - started,
            lines=tuple(lines[:LINES_MAX]),
            is_cut=is_cut or len(lines) > LINES_MAX,
            timed_out=status.timed_out,
        )


LETTERS = {ChangeKind.ADDED: "A", ChangeKind.REMOVED: "D"}
"""The letters of these kinds of changes; all other kinds have M."""
PATH_LIMIT = 400
"""The most characters of a path that are shown."""


def _places(changes: Sequence[FileChange]) -> Iterator[ChangedPlace]:
    """Yields the paths that differ, but directories only if nothing in them does."""
    inner = {change.path.rpartition("/")[0] for change in changes}
    for change in changes:
        kind = change.type_after or change.type_before
        is_directory = kind is FileType.DIRECTORY
        if is_directory and (change.kind not in LETTERS or change.path in inner):
            continue
        path = sanitise(change.path, limit=PATH_LIMIT)
        size = change.size_before if change.size_after is None else change.size_after
        yield ChangedPlace(letter=LETTERS.get(change.kind, "M"), path=path, size=size)


async def ask_traffic(silences: Silences, sandbox_id: str) -> GuestTraffic | None:
    """Asks a guest for its traffic; None if it does not answer, which is noted, or has no
    network."""
    with contextlib.suppress(QuicksandError, TimeoutError, OSError):
        # Watching must change nothing, not even a clock that the user has set.
        sandbox = Sandbox.attach(sandbox_id, set_clock=False)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await silences.heed(sandbox_id, sandbox.traffic())
        finally:
            sandbox.close()
    return None
