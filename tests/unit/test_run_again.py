"""What failed once is run twice more, and named if it passes then (`scripts/run_again.py`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import run_again

TEST = """
from pathlib import Path

def test_it():
    count = Path({count!r})
    count.write_text(count.read_text() + "x")
    assert len(count.read_text()) not in {failing}
"""


@pytest.fixture
def failed(tmp_path: Path) -> Path:
    return tmp_path / "lastfailed"


def run(tmp_path: Path, failed: Path, *, failing: tuple[int, ...]) -> tuple[int, int]:
    """Returns the exit code, and how often the test was run."""
    count = tmp_path / "count"
    count.write_text("")
    (tmp_path / "test_it.py").write_text(TEST.format(count=str(count), failing=failing))
    failed.write_text(json.dumps({f"{tmp_path}/test_it.py::test_it": True}))
    code = run_again.main(failed, tmp_path / "flaky.txt")
    return code, len(count.read_text())


def test_what_passes_both_times_is_named_once(
    tmp_path: Path, failed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert run(tmp_path, failed, failing=()) == (0, 2)
    name = f"{tmp_path}/test_it.py::test_it"
    assert (tmp_path / "flaky.txt").read_text() == f"{name}\n"
    assert f"FLAKY {name}" in capsys.readouterr().out


@pytest.mark.parametrize("at", [1, 2])
def test_what_fails_again_is_a_failure(tmp_path: Path, failed: Path, at: int) -> None:
    assert run(tmp_path, failed, failing=(at,)) == (1, at)
    assert not (tmp_path / "flaky.txt").exists()


def test_many_failures_are_not_for_chance(tmp_path: Path, failed: Path) -> None:
    notes = tmp_path / "flaky.txt"
    assert run_again.main(failed, notes) == 1
    failed.write_text(json.dumps(dict.fromkeys(map(str, range(run_again.FLAKY_MAX + 1)), True)))
    assert run_again.main(failed, notes) == 1
