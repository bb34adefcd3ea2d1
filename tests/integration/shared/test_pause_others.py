"""The agent keeps all other programs from running for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from quicksand import Sandbox
from quicksand.base.errors import AgentRefusedError

pytestmark = pytest.mark.vm

LIMIT = "/proc/sys/kernel/sched_rt_runtime_us"

Progress = Callable[[], Awaitable[int]]


@pytest.fixture
async def progress(vm: Sandbox) -> AsyncIterator[Progress]:
    """How often a busy program of the guest has gone round."""
    path = "/dev/shm/rounds"

    async def ask() -> int:
        return int((await vm.request("file_stat", {"path": path}))["size"])

    async with await vm.spawn(f"while :; do echo >> {path}; done"):
        async with asyncio.timeout(20):
            while "rounds" not in (await vm.execute("ls /dev/shm")).stdout:
                await asyncio.sleep(0.02)
        yield ask
    await vm.execute(["rm", path])


async def goes_on(progress: Progress) -> None:
    before = await progress()
    async with asyncio.timeout(20):
        while await progress() == before:
            await asyncio.sleep(0.01)


async def test_they_stand_still_until_they_are_let_go(vm: Sandbox, progress: Progress) -> None:
    limit = await vm.files.read_text(LIMIT)
    await goes_on(progress)
    await vm.request("pause_others", {"seconds": 10})
    before = await progress()
    # The agent works meanwhile, and so does what it starts.
    assert (await vm.execute(["/proc/self/exe", "--version"])).stdout.startswith("quicksand-agent")
    assert await vm.files.read_text(LIMIT) == "-1\n"
    assert await progress() == before
    await vm.request("resume_others")
    await goes_on(progress)
    assert await vm.files.read_text(LIMIT) == limit != "-1\n"
    # Of the agent's threads and of what it starts: as any other program's (proc(5): policy).
    policies = "cut -d ' ' -f 41 /proc/self/stat /proc/$PPID/task/*/stat"
    assert set((await vm.execute(policies)).stdout.split()) == {"0"}


async def test_they_run_again_when_the_time_is_over(vm: Sandbox, progress: Progress) -> None:
    await vm.request("pause_others", {"seconds": 0.2})
    await goes_on(progress)
    assert (await vm.execute("cut -d ' ' -f 41 /proc/self/stat")).stdout == "0\n"
    await vm.request("resume_others")


async def test_the_last_pause_counts(vm: Sandbox, progress: Progress) -> None:
    await vm.request("pause_others", {"seconds": 0.05})
    await vm.request("pause_others", {"seconds": 10})
    before = await progress()
    for _ in range(10):
        await vm.execute(["/proc/self/exe", "--version"])
    assert await progress() == before
    await vm.request("resume_others")
    await goes_on(progress)


@pytest.mark.parametrize("seconds", [None, 0, -1, 10.5, "1", True])
async def test_how_long_must_be_said(vm: Sandbox, seconds: object) -> None:
    with pytest.raises(AgentRefusedError, match="seconds"):
        await vm.request("pause_others", {"seconds": seconds})
