"""Faults of the program itself: in its log with their traceback, and in no text for the user."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from quicksand.base import faults as faults_module
from quicksand.base.effort import LOG_MAX, note
from quicksand.base.errors import StateError
from quicksand.base.faults import (
    FRAMES_MAX,
    SIZE_MAX,
    note_fault,
    note_unhandled,
    noting_faults,
)
from quicksand.base.paths import Paths

from quicksand_tui.cli import main
from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from quicksand_tui.cli.runner import run_async
from tests.conftest import faults_in


def fail(depth: int) -> None:
    """Fails below as many calls."""
    if depth:
        fail(depth - 1)
    raise NameError("no such name \x1b[2J")


def test_a_fault_is_noted_with_its_traceback_and_with_what_led_to_it(
    places: Paths, faults: Callable[[], str]
) -> None:
    try:
        try:
            fail(0)
        except NameError as error:
            raise KeyError("disk") from error
    except KeyError as error:
        assert note_fault(error) == (
            f"please report it, with the last lines of {places.engine_log}"
        )
    first, call, why, *calls = faults().splitlines()
    assert first == "a fault of ours: KeyError: 'disk'"
    assert call.endswith("in test_a_fault_is_noted_with_its_traceback_and_with_what_led_to_it")
    assert why == "  because of NameError: no such name ?[2J"
    assert calls[-1].startswith(f'    File "{__file__}", line ')
    assert calls[-1].endswith(", in fail")


def test_a_deep_fault_takes_a_bounded_part_of_the_log(
    places: Paths, faults: Callable[[], str]
) -> None:
    with pytest.raises(NameError) as caught:
        fail(200)
    note_fault(caught.value)
    assert faults().count("\n") == 1 + FRAMES_MAX
    caught.value.args = ("x" * 2 * LOG_MAX,)
    note_fault(caught.value)
    assert places.engine_log.stat().st_size < 2 * SIZE_MAX


def test_a_fault_is_noted_where_there_was_nothing_yet(
    places: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("QUICKSAND_DATA_DIR", str(tmp_path / "new" / "data"))
    note_fault(NameError("x"))
    assert faults_in(tmp_path / "new" / "data" / "engine.log").startswith("a fault of ours: ")


def test_an_error_that_is_expected_is_no_fault(places: Paths) -> None:
    for error in (StateError("it is paused"), ConnectionResetError("gone"), TimeoutError()):
        assert note_unhandled({"message": "Task exception", "exception": error}) == ""
        with pytest.raises(type(error)), noting_faults():
            raise error
    assert "Task exception: StateError: it is paused" in places.engine_log.read_text()
    assert faults_in(places.engine_log) == ""


def test_a_program_in_the_background_notes_its_faults(faults: Callable[[], str]) -> None:
    with pytest.raises(NameError), noting_faults():
        fail(1)
    assert faults().count(", in fail\n") == 2


def test_faults_are_looked_for_from_where_the_log_ended(places: Paths) -> None:
    log = places.engine_log
    assert faults_in(log) == ""
    note(log, f"{faults_module.MARK}old")
    size = log.stat().st_size
    assert faults_in(log).startswith(faults_module.MARK)
    assert faults_in(log, size) == ""
    log.unlink()


def test_a_command_names_the_log_of_its_fault_and_says_nothing_of_it(
    places: Paths,
    faults: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(main, "_dispatch", lambda _: fail(0))
    assert run(["ps"]) == Exit.FAILURE
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == (
        "quicksand-tui: quicksand-tui has made a mistake\n"
        f"hint: please report it, with the last lines of {places.engine_log}\n"
    )
    assert faults().count(", in fail\n") == 1


def test_a_command_tells_a_fault_of_work_that_nobody_waits_for(
    faults: Callable[[], str], capsys: pytest.CaptureFixture[str]
) -> None:
    async def main(_: object) -> int:
        asyncio.get_running_loop().call_soon(fail, 0)
        await asyncio.sleep(0)
        return Exit.OK

    assert run_async(main) == Exit.OK
    assert "has made a mistake" in capsys.readouterr().err
    assert "NameError" in faults()
