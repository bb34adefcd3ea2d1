"""`exec` without options is run without the reader of command lines, and is the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quicksand_tui.cli import click_commands, main
from quicksand_tui.cli.guests import exec as exec_module
from quicksand_tui.cli.guests import executing
from tests.each import each

WORDS = st.one_of(
    st.sampled_from(["--", "-", "-x", "--json", "--help", "exec", "", "-i", "true", "a b"]),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8),
)


class Runs:
    """Notes what would be run."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.said: list[Any] = []
        patch.setattr(executing, "execute", self)
        patch.setattr(exec_module, "execute", self)

    def __call__(self, name: str, wish: Any, run: Any = executing.run_command) -> int:
        self.said.append((name, wish, run))
        return 7


@given(WORDS, st.lists(WORDS, max_size=4))
def test_the_plain_line_means_what_it_means_to_click(name: str, command: list[str]) -> None:
    argv = ["exec", name, "--", *command]
    with pytest.MonkeyPatch.context() as patch:
        runs = Runs(patch)
        plain = executing.execute_plainly(argv)
        if plain is None:
            assert name.startswith("-") or not command
            return
        assert (plain, click_commands.invoke(argv)) == (7, 7)
        assert runs.said[0] == runs.said[1]


@each(
    "line",
    [
        ["exec"],
        ["exec", "box"],
        ["exec", "box", "true"],
        ["exec", "box", "--"],
        ["exec", "-i", "box", "--", "cat"],
        ["exec", "box", "-i", "--", "cat"],
        ["exec", "--help", "--", "x"],
        ["run", "box", "--", "true"],
    ],
    ids=" ".join,
)
def test_every_other_line_is_read_by_click(line: list[str]) -> None:
    assert executing.execute_plainly(line) is None


def test_errors_are_told_in_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    plain = main.run(["exec", "nobody", "--", "true"]), capsys.readouterr()
    read = main.run(["exec", "nobody", "true"]), capsys.readouterr()
    assert plain == read
    assert plain[0] == 125
