"""Real programs, as `record` recorded them: our screen is tmux's, cell by cell."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from quicksand_vt import Style, Terminal
from quicksand_vt.style import PLAIN

from tests.each import each
from tests.unit.terminal.soundness import check_sound, picture
from tests.unit.terminal.tmux import tmux_screen

RECORDINGS = sorted(Path(__file__).with_name("recordings").glob("*.bin"))

Cell = tuple[str, Style]


def shown(terminal: Terminal) -> list[list[Cell]]:
    """Characters and styles of the screen, without the blanks that end a row and have no style."""
    rows = []
    for number in range(terminal.screen_line, terminal.end_line):
        styles = [run.style for run in terminal.line(number) for _ in range(run.columns)]
        row = list(zip(terminal.cells(number), styles, strict=False))
        while row and row[-1] == (" ", PLAIN):
            row.pop()
        rows.append(row)
    return rows


def tmux_shown(screen: dict[str, Any]) -> list[list[Cell]]:
    """What tmux showed. It writes each row down in simple terms, which our own terminal reads: with
    line drawing in G1, and colours that go on from row to row."""
    terminal = Terminal(screen["columns"], screen["rows"])
    terminal.feed(b"\x1b)0\x1b[?7l")
    for y, line in enumerate(screen["lines"]):
        terminal.feed(f"\x1b[{y + 1}H{line}".encode())
    return shown(terminal)


@each("path", RECORDINGS, ids=lambda path: path.stem)
def test_the_screen_is_that_of_tmux(path: Path) -> None:
    data = path.read_bytes()
    screen = json.loads(path.with_suffix(".json").read_text())
    check(data, screen)


def check(data: bytes, screen: dict[str, Any]) -> None:
    terminal = Terminal(screen["columns"], screen["rows"])
    terminal.feed(data)
    check_sound(terminal)
    for y, (ours, expected) in enumerate(zip(shown(terminal), tmux_shown(screen), strict=True)):
        # What was erased at the end of a row, tmux does not tell, whatever colour it has.
        row, erased = ours[: len(expected)], ours[len(expected) :]
        assert "".join(cell for cell, _ in row) == "".join(cell for cell, _ in expected), y
        assert row == expected, y
        assert all(cell == " " and style == Style(bg=style.bg) for cell, style in erased), y
    assert terminal.is_alternate == screen["alternate"]
    cursor = terminal.cursor
    x, y = screen["cursor"]
    # While a wrap is pending, tmux's cursor is behind the last column.
    assert (cursor.x, cursor.line - terminal.screen_line) == (min(x, terminal.columns - 1), y)


@each("path", RECORDINGS, ids=lambda path: path.stem)
def test_it_makes_no_difference_how_a_program_writes(path: Path) -> None:
    data = path.read_bytes()
    whole, cut = Terminal(), Terminal()
    whole.feed(data)
    for start in range(0, len(data), 7):
        cut.feed(data[start : start + 7])
    assert picture(cut) == picture(whole)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_the_screen_is_that_of_this_tmux(path: Path) -> None:
    data = path.read_bytes()
    check(data, tmux_screen(data))


def test_there_are_recordings() -> None:
    assert len(RECORDINGS) > 10
