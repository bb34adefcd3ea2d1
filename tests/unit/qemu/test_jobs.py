"""QEMU's jobs are followed to their end, whatever that is."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from quicksand.base.errors import MachineError, QemuDiedError, StateError
from quicksand.qemu.qmp import Monitor, run_job

STATES = ("created", "running", "waiting", "pending", "concluded")


class FakeQemu:
    """A monitor with one job, which takes a step whenever somebody looks."""

    def __init__(self, *, error: str = "", fails: dict[str, Exception] | None = None) -> None:
        self.said: list[str] = []
        self.jobs: dict[str, int] = {"somebody else's": 0}
        self.error = error
        self.fails = fails or {}
        self.arguments: dict[str, Any] = {}
        self.looked = asyncio.Event()

    @property
    def monitor(self) -> Monitor:
        return cast(Monitor, self)

    async def execute(self, command: str, **arguments: Any) -> Any:
        self.said.append(command)
        if command in self.fails:
            raise self.fails[command]
        match command:
            case "query-jobs":
                self.looked.set()
                return [self.look(name) for name in self.jobs]
            case "job-dismiss":
                del self.jobs[arguments["id"]]
            case _:
                self.jobs[arguments.pop("job-id")] = 0
                self.arguments = arguments
        return {}

    def look(self, name: str) -> dict[str, Any]:
        state = STATES[self.jobs[name]]
        self.jobs[name] = min(self.jobs[name] + 1, len(STATES) - 1)
        found = {"id": name, "status": state, "type": "snapshot-save"}
        if self.error and state == "concluded" and "quicksand" in name:
            found["error"] = self.error
        return found


async def save(qemu: FakeQemu) -> None:
    await run_job(qemu.monitor, "snapshot-save", tag="a", vmstate="state", devices=["state"])


async def test_it_returns_when_the_job_has_ended_and_leaves_nothing_of_it() -> None:
    qemu = FakeQemu()
    await save(qemu)
    assert qemu.said == ["snapshot-save", *["query-jobs"] * len(STATES), "job-dismiss"]
    assert qemu.arguments == {"tag": "a", "vmstate": "state", "devices": ["state"]}
    assert list(qemu.jobs) == ["somebody else's"]


async def test_a_job_that_failed_is_an_error_in_qemu_s_words_and_dismissed() -> None:
    qemu = FakeQemu(error="Error while writing VM state: Input/output error")
    with pytest.raises(MachineError, match="snapshot-save: Error while writing VM state"):
        await save(qemu)
    assert list(qemu.jobs) == ["somebody else's"]


@pytest.mark.parametrize("command", ["snapshot-save", "query-jobs", "job-dismiss"])
async def test_the_end_of_qemu_at_any_step_is_told(command: str) -> None:
    qemu = FakeQemu(fails={command: QemuDiedError("QEMU ended")})
    with pytest.raises(QemuDiedError):
        await save(qemu)
    assert qemu.said[-1] == command


async def test_a_job_that_qemu_refuses_is_not_waited_for() -> None:
    qemu = FakeQemu(fails={"snapshot-save": StateError("QEMU refused snapshot-save: no such node")})
    with pytest.raises(StateError, match="no such node"):
        await save(qemu)
    assert qemu.said == ["snapshot-save"]


async def test_a_job_that_is_gone_is_no_success() -> None:
    qemu = FakeQemu()
    saving = asyncio.create_task(save(qemu))
    await qemu.looked.wait()
    qemu.jobs.clear()
    with pytest.raises(MachineError, match="forgotten"):
        await saving


async def test_a_cancellation_leaves_the_job_to_itself() -> None:
    qemu = FakeQemu()
    saving = asyncio.create_task(save(qemu))
    await qemu.looked.wait()
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert "job-dismiss" not in qemu.said
