"""What is on the screen while the app is loaded."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from quicksand_vt import Terminal

from quicksand_tui.kit.outline import Looks, looks_of, outline, terminal_name
from quicksand_tui.ui.themes import THEMES
from quicksand_tui.views.main_layout import Shape, Tab
from tests.conftest import wait_for
from tests.pty_terminal import WHOLE, PtyTerminal
from tests.unit.kit.test_probing import APP, RAISING, ends_by, first, given_back, recording

ENVIRON = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
"""As `PtyTerminal` has it."""
LOOKS = Looks(
    background="#101010",
    text="#e0e0e0",
    border="#404040",
    accent="#f0c040",
    terminal=terminal_name(ENVIRON),
)


@pytest.fixture(autouse=True)
def remembered(places: object) -> Path:
    """The looks of a run before."""
    file = Path(os.environ["QUICKSAND_STATE_DIR"]) / "app.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"outline": LOOKS.to_json()}))
    return file


def screen(text: str, columns: int, rows: int) -> list[str]:
    terminal = Terminal(columns, rows, scrollback=0)
    terminal.feed(text.encode())
    lines = range(terminal.screen_line, terminal.end_line)
    return ["".join(run.text for run in terminal.line(line)).ljust(columns) for line in lines]


SIZES = ((200, 50), (120, 36), (100, 30), (80, 24), (60, 20), (40, 12))
Drawn = tuple[tuple[int, int], str]
"""A size, and the glyphs."""


def drawn_in(*usual: Drawn) -> pytest.MarkDecorator:
    """All sizes, in both kinds of glyphs; ``usual`` outside `make soak`, too."""
    return pytest.mark.parametrize(
        ("size", "glyphs"),
        [
            pytest.param(*one, marks=[] if one in usual else [pytest.mark.soak])
            for one in itertools.product(SIZES, ("unicode", "ascii"))
        ],
        ids=str,
    )


@drawn_in(((200, 50), "unicode"), ((100, 30), "ascii"), ((60, 20), "unicode"))
def test_the_app_has_its_parts_where_the_outline_had_them(
    size: tuple[int, int], glyphs: str, remembered: Path
) -> None:
    columns, rows = size
    ascii_only = glyphs == "ascii"
    argv = [*APP, "--ascii"] if ascii_only else APP
    with PtyTerminal(argv, columns=columns, rows=rows, answers=WHOLE) as terminal:
        terminal.sees("nothing runs")
        before = screen(outline(columns, rows, Looks(ascii=ascii_only), Shape()), columns, rows)
        after = [line.ljust(columns) for line in terminal.text.split("\n")]
        assert before[0].startswith("  quicksand  ")
        assert sum(line.count("-" if ascii_only else "─") for line in before) or columns < 50
        for line, final in zip(before, after, strict=True):
            for old, new in zip(line, final, strict=True):
                # Titles that are not known beforehand take the place of a line.
                assert old in (" ", "─", "━", "-", new), f"{line!r} became {final!r}"
        assert terminal.output.count(b"\x1b[?1049h") == 1
        terminal.type(b"q")
        assert terminal.ends() == 0
        given_back(terminal)


def test_it_is_there_before_the_app_and_in_its_colours(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with recording(tmp_path / "keys", env={"WAIT_FOR": str(gate)}) as terminal:
        terminal.sees("quicksand", "Sandboxes")
        assert b"\x1b[0;38;2;240;192;64;48;2;16;16;16m" in terminal.output
        assert "[Overview]" not in terminal.text
        terminal.type(b"q")
        gate.touch()
        assert terminal.ends() == 0
        given_back(terminal)


def test_a_terminal_of_ascii_has_it_in_that(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    env = {"WAIT_FOR": str(gate), "QUICKSAND_TUI_ASCII": "1"}
    with recording(tmp_path / "keys", env=env) as terminal:
        terminal.sees("+- 1 Sandboxes -")
        assert terminal.text.isascii()
        terminal.type(b"q")
        gate.touch()
        assert terminal.ends() == 0


def test_what_a_run_looked_like_is_kept_for_the_next(remembered: Path) -> None:
    remembered.unlink()
    with PtyTerminal(APP, answers=WHOLE) as terminal:
        terminal.sees("nothing runs")
        wait_for(remembered.exists, what="the looks to be kept")
        terminal.type(b"q")
        assert terminal.ends() == 0
        given_back(terminal)
        assert terminal.output.count(b"\x1b[?1049h") == 1
    looks = Looks.from_json(json.loads(remembered.read_text())["outline"])
    assert looks is not None and looks.background.lower() == "#faf8f3", "the terminal is light"
    assert looks.terminal == terminal_name(ENVIRON)


@first(signal.SIGHUP)
def test_a_signal_meanwhile_gives_the_terminal_back(tmp_path: Path, number: signal.Signals) -> None:
    with recording(tmp_path / "keys", env={"WAIT_FOR": str(tmp_path / "never")}) as terminal:
        terminal.sees("Sandboxes")
        terminal.kill(signal.SIGTSTP)
        ends_by(terminal, number)


@pytest.mark.parametrize(
    "where",
    [
        "application.QuicksandApp.__init__ = lambda *a, **k: fail(None)",
        "from quicksand_tui.opening import opening; opening.theme_wish = lambda *_: fail(None)",
    ],
)
def test_an_exception_meanwhile_is_seen_on_the_usual_screen(where: str) -> None:
    argv = [sys.executable, "-c", RAISING.format(where=where)]
    with PtyTerminal(argv, answers=WHOLE) as terminal:
        assert terminal.ends() == 1
        given_back(terminal)
        output = bytes(terminal.output)
        assert output.index(b"\x1b[?1049l") < output.index(b"this is a test")


@pytest.mark.parametrize(
    "change",
    [{"NO_COLOR": "1"}, {"COLORTERM": ""}, {"TERM_PROGRAM": "another"}, {"TERM": "screen"}],
    ids=str,
)
def test_another_terminal_has_its_own_colours(change: dict[str, str]) -> None:
    looks = LOOKS.fitting({**ENVIRON, **change})
    assert looks == Looks()
    assert "38;2" not in outline(80, 24, looks, Shape())
    assert LOOKS.fitting(ENVIRON) == LOOKS


def test_every_theme_has_looks_that_can_be_kept() -> None:
    for theme in THEMES:
        variables = theme.to_color_system().generate() | theme.variables
        looks = looks_of(variables, ENVIRON, plain=False)
        assert Looks.from_json(json.loads(json.dumps(looks.to_json()))) == looks
        assert bool(looks.background) is not theme.ansi


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
EDITED = st.fixed_dictionaries(
    {name: JSON | st.sampled_from(["", "#123456", "#12345\x1b", True]) for name in LOOKS.to_json()}
)


@given(JSON | EDITED)
def test_whatever_the_file_says_only_colours_get_to_the_terminal(value: object) -> None:
    looks = Looks.from_json(value)
    if looks is not None:
        assert set(outline(80, 24, looks, Shape())) <= set(
            "\x1b[]?;0123456789hlHJmquicksand1 Sandboxes4 Tree +-|╭─╮│╰╯┏━┓┃┗┛"
        )


@given(
    st.integers(-1, 300),
    st.integers(-1, 100),
    st.builds(Shape, lists=st.integers(0, 1000), tab=st.sampled_from(Tab)),
)
@example(1, 3, Shape())
def test_whatever_the_size_it_stays_within(columns: int, rows: int, shape: Shape) -> None:
    text = outline(columns, rows, Looks(), shape)
    if text:
        lines = screen(text, columns, rows)
        assert len(lines) == rows and all(len(line) == columns for line in lines)
        # Nothing was written beyond an edge, which would wrap or scroll.
        larger = screen(text, columns + 20, rows + 10)
        assert [line[:columns] for line in larger[:rows]] == lines
        assert not "".join(line[columns:] for line in larger).strip()
        assert not "".join(larger[rows:]).strip()
