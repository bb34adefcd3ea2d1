"""The contents of a pane, and its messages to the screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from quicksand_vt import FrozenLines, Terminal
    from textual.widget import Widget

    from quicksand_panes.copy_mode import CopyMode
    from quicksand_panes.guest_terminal import LinkStatus


@dataclass(slots=True, eq=False)
class Shown:
    """The contents that the pane shares with its helpers (copy mode, mouse, picture)."""

    widget: Widget
    terminal: Terminal
    status: LinkStatus
    copy_mode: CopyMode | None = None
    caught_up: bool = False
    """The replayed output is parsed, so the terminal's modes are the present ones."""
    redrawn: int = 0
    """The number of times that all of it was to be drawn anew."""

    def redraw(self) -> None:
        """Draws everything anew."""
        self.redrawn += 1
        self.widget.refresh()

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


class PaneOutput(Message):
    """There is output to digest."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, PaneOutput)


class PaneCopied(Message):
    """A text of a pane was copied."""

    def __init__(self, size: str) -> None:
        """``size`` is the size of the text in words."""
        super().__init__()
        self.size = size
