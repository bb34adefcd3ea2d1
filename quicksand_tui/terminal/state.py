"""Everything that sequences act on, in one place; and what they do that concerns several parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Final

from quicksand_tui.terminal.events import Outbox, PaletteChanged, TitleChanged
from quicksand_tui.terminal.links import Links
from quicksand_tui.terminal.modes import Modes
from quicksand_tui.terminal.palette import Colours, Palette
from quicksand_tui.terminal.replies import Replies
from quicksand_tui.terminal.screen import Screen
from quicksand_tui.terminal.style import PLAIN
from quicksand_tui.terminal.writer import Writer

TITLES_MAX: Final = 10
"""Titles on the stack of XTWINOPS 22 and 23, as many as xterm has."""

SAVED_MODES_MAX: Final = 64
"""Modes that XTSAVE remembers."""


class State:
    """A terminal's state. One for each; nothing is shared between terminals."""

    def __init__(
        self,
        columns: int,
        height: int,
        *,
        scrollback: int,
        palette: Palette,
        cell_pixels: tuple[int, int] | None,
        clock: Callable[[], float],
    ) -> None:
        self.modes = Modes()
        self.screen = Screen(columns, height, scrollback, self.modes)
        self.writer = Writer(self.screen)
        self.replies = Replies(clock)
        self.events = Outbox()
        self.colours = Colours(palette)
        self.links = Links()
        self.cell_pixels = cell_pixels
        """Width and height of a cell, if they are known."""
        self.title = ""
        self.titles: list[str] = []
        """The stack of XTWINOPS."""
        self.cwd = ""
        self.saved_modes: dict[int, bool] = {}
        """What XTSAVE saved."""
        self.held_since: float | None = None
        """When mode 2026 was set first since the screen was drawn."""
        self.clock = clock

    def set_title(self, title: str) -> None:
        """``title`` is fit to be shown."""
        if title != self.title:
            self.title = title
            self.events.put(TitleChanged(title))

    def reset_modes(self, *, keep: frozenset[str] = frozenset()) -> None:
        """Have all modes as in the beginning, but those in ``keep``."""
        fresh = Modes()
        for field in fields(Modes):
            if field.name not in keep:
                setattr(self.modes, field.name, getattr(fresh, field.name))

    def reset(self) -> None:
        """RIS."""
        self.reset_modes()
        self.screen.reset()
        self.writer.forget()
        self.saved_modes.clear()
        self.titles.clear()
        self.links.clear()
        if self.colours.changed:
            self.colours.changed.clear()
            self.events.put(PaletteChanged())

    def soft_reset(self) -> None:
        """DECSTR: what VT510's manual lists, with the wrapping on as xterm has it. The cursor and
        the picture stay."""
        kept = {"reverse_video", "synchronized", "mouse_tracking", "mouse_encoding"}
        kept |= {"focus_events", "bracketed_paste", "alternate_scroll", "newline"}
        self.reset_modes(keep=frozenset(kept))
        self.screen.set_style(PLAIN)
        self.screen.charsets.reset()
        self.screen.reset_region()
        self.screen.forget_saved_cursor()
