"""`each` tells what a parametrized test would have told, and refuses what it cannot do."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import pytest

from tests.each import each, trying


def test_every_value_is_tried_and_those_that_fail_are_named() -> None:
    tried = []

    @each("number, word", [(1, "a"), pytest.param(2, "b", id="second"), (3, "c")])
    def test(number: int, word: str) -> None:
        tried.append((number, word))
        assert number == 1, word

    with pytest.raises(ExceptionGroup, match="2 of 3 cases failed") as caught:
        test()
    assert tried == [(1, "a"), (2, "b"), (3, "c")]
    notes = [error.__notes__ for error in caught.value.exceptions]
    assert notes == [["with number, word: second"], ["with number, word: 3, 'c'"]]


def test_one_above_another_tries_all_pairs(tmp_path: Path) -> None:
    tried: list[tuple[int, str, str]] = []

    @each("number", [1, 2])
    @each("word", ["a", "b"])
    def test(number: int, word: str, tmp_path: Path) -> None:
        assert not [*tmp_path.iterdir()]
        (tmp_path / "used").touch()
        tried.append((number, word, str(tmp_path)))

    test(tmp_path=tmp_path)
    assert [(number, word) for number, word, _ in tried] == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    assert len({place for _, _, place in tried}) == 4


async def test_what_a_value_patched_and_printed_is_gone_with_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @each("word", ["a", "b"])
    async def test(
        word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert not os.environ.get("PATCHED_BY_A_CASE")
        monkeypatch.setenv("PATCHED_BY_A_CASE", word)
        print(word)
        assert capsys.readouterr().out == f"{word}\n"
        print(word)

    await test(monkeypatch=monkeypatch, capsys=capsys)


def test_pytest_is_asked_for_the_fixtures_that_are_left() -> None:
    @each("number", [1, 2])
    def test(number: int, tmp_path: Path) -> None: ...

    assert [*inspect.signature(test).parameters] == ["tmp_path"]


def test_a_value_is_named_that_is_tried_behind_others() -> None:
    with pytest.raises(AssertionError) as found:
        for word in ("a", "b"):
            with trying(word):
                assert word == "a"
    assert found.value.__notes__ == ["with b"]


def test_marks_of_one_value_are_refused() -> None:
    with pytest.raises(AssertionError, match="a mark is for all cases"):
        each("number", [pytest.param(1, marks=pytest.mark.skip)])(print)
