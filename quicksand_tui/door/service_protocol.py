"""Logs, terminals and the pictures of a screen, as the engine tells them to the app."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeVar

from quicksand.things.frozen import frozen

if TYPE_CHECKING:
    from quicksand_tui.door.screen_messages import Drawn


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


class ScreenSink(Protocol):
    """Takes the pictures of a screen; called on the engine's loop."""

    def drawn(self, picture: Drawn) -> None:
        """Takes a picture; the next one comes when this one was reported as drained."""

    def gone(self, why: str) -> None:
        """Notes that the screen is gone, or was never there; another may come, after a revert."""

    def told(self, message: str) -> None:
        """Takes a message: some text could not be typed, and why."""
