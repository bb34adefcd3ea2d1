"""Searching in copy mode: what is typed behind ``/``, and the way from match to match."""

from __future__ import annotations

from typing import Final

from quicksand_tui.terminal import Lines, Matches, Position, Span, search_pattern

TEXT_MAX: Final = 256
"""Characters that can be searched for."""

JUMPS_MAX: Final = 100
"""Keys ``n`` that are heeded while a search is not done yet."""


class Prompt:
    """What is typed behind ``/`` or ``?``."""

    def __init__(self, *, backward: bool) -> None:
        self.backward = backward
        self.text = ""

    def __str__(self) -> str:
        return ("?" if self.backward else "/") + self.text

    def edit(self, key: str) -> bool:
        """Take a key: a character or a name. Returns whether the text is another one."""
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
        """Of a pasted text, the first line."""
        line = next(iter(text.splitlines()), "")
        kept = "".join(char for char in line if char.isprintable())
        self.text = (self.text + kept)[:TEXT_MAX]


class Search:
    """A text, and where it is found. Searching is done in slices; jumps wait until it is done."""

    def __init__(self, lines: Lines, text: str, *, backward: bool) -> None:
        self.text = text
        self.backward = backward
        self.matches = Matches(lines, search_pattern(text))
        self._jumps: list[bool] = []
        """Directions: whether backward."""

    @property
    def is_done(self) -> bool:
        return self.matches.is_done and not self._jumps

    def jump(self, *, opposite: bool = False) -> None:
        """Go to the next match in its direction, or the other one: when it is known."""
        if len(self._jumps) < JUMPS_MAX:
            self._jumps.append(self.backward is not opposite)

    def go_on(self, seconds: float) -> None:
        """Search for so long."""
        if not self.matches.is_done:
            self.matches.go_on(seconds)

    def take_jumps(self, position: Position) -> tuple[Span | None, str]:
        """Where the jumps lead that were wanted, and what there is to say of them."""
        found: Span | None = None
        note = ""
        for backward in self._jumps:
            following = (self.matches.before if backward else self.matches.after)(position)
            if following is None:
                note = f"No match: {self.text}"
                break
            if (following.start >= position) if backward else (following.start <= position):
                note = "From the end again" if backward else "From the beginning again"
            found, position = following, following.start
        self._jumps.clear()
        return found, note

    def told(self, position: Position) -> str:
        """How many matches there are, and which of them is at a place."""
        count = self.matches.count
        if not self.matches.is_done:
            return f"{count} matches…"
        if not count:
            return "no match"
        here = [span for span in self.matches.on_line(position.line) if span.start == position]
        words = f"{count} match" + ("es" if count > 1 else "")
        return f"{self.matches.rank(here[0])} of {words}" if here else words
