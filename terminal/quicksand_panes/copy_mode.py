"""The copy mode of a pane, as tmux's with vi's keys: a cursor in the scrollback, selections, and
search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Final

from quicksand_vt import (
    FrozenLines,
    Lines,
    Matches,
    Motion,
    Position,
    Span,
    block_text,
    line_at,
    move,
    search_pattern,
    selected_text,
    word_at,
)

if TYPE_CHECKING:
    from quicksand_vt import Terminal


class Shape(Enum):
    CHARACTERS = "characters"
    LINES = "lines"
    """Whole lines, with all their wrapped rows."""
    BLOCK = "block"


@dataclass(frozen=True, eq=False)
class Selection:
    """A selection from its anchor to the cursor, including both."""

    lines: Lines
    """The lines that it is a part of."""
    anchor: Position
    cursor: Position
    shape: Shape = Shape.CHARACTERS

    @classmethod
    def of_word(cls, lines: Lines, position: Position) -> Selection:
        """Returns a selection of the word at a position."""
        start, end = word_at(lines, position)
        return cls(lines, start, end._replace(x=end.x - 1))

    def to(self, cursor: Position) -> Selection:
        """Returns the selection up to another position."""
        return replace(self, cursor=cursor)

    def swapped(self) -> Selection:
        """Returns the selection with anchor and cursor exchanged."""
        return replace(self, anchor=self.cursor, cursor=self.anchor)

    @cached_property
    def span(self) -> Span:
        """The selected cells; meaningless for a block."""
        first, last = sorted((self.anchor, self.cursor))
        if self.shape is Shape.LINES:
            return Span(line_at(self.lines, first).start, line_at(self.lines, last).end)
        cells = self.lines.cells(last.line)
        wide = last.x + 1 < len(cells) and not cells[last.x + 1]
        return Span(first, last._replace(x=last.x + 1 + wide))

    @property
    def text(self) -> str:
        """The selected text; wrapped rows are joined, except in a block."""
        if self.shape is Shape.BLOCK:
            return block_text(self.lines, self.anchor, self.cursor)
        return selected_text(self.lines, self.span)

    def columns(self, number: int) -> range:
        """Returns the selected columns of a line."""
        if self.shape is Shape.BLOCK:
            top, bottom = sorted((self.anchor.line, self.cursor.line))
            left, right = sorted((self.anchor.x, self.cursor.x))
            return range(left, right + 1) if top <= number <= bottom else range(0)
        return columns_of(self.span, number, self.lines.columns)


def columns_of(span: Span, number: int, columns: int) -> range:
    """Returns the columns of a line of ``columns`` cells that are in a span."""
    start, end = span
    if not start.line <= number <= end.line:
        return range(0)
    first = start.x if number == start.line else 0
    return range(first, end.x if number == end.line else columns)


def told_size(text: str) -> str:
    """Returns the size of a text in words."""
    lines = text.count("\n") + 1
    amount = f"{len(text)} character" + ("s" if len(text) != 1 else "")
    return f"{lines} lines, {amount}" if lines > 1 else amount


class Highlight:
    """A selection on a live terminal. The scrollback never changes; lines on the screen are
    compared."""

    def __init__(self, selection: Selection, terminal: Terminal) -> None:
        self.selection = selection
        ends = (selection.anchor.line, selection.cursor.line)
        if selection.shape is not Shape.BLOCK:
            ends = (selection.span.start.line, selection.span.end.line)
        self._numbers = range(max(min(ends), terminal.screen_line), max(ends) + 1)
        self._texts = self._texts_in(selection.lines)
        self._layout = (terminal.columns, terminal.is_alternate)

    def holds(self, terminal: Terminal) -> bool:
        """Whether the selected text is still in its place."""
        layout = (terminal.columns, terminal.is_alternate)
        return layout == self._layout and self._texts_in(terminal) == self._texts

    def _texts_in(self, lines: Lines) -> list[str]:
        return [lines.text(number) for number in self._numbers]


TEXT_MAX: Final = 256
"""The longest text to search for, in characters."""

JUMPS_MAX: Final = 100
"""The most ``n`` keys remembered while a search is running."""


class Prompt:
    """The text typed after ``/`` or ``?``."""

    def __init__(self, *, backward: bool) -> None:
        self.backward = backward
        self.text = ""

    def __str__(self) -> str:
        return ("?" if self.backward else "/") + self.text

    def edit(self, key: str) -> bool:
        """Takes a key, a character or a name; returns whether it changed the text."""
        before = self.text
        if key == "backspace":
            self.text = self.text[:-1]
        elif key == "ctrl+u":
            self.text = ""
        elif key == "ctrl+w":
            self.text = self.text.rstrip().rpartition(" ")[0]
        elif len(key) == 1:
            self.add(key)
        return self.text != before

    def add(self, text: str) -> None:
        """Adds the first line of a pasted text."""
        line = next(iter(text.splitlines()), "")
        kept = "".join(char for char in line if char.isprintable())
        self.text = (self.text + kept)[:TEXT_MAX]


class Search:
    """A search for a text. It runs in slices; jumps wait until it is done."""

    def __init__(self, lines: Lines, text: str, *, backward: bool) -> None:
        self.text = text
        self.backward = backward
        self.matches = Matches(lines, search_pattern(text))
        self._jumps: list[bool] = []
        """The jumps that wait; True is backward."""

    @property
    def is_done(self) -> bool:
        return self.matches.is_done and not self._jumps

    def jump(self, *, opposite: bool = False) -> None:
        """Asks for a jump to the next match in the search's direction, or the opposite one."""
        if len(self._jumps) < JUMPS_MAX:
            self._jumps.append(self.backward is not opposite)

    def go_on(self, seconds: float) -> None:
        """Searches for this time."""
        if not self.matches.is_done:
            self.matches.go_on(seconds)

    def take_jumps(self, position: Position) -> tuple[Span | None, str]:
        """Carries out the waiting jumps; returns the match they lead to, and a message."""
        target: Span | None = None
        note = ""
        for backward in self._jumps:
            following = (self.matches.before if backward else self.matches.after)(position)
            if following is None:
                note = f"No match: {self.text}"
                break
            if (following.start >= position) if backward else (following.start <= position):
                note = "From the end again" if backward else "From the beginning again"
            target, position = following, following.start
        self._jumps.clear()
        return target, note

    def told(self, position: Position) -> str:
        """Returns the number of matches, and which of them is at ``position``, in words."""
        count = self.matches.count
        if not self.matches.is_done:
            return f"{count} matches…"
        if not count:
            return "no match"
        here = [span for span in self.matches.on_line(position.line) if span.start == position]
        words = f"{count} match" + ("es" if count > 1 else "")
        return f"{self.matches.rank(here[0])} of {words}" if here else words


HINT: Final = "v selects, y copies, / searches, [ ] prompts, q leaves"

COUNT_MAX: Final = 999
"""The largest number in front of a motion, which repeats it."""

_MOTIONS: Final = {
    **{motion.value: motion for motion in Motion},
    **{"left": Motion.LEFT, "right": Motion.RIGHT, "up": Motion.UP, "down": Motion.DOWN},
    **{"backspace": Motion.LEFT, "home": Motion.LINE_START, "end": Motion.LINE_END},
    **{"ctrl+left": Motion.WORD_BACK, "ctrl+right": Motion.WORD_NEXT},
    **{"ctrl+n": Motion.DOWN, "ctrl+p": Motion.UP},
}

_SAME: Final = {"ctrl+j": "enter", "ctrl+m": "enter", "ctrl+h": "backspace"}
"""Keys that many terminals send as other keys."""

_SHAPES: Final = {"v": Shape.CHARACTERS, "V": Shape.LINES, "ctrl+v": Shape.BLOCK}


@dataclass(frozen=True, slots=True)
class Left:
    """Copy mode has ended, with the copied text or none."""

    copied: str = ""


class CopyMode:
    """The state of copy mode: view, cursor, selection and search."""

    def __init__(
        self, lines: FrozenLines, *, height: int, cursor: Position, leaves_at_end: bool = False
    ) -> None:
        """With ``leaves_at_end`` (the wheel began it), it ends when the view reaches the last
        line."""
        self.lines = lines
        self.height = max(1, height)
        self.top = self._last_top
        self.cursor = cursor
        self.selection: Selection | None = None
        self.search: Search | None = None
        self.prompt: Prompt | None = None
        self.note = ""
        """A message, shown until the next key."""
        self.leaves_at_end = leaves_at_end
        self._count = ""
        self._origin: tuple[Position, int, Search | None] = (cursor, self.top, None)
        """Cursor, view and search before the user began to type a search."""
        self._commands: dict[str, Callable[[], Left | None]] = {
            "q": Left,
            "ctrl+c": Left,
            "escape": self._escape,
            "y": self._copy,
            "enter": self._copy,
            "Y": self._copy_line,
            "o": self._swap,
            " ": self._select_anew,
            "/": lambda: self._begin_typing(backward=False),
            "?": lambda: self._begin_typing(backward=True),
            "n": lambda: self._jump(opposite=False),
            "N": lambda: self._jump(opposite=True),
        }

    # Display

    @property
    def told(self) -> str:
        """The position, for the title."""
        number = self.cursor.line - self.lines.first_line + 1
        words = f"copy mode {number}/{self.lines.end_line - self.lines.first_line}"
        return f"{words} · {self.search.told(self.cursor)}" if self.search is not None else words

    @property
    def bar(self) -> str:
        """The text that replaces the last row of the view; mostly ""."""
        return str(self.prompt) if self.prompt is not None else self.note

    def matches_on(self, number: int) -> list[Span]:
        return self.search.matches.on_line(number) if self.search is not None else []

    @property
    def is_at_end(self) -> bool:
        """Whether the view is at the end of the lines."""
        return self.top >= self._last_top

    # Keys

    def press(self, key: str) -> Left | None:
        """Takes a key, a character or a name. Returns `Left` if it ends copy mode."""
        self.note = ""
        key = _SAME.get(key, key)
        if self.prompt is not None:
            self._press_in_prompt(self.prompt, key)
            return None
        if key.isdecimal() and len(key) == 1 and (self._count or key != "0"):
            self._count = str(min(int(self._count + key), COUNT_MAX))
            return None
        count, self._count = int(self._count or 1), ""
        if key in _MOTIONS:
            for _ in range(count):
                self.cursor = move(self.lines, self.cursor, _MOTIONS[key])
            self._cursor_moved()
        elif key in _SHAPES:
            self._select(_SHAPES[key])
        elif key in self._commands:
            return self._commands[key]()
        else:
            self._press_for_view(key, count)
        return None

    def _press_for_view(self, key: str, count: int) -> None:
        """Handles keys that move relative to the view."""
        page = max(1, self.height - 2)
        half = max(1, self.height // 2)
        steps = {
            **{"ctrl+u": -half, "ctrl+d": half, "ctrl+y": -1, "ctrl+e": 1},
            **{"ctrl+b": -page, "pageup": -page, "ctrl+f": page, "pagedown": page},
        }
        places = {"H": 0, "M": self.height // 2, "L": self.height - 1}
        if key in steps:
            line = self.cursor.line + steps[key] * count
            self.scroll(steps[key] * count)
            if key not in ("ctrl+y", "ctrl+e"):
                self.cursor = self._nearest(self.cursor._replace(line=line))
                self._cursor_moved()
        elif key in places:
            self.cursor = self._nearest(Position(self.top + places[key], 0))
            self._cursor_moved()

    def _escape(self) -> Left | None:
        if self.selection is not None:
            self.selection = None
        elif self.search is not None:
            self.search = None
        else:
            return Left()
        return None

    # Moving

    @property
    def _last_top(self) -> int:
        return max(self.lines.first_line, self.lines.end_line - self.height)

    def _nearest(self, position: Position) -> Position:
        """Returns the nearest position where a character begins."""
        line = min(max(position.line, self.lines.first_line), self.lines.end_line - 1)
        x = min(max(position.x, 0), self.lines.columns - 1)
        cells = self.lines.cells(line)
        return Position(line, x - 1 if 0 < x < len(cells) and not cells[x] else x)

    def _cursor_moved(self) -> None:
        """Scrolls to the cursor, and extends the selection to it."""
        line = self.cursor.line
        self.top = max(line - self.height + 1, min(line, self.top))
        if self.selection is not None:
            self.selection = self.selection.to(self.cursor)

    def scroll(self, lines: int) -> None:
        """Moves the view by ``lines``, down if positive; the cursor stays inside."""
        self.top = min(max(self.top + lines, self.lines.first_line), self._last_top)
        line = min(max(self.cursor.line, self.top), self.top + self.height - 1)
        self.cursor = self._nearest(self.cursor._replace(line=line))
        self._cursor_moved()

    def point(self, position: Position) -> None:
        """Moves the cursor, and drops the selection."""
        self.selection = None
        self.cursor = self._nearest(position)

    def select(self, selection: Selection) -> None:
        self.selection = selection
        self.cursor = self._nearest(selection.cursor)

    def drag(self, anchor: Position, position: Position, shape: Shape) -> None:
        """Selects from ``anchor`` to ``position``, which may be outside the view."""
        anchor, self.cursor = self._nearest(anchor), self._nearest(position)
        self.selection = Selection(self.lines, anchor, self.cursor, shape)
        self._cursor_moved()

    def resize(self, height: int) -> None:
        """Changes the number of visible lines."""
        at_end = self.is_at_end
        self.height = max(1, height)
        self.top = self._last_top if at_end else min(self.top, self._last_top)
        line = self.cursor.line
        self.top = max(line - self.height + 1, min(line, self.top))

    def thaw(self, lines: FrozenLines) -> None:
        """Replaces the lines after the terminal has laid them out anew. The selection is dropped;
        the cursor keeps its distance from the end."""
        from_end = self.lines.end_line - self.cursor.line
        above = self.cursor.line - self.top
        self.lines = lines
        self.selection = None
        self.prompt = None
        if self.search is not None:
            self.search = Search(lines, self.search.text, backward=self.search.backward)
        self.cursor = self._nearest(Position(lines.end_line - from_end, self.cursor.x))
        self.top = min(max(self.cursor.line - above, lines.first_line), self._last_top)
        self._cursor_moved()

    # Selecting

    def _select(self, shape: Shape) -> None:
        """Begins a selection, changes its shape, or drops it on the same key."""
        if self.selection is None:
            self.selection = Selection(self.lines, self.cursor, self.cursor, shape)
        elif self.selection.shape is shape:
            self.selection = None
        else:
            before = self.selection
            self.selection = Selection(self.lines, before.anchor, before.cursor, shape)

    def _select_anew(self) -> None:
        self.selection = Selection(self.lines, self.cursor, self.cursor)

    def _swap(self) -> None:
        if self.selection is not None:
            self.selection = self.selection.swapped()
            self.cursor = self.selection.cursor
            self._cursor_moved()

    def _copy(self) -> Left | None:
        if self.selection is None:
            self.note = "Nothing is selected: v begins, Y copies the line"
            return None
        return self._leave_with(self.selection.text)

    def _copy_line(self) -> Left | None:
        return self._leave_with(selected_text(self.lines, line_at(self.lines, self.cursor)))

    def _leave_with(self, text: str) -> Left | None:
        if not text:
            self.note = "There is no text to copy here"
            return None
        return Left(text)

    # Searching

    def _begin_typing(self, *, backward: bool) -> None:
        self._origin = (self.cursor, self.top, self.search)
        self.prompt = Prompt(backward=backward)

    def _press_in_prompt(self, prompt: Prompt, key: str) -> None:
        if key in ("escape", "ctrl+c") or (key == "backspace" and not prompt.text):
            self.prompt = None
            self._back_to_origin()
            self.search = self._origin[2]
        elif key == "enter":
            self.prompt = None
            before = self._origin[2]
            if not prompt.text and before is not None:
                self.search = Search(self.lines, before.text, backward=prompt.backward)
                self.search.jump()
        elif prompt.edit(key):
            self._look_for(prompt)

    def paste(self, text: str) -> bool:
        """Adds pasted text to the search; returns False if none is being typed."""
        if self.prompt is None:
            return False
        self.prompt.add(text)
        self._look_for(self.prompt)
        return True

    def _look_for(self, prompt: Prompt) -> None:
        """Searches from the original cursor while the user types."""
        self._back_to_origin()
        self.search = None
        if prompt.text:
            self.search = Search(self.lines, prompt.text, backward=prompt.backward)
            self.search.jump()

    def _back_to_origin(self) -> None:
        self.cursor, self.top, _ = self._origin
        self._cursor_moved()

    def _jump(self, *, opposite: bool) -> None:
        if self.search is None:
            self.note = "Nothing was searched for: / begins"
        else:
            self.search.jump(opposite=opposite)

    @property
    def is_searching(self) -> bool:
        """Whether `search_on` has something to do."""
        return self.search is not None and not self.search.is_done

    def search_on(self, seconds: float) -> None:
        """Searches for this time; when the search is done, jumps to the match."""
        if self.search is None:
            return
        self.search.go_on(seconds)
        if self.search.matches.is_done:
            match, note = self.search.take_jumps(self.cursor)
            self.note = note or self.note
            if match is not None:
                self.cursor = match.start
                self._cursor_moved()
