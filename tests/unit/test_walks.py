"""What random walks are made of notices faults, and tells how to walk again."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand.base.effort import note
from quicksand.base.faults import MARK

from tests.walks import FAULT, Diary, Logs


def test_a_walk_with_a_fault_fails_in_the_end_with_seed_and_latest_steps() -> None:
    told = r"WALK_SEED=7 .*(?s:.*)odd at step 2: bad(?s:.*)two"
    with pytest.raises(AssertionError, match=told), Diary(7, 0.0) as diary:
        diary.step("one")
        diary.step("two")
        diary.fault("odd", "bad")
        diary.step("three")
        diary.fault("odd", "the same again")


def test_a_walk_lasts_its_seconds_and_its_least_steps() -> None:
    with Diary(7, 0.0, least=2) as diary:
        assert not diary.is_over
        diary.step("one")
        diary.step("two")
        assert diary.is_over


def test_only_faults_of_ours_are_read_in_logs_and_only_once(tmp_path: Path) -> None:
    (tmp_path / "sandboxes" / "a").mkdir(parents=True)
    logs = Logs(tmp_path)
    note(tmp_path / "engine.log", "could not ask the guest: FileNotFoundError: no such file")
    note(tmp_path / "sandboxes" / "a" / "engine.log", f"{MARK}NameError: name 'x' is not defined")
    [line] = logs.faults()
    assert "a fault of ours: NameError" in line
    assert not [*logs.faults()]


@pytest.mark.parametrize(
    "text",
    [
        *("Traceback (most recent call last):", "NameError: name 'x'", "x: TypeError: no"),
        "quicksand-tui has made a mistake",
    ],
)
def test_what_python_says_is_a_fault(text: str) -> None:
    assert FAULT.search(text)
    assert not FAULT.search("StateError: the sandbox is not running, key error of a name")
