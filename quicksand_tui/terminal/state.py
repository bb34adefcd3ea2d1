"""The whole state of a terminal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Final

from quicksand_tui.terminal.events import Outbox, PaletteChanged, Replies, TitleChanged
from quicksand_tui.terminal.modes import (
    Modes,
)
from quicksand_tui.terminal.screen import Screen
from quicksand_tui.terminal.style import PLAIN, Colours, Links, Palette
from quicksand_tui.terminal.writer import Writer

TITLES_MAX: Final = 10
"""The depth of the stack of XTWINOPS 22 and 23, as in xterm."""

SAVED_MODES_MAX: Final = 64
"""How many modes XTSAVE can save."""


class State:
    """The state of one terminal; terminals share nothing."""

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
        """Width and height of a cell in pixels, if known."""
        self.title = ""
        self.titles: list[str] = []
        """The stack of XTWINOPS 22 and 23."""
        self.cwd = ""
        self.saved_modes: dict[int, bool] = {}
        """The modes that XTSAVE saved."""
        self.held_since: float | None = None
        """When mode 2026 was first set since the screen was last drawn, by the clock."""
        self.clock = clock

    def set_title(self, title: str) -> None:
        """Sets the title, which must be sanitised."""
        if title != self.title:
            self.title = title
            self.events.put(TitleChanged(title))

    def reset_modes(self, *, keep: frozenset[str] = frozenset()) -> None:
        """Resets all modes but those in ``keep``."""
        fresh = Modes()
        for field in fields(Modes):
            if field.name not in keep:
                setattr(self.modes, field.name, getattr(fresh, field.name))

    def reset(self) -> None:
        """RIS: resets everything."""
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
        """DECSTR: resets what the VT510 manual lists, but turns wrapping on as xterm does. The
        cursor's position and the text stay."""
        kept = {"reverse_video", "synchronized", "mouse_tracking", "mouse_encoding"}
        kept |= {"focus_events", "bracketed_paste", "alternate_scroll", "newline"}
        self.reset_modes(keep=frozenset(kept))
        self.screen.set_style(PLAIN)
        self.screen.charsets.reset()
        self.screen.reset_region()
        self.screen.forget_saved_cursor()
