"""What the form of a new sandbox remembers between runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from quicksand_tui.last_used import NAME, Last, recall_last
from quicksand_tui.remembered import Remembered
from quicksand_tui.state_files import StateFile

VALUE = Last(begin="save:/a b/\udce9", image="dev", memory="1G", ports="8080:80")


def test_what_one_run_writes_the_next_one_reads(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "app.json")
    first = Remembered(file)
    assert recall_last(first) is None
    first.put(NAME, asdict(VALUE))
    first.write(NAME)
    assert recall_last(Remembered(file)) == VALUE


@pytest.mark.parametrize("kept", [None, 5, "x", []])
def test_what_is_nothing_of_the_kind_is_as_none(kept: object) -> None:
    remembered = Remembered()
    remembered.put(NAME, kept)
    assert recall_last(remembered) is None


def test_values_of_another_kind_count_as_not_given_and_text_is_made_harmless() -> None:
    remembered = Remembered()
    values = {"memory": 512, "cpus": None, "network": "\x1b[2Jfull", "image": "x" * 9999, "y": "z"}
    remembered.put(NAME, {**values, "begin": "save:" + "y" * 9999})
    last = recall_last(remembered)
    assert last is not None
    assert (last.memory, last.cpus, last.network) == ("", "", "full")
    assert len(last.image) == 200 and len(last.begin) == 4096
