"""A sandbox's link to its agent, while one machine takes over from another."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import AgentUnreachableError, RevertedError, StateError
from quicksand.base.lease import is_leased, take_at_once
from quicksand.guest.agent.link import AgentLink
from quicksand.guest.agent.session import Session, connect, dial
from quicksand.records.layout import AGENT_PORTS, MachineDir, RuntimeDir

from tests.unit.guest.agent.fake_agent import FakeAgent


class Machines:
    """Two machines of a sandbox; the agent of each tells its machine's name."""

    def __init__(self, runtime: RuntimeDir) -> None:
        self.runtime = runtime
        self.agents: list[FakeAgent] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.servers: list[asyncio.Server] = []
        self.go_on = asyncio.Event()
        """When to answer "later"."""

    async def make(self, name: str) -> MachineDir:
        machine = self.runtime.machine(name)
        machine.root.mkdir(parents=True)
        machine.state.write_text(json.dumps({"token": "token", "origin": "past"}))

        async def answer(agent: FakeAgent, request: dict[str, Any]) -> None:
            if request["method"] == "later":
                await self.go_on.wait()
            if request["method"] in ("who", "later"):
                agent.reply(request, {"name": name})

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            agent = FakeAgent(writer, answer)
            self.agents.append(agent)
            self.tasks.append(asyncio.create_task(agent.serve(reader)))

        for port in range(AGENT_PORTS):
            path = str(machine.agent_socket(port))
            self.servers.append(await asyncio.start_unix_server(connected, path))
        return machine

    def promote(self, name: str) -> None:
        self.runtime.current_link.unlink(missing_ok=True)
        self.runtime.current_link.symlink_to(name)

    async def close(self) -> None:
        for server in self.servers:
            server.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for agent in self.agents:
            await agent.close()


@pytest.fixture
async def machines(tmp_path: Path) -> AsyncIterator[Machines]:
    found = Machines(RuntimeDir(tmp_path / "abcdabcd", tmp_path))
    await found.make("1")
    await found.make("2")
    found.promote("1")
    yield found
    await found.close()


@pytest.fixture
def link(machines: Machines) -> AgentLink:
    return AgentLink("web", machines.runtime, "token", why_gone=lambda: None)


async def name_of(link: AgentLink) -> str:
    return str((await link.request("who", {}, 5))["name"])


async def test_after_a_revert_the_next_request_goes_to_the_new_machine(
    machines: Machines, link: AgentLink
) -> None:
    """Also while the old one still lives: its end is not waited for."""
    with contextlib.closing(link):
        assert await name_of(link) == "1"
        session = await link.session()
        running = asyncio.ensure_future(session.request("never", timeout=60))
        await asyncio.sleep(0)
        machines.promote("2")
        assert await name_of(link) == "2"
        with pytest.raises(RevertedError, match="'past'"):
            await running


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quicksand.guest.agent.channel.LOOK_S", 0.01)


def pause(machine: MachineDir, kind: str) -> str:
    """Make a machine look paused, and return what is said of it."""
    match kind:
        case "user":
            machine.state.write_text(json.dumps({"token": "token", "paused": True}))
            return "the sandbox 'web' is paused; "
        case "memory":
            machine.oversized.write_text(f"taken {3 << 30} {2 << 30}")
            return "the sandbox 'web' is paused: its machine has taken 3.0 GiB"
        case _:
            machine.disk_full.touch()
            return "the sandbox 'web' is paused: the host's disk is full"


def resume(machine: MachineDir) -> None:
    machine.state.write_text(json.dumps({"token": "token", "paused": False}))
    machine.oversized.unlink(missing_ok=True)
    machine.disk_full.unlink(missing_ok=True)


async def told(caplog: pytest.LogCaptureFixture) -> str:
    """Wait until something is told."""
    async with asyncio.timeout(60):
        while not caplog.messages:
            await asyncio.sleep(0.01)
    return caplog.messages[0]


@pytest.mark.parametrize("kind", ["user", "memory", "disk"])
async def test_a_wait_says_once_that_its_guest_is_paused_and_goes_on_with_it(
    machines: Machines,
    link: AgentLink,
    looks_often: None,
    caplog: pytest.LogCaptureFixture,
    kind: str,
) -> None:
    """Its limit is over many times while the guest is paused."""
    machine = machines.runtime.machine("1")
    with contextlib.closing(link):
        await link.session()
        said = pause(machine, kind)
        waiting = asyncio.ensure_future(link.request("later", {}, 0.05))
        assert (await told(caplog)).startswith(said)
        await asyncio.wait([waiting], timeout=0.3)
        assert not waiting.done()
        assert len(caplog.messages) == 1, "not at each look"
        resume(machine)
        machines.go_on.set()
        assert await waiting == {"name": "1"}


async def test_the_limit_of_a_wait_counts_on_when_the_guest_goes_on(
    machines: Machines, link: AgentLink, looks_often: None, caplog: pytest.LogCaptureFixture
) -> None:
    machine = machines.runtime.machine("1")
    with contextlib.closing(link):
        await link.session()
        pause(machine, "user")
        waiting = asyncio.ensure_future(link.request("never", {}, 0.05))
        await told(caplog)
        resume(machine)
        with pytest.raises(AgentUnreachableError, match="did not answer 'never'"):
            await asyncio.wait_for(waiting, 60)


async def test_what_reads_without_an_end_says_that_its_guest_is_paused(
    machines: Machines, link: AgentLink, looks_often: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Output of a command or a terminal, a file, a connection."""
    machine = machines.runtime.machine("1")
    with contextlib.closing(link):
        session = await link.session()
        channel = session.open("later", {})
        machines.go_on.set()
        await channel.opened()
        reading = asyncio.ensure_future(channel.read())
        pause(machine, "user")
        assert "`quicksand-tui" not in await told(caplog), "it is for users of Python"
        assert not reading.done()
        resume(machine)
        session.close()
        with pytest.raises(AgentUnreachableError, match="was closed"):
            await reading


async def test_the_connection_of_a_revert_is_gone_on_with(
    machines: Machines, link: AgentLink
) -> None:
    with contextlib.closing(link):
        old = await link.session()
        running = asyncio.ensure_future(old.request("never", timeout=60))
        await asyncio.sleep(0)
        new = machines.runtime.machine("2")
        lease = take_at_once(new.agent_socket(3))
        assert lease is not None
        session = await dial(lease.socket)
        await session.handshake("token", timeout=60)
        machines.promote("2")
        assert link.adopt(new, session, lease)
        link.move_on()
        assert await link.session() is session
        assert await name_of(link) == "2"
        with pytest.raises(RevertedError, match="'past'"):
            await running
    assert not is_leased(new.agent_socket(3))


async def test_a_client_that_comes_during_a_revert_connects_once_more(
    machines: Machines, link: AgentLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guest that goes on may not know of a connection to the machine before."""
    connected: list[str] = []

    async def late(path: Path, *args: Any, **more: Any) -> Session:
        connected.append(path.parent.name)
        session = await connect(path, *args, **more)
        machines.promote("2")
        return session

    monkeypatch.setattr("quicksand.guest.agent.link.connect", late)
    with contextlib.closing(link):
        assert await name_of(link) == "2"
    assert connected == ["1", "2"]


async def test_a_revert_that_nobody_finishes_is_named(machines: Machines, link: AgentLink) -> None:
    machine = machines.runtime.machine("1")
    machine.unfinished.touch()
    for server in machines.servers:
        server.close()
    for port in range(AGENT_PORTS):
        machine.agent_socket(port).unlink(missing_ok=True)
    with (
        contextlib.closing(link),
        pytest.raises(StateError, match="the last revert of the sandbox is not finished") as error,
    ):
        await link.session(timeout=0.2)
    assert error.value.hint
    machine.unfinished.unlink()


async def test_a_link_that_connects_takes_no_other_connection(
    machines: Machines, link: AgentLink
) -> None:
    new = machines.runtime.machine("2")
    lease = take_at_once(new.agent_socket(3))
    assert lease is not None
    session = await dial(lease.socket)
    with contextlib.closing(link), contextlib.closing(session):
        connecting = asyncio.ensure_future(link.session())
        await asyncio.sleep(0)
        assert not link.adopt(new, session, lease)
        await connecting
    lease.release()


async def test_a_link_that_is_closed_while_it_connects_keeps_no_port(
    machines: Machines, link: AgentLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither does one who waits behind it; the next one connects anew."""
    made: list[Session] = []

    async def late(path: Path, *args: Any, **more: Any) -> Session:
        session = await connect(path, *args, **more)
        made.append(session)
        if len(made) == 1:
            link.close()
        return session

    monkeypatch.setattr("quicksand.guest.agent.link.connect", late)
    found = await asyncio.gather(link.session(), link.session(), return_exceptions=True)
    assert [type(error) for error in found] == [AgentUnreachableError] * 2
    assert [session.closed.is_set() for session in made] == [True]
    machine = machines.runtime.machine("1")
    assert not any(is_leased(machine.agent_socket(port)) for port in range(AGENT_PORTS))
    with contextlib.closing(link):
        assert await name_of(link) == "1"
