"""A view of a log: bounded, followed, searched, wrapped or cut; and one of the lines that differ
within a file, coloured."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from quicksand_tui.model.text import plain

LINES_MAX = 20_000
"""The most lines that the view keeps."""


class LogView(ScrollView, can_focus=True):
    """Shows the last `LINES_MAX` lines of a log; the caller sanitises them."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"log--match", "log--current"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", show=False),
        Binding("k,up", "move(-1)", show=False),
        Binding("g,home", "top", show=False),
        Binding("G,end", "bottom", show=False),
        Binding("ctrl+d", "page(0.5)", show=False),
        Binding("ctrl+u", "page(-0.5)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("right", "scroll_right", show=False),
        Binding("left", "scroll_left", show=False),
    ]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._lines: list[str] = []
        self._rows: list[tuple[int, str]] = []
        """The rows drawn: (number of the line, piece of the line)."""
        self._width = 0
        self._widest = 0
        """Width of the longest line so far in cells."""
        self.wrapped = True
        self.following = True
        self.query_text = ""
        self.empty_text = ""
        """The text shown if there are no lines at all."""
        self._current = -1
        """The line of the current match."""

    @property
    def line_count(self) -> int:
        return len(self._lines)

    @property
    def text(self) -> str:
        """All lines that are kept."""
        return "\n".join(self._lines)

    @property
    def match_lines(self) -> list[int]:
        needle = self.query_text.lower()
        return [n for n, line in enumerate(self._lines) if needle in line.lower()] if needle else []

    @property
    def match_position(self) -> tuple[int, int]:
        """The number of the current match from 1 (0 if none), and the number of matches."""
        found = self.match_lines
        return (found.index(self._current) + 1 if self._current in found else 0, len(found))

    def clear(self) -> None:
        self._lines, self._rows, self._widest = [], [], 0
        self._current = -1
        self._resize()

    def append(self, lines: list[str]) -> None:
        """Adds lines; the first continues the present last line."""
        if not lines:
            return
        if self._lines:
            last = self._lines.pop()
            while self._rows and self._rows[-1][0] == len(self._lines):
                self._rows.pop()
            lines = [last + lines[0], *lines[1:]]
        begin = len(self._lines)
        self._lines += lines
        self._widest = max(self._widest, *(cell_len(line) for line in lines))
        if len(self._lines) > LINES_MAX:
            # Drops a tenth at once, since dropping lays out all rows anew.
            gone = len(self._lines) - LINES_MAX * 9 // 10
            del self._lines[:gone]
            self._current = max(-1, self._current - gone)
            self._lay_out()
        else:
            for number in range(begin, len(self._lines)):
                self._rows += self._pieces(number)
            self._resize()

    def set_wrapped(self, wrapped: bool) -> None:
        self.wrapped = wrapped
        self.set_class(not wrapped, "-cut")
        self._lay_out()

    def set_following(self, following: bool) -> None:
        self.following = following
        self.call_after_refresh(self._follow)

    def _follow(self) -> None:
        """Goes to the end, unless the user has scrolled since this was asked for."""
        if self.following:
            self.scroll_end(animate=False, x_axis=False, immediate=True)

    # Searching

    def search(self, text: str) -> None:
        """Highlights ``text`` and goes to its last match, the most recent one."""
        self.query_text = text
        self._current = -1
        found = self.match_lines
        if found:
            self._go_to_line(found[-1])
        self.refresh()

    def step(self, by: int) -> bool:
        """Goes to the next match, or the previous one with ``by`` -1; returns False without any."""
        found = self.match_lines
        if not found:
            return False
        at = found.index(self._current) if self._current in found else (-1 if by > 0 else 0)
        self._go_to_line(found[(at + by) % len(found)])
        return True

    def _go_to_line(self, line: int) -> None:
        self._current = line
        self.following = False
        row = next((n for n, (number, _) in enumerate(self._rows) if number == line), 0)
        self.scroll_to(y=max(0, row - self.size.height // 2), animate=False, immediate=True)
        self.refresh()

    # Drawing

    def _pieces(self, number: int) -> list[tuple[int, str]]:
        line = self._lines[number]
        if not self.wrapped or not self._width or cell_len(line) <= self._width:
            return [(number, line)]
        return [(number, piece) for piece in wrapped(line, self._width)]

    def _lay_out(self) -> None:
        self._rows = [piece for n in range(len(self._lines)) for piece in self._pieces(n)]
        self._resize()

    def _resize(self) -> None:
        # The empty line after the last line feed is not shown.
        count = len(self._rows) - (1 if self._rows and not self._rows[-1][1] else 0)
        self.virtual_size = Size(self._width if self.wrapped else self._widest, count)
        self.call_after_refresh(self._follow)
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        if self.scrollable_content_region.width != self._width:
            self._width = self.scrollable_content_region.width
            self._lay_out()

    def render_line(self, y: int) -> Strip:
        left, top = self.scroll_offset
        base = self.rich_style
        width = self.size.width
        row = top + y
        if not self._rows and (lines := wrapped(self.empty_text, width))[row:]:
            said = Segment(lines[row], base + Style(dim=True))
            return Strip([said]).adjust_cell_length(width, base)
        if row >= len(self._rows):
            return Strip.blank(width, base)
        number, text = self._rows[row]
        segments = [Segment(text, base)]
        if self.query_text:
            found = "log--current" if number == self._current else "log--match"
            segments = _highlight(text, self.query_text, base, self.get_component_rich_style(found))
        return Strip(segments).crop_extend(left, left + width, base)

    # Moving

    def _moved(self) -> None:
        self.following = self.scroll_y >= self.max_scroll_y

    def action_move(self, by: int) -> None:
        self.scroll_relative(y=by, animate=False, immediate=True)
        self._moved()

    def action_page(self, by: float) -> None:
        self.scroll_relative(y=by * self.size.height, animate=False, immediate=True)
        self._moved()

    def action_top(self) -> None:
        self.following = False
        self.scroll_home(animate=False, immediate=True)

    def action_bottom(self) -> None:
        self.set_following(True)

    def on_mouse_scroll_up(self) -> None:
        self.following = False


def wrapped(line: str, width: int) -> list[str]:
    """Returns a line in pieces of at most ``width`` cells, cut between words where there are some.

    >>> wrapped("root at 5099 ms, network", 10), wrapped("a" * 5, 3)
    (['root at', '5099 ms,', 'network'], ['aaa', 'aa'])
    """
    pieces = []
    while cell_len(line) > width:
        piece = chop_cells(line[:width], width)[0]
        if line[len(piece)] != " " and (blank := piece.rfind(" ")) > width // 3:
            piece = piece[:blank]
        pieces.append(piece)
        line = line[len(piece) :].removeprefix(" ")
    return [*pieces, line]


def _highlight(text: str, needle: str, base: Style, found: Style) -> list[Segment]:
    """Returns ``text`` with every match of ``needle``, ignoring case, in another style."""
    segments: list[Segment] = []
    lower, begin = text.lower(), 0
    # Some letters change their length in lower case; then nothing is highlighted.
    while len(lower) == len(text) and (at := lower.find(needle.lower(), begin)) >= 0:
        segments.append(Segment(text[begin:at], base))
        segments.append(Segment(text[at : at + len(needle)], base + found))
        begin = at + len(needle)
    segments.append(Segment(text[begin:], base))
    return segments


CLASSES = {"+": "diff--added", "-": "diff--removed", "@": "diff--head"}


class DiffText(LogView):
    """Shows the lines of a `TextDiff`; scrolled and searched like a log."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {*LogView.COMPONENT_CLASSES, *CLASSES.values()}
    DEFAULT_CSS = """
    DiffText > .diff--added { color: $text-success; }
    DiffText > .diff--removed { color: $text-error; }
    DiffText > .diff--head { color: $text-accent; }
    """

    def __init__(self, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(**options)
        self.following = False
        self._ascii = ascii_only
        self._signs: list[str] = []

    def show(self, lines: tuple[tuple[str, str], ...]) -> None:
        """Shows lines with their signs, from the first on."""
        self.clear()
        self._signs = [sign for sign, _ in lines]
        texts = [text if sign == "@" else f"{sign}{text}" for sign, text in lines]
        self.append([plain(text) for text in texts] if self._ascii else texts)
        self.scroll_to(y=0, x=0, animate=False, immediate=True)

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        row = self.scroll_offset.y + y
        if row >= len(self._rows):
            return strip
        number = self._rows[row][0]
        name = CLASSES.get(self._signs[number]) if number < len(self._signs) else None
        if name is None:
            return strip
        colour = Style(color=self.get_component_rich_style(name).color)
        coloured = [Segment(text, (style or Style.null()) + colour) for text, style, _ in strip]
        return Strip(coloured, strip.cell_length)
