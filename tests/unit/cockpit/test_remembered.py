"""What the app remembers: small, harmless, and never in the way."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from quicksand_tui.home.state import (
    NEEDS_NAME,
    SHAPE_NAME,
    Remembered,
    StateFile,
    kept_needs,
    kept_shape,
    recall_needs,
    recall_shape,
)
from quicksand_tui.views.main_layout import USUAL_NEEDS, Needs, Shape, Tab
from tests.each import each


def test_values_are_there_in_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "new" / "app.json"
    first = Remembered(StateFile(path))
    assert first.put("a", [1, "x"]) and not first.put("a", [1, "x"])
    first.write("a")
    assert Remembered(StateFile(path)).get("a") == [1, "x"]
    assert [p.name for p in path.parent.iterdir()] == ["app.json"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@each(
    "text",
    lambda: ["", "[]", "{", '"x"', "\0", "[" * 100_000, "\udcff", " " * 20_000_000],
)
def test_a_file_that_makes_no_sense_is_forgotten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "app.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    remembered = Remembered(StateFile(path))
    assert remembered.get("a") is None
    remembered.put("a", 1)
    remembered.write("a")
    assert json.loads(path.read_text()) == {"a": 1}


def test_two_apps_do_not_undo_each_other(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "app.json")
    one, other = Remembered(file), Remembered(file)
    one.put("a", 1)
    one.write("a")
    other.put("b", 2)
    other.write("b")
    assert file.read() == {"a": 1, "b": 2}


def test_a_place_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    remembered = Remembered(StateFile(tmp_path / "file" / "app.json"))
    remembered.put("a", 1)
    remembered.write("a")
    assert remembered.get("a") == 1


def test_what_was_typed_is_not_put_where_others_may_write(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)
    with pytest.raises(OSError, match="open to others"):
        StateFile(tmp_path / "state" / "app.json").write({})
    assert list((tmp_path / "state").iterdir()) == []


def test_without_a_path_nothing_is_written() -> None:
    remembered = Remembered()
    remembered.put("a", 1)
    remembered.write("a")
    assert remembered.get("a") == 1


def test_a_shape_comes_back_but_no_shell_opens_by_itself() -> None:
    remembered = Remembered()
    remembered.put(SHAPE_NAME, kept_shape(Shape(lists=44, tab=Tab.LOG, zoomed=True)))
    assert recall_shape(remembered) == Shape(lists=44, tab=Tab.LOG)
    remembered.put(SHAPE_NAME, kept_shape(Shape(tab=Tab.SHELLS)))
    assert recall_shape(remembered) == Shape()


@each("kept", [None, 5, [], {"lists": "x", "tab": 7}, {"tab": []}])
def test_a_shape_that_makes_no_sense_is_the_usual_one(kept: object) -> None:
    remembered = Remembered()
    remembered.put(SHAPE_NAME, kept)
    assert recall_shape(remembered) == Shape()


def test_how_much_there_was_to_show_comes_back_for_the_outline() -> None:
    remembered = Remembered()
    assert recall_needs(remembered) == USUAL_NEEDS
    needs = Needs(listed=20, drawn=5000, aside=True)
    remembered.put(NEEDS_NAME, kept_needs(needs))
    assert recall_needs(remembered) == replace(needs, drawn=1000)
    remembered.put(NEEDS_NAME, {"listed": -1, "drawn": "x", "aside": 3})
    assert recall_needs(remembered) == Needs()
