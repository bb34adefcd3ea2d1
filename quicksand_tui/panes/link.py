"""What a pane needs of a terminal in a guest. No engine here: tests have guests of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

UNREAD_MAX = 256 * 1024
"""Bytes of output on their way to a pane; the guest waits when there are more."""

TYPED_MAX = 1024 * 1024
"""Bytes that wait for a guest that does not read; what is typed beyond that is lost."""


class LinkState(StrEnum):
    CONNECTING = "connecting"
    OPEN = "open"
    ENDED = "ended"
    """Its program has ended."""
    LOST = "lost"
    """The guest is gone, or has no such terminal any more."""
    DELETED = "deleted"
    """Its sandbox was deleted: no other terminal can be opened there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatus:
    """How it is. All text is fit to be shown."""

    state: LinkState
    session: str = ""
    """The guest's name for the terminal, to come back to it; exactly as it has it."""
    text: str = ""
    """What to tell: how it ended, why it is lost, where the sandbox went back to."""


class GuestTerminal(Protocol):
    """A terminal in a guest. Methods return at once; they are called by the UI's thread."""

    def write(self, data: bytes) -> None:
        """Type ``data``."""

    def resize(self, columns: int, rows: int) -> None:
        """Tell its program the size."""

    def parsed(self, count: int) -> None:
        """So many bytes of output are dealt with: as many more may come."""

    def leave(self) -> None:
        """Let go of it; its program runs on."""

    def end(self) -> None:
        """End its program."""


@dataclass(frozen=True, slots=True)
class Sink:
    """Where what comes from a guest goes. Called by the UI's thread."""

    output: Callable[[bytes], None]
    status: Callable[[LinkStatus], None]


class OpenTerminal(Protocol):
    """Opens a terminal in a sandbox, or comes back to the ``session`` of that name."""

    def __call__(
        self, sandbox_id: str, session: str, size: tuple[int, int], sink: Sink
    ) -> GuestTerminal: ...
