"""What a case of conformance is, and how a screen is written down."""

from __future__ import annotations

from dataclasses import dataclass

from quicksand_vt import Terminal


@dataclass(frozen=True, slots=True)
class Case:
    """Output of a program, and what must come of it on a small screen."""

    name: str
    data: bytes
    rows: tuple[str, ...] | None = None
    """The screen without blanks at the end of rows, and without blank rows at the end."""
    cursor: tuple[int, int] | None = None
    """Column and row, from 0."""
    replies: bytes = b""
    size: tuple[int, int] = (10, 4)
    """Columns and rows."""

    def __str__(self) -> str:
        return self.name


def make_terminal(columns: int = 10, rows: int = 4, *, scrollback: int = 100) -> Terminal:
    """A small terminal whose clock stands still."""
    return Terminal(columns, rows, scrollback=scrollback, cell_pixels=(8, 16), clock=lambda: 0.0)


def screen_rows(terminal: Terminal) -> tuple[str, ...]:
    """The screen as a case has it."""
    return text_rows(terminal, terminal.screen_line)


def all_rows(terminal: Terminal) -> tuple[str, ...]:
    """The scrollback and the screen, likewise."""
    return text_rows(terminal, terminal.first_line)


def text_rows(terminal: Terminal, first: int) -> tuple[str, ...]:
    numbers = range(first, terminal.end_line)
    rows = ["".join(terminal.cells(number)).rstrip() for number in numbers]
    while rows and not rows[-1]:
        rows.pop()
    return tuple(rows)


def cursor_of(terminal: Terminal) -> tuple[int, int]:
    """Column and row on the screen."""
    return terminal.cursor.x, terminal.cursor.line - terminal.screen_line
