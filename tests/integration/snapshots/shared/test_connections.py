"""Whoever has a connection to a guest that is reverted hears at once that it has ended, on either
side of the checkpoint; new ones work."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Self

import pytest
from quicksand import NetworkMode, PortForward, Sandbox
from quicksand.base.errors import RevertedError

from tests.conftest import free_port, in_time
from tests.integration.guests import say
from tests.integration.snapshots.witnesses import Witness

pytestmark = pytest.mark.vm

GUEST_PORT = 7000
AT_ONCE_S = 1.0
ENDED_S = 30.0
"""For the end of a connection that nobody would tell of otherwise, on a busy host."""
PROGRAM = (sys.executable, "-m", "quicksand_tui")


@pytest.fixture(scope="module")
def vm_options() -> dict[str, Any]:
    return {
        "network_mode": NetworkMode.FULL,
        "port_forwards": [PortForward(free_port(), GUEST_PORT)],
    }


@dataclass
class Peer:
    """An end of a connection on the host."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def echoes(self, word: bytes) -> None:
        async with asyncio.timeout(60):
            self.writer.write(word)
            assert await self.reader.readexactly(len(word)) == word

    async def ends(self, seconds: float) -> None:
        """Wait until the other end is gone."""
        async with asyncio.timeout(seconds):
            with contextlib.suppress(ConnectionResetError):
                while await self.reader.read(4096):
                    pass
        await self.closed()

    async def closed(self) -> None:
        """Close this end."""
        self.writer.close()
        with contextlib.suppress(ConnectionResetError):
            await self.writer.wait_closed()


@dataclass
class Host:
    """What the guest calls: says who has called."""

    callers: dict[str, Peer] = field(default_factory=dict)
    called: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        word = (await reader.read(100)).decode()
        async with self.called:
            self.callers[word] = Peer(reader, writer)
            self.called.notify_all()

    async def caller(self, word: str) -> Peer:
        async with asyncio.timeout(60), self.called:
            await self.called.wait_for(lambda: word in self.callers)
            return self.callers.pop(word)

    async def __aexit__(self, *_: object) -> None:
        self._server.close()


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    async with Host() as found:
        yield found


@pytest.fixture
async def program(vm: Sandbox, host: Host) -> AsyncIterator[Witness]:
    witness = await Witness.start(vm, "connecting", str(GUEST_PORT), str(host.port))
    yield witness
    await witness.end()


async def dial(vm: Sandbox) -> Peer:
    """A connection to the program, through the forwarded port."""
    peer = Peer(*await asyncio.open_connection("127.0.0.1", vm.port_forwards[GUEST_PORT]))
    await peer.echoes(b"hello")
    return peer


async def call(program: Witness, host: Host, word: str) -> Peer:
    """A connection of the program's to the host."""
    await program.tell(word)
    peer = await host.caller(word)
    peer.writer.write(b"who is there?")
    return peer


async def test_open_connections_end_in_both_directions_and_new_ones_work(
    vm: Sandbox, program: Witness, host: Host
) -> None:
    dialled = [await dial(vm)]
    called = [await call(program, host, "before")]
    await vm.checkpoint("one")
    for number in range(2):
        dialled.append(await dial(vm))
        called.append(await call(program, host, f"after-{number}"))
        if number:
            await vm.undo()
        else:
            await vm.revert("one")
        await asyncio.gather(*(peer.ends(ENDED_S) for peer in (*dialled, *called)))
        dialled = [await dial(vm)]
        called = [await call(program, host, f"again-{number}")]
    await dialled[0].echoes(b"still")
    for peer in (*dialled, *called):
        await peer.closed()


async def test_what_the_guest_has_of_them_ends_when_it_uses_it(
    vm: Sandbox, program: Witness, host: Host
) -> None:
    """Its end of a connection that the checkpoint has is an error to it, not a wait for ever."""
    peer = await dial(vm)
    await vm.checkpoint("one")
    await vm.revert("one", keep_now=False)
    await peer.ends(ENDED_S)
    await program.tell("poke")  # unless it knows already
    await program.until(lambda now: now["open"] == 0, what="its end")
    await (await dial(vm)).closed()


async def run_elsewhere(vm: Sandbox) -> asyncio.subprocess.Process:
    """A command in the guest of another process of the host."""
    words = ("exec", vm.name, "--", "sh", "-c", "echo up; exec sleep 600")
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"up\n"
    return process


async def test_commands_of_other_processes_end_with_125(vm: Sandbox) -> None:
    async def seconds() -> float:
        process = await run_elsewhere(vm)
        await vm.checkpoint("one")
        await vm.revert("one", keep_now=False)
        began = time.monotonic()
        _, said = await process.communicate()
        taken = time.monotonic() - began
        assert process.returncode == 125
        assert b"was reverted to 'one'" in said
        # In the checkpoint it runs: the agent ends what nobody waits for.
        await say(vm, "while pgrep -x sleep; do sleep 0.01; done")
        await vm.delete_checkpoint("one")
        return taken

    assert await in_time(seconds, AT_ONCE_S)


async def test_every_way_to_the_guest_of_this_process_is_told(vm: Sandbox) -> None:
    """Commands, shells, files that are being sent: of several clients at once."""
    others = [Sandbox.attach(vm.id) for _ in range(3)]
    try:
        await vm.checkpoint("one")
        commands = [
            asyncio.create_task(one.execute("sleep 600", timeout=None)) for one in (vm, *others)
        ]
        while int(await say(vm, "pgrep -cx sleep || true")) < len(commands):
            await asyncio.sleep(0.01)
        await vm.revert("one", keep_now=False)
        async with asyncio.timeout(ENDED_S):
            for result in await asyncio.gather(*commands, return_exceptions=True):
                assert isinstance(result, RevertedError), result
        for one in others:
            assert await say(one, "echo alive; pgrep -cx sleep || true") == "alive\n0"
    finally:
        for one in others:
            one.close()
