"""Copy mode of a pane, as tmux's with the keys of vi: a cursor in all that was shown, to look,
search and select. No widgets: the pane draws it, and passes it keys.

The lines are frozen when it begins. Output goes on behind it, and changes nothing of what is looked
at, searched and copied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from quicksand_tui.panes.copy_search import Prompt, Search
from quicksand_tui.panes.selection import Selection, Shape
from quicksand_tui.terminal import FrozenLines, Motion, Position, Span, line_at, move, selected_text

HINT: Final = "v selects, y copies, / searches, [ ] prompts, q leaves"

COUNT_MAX: Final = 999
"""How often a motion is done that a number is typed before."""

_MOTIONS: Final = {
    **{motion.value: motion for motion in Motion},
    **{"left": Motion.LEFT, "right": Motion.RIGHT, "up": Motion.UP, "down": Motion.DOWN},
    **{"backspace": Motion.LEFT, "home": Motion.LINE_START, "end": Motion.LINE_END},
    **{"ctrl+left": Motion.WORD_BACK, "ctrl+right": Motion.WORD_NEXT},
    **{"ctrl+n": Motion.DOWN, "ctrl+p": Motion.UP},
}

_SAME: Final = {"ctrl+j": "enter", "ctrl+m": "enter", "ctrl+h": "backspace"}
"""Keys that send what another one does, in some terminals or in most."""

_SHAPES: Final = {"v": Shape.CHARACTERS, "V": Shape.LINES, "ctrl+v": Shape.BLOCK}


@dataclass(frozen=True, slots=True)
class Left:
    """Copy mode is over."""

    copied: str = ""


class CopyMode:
    """Where the view is, the cursor, what is selected and what was searched for."""

    def __init__(
        self, lines: FrozenLines, *, height: int, cursor: Position, leaves_at_end: bool = False
    ) -> None:
        """``leaves_at_end``: it began by looking back, and is over when the view is down again."""
        self.lines = lines
        self.height = max(1, height)
        self.top = self._last_top
        self.cursor = cursor
        self.selection: Selection | None = None
        self.search: Search | None = None
        self.prompt: Prompt | None = None
        self.note = ""
        """What to tell until the next key."""
        self.leaves_at_end = leaves_at_end
        self._count = ""
        self._origin: tuple[Position, int, Search | None] = (cursor, self.top, None)
        """Where the cursor and the view were, and the search before, when typing one began."""
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

    # What is shown

    @property
    def told(self) -> str:
        """Where it is, for a title."""
        number = self.cursor.line - self.lines.first_line + 1
        words = f"copy mode {number}/{self.lines.end_line - self.lines.first_line}"
        return f"{words} · {self.search.told(self.cursor)}" if self.search is not None else words

    @property
    def bar(self) -> str:
        """What the last row of the view says instead of its line; mostly nothing."""
        return str(self.prompt) if self.prompt is not None else self.note

    def matches_on(self, number: int) -> list[Span]:
        return self.search.matches.on_line(number) if self.search is not None else []

    @property
    def is_at_end(self) -> bool:
        """The view is where it was when copy mode began, or below."""
        return self.top >= self._last_top

    # Keys

    def press(self, key: str) -> Left | None:
        """Take a key: the character that it types, or its name."""
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
        """Keys that go by what is seen."""
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
        """The nearest place that there is, where a character begins."""
        line = min(max(position.line, self.lines.first_line), self.lines.end_line - 1)
        x = min(max(position.x, 0), self.lines.columns - 1)
        cells = self.lines.cells(line)
        return Position(line, x - 1 if 0 < x < len(cells) and not cells[x] else x)

    def _cursor_moved(self) -> None:
        """Show the cursor, and select up to it."""
        line = self.cursor.line
        self.top = max(line - self.height + 1, min(line, self.top))
        if self.selection is not None:
            self.selection = self.selection.to(self.cursor)

    def scroll(self, lines: int) -> None:
        """Move the view, down if ``lines`` is positive; the cursor stays in it."""
        self.top = min(max(self.top + lines, self.lines.first_line), self._last_top)
        line = min(max(self.cursor.line, self.top), self.top + self.height - 1)
        self.cursor = self._nearest(self.cursor._replace(line=line))
        self._cursor_moved()

    def point(self, position: Position) -> None:
        """Put the cursor somewhere, with nothing selected."""
        self.selection = None
        self.cursor = self._nearest(position)

    def select(self, selection: Selection) -> None:
        """Have something selected."""
        self.selection = selection
        self.cursor = self._nearest(selection.cursor)

    def drag(self, anchor: Position, position: Position, shape: Shape) -> None:
        """Select from one place to another, which may be beyond what is seen."""
        anchor, self.cursor = self._nearest(anchor), self._nearest(position)
        self.selection = Selection(self.lines, anchor, self.cursor, shape)
        self._cursor_moved()

    def resize(self, height: int) -> None:
        """Show another number of lines."""
        at_end = self.is_at_end
        self.height = max(1, height)
        self.top = self._last_top if at_end else min(self.top, self._last_top)
        line = self.cursor.line
        self.top = max(line - self.height + 1, min(line, self.top))

    def thaw(self, lines: FrozenLines) -> None:
        """Have other lines: those of before were laid out anew. What was selected is not there any
        more; the cursor stays as far from the end as it was."""
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
        """Begin to select, change the shape, or end it with the same key."""
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
        """Take pasted text for what is searched for; False if none is typed now."""
        if self.prompt is None:
            return False
        self.prompt.add(text)
        self._look_for(self.prompt)
        return True

    def _look_for(self, prompt: Prompt) -> None:
        """Search from where the cursor was, as one types."""
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
        """Search for so long; at the end go where it leads."""
        if self.search is None:
            return
        self.search.go_on(seconds)
        if self.search.matches.is_done:
            found, note = self.search.take_jumps(self.cursor)
            self.note = note or self.note
            if found is not None:
                self.cursor = found.start
                self._cursor_moved()
