"""Faults of the program while the app runs: it names the log, and shows nothing of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from quicksand_tui.ui.app import QuicksandApp
from tests.unit.app.fakes import FULL, FakeService, toasts, until


def fail() -> None:
    secret = "of a local variable"
    raise NameError(f"no such name in {len(secret)} characters")


async def test_a_fault_of_work_that_nobody_waits_for_is_a_toast_and_the_app_goes_on(
    faults: Callable[[], str],
) -> None:
    app = QuicksandApp(FakeService(FULL))
    async with app.run_test(size=(120, 40)):
        asyncio.get_running_loop().call_soon(fail)
        await until(lambda: toasts(app))
        assert toasts(app)[0].startswith("quicksand-tui has made a mistake: please report it, with")
    assert "a fault of ours: NameError: no such name in 19 characters" in faults()


async def test_a_fault_that_nobody_handles_ends_the_app_with_the_name_of_the_log(
    faults: Callable[[], str], capsys: pytest.CaptureFixture[str]
) -> None:
    app = QuicksandApp(FakeService(FULL))
    with pytest.raises(NameError):
        async with app.run_test(size=(120, 40)) as pilot:
            app.call_later(fail)
            await pilot.pause()
    assert app.return_code == 1
    told = capsys.readouterr().err
    assert told.startswith(
        "quicksand-tui has made a mistake\nhint: please report it, with the last"
    )
    assert "Traceback" not in told
    assert "local variable" not in told
    assert faults().count(", in fail\n") == 1


async def test_a_fault_of_an_operation_of_the_app_itself_is_noted_with_its_own_traceback(
    faults: Callable[[], str],
) -> None:
    async def work() -> None:
        fail()

    app = QuicksandApp(FakeService(FULL))
    with pytest.raises(Exception, match="no such name"):
        async with app.run_test(size=(120, 40)) as pilot:
            app.run_operation(work(), "work")
            await pilot.pause()
    assert faults().startswith("a fault of ours: NameError: no such name")
