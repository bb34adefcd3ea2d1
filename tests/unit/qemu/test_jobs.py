"""QEMU's jobs are followed to their end, whatever that is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from typing import Any, cast

import pytest
from quicksand.base.errors import MachineError, QemuDiedError, StateError
from quicksand.qemu.qmp import Monitor, run_job

from tests.each import each

STEPS = ("created", "running", "waiting", "pending", "concluded")


class FakeQemu:
    """A monitor with one job, which is over before its command is answered, or `goes_on`."""

    def __init__(
        self, *, error: str = "", fails: dict[str, Exception] | None = None, goes_on: bool = False
    ) -> None:
        self.said: list[str] = []
        self.jobs: list[str] = ["somebody else's"]
        self.error = error
        self.fails = fails or {}
        self.goes_on = goes_on
        self.arguments: dict[str, Any] = {}
        self.waited = asyncio.Event()
        self.listening = False
        self._events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    @property
    def monitor(self) -> Monitor:
        return cast(Monitor, self)

    @contextlib.contextmanager
    def listen(self, *names: str) -> Iterator[AsyncGenerator[dict[str, Any], None]]:
        assert names == ("JOB_STATUS_CHANGE",)
        self.listening = True
        yield self._hear()
        self.listening = False

    async def _hear(self) -> AsyncGenerator[dict[str, Any], None]:
        while True:
            if self._events.empty():
                self.waited.set()
            if (event := await self._events.get()) is None:
                return
            yield event

    async def execute(self, command: str, **arguments: Any) -> Any:
        self.said.append(command)
        if command in self.fails:
            raise self.fails[command]
        match command:
            case "query-jobs":
                return [self.look(name) for name in self.jobs]
            case "job-dismiss":
                self.jobs.remove(arguments["id"])
            case _:
                self.jobs.append(arguments.pop("job-id"))
                self.arguments = arguments
                self.tell("somebody else's", "concluded")
                for step in STEPS[:2] if self.goes_on else STEPS:
                    self.tell(self.jobs[-1], step)
        return {}

    def tell(self, name: str, step: str) -> None:
        if self.listening:
            data = {"id": name, "status": step}
            self._events.put_nowait({"event": "JOB_STATUS_CHANGE", "data": data})

    def die(self) -> None:
        self._events.put_nowait(None)

    def look(self, name: str) -> dict[str, Any]:
        found = {"id": name, "status": "concluded", "type": "snapshot-save"}
        if self.error and "quicksand" in name:
            found["error"] = self.error
        return found


async def save(qemu: FakeQemu) -> None:
    await run_job(qemu.monitor, "snapshot-save", tag="a", vmstate="state", devices=["state"])


async def saving(qemu: FakeQemu) -> asyncio.Task[None]:
    """A job that QEMU is still at, and that is waited for."""
    task = asyncio.create_task(save(qemu))
    async with asyncio.timeout(60):
        await qemu.waited.wait()
    assert not task.done()
    return task


async def test_it_returns_when_the_job_has_ended_and_leaves_nothing_of_it() -> None:
    qemu = FakeQemu()
    await save(qemu)
    assert qemu.said == ["snapshot-save", "query-jobs", "job-dismiss"]
    assert qemu.arguments == {"tag": "a", "vmstate": "state", "devices": ["state"]}
    assert qemu.jobs == ["somebody else's"]
    assert not qemu.listening


async def test_qemu_is_asked_nothing_while_it_is_at_the_job() -> None:
    qemu = FakeQemu(goes_on=True)
    task = await saving(qemu)
    assert qemu.said == ["snapshot-save"]
    qemu.tell(qemu.jobs[-1], "concluded")
    await asyncio.wait_for(task, 60)
    assert qemu.said == ["snapshot-save", "query-jobs", "job-dismiss"]


async def test_a_job_that_failed_is_an_error_in_qemu_s_words_and_dismissed() -> None:
    qemu = FakeQemu(error="Error while writing VM state: Input/output error")
    with pytest.raises(MachineError, match="snapshot-save: Error while writing VM state"):
        await save(qemu)
    assert qemu.jobs == ["somebody else's"]


@each("command", ["snapshot-save", "query-jobs", "job-dismiss"])
async def test_the_end_of_qemu_at_any_step_is_told(command: str) -> None:
    qemu = FakeQemu(fails={command: QemuDiedError("QEMU ended")})
    with pytest.raises(QemuDiedError):
        await save(qemu)
    assert qemu.said[-1] == command


async def test_the_end_of_qemu_during_the_job_is_told() -> None:
    qemu = FakeQemu(goes_on=True)
    task = await saving(qemu)
    qemu.die()
    with pytest.raises(QemuDiedError, match="during snapshot-save"):
        await asyncio.wait_for(task, 60)


async def test_a_job_that_qemu_refuses_is_not_waited_for() -> None:
    qemu = FakeQemu(fails={"snapshot-save": StateError("QEMU refused snapshot-save: no such node")})
    with pytest.raises(StateError, match="no such node"):
        await save(qemu)
    assert qemu.said == ["snapshot-save"]


async def test_a_job_that_is_gone_is_no_success() -> None:
    qemu = FakeQemu(goes_on=True)
    task = await saving(qemu)
    qemu.tell(qemu.jobs.pop(), "concluded")
    with pytest.raises(MachineError, match="forgotten"):
        await task


async def test_a_cancellation_leaves_the_job_to_itself() -> None:
    qemu = FakeQemu(goes_on=True)
    task = await saving(qemu)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert qemu.said == ["snapshot-save"]
