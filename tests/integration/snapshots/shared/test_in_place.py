"""Reverts in the QEMU that runs: which form they have, and what becomes of a sandbox if one fails
at the worst moment. After failures with which it goes on, checkpoints are compared with all of the
guest's memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from quicksand import Sandbox
from quicksand.base.errors import AgentUnreachableError, HistoryError, MachineError, StateError
from quicksand.base.paths import Paths
from quicksand.qemu.keeper_link import KeeperLink
from quicksand.qemu.qemu_hypervisor import Qemu
from quicksand.records.layout import RuntimeDir, runtime_dir
from quicksand.records.paused import LEFT
from quicksand.snapshots import device_load, finisher, in_place, restore, reverting
from quicksand.snapshots.awakening import Awakening
from quicksand.snapshots.present import Present
from quicksand.snapshots.reverting import Form
from quicksand.snapshots.successor import Successor
from quicksand.things.status import Status

from tests.conftest import wait_for
from tests.integration.guests import say
from tests.integration.snapshots.shared.conftest import IN_PLACE

pytestmark = [pytest.mark.vm, pytest.mark.in_any_form]


@pytest.fixture(scope="module")
def vm_options() -> dict[str, Any]:
    """Little memory, since all of it is compared each time."""
    return {"memory": "192M"}


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUICKSAND_CHECK_MEMORY", "on")


@pytest.fixture
def runtime(vm: Sandbox, places: Paths) -> RuntimeDir:
    return runtime_dir(places, vm.id)


async def put(vm: Sandbox, word: str) -> None:
    await say(vm, f"echo {word} > /root/f; echo {word} > /dev/shm/f; sync")


async def got(vm: Sandbox) -> str:
    return await say(vm, "cat /root/f /dev/shm/f")


async def begin(vm: Sandbox) -> int:
    """One checkpoint, and something else since; the process id of QEMU."""
    await put(vm, "one")
    await vm.checkpoint("one")
    if (await vm.revert("one", keep_now=False)).revert_form not in IN_PLACE:
        await vm.revert("one", keep_now=False)  # the QEMU that had booted is gone
    await put(vm, "two")
    return pid_of(vm)


def pid_of(vm: Sandbox) -> int:
    vm._parts.life.look_again()
    run = vm._parts.life.run
    assert run is not None
    return run.qemu_pid


def failing(error: Exception) -> Callable[..., Awaitable[Any]]:
    async def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


async def test_it_is_the_same_qemu_under_another_name(vm: Sandbox, runtime: RuntimeDir) -> None:
    pid, machine = await begin(vm), runtime.current().name
    began = time.monotonic()
    done = await vm.revert("one")
    assert done.revert_form in IN_PLACE
    assert bool(done.revert_why) == (done.revert_form == Form.FLUSHED)
    assert 0 < done.revert_pause_s < time.monotonic() - began
    assert await got(vm) == "one\none"
    assert pid_of(vm) == pid
    names = {name for name in runtime.names() if name.isdigit()}
    assert names == {runtime.current().name} != {machine}
    undone = await vm.undo()
    assert undone.revert_form in IN_PLACE
    assert await got(vm) == "two\ntwo"


async def test_all_translations_go_where_a_processor_was_in_the_middle_of_something(
    vm: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = await begin(vm)
    monkeypatch.setattr(device_load, "wakings", lambda _: None)
    done = await vm.revert("one")
    assert done.revert_form == Form.FLUSHED
    assert "a processor was waiting" in done.revert_why
    assert await got(vm) == "one\none"
    assert (await vm.undo()).revert_form == Form.FLUSHED
    assert await got(vm) == "two\ntwo"
    assert pid_of(vm) == pid


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (Qemu, "pivot"),
        (Qemu, "put_below"),
        (Qemu, "load_state"),
        (Awakening, "wake"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
@pytest.mark.usefixtures("checked")
async def test_a_new_qemu_goes_on_after_a_failure_and_the_present_is_kept(
    vm: Sandbox, monkeypatch: pytest.MonkeyPatch, owner: type, method: str
) -> None:
    pid = await begin(vm)
    original = getattr(owner, method)
    calls = 0
    # The capture has turned the disk before.
    fails_at = 2 if method == "pivot" else 1

    async def fail_once(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise MachineError("it was to fail")
        return await original(*args, **named)

    monkeypatch.setattr(owner, method, fail_once)
    done = await vm.revert("one")
    assert (done.revert_form, done.revert_why) == (Form.NEW_QEMU, "it was to fail")
    assert await got(vm) == "one\none"
    assert pid_of(vm) != pid
    await vm.undo()
    assert await got(vm) == "two\ntwo"
    assert (await vm.checkpoint("after")).parent is not None


async def test_a_new_qemu_that_cannot_take_over_leaves_the_present_alone(
    vm: Sandbox, runtime: RuntimeDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, machine = await begin(vm), runtime.current().name

    async def why_not(*_: object) -> str:
        return "it is to be so"

    with monkeypatch.context() as patch:
        patch.setattr(reverting, "why_not", why_not)
        patch.setattr(Successor, "_move_forwards", failing(MachineError("the port is taken")))
        with pytest.raises(MachineError, match="the port is taken"):
            await vm.revert("one")
    assert (pid_of(vm), runtime.current().name) == (pid, machine)
    assert await got(vm) == "two\ntwo"
    assert not [made for made in vm.checkpoints() if made.auto]
    done = await vm.revert("one")
    assert done.revert_form in IN_PLACE
    assert await got(vm) == "one\none"


async def test_a_keeper_of_an_earlier_version_has_a_new_qemu_started(
    vm: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, ask = await begin(vm), KeeperLink.ask

    async def refuse(self: KeeperLink, op: str, **values: Any) -> Any:
        return await ask(self, "unheard of" if op == "turn" else op, **values)

    monkeypatch.setattr(KeeperLink, "ask", refuse)
    done = await vm.revert("one")
    assert done.revert_form == Form.NEW_QEMU
    assert await got(vm) == "one\none"
    assert pid_of(vm) != pid
    await vm.undo()
    assert await got(vm) == "two\ntwo"


async def test_the_checkpoint_of_a_machine_with_more_memory_is_refused(vm: Sandbox) -> None:
    async with Sandbox(image="debian", name="larger") as larger:
        await larger.checkpoint("there")
        with pytest.raises(HistoryError, match="memory"):
            await vm.revert("larger:there")
    assert vm.checkpoints() == []


async def test_what_fails_before_the_pause_leaves_the_present_alone(
    vm: Sandbox, runtime: RuntimeDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a new QEMU does not help either: the checkpoint is damaged, as it seems."""
    pid, machine = await begin(vm), runtime.current().name
    monkeypatch.setattr(in_place, "Rewriting", raising(HistoryError("it is damaged")))
    monkeypatch.setattr(Successor, "launch", failing(HistoryError("it is damaged")))
    with pytest.raises(HistoryError, match="it is damaged"):
        await vm.revert("one")
    assert (pid_of(vm), runtime.current().name) == (pid, machine)
    assert {name for name in runtime.names() if name.isdigit()} == {machine}
    assert await got(vm) == "two\ntwo"
    assert not [made for made in vm.checkpoints() if made.auto]


async def test_one_that_cannot_be_finished_is_finished_by_who_comes_next(
    vm: Sandbox, runtime: RuntimeDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways fail in this client. Nobody resumes the guest; then the keeper has it finished."""
    pid = await begin(vm)
    with monkeypatch.context() as patch:
        patch.setattr(Qemu, "load_state", failing(MachineError("QEMU does not load it")))
        patch.setattr(Successor, "launch", failing(MachineError("there is no memory")))
        with pytest.raises(MachineError, match="there is no memory"):
            await vm.revert("one")
    other = Sandbox.attach(vm.id)
    try:
        await asyncio.to_thread(
            wait_for, lambda: not runtime.current().unfinished.exists(), what="the finisher"
        )
        assert await got(other) == "one\none"
        assert pid_of(other) != pid
        await other.checkpoint("of the other")
        await vm.undo()
        assert await got(vm) == "two\ntwo"
    finally:
        other.close()


async def test_one_that_stays_unfinished_is_told_and_reverted_again(
    vm: Sandbox, runtime: RuntimeDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(vm)
    with monkeypatch.context() as patch:
        patch.setattr(Qemu, "load_state", failing(MachineError("QEMU does not load it")))
        patch.setattr(Successor, "launch", failing(MachineError("there is no memory")))
        patch.setattr(finisher, "PROGRAM", "no.such.program")
        patch.setattr("quicksand.snapshots.taking.FINISH_S", 0.5)
        with pytest.raises(MachineError, match="there is no memory"):
            await vm.revert("one")
        assert runtime.current().unfinished.exists()
        (entry,) = (entry for entry in Sandbox.list() if entry.id == vm.id)
        assert (entry.status, entry.error) == (Status.PAUSED, LEFT)
        for refused in (vm.checkpoint, vm.resume, vm.pause, partial(vm.execute, "true")):
            with pytest.raises(StateError, match="was interrupted, and is not finished") as error:
                await refused()
            assert error.value.hint
    done = await vm.revert("one")
    assert (done.revert_form, done.revert_why) == (
        Form.NEW_QEMU,
        "a revert before it was not finished",
    )
    assert not runtime.current().unfinished.exists()
    assert await got(vm) == "one\none"


async def test_one_that_fails_when_the_guest_runs_already_has_it_paused(
    vm: Sandbox, runtime: RuntimeDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(vm)
    with monkeypatch.context() as patch:
        patch.setattr(restore, "repair_guest", failing(AgentUnreachableError("it is silent")))
        patch.setattr(Successor, "launch", failing(MachineError("there is no memory")))
        patch.setattr(finisher, "PROGRAM", "no.such.program")
        with pytest.raises(MachineError, match="there is no memory"):
            await vm.revert("one")
        hypervisor = await Qemu.connect(runtime.current())
        assert not await hypervisor.is_running()
        await hypervisor.close()
    await vm.revert("one")
    assert await got(vm) == "one\none"


async def test_who_waits_meanwhile_does_not_resume_one_that_stays_unfinished(
    vm: Sandbox, runtime: RuntimeDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(vm)
    other = Sandbox.open(vm.name)
    waiting: list[asyncio.Task[None]] = []
    open_state = Qemu.open_state

    async def meanwhile(self: Qemu, *args: Any, **more: Any) -> None:
        if not waiting:
            waiting.append(asyncio.create_task(other.resume()))
        await open_state(self, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Qemu, "open_state", meanwhile)
        patch.setattr(Qemu, "load_state", failing(MachineError("QEMU does not load it")))
        patch.setattr(Successor, "launch", failing(MachineError("there is no memory")))
        patch.setattr(finisher, "PROGRAM", "no.such.program")
        patch.setattr("quicksand.snapshots.taking.FINISH_S", 0.5)
        with pytest.raises(MachineError, match="there is no memory"):
            await vm.revert("one")
        with pytest.raises(StateError, match="is not finished"):
            await waiting[0]
        hypervisor = await Qemu.connect(runtime.current())
        assert not await hypervisor.is_running()
        await hypervisor.close()
    await vm.revert("one")
    assert await got(vm) == "one\none"


@pytest.mark.parametrize(
    ("owner", "method"),
    [(in_place.InPlace, "_tidy"), (Present, "kept")],
    ids=["tidying", "storing"],
)
@pytest.mark.usefixtures("checked")
async def test_a_cancellation_after_the_guest_has_answered_loses_nothing(
    vm: Sandbox, monkeypatch: pytest.MonkeyPatch, owner: type, method: str
) -> None:
    await begin(vm)
    original = getattr(owner, method)

    async def cancelled(self: object, *arguments: Any) -> Any:
        work.cancel()
        return await original(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(owner, method, cancelled)
        work = asyncio.create_task(vm.revert("one"))
        with pytest.raises(asyncio.CancelledError):
            await work
    assert await got(vm) == "one\none"
    await vm.undo()
    assert await got(vm) == "two\ntwo"
