"""Calls the engine on its loop: carries out verbs, and asks guests.

`door.service` imports this module on that loop at the first call, so that the engine's import
delays neither the first paint nor a key.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from quicksand.base.errors import HistoryError, QuicksandError
from quicksand.guest.network import GuestTraffic
from quicksand.sandbox import Sandbox
from quicksand_disks.changes import ChangeKind, FileChange, FileType
from quicksand_pixels.encoding import fit, read_png

from quicksand_tui.door import diff_reader
from quicksand_tui.door.far_guest import reach_there
from quicksand_tui.door.far_verbs import carry_out_there
from quicksand_tui.door.foreground import running_of
from quicksand_tui.door.reach import reach_here
from quicksand_tui.door.screen_here import ScreenHere
from quicksand_tui.door.service_protocol import ShellView
from quicksand_tui.door.terminals import PANE_NAME, birth_of
from quicksand_tui.model.changed_directories import by_directory
from quicksand_tui.model.jobs import CommandOutput, Failure, OperationError
from quicksand_tui.model.known_sandbox import ChangedPlace, Changes, Glance
from quicksand_tui.model.shown_sandboxes import GuestView, ProcessView
from quicksand_tui.model.text import sanitise, sanitise_lines
from quicksand_tui.panes.titles import named
from quicksand_tui.verbs.verdicts import Verified, VerifiedThere

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from quicksand_pixels import Cells

    from quicksand_tui.door.far_host import FarHost
    from quicksand_tui.door.reach import Guest
    from quicksand_tui.door.saves_look import Found
    from quicksand_tui.door.screen_here import ScreenPlace
    from quicksand_tui.door.silence import Silences
    from quicksand_tui.model.diffs import DiffSpec, DiffView, TextDiff
    from quicksand_tui.model.losing import Losing
    from quicksand_tui.model.shown_saves import VerdictView
    from quicksand_tui.verbs.call import Call, Report

T = TypeVar("T")

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
    """Carries out verbs, and implements `door.service_protocol.Questions`. Methods raise
    QuicksandError or OSError as the engine does."""

    def __init__(
        self,
        learn: Callable[[Mapping[str, Found]], None],
        find_there: Callable[[str], tuple[FarHost, str] | None],
        open_there: Callable[[FarHost, str], Sandbox],
        screen_there: Callable[[FarHost, str], ScreenPlace],
        learn_there: Callable[[FarHost, Mapping[str, VerdictView]], None],
    ) -> None:
        """Calls ``learn`` with the verdicts of verified saves, by key, and ``learn_there`` with
        those of another machine. ``find_there`` returns the machine of a sandbox, and its id there;
        None if it is this machine's. ``open_there`` opens a sandbox of another machine, and
        ``screen_there`` returns the way to its screen."""
        self._learn = learn
        self._find_there = find_there
        self._open_there = open_there
        self._screen_there = screen_there
        self._learn_there = learn_there

    def reach(self, sandbox_id: str) -> AbstractAsyncContextManager[Guest]:
        """Reaches a guest of any machine, as `door.reach.Reach`."""
        there = self._find_there(sandbox_id)
        return reach_here(sandbox_id) if there is None else reach_there(*there)

    def opened(self, sandbox_id: str, *, must_run: bool = False) -> Sandbox:
        """Opens a sandbox of any machine."""
        if (there := self._find_there(sandbox_id)) is not None:
            return self._open_there(*there)
        return Sandbox.attach(sandbox_id) if must_run else Sandbox.open(sandbox_id)

    def screen(self, sandbox_id: str) -> ScreenPlace:
        """Returns the way to the screen of a sandbox of any machine."""
        there = self._find_there(sandbox_id)
        return ScreenHere(sandbox_id) if there is None else self._screen_there(*there)

    @contextlib.contextmanager
    def _opened(self, sandbox_id: str, *, must_run: bool = False) -> Iterator[Sandbox]:
        with contextlib.closing(self.opened(sandbox_id, must_run=must_run)) as sandbox:
            yield sandbox

    async def carry_out(self, verb: Call[T], sandbox_id: str, report: Report) -> T:
        """Carries out a verb, as `Call.carry_out`."""
        if (there := self._find_there(sandbox_id)) is not None:
            done = await carry_out_there(there[0], verb, there[1], report)
            if isinstance(done, VerifiedThere):
                self._learn_there(there[0], done.views())
            return done
        result = await verb.carry_out(sandbox_id, report)
        self._note(result)
        return result

    def _note(self, result: object) -> None:
        """Keeps the findings of a verb for the views of the app."""
        if isinstance(result, Verified):
            self._learn(result.views())

    # Guests

    async def shells(self, sandbox_id: str) -> tuple[ShellView, ...]:
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
        with self._opened(spec.sandbox_id, must_run=True) as sandbox:
            return await diff_reader.compare(sandbox, spec, report)

    async def compare_file(self, spec: DiffSpec, path: str) -> TextDiff:
        with self._opened(spec.sandbox_id, must_run=True) as sandbox:
            return await diff_reader.compare_file(sandbox, spec, path)

    async def write_patch(self, spec: DiffSpec, below: str, file: Path) -> int:
        with self._opened(spec.sandbox_id, must_run=True) as sandbox:
            return await diff_reader.write_patch(sandbox, spec, below, file)

    async def losing(self, sandbox_id: str, checkpoint: str) -> Losing:
        with self._opened(sandbox_id, must_run=True) as sandbox:
            return await diff_reader.losing(sandbox, checkpoint)

    async def shell_then(self, sandbox_id: str, checkpoint: str) -> Glance | None:
        with self._opened(sandbox_id) as sandbox:
            return await diff_reader.shell_then(sandbox, checkpoint)

    async def changes(self, sandbox_id: str, before: str, after: str = "") -> Changes:
        with self._opened(sandbox_id) as sandbox:
            found = await sandbox.diff(before, after or None)
        return await asyncio.to_thread(lambda: Changes(places=by_directory(_places(found))))

    async def run_command(
        self, sandbox_id: str, command: str, *, timeout_s: float
    ) -> CommandOutput:
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
