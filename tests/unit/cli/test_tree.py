"""The tree of checkpoints, drawn from files."""

from __future__ import annotations

import json
import re
from dataclasses import asdict

import pytest
from quicksand.base.paths import Paths
from quicksand.snapshots.history import History
from quicksand.snapshots.tree import checkpoint_of
from quicksand.things.checkpoint import Checkpoint

from quicksand_tui.cli.keeping.tree_diff import Past, draw
from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from quicksand_tui.model.shown_sandboxes import FANCY, PLAIN
from tests.unit.cli.histories import add, history_of, id_of, link, spoil, stand_at
from tests.unit.cli.run_cli import make_stopped, quicksand


@pytest.fixture
def history(places: Paths) -> History:
    """Of a stopped sandbox that is called web."""
    return history_of(places, make_stopped(places, "web"))


def shapes(history: History, head: int | None = None) -> list[str]:
    """The first column of the tree, below the heads."""
    past = Past(
        name="web",
        checkpoints=[checkpoint_of(node) for node in history.nodes()],
        broken=history.broken(),
        head=None if head is None else id_of(head),
    )
    top, *lines = draw(past, FANCY)
    return [line[: top.index("AGE")].rstrip() for line in lines]


def test_a_chain_is_a_straight_line(history: History) -> None:
    add(history, 1)
    add(history, 2, 1)
    add(history, 3, 2)
    assert shapes(history, 3) == ["web", "○ tag-1", "○ tag-2", "● tag-3 ← here"]


def test_forks_branch_off_and_the_line_to_the_head_goes_straight_on(history: History) -> None:
    add(history, 1)
    for number, parent in ((2, 1), (3, 2), (4, 2), (5, 1), (6, 1)):
        add(history, number, parent)
    add(history, 7)
    assert shapes(history, 3) == [
        "web",
        "○     tag-1",
        "├─╮",
        "○ │   tag-2",
        "├─│─╮",
        "● │ │ tag-3 ← here",
        "  │ ○ tag-4",
        "  ├─○ tag-5",
        "  ○   tag-6",
        "○     tag-7",
    ]
    assert shapes(history) == [
        "web",
        "○     tag-1",
        "├─○   tag-2",
        "│ ├─○ tag-3",
        "│ ○   tag-4",
        "├─○   tag-5",
        "○     tag-6",
        "",
        "○     tag-7",
    ]


def test_children_of_one_that_is_gone_are_roots(history: History) -> None:
    add(history, 2, 1)
    add(history, 3, 2)
    assert shapes(history) == ["web", "○ tag-2", "○ tag-3"]


def test_those_that_descend_from_themselves_are_all_shown_once(history: History) -> None:
    for number in (1, 2, 3, 4):
        add(history, number)
    link(history, 1, 2)
    link(history, 2, 1)
    link(history, 3, 3)
    shown = shapes(history, 1)
    named = [line.split()[-1] for line in shown[1:] if line and "here" not in line]
    assert sorted(named) == ["tag-2", "tag-3", "tag-4"]
    assert sum("tag-1 ← here" in line for line in shown) == 1


def test_a_long_history_is_no_trouble(history: History) -> None:
    add(history, 1)
    made = [checkpoint_of(node) for node in history.nodes()]
    many = [
        Checkpoint(
            **{
                **asdict(made[0]),
                "id": id_of(number),
                "parent": id_of(number // 2) if number > 1 else None,
            }
        )
        for number in range(1, 5000)
    ]
    past = Past(name="web", checkpoints=many, broken={}, head=id_of(4999))
    assert len(draw(past, PLAIN)) == 2 + len(many)


def test_the_stopped_one_is_shown_with_all_columns(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    add(history, 1, note="fresh install")
    stand_at(history, 1)
    assert run(["tree", "web"]) == Exit.OK
    out, err = capsys.readouterr()
    head, name, line = out.splitlines()
    assert head.split() == ["CHECKPOINT", "AGE", "PAUSE", "WRITTEN", "NOTE"]
    assert name == "web"
    assert re.fullmatch(r"● tag-1 ← here  99m  23 ms  12 MiB   fresh install", line)
    assert (err, "\x1b" in out) == ("", False)


def test_a_pinned_one_says_so(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    add(history, 1, pinned=True)
    add(history, 2, 1)
    stand_at(history, 1)
    assert run(["tree", "web"]) == Exit.OK
    _, _, pinned, other = capsys.readouterr().out.splitlines()
    assert pinned.startswith("● tag-1 (pinned) ← here  ") and "pinned" not in other
    assert run(["tree", "web", "--json"]) == Exit.OK
    found = json.loads(capsys.readouterr().out)["checkpoints"]
    assert [one["pinned"] for one in found] == [True, False]


def test_a_broken_one_is_shown_with_the_reason_above_its_children(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(history, 1)
    add(history, 2, 1)
    assert run(["tree", "web"]) == Exit.OK
    _, _, broken, child = capsys.readouterr().out.splitlines()
    assert broken.startswith("✗ 000000000001 (broken)")
    assert "schema_version 99 is not 1" in broken
    assert child.startswith("○ tag-2")
    assert run(["tree", "web", "--json"]) == Exit.OK
    found = json.loads(capsys.readouterr().out)
    assert [one["id"] for one in found["broken"]] == [id_of(1)]
    assert "99" in found["broken"][0]["error"]


@pytest.mark.parametrize("text", ["", "[]", '{"schema_version": 1}', "\xff", "[" * 10_000])
def test_no_file_breaks_the_list(
    text: str, history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    add(history, 2)
    spoil(history, 1, text)
    assert run(["tree", "web"]) == Exit.OK
    out = capsys.readouterr().out
    assert "(broken)" in out
    assert "tag-2" in out


def test_where_it_stands_may_be_unknown(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    add(history, 1)
    history.place.head.write_text("{")
    assert run(["tree", "web"]) == Exit.OK
    out, err = capsys.readouterr()
    assert "○ tag-1" in out
    assert "unknown where the sandbox stands" in err


def test_hostile_text_is_shown_harmless(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    add(history, 1, note="\x1b]0;owned\x07\u202e\nnext line")
    assert run(["tree", "web"]) == Exit.OK
    out = capsys.readouterr().out
    assert "\\x1b]0;owned\\x07\\u202e\\x0anext line" in out
    assert out.replace("\n", "").isprintable()
    assert len(out.splitlines()) == 3


def test_colour_marks_the_automatic_the_head_and_the_broken(history: History) -> None:
    add(history, 1)
    add(history, 2, 1, auto=True, tag="before revert")
    spoil(history, 3)
    past = Past(
        name="web",
        checkpoints=[checkpoint_of(node) for node in history.nodes()],
        broken=history.broken(),
        head=id_of(1),
    )
    plain = draw(past, FANCY)
    lines = draw(past, FANCY, colour=True)
    bold, dim, red = "\x1b[1m", "\x1b[2m", "\x1b[31m"
    styles = {"CHECKPOINT": bold, "tag-1": bold, "before revert": dim, "(broken)": red}
    for word, style in styles.items():
        (line,) = [line for line in lines if word in line]
        assert line.startswith(style)
        assert line.endswith("\x1b[0m")
    assert [re.sub(r"\x1b\[\d+m", "", line) for line in lines] == plain


def test_without_utf8_the_tree_is_ascii(history: History) -> None:
    add(history, 1)
    add(history, 2, 1)
    stand_at(history, 1)
    result = quicksand("tree", "web", env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert result.returncode == Exit.OK
    assert b"* tag-1 <- here" in result.stdout
    assert result.stdout.isascii()


def test_json_has_everything_but_the_secret(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    add(history, 1, note="n")
    add(history, 2, 1, auto=True)
    stand_at(history, 1)
    assert run(["tree", "web", "--json"]) == Exit.OK
    out = capsys.readouterr().out
    found = json.loads(out)
    assert (found["sandbox"], found["head"], found["broken"]) == ("web", id_of(1), [])
    first, second = found["checkpoints"]
    assert (first["tag"], first["note"], first["is_head"]) == ("tag-1", "n", True)
    assert (second["parent"], second["auto"], second["is_head"]) == (id_of(1), True, False)
    assert "secret-token" not in out


def test_without_checkpoints_it_says_how_to_take_one(
    places: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    make_stopped(places, "web")
    assert run(["tree", "web"]) == Exit.OK
    out, err = capsys.readouterr()
    assert out.splitlines()[1:] == ["web"]
    assert "`quicksand-tui checkpoint web TAG`" in err
