"""Tables: plain lines for programs, drawn on a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from quicksand.base.paths import Paths

from quicksand_tui.cli import output
from quicksand_tui.cli.output import print_table
from quicksand_tui.model.text import cells, clean
from tests.pty_terminal import PtyTerminal
from tests.unit.cli.corpus import HOSTILE
from tests.unit.cli.run_cli import MODULE, make_stopped, quicksand

HEADS = ("NAME", "STATE", "SIZE", "NOTE")
ROWS = [
    ("web", "running", "1.5 GiB", "the one that everybody uses, with a note that is long"),
    ("日本", "ended", "12 MiB", ""),
    ("total", "", "1.51 GiB", ""),
]
PLAIN = (
    "NAME   STATE    SIZE      NOTE\n"
    "web    running  1.5 GiB   the one that everybody uses, with a note that is long\n"
    "日本   ended    12 MiB\n"
    "total           1.51 GiB\n"
)
STYLE = re.compile(r"\x1b\[[0-9;]*m")
COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?[39][0-7][;m]")

Output = pytest.CaptureFixture[str]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stdout is a terminal of 100 columns with colours."""
    monkeypatch.setattr(output, "is_terminal", lambda stream: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)


def shown(
    capsys: Output, heads: Sequence[str] = HEADS, rows: Sequence[Sequence[object]] = ROWS
) -> str:
    print_table(heads, rows)
    return capsys.readouterr().out


def test_without_a_terminal_lines_are_plain_and_as_long_as_they_need(capsys: Output) -> None:
    assert shown(capsys) == PLAIN


@pytest.mark.usefixtures("drawn")
def test_on_a_terminal_the_same_words_stand_in_the_same_places(capsys: Output) -> None:
    out = shown(capsys)
    assert "\x1b[1m" in out.splitlines()[0], "the heads are bold"
    assert COLOUR.search(out.splitlines()[1]), "a state has its colour"
    assert STYLE.sub("", out) == PLAIN


@pytest.mark.usefixtures("drawn")
def test_long_texts_are_folded_in_their_column_and_nothing_is_lost(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    lines = STYLE.sub("", shown(capsys)).splitlines()
    assert max(map(cells, lines)) <= 50
    assert [line[:26].split() for line in lines[1:4]] == [["web", "running", "1.5", "GiB"], [], []]
    assert " ".join(line[26:].strip() for line in lines[1:4]) == ROWS[0][3]


@pytest.mark.parametrize("columns", ["10", "30"])
@pytest.mark.usefixtures("drawn")
def test_where_columns_would_be_cut_lines_are_plain(
    columns: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert STYLE.sub("", shown(capsys)) == PLAIN


@pytest.mark.usefixtures("drawn")
def test_without_colours_the_heads_still_stand_out(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out = shown(capsys)
    assert "\x1b[1m" in out and not COLOUR.search(out)


@pytest.mark.parametrize("text", [*HOSTILE, "[red]markup[/]", ":bomb:", "{0}%s"], ids=ascii)
@pytest.mark.usefixtures("drawn")
def test_what_is_in_a_cell_can_only_be_read(
    text: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    out = shown(capsys, ("PROBLEM", "NOTE"), [(text, "note")])
    plain = STYLE.sub("", out)
    assert all(char.isprintable() or char == "\n" for char in plain)
    _, row = plain.splitlines()
    assert row.startswith(f"{clean(text)}  ") and row.endswith("note")


def test_commands_draw_on_a_terminal_and_not_where_it_is_dumb(
    places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(tmp_path))  # other tests use the usual one
    make_stopped(places, "web")
    plain = quicksand("du").stdout
    for term in ("xterm-256color", "dumb"):
        with PtyTerminal([*MODULE, "du"], env={"TERM": term}) as terminal:
            assert terminal.ends() == 0
        written = bytes(terminal.output).replace(b"\r\n", b"\n")
        assert (b"\x1b[1m" in written) == (term != "dumb")
        assert plain in re.sub(rb"\x1b\[[0-9;]*m", b"", written)


LOADED = """
import sys
from quicksand_tui.cli.main import run
run(sys.argv[1:])
print("LOADED", *sorted({name.partition(".")[0] for name in sys.modules} & {"rich", "textual"}))
"""


@pytest.mark.parametrize(
    "argv", [["ps", "-a"], ["exec", "web", "--", "true"], ["du"]], ids=lambda a: a[0]
)
def test_no_table_waits_for_rich(argv: list[str], places: Paths) -> None:
    make_stopped(places, "web")
    with PtyTerminal([sys.executable, "-c", LOADED, *argv]) as terminal:
        assert terminal.ends() == 0
    assert "LOADED\r\n" in terminal.output.decode()


def test_ps_has_bold_heads_and_coloured_glyphs_on_a_terminal(places: Paths) -> None:
    bad = places.sandboxes / "0123456789ab"
    make_stopped(places, "web")
    bad.mkdir()
    (bad / "sandbox.json").write_text('{"schema_version": 1, "name": "\\u001b[2J')
    plain = quicksand("ps", "-a").stdout
    with PtyTerminal([*MODULE, "ps", "-a"], columns=200) as terminal:
        assert terminal.ends() == 0
    written = bytes(terminal.output).replace(b"\r\n", b"\n")
    assert written.startswith(b"\x1b[1mNAME") and "\x1b[31m✗\x1b[0m broken".encode() in written
    assert re.sub(rb"\x1b\[[0-9;]*m", b"", written) == plain
