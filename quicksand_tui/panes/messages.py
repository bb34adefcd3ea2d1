"""The contents of a pane, and its messages to the screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from textual.message import Message

if TYPE_CHECKING:
    from quicksand_vt import FrozenLines, Terminal

    from quicksand_tui.panes.content import LinkStatus
    from quicksand_tui.panes.copy_mode import CopyMode


@dataclass(slots=True, eq=False)
class Shown:
    """The contents that the pane shares with its helpers (copy mode, mouse, picture)."""

    terminal: Terminal
    status: LinkStatus
    copy_mode: CopyMode | None = None

    @property
    def lines(self) -> Terminal | FrozenLines:
        """The lines; in copy mode, those of the moment when it began."""
        return self.terminal if self.copy_mode is None else self.copy_mode.lines

    @property
    def top(self) -> int:
        """The number of the first visible line."""
        mode = self.copy_mode
        return self.terminal.screen_line if mode is None else mode.top


class PaneChanged(Message):
    """The title or the state of a pane has changed."""


class Typeable(Protocol):
    """A pane, as its messages know it."""

    broadcast: bool

    def type(self, data: bytes) -> None: ...

    def paste_now(self, text: str) -> None: ...


class PanePrefixed(Message):
    """A key was typed after the prefix."""

    def __init__(self, pane: Typeable, key: str) -> None:
        super().__init__()
        self.pane = pane
        self.key = key


class PaneOutput(Message):
    """There is output to digest."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, PaneOutput)


class PaneTyped(Message):
    """Keys were typed; they are given as bytes."""

    def __init__(self, pane: Typeable, data: bytes) -> None:
        super().__init__()
        self.pane = pane
        self.data = data


class PaneAsksToPaste(Message):
    """The user must confirm a paste of several lines, which the program would run one by one."""

    def __init__(self, pane: Typeable, text: str) -> None:
        super().__init__()
        self.pane = pane
        self.text = text


class PaneCopied(Message):
    """A text of a pane was copied."""

    def __init__(self, size: str) -> None:
        """``size`` is the size of the text in words."""
        super().__init__()
        self.size = size


class ShellsLeft(Message):
    """The sandbox's last pane was closed."""


class ShellsZoomed(Message):
    """A shell should fill the whole area, as before."""
