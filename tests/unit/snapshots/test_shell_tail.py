"""The end of a terminal's output beside a checkpoint."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from quicksand.base.errors import HistoryError
from quicksand.records.layout import SandboxDir
from quicksand.snapshots.recognition import OUTPUT_MAX, ShellTail, keep_shell, read_shell

ID = "0123456789ab"
TAIL = ShellTail(program="vim notes", columns=80, rows=24, output=b"\x1b[1mhi\xff\r\n")


@pytest.fixture
def place(tmp_path: Path) -> SandboxDir:
    found = SandboxDir(tmp_path)
    (found.checkpoints / ID).mkdir(parents=True)
    return found


def test_it_is_read_as_it_was_kept(place: SandboxDir) -> None:
    keep_shell(TAIL, place, ID)
    assert read_shell(place, ID) == TAIL


def test_a_checkpoint_without_a_shells_tail_is_read_as_none(place: SandboxDir) -> None:
    assert read_shell(place, ID) is None


def test_of_long_output_the_end_is_kept(place: SandboxDir) -> None:
    output = b"x" * OUTPUT_MAX + b"end"
    keep_shell(ShellTail(program="p" * 999, columns=80, rows=24, output=output), place, ID)
    found = read_shell(place, ID)
    assert found is not None
    assert found.output == output[-OUTPUT_MAX:] and len(found.program) == 200


@pytest.mark.parametrize(
    "change",
    [
        {"columns": 0},
        {"rows": 10**9},
        {"columns": "80"},
        {"program": None},
        {"output_b64": "?"},
        {"output_b64": base64.b64encode(b"x" * 3 * OUTPUT_MAX).decode()},
        {"output_b64": 5},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_file_that_nobody_wrote_so_is_refused(
    place: SandboxDir, change: dict[str, object]
) -> None:
    file = place.checkpoints / ID / "shell.json"
    file.write_text(json.dumps({**TAIL.to_json(), **change}))
    with pytest.raises(HistoryError, match=r"shell\.json"):
        read_shell(place, ID)
