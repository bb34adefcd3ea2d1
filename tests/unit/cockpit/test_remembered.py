"""What the app remembers: small, harmless, and never in the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quicksand_tui.cockpit.layout import Shape, Tab
from quicksand_tui.remembered import Remembered
from quicksand_tui.shape_memory import recall_shape, remember_shape
from quicksand_tui.state_files import StateFile


def test_values_are_there_in_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "new" / "app.json"
    Remembered(StateFile(path)).put("a", [1, "x"])
    assert Remembered(StateFile(path)).get("a") == [1, "x"]
    assert [p.name for p in path.parent.iterdir()] == ["app.json"]


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"', "[" * 100_000, "\udcff"])
def test_a_file_that_makes_no_sense_is_forgotten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "app.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    remembered = Remembered(StateFile(path))
    assert remembered.get("a") is None
    remembered.put("a", 1)
    assert json.loads(path.read_text()) == {"a": 1}


def test_a_place_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    remembered = Remembered(StateFile(tmp_path / "file" / "app.json"))
    remembered.put("a", 1)
    assert remembered.get("a") == 1


def test_without_a_path_nothing_is_written() -> None:
    remembered = Remembered()
    remembered.put("a", 1)
    assert remembered.get("a") == 1


def test_a_shape_comes_back_but_no_shell_opens_by_itself() -> None:
    remembered = Remembered()
    remember_shape(remembered, Shape(lists=44, tree=30, tab=Tab.LOG, zoomed=True))
    assert recall_shape(remembered) == Shape(lists=44, tree=30, tab=Tab.LOG)
    remember_shape(remembered, Shape(tab=Tab.SHELLS))
    assert recall_shape(remembered) == Shape()


@pytest.mark.parametrize("kept", [None, 5, [], {"lists": "x", "tree": -4, "tab": 7}, {"tab": []}])
def test_a_shape_that_makes_no_sense_is_the_usual_one(kept: object) -> None:
    remembered = Remembered()
    remembered.put("layout", kept)
    assert recall_shape(remembered) == Shape()
