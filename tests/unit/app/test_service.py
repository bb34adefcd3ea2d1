"""The engine's thread: results, failures, and cancelling that waits for the undoing."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from unittest.mock import AsyncMock, Mock

import pytest
from quicksand.base.errors import BootTimeoutError, NameTakenError
from quicksand.base.paths import Paths
from quicksand.guest.shell import ShellInfo
from quicksand.snapshots.comparison import Difference

from quicksand_tui.door.diff_reader import losing
from quicksand_tui.door.failures import LOG_LINES, describe_failure
from quicksand_tui.door.service import EngineService
from quicksand_tui.model.jobs import Failure, OperationError
from quicksand_tui.model.specs import NewSpec
from quicksand_tui.verbs import launching
from quicksand_tui.verbs.call import Progress
from quicksand_tui.verbs.halting import kill, stop
from tests.conftest import wait_for
from tests.each import each
from tests.unit.app.carrying import carry_out


@pytest.fixture
def service() -> Iterator[EngineService]:
    found = EngineService()
    yield found
    found.close()


def test_two_threads_begin_one_loop(service: EngineService) -> None:
    """The reading thread and the UI's, at the same time."""
    loops = []
    barrier = threading.Barrier(8)

    def begin() -> None:
        barrier.wait()
        loops.append(service._engine_loop())

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(loops)) == 1


async def test_an_operation_runs_in_the_engines_thread(service: EngineService) -> None:
    names = []

    async def operation(_: object) -> None:
        names.append(threading.current_thread().name)

    await service.ask("it", operation)
    assert names == ["quicksand-engine"]


async def test_an_error_comes_back_as_what_to_show(service: EngineService) -> None:
    async def operation(_: object) -> None:
        raise NameTakenError("the name 'x' is taken", hint="choose another")

    with pytest.raises(OperationError) as caught:
        await service.ask("It failed", operation)
    failure = caught.value.failure
    assert (failure.title, failure.message, failure.hint) == (
        "It failed",
        "the name 'x' is taken",
        "choose another",
    )


async def test_cancelling_returns_after_the_engine_has_undone_it(service: EngineService) -> None:
    begun, undone = threading.Event(), []

    async def operation(_: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            undone.append(True)

    task = asyncio.create_task(service.ask("it", operation))
    await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert undone == [True]


async def test_closing_cancels_what_is_under_way_and_waits_for_it(service: EngineService) -> None:
    begun, undone = threading.Event(), []

    async def operation(_: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            undone.append(True)

    task = asyncio.create_task(service.ask("it", operation))
    await asyncio.to_thread(begun.wait, 60)
    await asyncio.to_thread(service.close)
    assert undone == [True]
    with pytest.raises(OperationError):
        await task


async def test_a_start_that_cannot_be_is_explained_and_leaves_nothing(
    service: EngineService,
) -> None:
    seen: list[Progress] = []
    spec = NewSpec(image="no-such-image", name="x")
    with pytest.raises(OperationError) as caught:
        await carry_out(service, launching.create(spec), report=seen.append)
    assert caught.value.failure.title == "x did not start"
    assert "Image not found" in caught.value.failure.message
    assert seen[0].sandbox_id and seen[-1].stage == "finding the image"
    assert service.read().sandboxes == ()


async def test_actions_on_a_sandbox_that_is_gone_say_so(service: EngineService) -> None:
    with pytest.raises(OperationError, match="no sandbox"):
        await carry_out(service, stop(), "000000000000")
    with pytest.raises(OperationError, match="no sandbox"):
        await carry_out(service, kill(), "000000000000")


def test_closing_a_service_that_did_nothing_is_fine() -> None:
    EngineService().close()


def test_a_failure_of_the_machine_has_its_log_apart_and_harmless() -> None:
    log = "\n".join(f"line {n}\x1b[31m" for n in range(100))
    failure = describe_failure("t", BootTimeoutError("no answer", hint="wait", log=log))
    assert failure.message == "no answer"
    assert len(failure.log) == LOG_LINES
    assert failure.log[-1] == "line 99"


def test_a_fault_of_ours_is_told_as_one_and_its_text_is_in_the_log_only(
    faults: Callable[[], str], places: Paths
) -> None:
    try:
        raise NameError("cannot access free variable 'named' \x1b[2J")
    except NameError as error:
        failure = describe_failure("t", error)
    assert failure.message == "quicksand-tui has made a mistake"
    assert failure.hint == f"please report it, with the last lines of {places.engine_log}"
    assert failure.log == ()
    assert "NameError: cannot access free variable" in faults()
    assert 'test_service.py", line ' in faults()


def test_a_fault_in_work_that_nobody_waits_for_is_told_and_noted(
    faults: Callable[[], str],
) -> None:
    service, told = EngineService(), list[Failure]()
    service.when_faulty(told.append)

    async def work() -> None:
        raise NameError("no such name")

    def begin() -> None:
        asyncio.ensure_future(work())  # noqa: RUF006 - nobody keeps it

    service._engine_loop().call_soon_threadsafe(begin)
    try:
        wait_for(lambda: gc.collect() is not None and told, what="the fault to be told")
    finally:
        service.close()
    assert [failure.message for failure in told] == ["quicksand-tui has made a mistake"]
    assert "NameError: no such name" in faults()
    assert ", in work\n" in faults()


def test_a_thread_that_fails_is_told_and_noted(faults: Callable[[], str]) -> None:
    service, told = EngineService(), list[Failure]()
    service.when_faulty(told.append)
    error = NameError("no such name")
    service.thread_failed(
        threading.ExceptHookArgs((NameError, error, None, threading.current_thread()))
    )
    assert len(told) == 1
    assert "NameError: no such name" in faults()


def test_an_error_of_the_host_says_what_the_host_says() -> None:
    failure = describe_failure("t", OSError(28, "No space left on device", "/x"))
    assert failure.message == "/x: No space left on device"


@each(("created", "told"), [(200.0, "ending"), (50.0, "staying")])
async def test_what_a_revert_loses_names_the_shells_that_are_open(
    created: float, told: str
) -> None:
    shell = ShellInfo(
        session="s", pid=1, argv=("bash",), columns=80, rows=24, attached=1, created=created,
        alive=True, foreground=("pytest", "-q"),
    )  # fmt: skip
    sandbox = Mock(spec=["compare", "checkpoints", "shells"])
    found = Difference(before="a", after="b", changes=(), read=300.0, is_live=True)
    sandbox.compare = AsyncMock(return_value=found)
    sandbox.checkpoints.return_value = [Mock(id="c", created=100.0)]
    sandbox.shells = AsyncMock(return_value=[shell, replace(shell, alive=False)])
    lost = await losing(sandbox, "c")
    assert {"ending": (), "staying": (), told: ("pytest -q",)} == {
        "ending": lost.ending,
        "staying": lost.staying,
    }


def test_the_first_paint_needs_no_engine() -> None:
    code = (
        "import sys, quicksand_tui.ui.app; "
        "tables = ('quicksand', 'quicksand.base', 'quicksand.base.on_demand');"
        "bad = [m for m in sys.modules"
        " if m.split('.')[0] in ('quicksand', 'qemu') and m not in tables"
        " and not m.startswith('quicksand.things')];"
        "sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
