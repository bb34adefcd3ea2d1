"""What forms remember between runs."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from quicksand_tui.last_used import Last, LastUsed, state_file

VALUE = Last(begin="save:/a b/\udce9", image="dev", memory="1G", ports="8080:80")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUICKSAND_STATE_DIR", str(tmp_path / "state"))
    return state_file()


def test_what_one_run_writes_the_next_one_reads(file: Path) -> None:
    used = LastUsed(state_file)
    used.read()
    assert used.value is None
    used.value = VALUE
    used.write()
    again = LastUsed(state_file)
    again.read()
    assert again.value == VALUE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]


def test_a_file_that_is_read_late_does_not_undo_what_was_used_meanwhile(file: Path) -> None:
    used = LastUsed(state_file)
    used.value = VALUE
    used.write()
    late = LastUsed(state_file)
    late.value = Last(image="newer")
    late.read()
    assert late.value == Last(image="newer")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "\0",
        "{}",
        '{"schema_version": 2, "new_sandbox": {"memory": "1G"}}',
        '{"schema_version": 1, "new_sandbox": []}',
        "[" * 100_000,
        " " * 20_000_000,
    ],
)
def test_a_damaged_file_is_as_none_and_is_replaced(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    used = LastUsed(state_file)
    used.read()
    assert used.value is None
    used.value = VALUE
    used.write()
    again = LastUsed(state_file)
    again.read()
    assert again.value == VALUE


def test_values_of_another_kind_count_as_not_given_and_text_is_made_harmless(file: Path) -> None:
    file.parent.mkdir()
    values = {"memory": 512, "cpus": None, "network": "\x1b[2Jfull", "image": "x" * 9999, "y": "z"}
    file.write_text(json.dumps({"schema_version": 1, "new_sandbox": values}))
    used = LastUsed(state_file)
    used.read()
    assert used.value is not None
    assert (used.value.memory, used.value.cpus, used.value.network) == ("", "", "full")
    assert len(used.value.image) == 200


def test_a_place_that_cannot_be_written_hurts_nobody(file: Path) -> None:
    file.parent.write_text("a file")
    used = LastUsed(state_file)
    used.value = VALUE
    used.write()
    used.read()
    assert used.value == VALUE
