"""`cp` and a disk that is too full: the question, and what answers it."""

from __future__ import annotations

import sys
from typing import Any

import click
import pytest

from quicksand_tui.cli.guests import copy
from quicksand_tui.cli.guests.transfer import NotEnoughSpaceError
from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each copy that was made was to fill the disk; none fits without that."""
    made: list[bool] = []

    def attempt(*_: Any, to_the_full: bool, **__: Any) -> int:
        made.append(to_the_full)
        if not to_the_full:
            raise NotEnoughSpaceError("5 GiB are to be copied", hint="say --yes")
        return Exit.OK

    monkeypatch.setattr(copy, "_copy", attempt)
    return made


def test_without_a_terminal_it_is_refused_and_says_what_goes_on(
    copies: list[bool], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cp", "box:/x", "."]) == Exit.FAILURE
    assert copies == [False]
    assert "hint: say --yes" in capsys.readouterr().err


def test_with_the_word_nothing_is_asked(copies: list[bool]) -> None:
    assert run(["cp", "--yes", "box:/x", "."]) == Exit.OK
    assert copies == [True]


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_it_is_asked(
    copies: list[bool], monkeypatch: pytest.MonkeyPatch, answer: bool
) -> None:
    asked: list[str] = []

    def confirm(question: str, *, default: bool, err: bool) -> bool:
        assert (default, err) == (False, True)
        asked.append(question)
        return answer

    monkeypatch.setattr(click, "confirm", confirm)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run(["cp", "box:/x", "."]) == (Exit.OK if answer else Exit.FAILURE)
    assert copies == ([False, True] if answer else [False])
    assert asked == ["5 GiB are to be copied. Copy until the disk is full?"]
