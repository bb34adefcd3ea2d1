"""Putting a terminal right."""

from __future__ import annotations

import pytest

from quicksand_tui.cli.terminal import ModeTracker

VIM = b"\x1b[?1049h\x1b[22;0;0t\x1b[?1h\x1b=\x1b[?2004h\x1b[?25l\x1b[?1006;1000h"


def undo_of(*pieces: bytes) -> bytes:
    tracker = ModeTracker()
    for piece in pieces:
        tracker.feed(piece)
    return tracker.undo()


def test_a_terminal_that_was_not_touched_is_left_alone() -> None:
    assert undo_of(b"ls\r\nfile\r\n") == b""


def test_what_an_editor_set_is_undone_the_alternate_screen_first() -> None:
    undo = undo_of(VIM)
    assert undo.startswith(b"\x1b[?1049l")
    for mode in (b"\x1b[?1l", b"\x1b[?2004l", b"\x1b[?25h", b"\x1b[?1006l", b"\x1b[?1000l"):
        assert mode in undo


def test_what_the_program_undid_itself_is_not_undone_again() -> None:
    undo = undo_of(VIM, b"\x1b[?1049l\x1b[?1l\x1b[?2004l\x1b[?25h\x1b[?1006;1000l")
    assert b"\x1b[?" not in undo


@pytest.mark.parametrize("cut", range(1, 9))
def test_sequences_may_be_split(cut: int) -> None:
    sequence = b"\x1b[?1049h"
    assert b"\x1b[?1049l" in undo_of(b"text" + sequence[:cut], sequence[cut:])


def test_pushed_keyboard_modes_are_popped() -> None:
    assert undo_of(b"\x1b[>1u\x1b[>5u\x1b[<u").count(b"\x1b[<u") == 1


def test_a_flood_of_modes_takes_no_memory() -> None:
    tracker = ModeTracker()
    for number in range(100_000):
        tracker.feed(b"\x1b[?%dh" % number)
    assert len(tracker.undo()) < 4096
