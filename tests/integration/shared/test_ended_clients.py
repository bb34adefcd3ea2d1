"""Connections to the agent that are ended from outside: QEMU and the guest go on."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator

import pytest
from quicksand import Sandbox
from quicksand.base.errors import AgentUnreachableError
from quicksand.base.paths import Paths
from quicksand.base.processes import ProcessKind, processes_of
from quicksand.qemu.disconnecting import end_streams, why_not
from quicksand.qemu.qmp import Monitor
from quicksand.records.layout import AGENT_PORTS, runtime_dir, sandbox_dir

from tests.integration.guests import say

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux can do that"),
]

CLIENT = """
import asyncio, sys
from quicksand import Sandbox

asyncio.run(Sandbox.attach("shared").execute(sys.argv[1]))
"""


class Ending:
    def __init__(self, places: Paths, vm: Sandbox) -> None:
        self.runtime = runtime_dir(places, vm.id)
        (self.pid,) = [
            found.pid
            for found in processes_of(sandbox_dir(places, vm.id).root)
            if found.kind is ProcessKind.QEMU
        ]

    def clients(self) -> int:
        """End all connections to the agent; how many there were."""
        names = {self.runtime.current().agent_socket(number).name for number in range(AGENT_PORTS)}
        return len(end_streams(self.pid, self.runtime.root, names))


@pytest.fixture
def ending(places: Paths, vm: Sandbox) -> Ending:
    found = Ending(places, vm)
    assert why_not(found.pid) == ""
    return found


@pytest.fixture
async def monitor(ending: Ending) -> AsyncIterator[Monitor]:
    found = await Monitor.connect(ending.runtime.current())
    yield found
    await found.close()


async def runs(vm: Sandbox, pattern: str) -> bool:
    return (await vm.execute(["pgrep", "-f", f"^{pattern}"])).exit_code == 0


async def until(vm: Sandbox, pattern: str, *, there: bool) -> None:
    async with asyncio.timeout(60):
        while await runs(vm, pattern) != there:
            await asyncio.sleep(0.01)


async def start_sleeping(vm: Sandbox) -> asyncio.subprocess.Process:
    """Another program, which waits for a command in the guest."""
    argv = [sys.executable, "-c", CLIENT, "sleep 4711"]
    client = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.PIPE)
    await until(vm, "sleep 4711", there=True)
    return client


async def require_broken(client: asyncio.subprocess.Process) -> None:
    _, told = await asyncio.wait_for(client.communicate(), 60)
    assert b"AgentUnreachableError" in told


async def test_what_another_program_runs_ends_on_both_sides(vm: Sandbox, ending: Ending) -> None:
    client = await start_sleeping(vm)
    assert ending.clients() == 2
    await require_broken(client)
    await until(vm, "sleep 4711", there=False)


async def test_qemu_takes_the_next_clients_while_the_guest_is_paused(
    vm: Sandbox, ending: Ending, monitor: Monitor
) -> None:
    client = await start_sleeping(vm)
    await monitor.execute("stop")
    assert ending.clients() == 2
    await require_broken(client)
    assert (await monitor.execute("query-status"))["status"] == "paused"
    writers = []
    for number in range(AGENT_PORTS):
        port = ending.runtime.current().agent_socket(number)
        writers.append((await asyncio.open_unix_connection(port))[1])
    ended = 0
    async with asyncio.timeout(60):
        while ended < AGENT_PORTS:  # as soon as it has taken them
            ended += ending.clients()
            await asyncio.sleep(0.001)
    for writer in writers:
        writer.close()
    await monitor.execute("cont")
    # The guest was told nothing of all that: it hears of a client that comes and goes now.
    for number in range(AGENT_PORTS):
        port = ending.runtime.current().agent_socket(number)
        (await asyncio.open_unix_connection(port))[1].close()
    await until(vm, "sleep 4711", there=False)


async def test_a_client_that_stands_still_and_one_at_each_port_are_ended(
    vm: Sandbox, ending: Ending
) -> None:
    argv = [sys.executable, "-c", CLIENT, "yes flood4711"]
    still = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.DEVNULL)
    try:
        await until(vm, "yes flood4711", there=True)
        still.send_signal(signal.SIGSTOP)
        others = [Sandbox.attach("shared") for _ in range(AGENT_PORTS - 2)]
        calls = [asyncio.create_task(other.execute("sleep 4712")) for other in others]
        async with asyncio.timeout(60):
            while (await vm.execute("pgrep -cfx 'sleep 4712'")).stdout.strip() != str(len(others)):
                await asyncio.sleep(0.01)
        assert ending.clients() == AGENT_PORTS
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(answer) for answer in answers} == {AgentUnreachableError}
        # Each of them can connect anew.
        again = await asyncio.gather(*(say(other, "echo hi") for other in others))
        assert set(again) == {"hi"}
        for other in others:
            other.close()
        await until(vm, "yes flood4711", there=False)
        await until(vm, "sleep 4712", there=False)
    finally:
        still.send_signal(signal.SIGCONT)
        await asyncio.wait_for(still.wait(), 60)
