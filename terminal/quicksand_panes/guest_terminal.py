"""The interface that a pane needs of a terminal in a guest, and the words of its title."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Protocol

UNREAD_MAX = 256 * 1024
"""Bytes of output on their way to a pane; beyond that, the guest has to wait."""

TYPED_MAX = 1024 * 1024
"""Bytes that wait for a guest that does not read; input beyond that is dropped."""


class Said(Enum):
    """The ways in which a pane treats a piece of output."""

    NOW = 1
    """Written while this pane was attached; this pane answers its queries."""
    SHARED = 2
    """Written while this pane was attached; another client of the terminal answers its queries."""
    BEFORE = 3
    """Written before this pane was attached; it is drawn, and has no other effect."""


class LinkState(StrEnum):
    CONNECTING = "connecting"
    OPEN = "open"
    ENDED = "ended"
    """Its program has ended."""
    LOST = "lost"
    """The guest is gone, or no longer has this terminal."""
    DELETED = "deleted"
    """Its machine was deleted, so no new terminal can be opened there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatus:
    """The state of a terminal in a guest. All text but ``session`` is sanitised."""

    state: LinkState
    session: str = ""
    """The guest's name for the terminal, not sanitised; with it a pane can come back."""
    birth: str = ""
    """Tells it from another terminal with the same name after a start or a revert."""
    text: str = ""
    """A message: how the terminal ended, why it is lost, or where its machine went back to."""
    opening: int = 0
    """The number of the connection to the guest, from 1."""
    runs: bool = True
    """Its machine runs, so a new terminal can be opened there."""
    comes_back: bool = False
    """It opens again by itself: only its machine is away."""

    @property
    def is_over(self) -> bool:
        """Whether its program has ended or is gone. Keys typed for it are for no other terminal."""
        return self.state in (LinkState.ENDED, LinkState.LOST, LinkState.DELETED)

    @property
    def terminal_name(self) -> str:
        """The name by which any app can find the terminal again; "" if there is none."""
        if self.state in (LinkState.ENDED, LinkState.DELETED) or not self.birth:
            return ""
        return f"{self.session} {self.birth}"


def session_of(terminal_name: str) -> str:
    """Returns the session in a `LinkStatus.terminal_name`."""
    return terminal_name.rpartition(" ")[0]


class GuestTerminal(Protocol):
    """A terminal in a guest. The UI's thread calls the methods, which return at once, never
    raise."""

    def write(self, data: bytes) -> None:
        """Types keys."""

    def report(self, data: bytes, opening: int) -> None:
        """Sends answers, mouse and focus reports, which concern the screen of connection
        ``opening``; they are dropped if another connection has replaced it."""

    def resize(self, columns: int, rows: int) -> None:
        """Sets the size in cells."""

    def parsed(self, count: int) -> None:
        """Reports that ``count`` bytes of output are parsed, so that as many more may come."""

    def leave(self) -> None:
        """Closes the connection; the program keeps running."""

    def end(self) -> None:
        """Ends the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The program in the foreground of a terminal, as its guest tells it. All text is sanitised."""

    command: str = ""
    """The command line; "" if it is not known."""
    directory: str = ""
    """The program's directory; "" if it is not known."""


def _ignore(_: Running) -> None:
    """Drops the report, which no title shows."""


@dataclass(frozen=True, slots=True)
class Sink:
    """Receives output and states of a terminal, in the UI's thread."""

    output: Callable[[bytes, Said], None]
    """Takes output; once after each opening it gets no bytes, when all earlier output has come."""
    status: Callable[[LinkStatus], None]
    running: Callable[[Running], None] = _ignore


class OpenTerminal(Protocol):
    """Opens a new terminal, in a ``directory`` if the guest has it, or the existing
    ``session`` of that ``birth``, as in `LinkStatus`; ``size`` is (columns, rows)."""

    def __call__(
        self,
        session: str,
        size: tuple[int, int],
        sink: Sink,
        *,
        birth: str = "",
        directory: str = "",
    ) -> GuestTerminal: ...


STRING_END = b"\x1b\\"


def after_string(data: bytes) -> bytes:
    """Returns a guest's repeated output without the half of a picture at its beginning.

    A repetition may begin anywhere, also within a string such as a picture. If the first escape
    sequence in it ends a string, all up to there is left out."""
    at = data.find(b"\x1b")
    return data[at + len(STRING_END) :] if at >= 0 and data.startswith(STRING_END, at) else data


COMMAND_CELLS = 30
"""The most cells of a command line in a title; its end is cut."""

UNKNOWN = "shell"
"""The title of a pane whose guest has not said yet which program runs there."""

SHELLS = frozenset({"ash", "bash", "dash", "fish", "ksh", "sh", "zsh"})
"""Programs whose options tell nothing."""


def what_runs(reported: str, directory: str, running: Running) -> str:
    """Returns the words of a pane's title, such as "vim notes ~/src". A program's own title (OSC 0
    and 2, ``reported``) goes first; ``directory`` is the one that its shell told (OSC 7)."""
    if reported:
        return reported
    where = home_shortened(directory or running.directory)
    return " ".join(filter(None, (named(running.command), where)))


def named(command: str) -> str:
    """Returns the program of a command line, without the directories before it.

    >>> named("/usr/bin/python3 -m http.server"), named("-bash"), named("/bin/bash -l"), named("")
    ('python3 -m http.server', 'bash', 'bash', 'shell')
    """
    program, _, rest = command.partition(" ")
    name = program.removeprefix("-").rpartition("/")[2]
    if not name:
        return UNKNOWN
    if name in SHELLS and (not rest or rest.startswith("-")):
        return name
    text = f"{name} {rest}".rstrip()
    return text if len(text) <= COMMAND_CELLS else f"{text[: COMMAND_CELLS - 1]}…"


def home_shortened(path: str) -> str:
    """Returns a path of a guest as its shells show it.

    >>> home_shortened("/root/src"), home_shortened("/home/ann"), home_shortened("/homes/x")
    ('~/src', '~', '/homes/x')
    """
    parts = path.split("/")
    homes = 2 if parts[:2] == ["", "root"] else 3 if parts[:2] == ["", "home"] else 0
    if not homes or len(parts) < homes or not parts[homes - 1]:
        return path
    return "/".join(("~", *parts[homes:]))
