"""What the app asks of the engine, and what the engine reports. Tests bring their own services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from quicksand_tui.model.jobs import OperationError

if TYPE_CHECKING:
    from pathlib import Path

    from quicksand_tui.model.jobs import CommandOutput
    from quicksand_tui.model.sandboxes import GuestView
    from quicksand_tui.model.saves import SavesView
    from quicksand_tui.model.world import World
    from quicksand_tui.panes.content import GuestTerminal, Sink
    from quicksand_tui.pixels.cells import Cells
    from quicksand_tui.pixels.keysyms import Chord
    from quicksand_tui.pixels.orders import Drawn
    from quicksand_tui.verbs.record import Report, Verb


T = TypeVar("T")


class LogKind(StrEnum):
    CONSOLE = "console"
    QEMU = "qemu"


class LogSource(Protocol):
    """A growing log. `read` blocks for a disk read, so the app calls it in a thread."""

    def read(self) -> str:
        """Returns what was added since the last call; the first time, the end of the log. Raises
        OSError if it cannot be read now; a later call goes on where this one began."""

    def close(self) -> None:
        """Closes the log; safe while another thread reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellView:
    """A terminal in a guest whose program is running. All text is sanitised."""

    session: str
    """The guest's name for it, not sanitised."""
    command: str
    created: float
    """Unix time, by the guest's clock."""
    birth: str = ""
    """Identifies its program, as in `LinkStatus`."""
    clients: int = 0
    """How many clients are attached."""
    is_pane: bool = False
    """It was opened for a pane, by this app or another one."""


class Engine(Protocol):
    """The engine, as it is asked on its own loop. Every call may raise QuicksandError, OSError or
    OperationError; callers use it through `Service`, which raises OperationError alone."""

    async def carry_out(self, verb: Verb[T], sandbox_id: str, report: Report) -> T:
        """Carries out a verb, as `Verb.carry_out`."""

    async def shells(self, sandbox_id: str) -> tuple[ShellView, ...]:
        """Returns the terminals in a guest, newest first. Raises TimeoutError."""

    async def look_inside(self, sandbox_id: str) -> GuestView:
        """Asks the guest of a running sandbox about its state. Raises TimeoutError."""

    async def look_at_screen(
        self, sandbox_id: str, room: tuple[int, int], *, at: str = ""
    ) -> Cells:
        """Returns the screen of a sandbox in at most so many columns and rows: as it is now, or
        with ``at`` as it was just before that checkpoint; () if the checkpoint has no picture."""

    async def run_command(
        self, sandbox_id: str, command: str, *, timeout_s: float
    ) -> CommandOutput:
        """Runs a shell command as root in a running sandbox, and returns its result with the first
        64 KiB of output. The guest kills it after ``timeout_s``, or when this is cancelled.
        Raises OperationError if the guest does not answer."""


class ScreenSink(Protocol):
    """Where the pictures of a screen go; called on the engine's loop."""

    def drawn(self, picture: Drawn) -> None:
        """Takes a picture; the next one comes after it is told as drained."""

    def gone(self, why: str) -> None:
        """The screen is gone, or was never there; another may come, after a revert."""

    def told(self, message: str) -> None:
        """Something that was typed could not be, and why."""


class GuestScreen(Protocol):
    """A guest's screen that was opened."""

    def order(self, **changes: Any) -> None:
        """Changes fields of `quicksand_tui.pixels.orders.Order`."""

    def press(self, chord: Chord) -> None:
        """Presses a key; whatever character it is arrives."""

    def type(self, text: str) -> None:
        """Types a text, after what was pressed before."""

    def point(self, x: int, y: int, buttons: int) -> None:
        """Moves the pointer to a pixel, with these buttons of VNC held."""

    def save(self, path: Path, told: Callable[[str], None]) -> None:
        """Writes the screen to a new PNG file; calls ``told``, on another thread, with "" or why
        it could not."""

    def close(self) -> None: ...


class ScreenRecording(Protocol):
    """A recording of a guest's screen that has begun."""

    def stop(self) -> None:
        """Ends the recording. Its file is complete when the end is reported."""


class Service(Protocol):
    """The app's interface to the engine."""

    def read(
        self,
        *,
        visible: Collection[str] = (),
        network: Collection[str] = (),
        fresh: bool = False,
    ) -> World:
        """Reads sandboxes, images and the host. Blocks for milliseconds; called in a thread, never
        by two at once.

        CPU and memory are read only for running sandboxes in ``visible``; the guests of those in
        ``network`` are asked for their traffic every few seconds. ``fresh`` discards what is
        remembered. Broken items carry their error. Raises OSError and OperationError if the host
        lets it read nothing now.
        """

    def read_saves(self, *, fresh: bool = False) -> SavesView:
        """Reads all saves and the trash. Blocks, for seconds if there are thousands; called in a
        thread, never by two at once. Returns the same object as before if no directory has changed,
        unless ``fresh``. Broken items carry their error. Raises as `read` does."""

    async def ask(self, title: str, question: Callable[[Engine], Awaitable[T]]) -> T:
        """Puts a question to the engine on its loop, or has it carry out a verb; ``title`` is that
        of a failure. When cancelled, it returns after the engine has undone what it began. Raises
        OperationError."""

    def open_terminal(
        self, sandbox_id: str, session: str, size: tuple[int, int], sink: Sink
    ) -> GuestTerminal:
        """Opens a terminal of ``size`` (columns, rows) in a guest, or the existing ``session``.
        Never raises: ``sink`` is told of failures."""

    def open_screen(self, sandbox_id: str, sink: ScreenSink) -> GuestScreen:
        """Opens the screen of a sandbox. Never raises: ``sink`` is told of failures."""

    def record_screen(
        self, sandbox_id: str, path: Path, ended: Callable[[str], None]
    ) -> ScreenRecording:
        """Records the screen of a sandbox into a new animated file. Never raises: ``ended`` is
        called once, on another thread, with what was written or why nothing was."""

    def open_log(self, sandbox_id: str, kind: LogKind) -> LogSource:
        """Opens a log, which may not exist yet."""

    def close(self) -> None:
        """Closes everything; sandboxes keep running. Blocks, for seconds at most, until running
        operations have undone what they began."""


async def shells_of(service: Service, sandbox_id: str) -> tuple[ShellView, ...]:
    """Returns the terminals in a guest, newest first; none if it cannot be asked."""
    try:
        return await service.ask(
            "The terminals are not known", lambda engine: engine.shells(sandbox_id)
        )
    except OperationError:
        return ()
