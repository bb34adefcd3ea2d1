"""A far end as a process of its own: commands, their streams, and connections that break."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import RemoteProtocolError, RemoteRefusedError, RemoteUnreachableError
from quicksand.base.listing import own_sockets
from quicksand.base.paths import Paths
from quicksand.guest.agent import wire
from quicksand.guest.agent.wire import Stream
from quicksand.records.host_sockets import HOST_SOCKETS, host_socket
from quicksand.remote import connection as connecting
from quicksand.remote import hello as greeting
from quicksand.remote import peer_link as linking
from quicksand.remote.asking import AskedCommand, CommandLine
from quicksand.remote.connection import Connection
from quicksand.remote.destination import Destination
from quicksand.remote.hello import Hello, read_hello
from quicksand.remote.serving import _Service as Service

from tests.unit.remote.far import make_ssh, two_ends, until

PROGRAM = """
import os, signal, sys, time
what, *rest = sys.argv[1:]
if what == "echo":
    print(*rest)
    print("error", file=sys.stderr)
    sys.exit(7)
if what == "values":
    print(os.environ["QUICKSAND_PASSED_ON"], os.environ.get("TOKEN"), sys.argv[2:])
if what == "cat":
    while data := os.read(0, 65536):
        os.write(1, data)
if what == "flood":
    for number in range(int(rest[0])):
        print(number)
if what == "size":
    signal.signal(signal.SIGWINCH, lambda *_: sys.exit(os.get_terminal_size(0).columns))
    print(os.get_terminal_size(0).columns, os.isatty(0), os.isatty(2), flush=True)
    time.sleep(300)
if what == "once":
    place, number = rest
    with open(place, "a") as file:
        print("begun", number, file=file)
    print("first")
    sys.stdout.flush()
    while not os.path.exists(place + ".go"):
        time.sleep(0.01)
    with open(place, "a") as file:
        print("done", number, file=file)
    print("second")
    sys.exit(3)
if what == "until":
    def end(number, frame):
        os.write(1, f"{signal.Signals(number).name}\\n".encode())  # it may come in a print
        open(rest[0], "w").close()
        sys.exit(5)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    print("ready", flush=True)
    time.sleep(300)
"""


HELLO = Hello(nonce="0" * 32, client="0" * 32)


@pytest.fixture
async def near(
    places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Connection]:
    """A connection to a far end on this machine. At the end nothing of it is left."""
    (tmp_path / "program.py").write_text(PROGRAM)
    make_ssh(tmp_path / "bin", [sys.executable, str(tmp_path / "program.py")])
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(connecting, "AGAIN_S", (0.05, 0.2))
    async with Connection(Destination.parse("ssh://box"), asks=False) as connection:
        yield connection
    await until(lambda: not own_sockets(places.runtime, HOST_SOCKETS), "the far end to end")


def cut(tmp_path: Path) -> None:
    """Break the connection."""
    pid = int((tmp_path / "bin" / "ssh.pid").read_text())
    os.kill(pid, signal.SIGKILL)


async def output(command: AskedCommand) -> dict[Stream, bytes]:
    found = {Stream.STDOUT: b"", Stream.STDERR: b""}
    async for piece in command.pieces():
        found[Stream(piece.stream)] += piece.data
    return found


async def test_streams_stay_apart_and_the_exit_code_comes_back(near: Connection) -> None:
    command = AskedCommand(near.link, CommandLine(argv=["echo", "a b", "\udcff", "ü", ""]))
    await command.start()
    found = await output(command)
    assert found == {Stream.STDOUT: b"a b \xff \xc3\xbc \n", Stream.STDERR: b"error\n"}
    assert command.exit_code == 7


async def test_values_are_passed_on_beside_the_words_and_are_no_variables(
    near: Connection,
) -> None:
    line = CommandLine(argv=["values", "-e", "TOKEN"], values={"TOKEN": "secret\udcff"})
    command = AskedCommand(near.link, line)
    await command.start()
    came = (await output(command))[Stream.STDOUT].decode()
    assert came == """{"TOKEN": "secret\\udcff"} None ['-e', 'TOKEN']\n"""


async def test_input_of_any_size_comes_back_whole(near: Connection) -> None:
    data = os.urandom(3_000_000)
    command = AskedCommand(near.link, CommandLine(argv=["cat"], stdin=True))
    await command.start()

    async def feed() -> None:
        await command.feed(data)
        await command.feed(b"")

    feeding = asyncio.create_task(feed())
    assert (await output(command))[Stream.STDOUT] == data
    await feeding
    assert command.exit_code == 0


async def test_a_far_end_that_is_silent_is_given_up(
    near: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its signs of life come every 15 s."""
    monkeypatch.setattr(linking, "SILENCE_MAX_S", 0.3)
    await near.open()
    command = AskedCommand(near.link, CommandLine(argv=["until", str(tmp_path / "ended")]))
    await command.start()
    async with asyncio.timeout(60):
        with pytest.raises(RemoteUnreachableError, match="no sign of life"):
            await output(command)
    await until((tmp_path / "ended").exists, "the command to end")


async def no_revert(*_: object) -> None:
    """In place of what finishes a revert."""


async def test_a_far_end_gives_signs_of_life(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linking, "ALIVE_EVERY_S", 0.01)
    (reader, writer), there = await two_ends()
    far = asyncio.create_task(Service("0" * 32, (), lambda _: None, no_revert).serve(HELLO, there))
    async with asyncio.timeout(60):
        await reader.readuntil(b'{"event":"alive"}')
        writer.close()
        await far


class Leaving:
    """An offer that takes its time to let go of what it keeps."""

    capability = "leaving"
    methods = ()
    is_empty = True

    def __init__(self) -> None:
        self.is_leaving, self.may_leave = asyncio.Event(), asyncio.Event()

    async def answer(self, request: object, before_keeping: object) -> None: ...

    def away(self) -> None: ...

    def back(self) -> None: ...

    async def leave(self) -> None:
        self.is_leaving.set()
        await self.may_leave.wait()

    async def settle(self) -> None: ...


async def test_who_comes_as_a_far_end_leaves_is_not_kept_waiting(places: Paths) -> None:
    (_, writer), there = await two_ends()
    offer = Leaving()
    service = Service("0" * 32, (), lambda _: None, no_revert, [offer])
    await service._await_return()
    far = asyncio.create_task(service.serve(HELLO, there))
    reader, again = await asyncio.open_unix_connection(host_socket(places, "0" * 32))
    writer.close()
    async with asyncio.timeout(60):
        await offer.is_leaving.wait()
        assert await reader.read() == b""
        assert not own_sockets(places.runtime, HOST_SOCKETS)
        offer.may_leave.set()
        await far
    again.close()


async def test_who_says_no_hello_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greeting, "HELLO_S", 0.02)
    async with asyncio.timeout(60):
        with pytest.raises(RemoteProtocolError, match="nobody said hello"):
            await read_hello(asyncio.StreamReader())


async def test_a_command_ends_with_a_client_that_breaks_the_rules(
    places: Paths, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    program = (sys.executable, str(tmp_path / "program.py"))
    here, there = await two_ends()
    far = asyncio.create_task(
        Service("0" * 32, program, lambda _: None, no_revert).serve(HELLO, there)
    )
    words = [base64.b64encode(word).decode() for word in (b"until", bytes(tmp_path / "ended"))]
    params = {"argv_b64": words, "env": {}, "stdin": False}
    here[1].write(wire.encode_message({"id": 1, "method": "command", "params": params}))
    async with asyncio.timeout(60):
        await here[0].readuntil(b"ready")
        here[1].write(wire.encode_data(1, 77, b"no such stream"))
        await far
    here[1].close()
    assert (tmp_path / "ended").exists()


async def test_commands_run_beside_each_other_over_one_connection(near: Connection) -> None:
    commands = [AskedCommand(near.link, CommandLine(argv=["flood", "20000"])) for _ in range(8)]
    for command in commands:
        await command.start()
    found = await asyncio.gather(*map(output, commands))
    wanted = "".join(f"{number}\n" for number in range(20000)).encode()
    assert [one[Stream.STDOUT] for one in found] == [wanted] * 8


async def test_a_terminal_has_our_size_and_follows_it(near: Connection) -> None:
    command = AskedCommand(near.link, CommandLine(argv=["size"], terminal=(99, 20)))
    await command.start()
    came = b""
    async for piece in command.pieces():
        came += piece.data
        if b"\n" in came:
            command.resize(123, 20)
    assert came == b"99 True True\r\n"
    assert command.exit_code == 123


async def test_signals_reach_the_command(near: Connection, tmp_path: Path) -> None:
    command = AskedCommand(near.link, CommandLine(argv=["until", str(tmp_path / "ended")]))
    await command.start()
    came = b""
    async for piece in command.pieces():
        came += piece.data
        if came == b"ready\n":
            command.signal("INT")
    assert came == b"ready\nSIGINT\n"
    assert command.exit_code == 5


async def test_a_command_of_ours_alone_ends_with_the_connection(
    near: Connection, tmp_path: Path
) -> None:
    command = AskedCommand(near.link, CommandLine(argv=["until", str(tmp_path / "ended")]))
    await command.start()
    came = b""
    with pytest.raises(RemoteUnreachableError):
        async for piece in command.pieces():
            came += piece.data
            if came == b"ready\n":
                cut(tmp_path)
    await until((tmp_path / "ended").exists, "the command to end")


@pytest.mark.parametrize("changes", [True, False])
async def test_whether_a_change_was_made_is_unknown_after_a_break_and_it_is_not_begun_again(
    near: Connection, tmp_path: Path, *, changes: bool
) -> None:
    place = tmp_path / "log"
    line = CommandLine(argv=["once", str(place), "1"], changes=changes)
    command = AskedCommand(near.link, line)
    await command.start()
    await until(lambda: place.exists() and place.read_text(), "the command to begin")
    cut(tmp_path)
    with pytest.raises(RemoteUnreachableError) as caught:
        await output(command)
    assert ("is unknown: " in str(caught.value)) == changes
    assert (caught.value.hint == "look at what is there before you do it again") == changes
    await near.open(resume=True)
    assert place.read_text() == "begun 1\n"


async def test_leaving_ends_a_command(near: Connection, tmp_path: Path) -> None:
    command = AskedCommand(near.link, CommandLine(argv=["until", str(tmp_path / "ended")]))
    await command.start()
    async for _ in command.pieces():
        break
    await near.close()
    await until((tmp_path / "ended").exists, "the command to end")


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"argv_b64": [], "env": {}, "stdin": False},
        {"argv_b64": ["?"], "env": {}, "stdin": False},
        {"argv_b64": ["AA=="], "env": {}, "stdin": False},
        {"argv_b64": [7], "env": {}, "stdin": False},
        {"argv_b64": ["YQ=="], "env": {"LD_PRELOAD": "x"}, "stdin": False},
        {"argv_b64": ["YQ=="], "env": {"LANG": "a\nb"}, "stdin": False},
        {"argv_b64": ["YQ=="], "env": {"LANG": 1}, "stdin": False},
        {"argv_b64": ["YQ=="], "env": {}, "stdin": 1},
        {"argv_b64": ["YQ=="], "env": {}, "stdin": False, "values_b64": []},
        {"argv_b64": ["YQ=="], "env": {}, "stdin": False, "values_b64": {"A B": "YQ=="}},
        {"argv_b64": ["YQ=="], "env": {}, "stdin": False, "values_b64": {"A": "AA=="}},
        {"argv_b64": ["YQ=="], "env": {}, "stdin": False, "terminal": {"columns": "x"}},
    ],
)
async def test_requests_that_make_no_sense_are_refused(
    near: Connection, params: dict[str, Any]
) -> None:
    with pytest.raises(RemoteRefusedError) as caught:
        await near.link.request("command", **params)
    assert caught.value.code == "bad_request"
    await near.link.request("ping")


async def test_an_unknown_method_is_refused_as_such(near: Connection) -> None:
    with pytest.raises(RemoteRefusedError) as caught:
        await near.link.request("dance")
    assert caught.value.code == "no_such_method"
