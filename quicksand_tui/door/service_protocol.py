"""The app's questions to the engine, and the engine's reports. Tests bring their own services."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from quicksand.things.frozen import frozen

if TYPE_CHECKING:
    from pathlib import Path

    from quicksand_tui.model.diffs import DiffSpec, DiffView, TextDiff
    from quicksand_tui.model.jobs import CommandOutput
    from quicksand_tui.model.losing import Losing
    from quicksand_tui.model.shown_sandboxes import Changes, Glance, GuestView
    from quicksand_tui.model.wall_plan import Heard, WatchedTerminal
    from quicksand_tui.pixels.cells import Cells
    from quicksand_tui.pixels.encoder_messages import Drawn
    from quicksand_tui.pixels.keysyms import Chord


T = TypeVar("T")


class LogKind(StrEnum):
    CONSOLE = "console"
    QEMU = "qemu"


class LogSource(Protocol):
    """A growing log. `read` blocks for a disk read, so the app calls it in a thread."""

    def read(self) -> str:
        """Returns the text added since the last call; the first time, the end of the log. Raises
        OSError if it cannot be read now; a later call goes on where this one began."""

    def close(self) -> None:
        """Closes the log; safe while another thread reads."""


@frozen
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
    """The number of clients that are attached."""
    is_pane: bool = False
    """It was opened for a pane, by this app or another one."""


class Questions(Protocol):
    """Questions to guests, on the engine's loop. Every call may raise QuicksandError, OSError or
    OperationError; callers ask by `EngineService.ask`, which raises OperationError alone."""

    async def shells(self, sandbox_id: str) -> tuple[ShellView, ...]:
        """Returns the terminals in a guest, newest first. Raises TimeoutError."""

    async def look_inside(self, sandbox_id: str) -> GuestView:
        """Asks the guest of a running sandbox about its state. Raises TimeoutError."""

    async def look_at_screen(
        self, sandbox_id: str, room: tuple[int, int], *, at: str = ""
    ) -> Cells:
        """Returns the screen of a sandbox in at most so many columns and rows: as it is now, or
        with ``at`` as it was just before that checkpoint; () if the checkpoint has no picture."""

    async def changes(self, sandbox_id: str, before: str, after: str = "") -> Changes:
        """Returns the files that differ between two checkpoints of a sandbox, or with ``after`` ""
        between one and the present disk. Nothing is booted; it may take seconds."""

    async def run_command(
        self, sandbox_id: str, command: str, *, timeout_s: float
    ) -> CommandOutput:
        """Runs a shell command as root in a running sandbox, and returns its result with the first
        64 KiB of output. The guest kills it after ``timeout_s``, or when this is cancelled.
        Raises OperationError if the guest does not answer."""

    async def compare(self, spec: DiffSpec, report: Callable[[int], None]) -> DiffView:
        """Compares two disks, and returns the differences; ``report`` gets a growing number of
        steps, on another thread."""

    async def compare_file(self, spec: DiffSpec, path: str) -> TextDiff:
        """Compares the contents of a path on two disks."""

    async def write_patch(self, spec: DiffSpec, below: str, file: Path) -> int:
        """Writes the differences below a path into a new file, as a patch; returns the number of
        paths that no patch can have."""

    async def losing(self, sandbox_id: str, checkpoint: str) -> Losing:
        """Finds the losses of going back to a checkpoint, by its id."""

    async def shell_then(self, sandbox_id: str, checkpoint: str) -> Glance | None:
        """Finds a shell's last lines at a checkpoint; None if nobody kept them."""


class Wall(Protocol):
    """Terminals of several guests that are watched without being noticed there. The UI's thread
    calls the methods, which return at once and do not raise."""

    def want(self, sandbox_ids: Collection[str]) -> None:
        """Sets the sandboxes that are watched from now on."""

    def terminals(self, sandbox_id: str) -> tuple[WatchedTerminal, ...] | None:
        """Returns the terminals of a sandbox, the oldest first; None if they are not known yet."""

    def why(self, sandbox_id: str) -> str:
        """Returns why the terminals of a sandbox are not watched; "" if they are."""

    def take(self, sandbox_id: str, session: str, birth: str) -> Heard:
        """Removes and returns the output of a terminal."""

    def close(self) -> None:
        """Ends all looks."""


class ScreenSink(Protocol):
    """Takes the pictures of a screen; called on the engine's loop."""

    def drawn(self, picture: Drawn) -> None:
        """Takes a picture; the next one comes when this one was reported as drained."""

    def gone(self, why: str) -> None:
        """Notes that the screen is gone, or was never there; another may come, after a revert."""

    def told(self, message: str) -> None:
        """Takes a message: some text could not be typed, and why."""


class GuestScreen(Protocol):
    """A guest's screen that was opened."""

    def order(self, **changes: Any) -> None:
        """Changes fields of `quicksand_tui.pixels.encoder_messages.Order`."""

    def press(self, chord: Chord) -> None:
        """Presses a key; any character that it types arrives."""

    def type(self, text: str) -> None:
        """Types a text, after the keys that were pressed before."""

    def point(self, x: int, y: int, buttons: int) -> None:
        """Moves the pointer to a pixel, with these buttons of VNC held."""

    def save(self, path: Path, told: Callable[[str], None]) -> None:
        """Writes the screen to a new PNG file; calls ``told``, on another thread, with "" or the
        reason why it could not."""

    def close(self) -> None: ...


class ScreenRecording(Protocol):
    """A recording of a guest's screen that has begun."""

    def stop(self) -> None:
        """Ends the recording. Its file is complete when the end is reported."""
