"""The whole state of a terminal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from quicksand_vt.keyboard import Keyboard
from quicksand_vt.modes import Modes
from quicksand_vt.outbox import Allowance, Outbox, PaletteChanged, Replies, TitleChanged
from quicksand_vt.screen_operations import Screen
from quicksand_vt.style import PLAIN, Colours, Links, Palette
from quicksand_vt.text_writer import Writer

if TYPE_CHECKING:
    from quicksand_vt.graphics import Graphics

COLUMNS_MIN: Final = 2
"""A wide character needs two columns."""

SIZE_MAX: Final = 1000
"""The most columns and rows; larger sizes are cut to this."""

WORK_BURST: Final = 2_000_000
WORK_RATE: Final = 1_000_000
"""Cells, at once and per second, that may be looked at one by one (selective erasing, attributes of
rectangles): two hundred times a screen of 200 columns and 50 rows, a tenth of a slow core."""

TITLES_MAX: Final = 10
"""The depth of the stack of XTWINOPS 22 and 23, as in xterm."""

LEVEL: Final = 4
"""The level of conformance: that of a VT420."""

SAVED_MODES_MAX: Final = 64
"""How many modes XTSAVE can save."""


class State:
    """The state of one terminal; terminals share nothing."""

    def __init__(
        self,
        columns: int,
        height: int,
        *,
        name: str,
        scrollback: int,
        palette: Palette,
        cell_pixels: tuple[int, int] | None,
        checksums: bool,
        resizable: bool,
        clock: Callable[[], float],
    ) -> None:
        self.name = name
        """The answer to XTVERSION."""
        self.modes = Modes()
        work = Allowance(WORK_BURST, WORK_RATE, clock)
        self.screen = Screen(columns, height, scrollback, self.modes, work)
        self.writer = Writer(self.screen)
        self.replies = Replies(clock)
        self.events = Outbox()
        self.colours = Colours(palette)
        self.links = Links()
        self.cell_pixels = cell_pixels
        """Width and height of a cell in pixels, if known."""
        self.checksums = checksums
        """DECRQCRA is answered."""
        self.resizable = resizable
        """Programs may change the size."""
        self.level = LEVEL
        """The level that DECSCL set."""
        self.extent = 0
        """The extent of changed attributes, as DECSACE set it."""
        self.title = ""
        self.titles: list[str] = []
        """The stack of XTWINOPS 22 and 23."""
        self.cwd = ""
        self.saved_modes: dict[int, bool] = {}
        """The modes that XTSAVE saved."""
        self.held_since: float | None = None
        """When mode 2026 was first set since the screen was last drawn, by the clock."""
        self.clock = clock
        self._keyboards = Keyboard(), Keyboard()
        self.graphics: Graphics | None = None
        """The decoder of pictures; without it there are none."""

    @property
    def keyboard(self) -> Keyboard:
        """The form of keys that the program has asked for on the screen that is shown."""
        return self._keyboards[self.screen.is_alternate]

    def set_title(self, title: str) -> None:
        """Sets the title, which must be sanitised."""
        if title != self.title:
            self.title = title
            self.events.put(TitleChanged(title))

    def resize(self, columns: int, height: int) -> None:
        """Changes the size, each within the limits."""
        columns = min(max(columns, COLUMNS_MIN), SIZE_MAX)
        height = min(max(height, 1), SIZE_MAX)
        if (columns, height) != (self.screen.columns, self.screen.height):
            self.screen.resize(columns, height)

    def change_columns(self, *, wide: bool) -> None:
        """DECCOLM: clears the screen and removes the margins; the number of columns changes only
        where the program may change the size."""
        screen = self.screen
        if self.resizable:
            self.resize(132 if wide else 80, screen.height)
        screen.reset_region()
        screen.erase_in_display(2)
        screen.move_to(0, 0)

    def reset_modes(self, *, keep: frozenset[str] = frozenset()) -> None:
        """Resets all modes but those in ``keep``."""
        fresh = Modes()
        for field in fields(Modes):
            if field.name not in keep:
                setattr(self.modes, field.name, getattr(fresh, field.name))

    def reset(self) -> None:
        """RIS: resets everything."""
        if self.modes.wide_columns and self.resizable:
            self.resize(80, self.screen.height)
        self.reset_modes()
        self.screen.reset()
        self.writer.forget()
        self._keyboards = Keyboard(), Keyboard()
        self.level, self.extent = LEVEL, 0
        self.saved_modes.clear()
        self.titles.clear()
        self.links.clear()
        if self.graphics is not None:
            self.graphics.forget()
        if self.colours.changed:
            self.colours.changed.clear()
            self.events.put(PaletteChanged())

    def soft_reset(self) -> None:
        """DECSTR: resets what the VT510 manual lists, but turns wrapping on as xterm does. The
        cursor's position and the text stay."""
        kept = {"reverse_video", "synchronized", "mouse_tracking", "mouse_encoding"}
        kept |= {"focus_events", "bracketed_paste", "alternate_scroll", "newline"}
        kept |= {"allows_columns", "wide_columns", "smooth_scroll", "form_feed", "print_extent"}
        self.reset_modes(keep=frozenset(kept))
        self.extent = 0
        self.screen.protects = False
        self.screen.set_style(PLAIN)
        self.screen.charsets.reset()
        self.screen.reset_region()
        self.screen.forget_saved_cursor()
