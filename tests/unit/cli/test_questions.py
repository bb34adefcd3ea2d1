"""What a real terminal is shown of a guest's questions, and what becomes of its late answers."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.guest.shell import Piece
from quicksand.records.layout import MachineDir
from quicksand_vt import Terminal
from quicksand_vt.unasking import Unasking

from quicksand_tui.cli.guests.terminal import PROBE_S, LateAnswers, Questions
from quicksand_tui.door.terminal_place import AnswerRight
from tests.unit.panes.test_answers import QUESTIONS

MORE_QUESTIONS = (
    b"\x05\x1b[?u\x1b[?996n\x1b[14t\x1b[16t\x1b[21t\x1b[?1;1;0S\x1b[?1$p\x1b[1$w\x1b[x\x1b['|"
    b"\x1b[1;1;1;1;1;1*y\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b]52;c;?\x07\x1b]5;0;?\x07"
    b"\x1b]1337;ReportCellSize\x07\x1b]99;i=1:p=?;\x1b\\\x1b]60\x1b\\\x1b[&u\x1b[#R"
)
"""Of other terminals."""

DRAWN = (
    b"\x1b[?1049h\x1b[2J\x1b[5;3Hplain \x1b[1;31mred\x1b[m\r\n\x1b[4 q\x1b(0lqk\x1b(B\x1b[?25l"
    b"\x1b]0;title\x07\x1b]8;;http://x/\x07link\x1b]8;;\x07\x1b[2;5r\x1b7\x1b8\xe6\xbc\xa2\x1b[?7l"
)


@given(st.lists(st.integers(0, len(DRAWN) + len(QUESTIONS) + len(MORE_QUESTIONS))))
def test_what_asks_nothing_is_drawn_and_nothing_asks(cuts: list[int]) -> None:
    data = DRAWN + QUESTIONS + MORE_QUESTIONS
    unasking = Unasking()
    places = [0, *sorted(cuts), len(data)]
    shown = b"".join(unasking.feed(data[a:b]) for a, b in itertools.pairwise(places))
    assert shown == DRAWN
    assert unasking.unfinished == b""
    terminal = Terminal()
    terminal.feed(shown)
    assert terminal.take_replies() == b""


@given(st.binary(max_size=200))
def test_whatever_is_repeated_is_answered_by_no_terminal_of_ours(data: bytes) -> None:
    terminal = Terminal(cell_pixels=(8, 16))
    terminal.feed(Unasking().feed(data))
    assert terminal.take_replies() == b""


def test_a_terminal_speaks_by_itself_only_if_it_is_still_to() -> None:
    unasking = Unasking()
    modes = b"\x1b[?1004;25h\x1b[?1000h\x1b[?1006h\x1b[?2048h\x1b[?1004l"
    assert unasking.feed(modes) == b"\x1b[?25h\x1b[?1006h"
    assert unasking.settle() == b"\x1b[?1000h\x1b[?2048h"
    assert unasking.feed(b"\x1b[?1000l") + unasking.settle() == b"\x1b[?1000l"
    assert unasking.settle() == b""


@pytest.fixture
def machine(tmp_path: Path) -> MachineDir:
    return MachineDir(tmp_path)


def test_one_client_answers_and_the_next_one_when_it_leaves(machine: MachineDir) -> None:
    first, second = AnswerRight(machine, "p1"), AnswerRight(machine, "p1")
    other = AnswerRight(machine, "p2")
    assert first.take() and other.take()
    assert not second.takes_over()
    first.close()
    # What it has just been shown the first one may have answered.
    assert not second.takes_over()
    assert second.takes_over()
    again = AnswerRight(machine, "p1")
    assert not again.take()
    for right in (second, other, again):
        right.close()


def test_a_name_of_a_guest_is_no_path(machine: MachineDir) -> None:
    right = AnswerRight(machine, "../../x/\udcff\0")
    assert right.take()
    (path,) = machine.root.iterdir()
    assert re.fullmatch(r"answers-[0-9a-f]{16}\.lock", path.name)
    right.close()


def test_a_machine_that_has_gone_has_nobody_to_be_answered(tmp_path: Path) -> None:
    right = AnswerRight(MachineDir(tmp_path / "gone"), "p1")
    assert not right.take()
    right.close()


def test_our_terminal_sees_the_questions_of_now(machine: MachineDir) -> None:
    right = AnswerRight(machine, "p1")
    right.take()
    questions = Questions(right)
    assert questions.shown(Piece(b"old\x1b[6n\x1b[?1004h\x1b]11", replayed=True)) == b"old"
    assert questions.shown(Piece(b"", replayed=False)) == b"\x1b[?1004h\x1b]11"
    assert questions.shown(Piece(b";?\x07\x1b[6n", replayed=False)) == b";?\x07\x1b[6n"
    second = Questions(AnswerRight(machine, "p1"))
    assert second.shown(Piece(b"now\x1b[6n\x1b[?1004h", replayed=False)) == b"now\x1b[?1004h"
    right.close()


ANSWERS = (
    b"\x1b[?62;22;52c\x1b[>1;380;0c\x1bP!|00000000\x1b\\\x1b[0n\x1b[2;1R\x1b[?2;1;1R\x1b[?13n"
    b"\x1b[4;2$y\x1b[?2004;2$y\x1bP>|tmux 3.4\x1b\\\x1b[>4;0m\x1b[1t\x1b[8;31;80t\x1b[?0u"
    b"\x1b]4;1;rgb:cdcd/0000/0000\x07\x1b]11;rgb:0000/0000/0000\x1b\\\x1bP1$r0m\x1b\\\x1bP0+r\x1b\\"
    b"\x1b_Gi=31;OK\x1b\\\x1b[I\x1b[O\x1b[<0;3;4M"
)


@given(st.lists(st.integers(0, len(ANSWERS))))
def test_late_answers_are_not_typed_and_keys_are(cuts: list[int]) -> None:
    late = LateAnswers(clock=lambda: 0.0)
    data = b"ls\x1b[A" + ANSWERS + b"\x1bOP\xc3\xa9\r"
    places = [0, *sorted(cuts), len(data)]
    typed = b"".join(late.feed(data[a:b]) for a, b in itertools.pairwise(places))
    assert typed + late.release() == b"ls\x1b[A\x1bOP\xc3\xa9\r"


def test_answers_are_keys_again_a_while_after_ours_has_come() -> None:
    now = 0.0
    late = LateAnswers(clock=lambda: now)
    assert late.feed(b"\x1b[2;1R\x1b[?62c") == b""
    now = 0.1
    assert late.feed(b"\x1b[?62c") == b"", "the guest had asked for it, too"
    now = 0.3
    assert late.feed(b"\x1b[?62c") == b"\x1b[?62c"
    never = LateAnswers(clock=lambda: now)
    now += PROBE_S
    assert never.feed(b"\x1b[2;1R") == b"\x1b[2;1R"


def test_escape_is_a_key_when_nothing_follows() -> None:
    late = LateAnswers(clock=lambda: 0.0)
    assert late.feed(b"a\x1b") == b"a"
    assert late.holds
    assert late.release() == b"\x1b"
    assert late.feed(b"\x1b[?62") == b""
    assert late.release() == b"", "half an answer"
    assert late.feed(b"c") == b""
