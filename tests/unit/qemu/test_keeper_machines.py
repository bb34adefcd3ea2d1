"""A keeper's socket, with a script in QEMU's place that tells what it has and hears: machines live
as long as they should, whatever their clients do."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quicksand.base.errors import MachineError, StateError
from quicksand.base.paths import Paths
from quicksand.qemu.keeper_link import KeeperLink
from quicksand.qemu.keeper_parts.client_requests import serve
from quicksand.qemu.keeper_parts.loop import Keeper
from quicksand.qemu.keeper_parts.machines import REQUEST_MAX, Client
from quicksand.qemu.process import OwnedProcess

from quicksand_tui.model.remedy_words import hint_of
from tests.conftest import wait_for
from tests.unit.qemu.test_keeper import Stage, alive

FAKE = """#!{python} -IS
import json, os, sys
name = sys.argv[1]
def say(*words):
    os.write(1, (" ".join([name, *words]) + "\\n").encode())
links = dict()
for number in os.listdir("/proc/self/fd"):
    try:
        links[int(number)] = os.readlink("/proc/self/fd/" + number)
    except OSError:
        pass
say("has", json.dumps(sorted(n for n, link in links.items() if n > 2 and link[:5] == "pipe:")))
for number in links:
    if number >= 300:
        os.write(number, b"%d of %s" % (number, name.encode()))
monitor = next(int(w.rsplit("=", 1)[1]) for w in sys.argv if w.startswith("socket,id=keeper"))
say("ready")
while data := os.read(monitor, 4096):
    for line in data.splitlines():
        say("heard", json.loads(line)["execute"])
"""


MARGIN = 1
"""Descriptors: a connection that was closed just now may not have been seen yet."""


class Scene(Stage):
    """A sandbox whose first machine runs, and clients of its keeper."""

    owner: OwnedProcess

    async def begin(self) -> None:
        self.program.write_text(FAKE.replace("{python}", sys.executable))
        self.program.chmod(0o700)
        self.owner = await self.launch("", "1", program=self.program)
        self.links: list[KeeperLink] = []
        await self.said("1 ready")

    async def link(self) -> KeeperLink:
        self.links.append(await KeeperLink.connect(self.runtime.keeper_socket))
        return self.links[-1]

    async def start(self, link: KeeperLink, name: str) -> int:
        """Launch another machine; its process id."""
        self.runtime.make(name)
        reply = await link.ask("launch", name=name, argv=[str(self.program), name], descriptors=[])
        await self.said(f"{name} ready")
        return int(reply["pid"])

    async def raw(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(60)
        connection.connect(str(self.runtime.keeper_socket))
        return connection

    async def settled(self) -> None:
        """Return when the keeper has seen all that was done before. (The second reply comes after
        every event that was there when the first request was.)"""
        async with await KeeperLink.connect(self.runtime.keeper_socket) as link:
            await link.ask("guard", on=False)
            await link.ask("guard", on=False)

    async def died(self, pid: int) -> None:
        await asyncio.to_thread(wait_for, lambda: not alive(pid), what="its end")

    async def unharmed(self) -> None:
        await self.settled()
        assert alive(self.owner.keeper_pid)
        assert alive(self.owner.qemu_pid)

    def machines(self) -> set[str]:
        return {path.name for path in self.runtime.root.iterdir() if path.name.isdigit()}


@pytest.fixture
async def scene(places: Paths) -> AsyncIterator[Scene]:
    scene = Scene(places)
    await scene.begin()
    yield scene
    for link in scene.links:
        link.close()
    scene.owner.cut()
    await asyncio.wait_for(scene.owner.wait(), 60)
    await scene.until_gone()


def received(pipe: int) -> bytes:
    data = os.read(pipe, 100)
    os.close(pipe)
    return data


# Launching


async def test_descriptors_arrive_under_the_wanted_numbers_and_no_others(scene: Scene) -> None:
    link = await scene.link()
    pipes = [os.pipe(), os.pipe()]
    scene.runtime.make("2")
    reply = await link.ask(
        "launch",
        name="2",
        argv=[str(scene.program), "2"],
        descriptors=[301, 300],
        pass_descriptors=[write for _, write in pipes],
    )
    for _, write in pipes:
        os.close(write)
    await scene.said("2 ready")
    # And the leash, as the first one has it.
    leash = re.search(r"1 has \[(\d+)\]", scene.console())
    assert leash is not None
    assert f"2 has [{leash[1]}, 300, 301]" in scene.console()
    found = [await asyncio.to_thread(received, read) for read, _ in pipes]
    assert found == [b"301 of 2", b"300 of 2"]
    assert Path(f"/proc/{reply['pid']}/stat").read_text().split()[3] == str(scene.owner.keeper_pid)


async def test_the_keeper_keeps_no_descriptor_that_it_was_sent(scene: Scene) -> None:
    link = await scene.link()
    await scene.settled()
    before = len(os.listdir(f"/proc/{scene.owner.keeper_pid}/fd"))
    read, write = os.pipe()
    for name, argv in (("2", ["/nowhere"]), ("..", ["/bin/true"]), ("3", [])):
        with pytest.raises(MachineError, match="launch"):
            await link.ask(
                "launch", name=name, argv=argv, descriptors=[300], pass_descriptors=[write]
            )
    os.close(write)
    assert await asyncio.to_thread(received, read) == b"", "nobody has the other end"
    await scene.settled()
    assert len(os.listdir(f"/proc/{scene.owner.keeper_pid}/fd")) <= before + MARGIN


async def test_a_program_that_does_not_run_is_an_error_with_its_reason(scene: Scene) -> None:
    link = await scene.link()
    with pytest.raises(MachineError, match="No such file"):
        await link.ask("launch", name="2", argv=["/nowhere/qemu"], descriptors=[])
    await scene.start(link, "2")


@pytest.mark.parametrize("name", ["1", "", "..", ".", "a/b", "../../x", "keeper.sock"])
async def test_a_name_that_is_taken_or_leads_elsewhere_is_refused(scene: Scene, name: str) -> None:
    link = await scene.link()
    with pytest.raises(MachineError, match="cannot be launched"):
        await link.ask("launch", name=name, argv=["/bin/true"], descriptors=[])
    await scene.unharmed()
    assert scene.runtime.keeper_socket.exists()


async def test_descriptors_that_are_missing_are_refused(scene: Scene) -> None:
    link = await scene.link()
    with pytest.raises(MachineError, match="cannot be launched"):
        await link.ask("launch", name="2", argv=["/bin/true"], descriptors=[300])
    await scene.unharmed()


# Lives


async def test_the_death_of_a_client_kills_what_it_launched_and_nothing_else(
    scene: Scene,
) -> None:
    dying, living = await scene.link(), await scene.link()
    two, three = await scene.start(dying, "2"), await scene.start(dying, "3")
    four = await scene.start(living, "4")
    dying.close()
    await scene.died(two)
    await scene.died(three)
    await scene.unharmed()
    assert alive(four)
    assert scene.machines() == {"1", "4"}


async def test_a_machine_that_ends_by_itself_is_tidied_away(scene: Scene) -> None:
    link = await scene.link()
    pid = await scene.start(link, "2")
    os.kill(pid, signal.SIGKILL)
    await scene.died(pid)
    await scene.unharmed()
    assert scene.machines() == {"1"}
    with pytest.raises(MachineError, match="promote"):
        await link.ask("promote", name="2")
    await scene.start(link, "2")


async def test_promoted_it_is_the_current_one_and_the_old_one_is_the_client_s(
    scene: Scene,
) -> None:
    link = await scene.link()
    pid = await scene.start(link, "2")
    assert scene.runtime.current().name == "1"
    await link.ask("promote", name="2")
    assert scene.runtime.current().name == "2"
    assert alive(scene.owner.qemu_pid)
    link.close()
    await scene.died(scene.owner.qemu_pid)
    await scene.settled()
    assert alive(pid)
    assert scene.machines() == {"2"}


async def test_at_every_instant_there_is_a_current_machine(scene: Scene) -> None:
    link = await scene.link()
    await scene.start(link, "2")
    done = asyncio.Event()

    def look() -> set[str]:
        seen = set()
        while not done.is_set():
            seen.add(scene.runtime.current_link.readlink().name)
        return seen

    looking = asyncio.create_task(asyncio.to_thread(look))
    try:
        for _ in range(50):
            await link.ask("promote", name="2")
            await link.ask("promote", name="1")
    finally:
        done.set()
        seen = await looking
    assert seen <= {"1", "2"}
    assert scene.machines() == {"1", "2"}


async def test_only_its_own_machines_can_a_client_promote_and_kill(scene: Scene) -> None:
    mine, other = await scene.link(), await scene.link()
    pid = await scene.start(mine, "2")
    for op in ("promote", "kill"):
        with pytest.raises(MachineError, match="not possible"):
            await other.ask(op, name="2")
        with pytest.raises(MachineError, match="not possible"):
            await other.ask(op, name="1")
        with pytest.raises(MachineError, match=op):
            await other.ask(op, name="no such")
    other.close()
    await scene.unharmed()
    assert alive(pid)


async def test_a_kill_is_answered_when_it_is_gone_with_its_directory(scene: Scene) -> None:
    link = await scene.link()
    pid = await scene.start(link, "2")
    assert await link.ask("kill", name="2") == {"ended": -9}
    assert not alive(pid)
    assert scene.machines() == {"1"}
    with pytest.raises(MachineError, match="kill"):
        await link.ask("kill", name="2")
    await scene.unharmed()


async def test_a_kill_behind_is_answered_at_once_and_is_done_without_the_client(
    scene: Scene,
) -> None:
    link = await scene.link()
    pid = await scene.start(link, "2")
    assert await link.ask("kill", name="2", behind=True) == {"ok": True}
    link.close()
    await scene.died(pid)
    await scene.settled()
    assert scene.machines() == {"1"}
    await scene.unharmed()


# Guards


async def test_a_guest_that_a_dead_client_paused_goes_on(scene: Scene) -> None:
    link = await scene.link()
    await link.ask("guard", on=True)
    link.close()
    await scene.said("1 heard cont")


async def test_forwards_that_a_dead_client_has_moved_are_moved_back(scene: Scene) -> None:
    link = await scene.link()
    pid = await scene.start(link, "2")
    await link.ask("guard", on=True, forwards=["tcp:127.0.0.1:7000-10.0.2.15:80"])
    link.close()
    await scene.died(pid)
    await scene.said("1 heard cont")
    await scene.said("1 heard human-monitor-command")


async def test_only_the_end_of_a_client_that_guards_resumes(scene: Scene) -> None:
    left, never, dead = await scene.link(), await scene.link(), await scene.link()
    await left.ask("guard", on=True)
    await left.ask("guard", on=False)
    left.close()
    never.close()
    await scene.settled()
    await dead.ask("guard", on=True)
    dead.close()
    await scene.said("1 heard cont")
    await scene.settled()
    assert scene.console().count("heard cont") == 1


async def test_a_guard_ends_with_a_promotion(scene: Scene) -> None:
    """The new machine runs by then; another client may pause it before this one disconnects."""
    link = await scene.link()
    await scene.start(link, "2")
    await link.ask("guard", on=True)
    await link.ask("promote", name="2")
    link.close()
    other = await scene.link()
    await other.ask("guard", on=True)
    other.close()
    await scene.said("2 heard cont")
    assert scene.console().count("heard cont") == 1


# The end


async def test_the_end_of_the_current_machine_ends_the_others_and_is_recorded(
    scene: Scene,
) -> None:
    link = await scene.link()
    pid = await scene.start(link, "2")
    os.kill(scene.owner.qemu_pid, signal.SIGKILL)
    await asyncio.wait_for(scene.owner.wait(), 60)
    assert not alive(pid)
    assert (scene.ended()["machine"], scene.ended()["code"]) == ("1", -9)
    assert not scene.runtime.root.exists()
    with pytest.raises(MachineError, match="guard"):
        await link.ask("guard", on=True)
    with pytest.raises(StateError, match="its socket is gone"):
        await scene.link()


@pytest.mark.parametrize("how", ["term", "lifeline", "its own"])
async def test_after_a_promotion_the_new_machine_s_end_is_the_sandbox_s(
    scene: Scene, how: str
) -> None:
    link = await scene.link()
    pid = await scene.start(link, "2")
    await link.ask("promote", name="2")
    match how:
        case "term":
            os.kill(scene.owner.keeper_pid, signal.SIGTERM)
        case "lifeline":
            scene.owner.cut()
        case _:
            os.kill(pid, signal.SIGSEGV)
    await asyncio.wait_for(scene.owner.wait(), 60)
    assert not alive(pid)
    assert not alive(scene.owner.qemu_pid)
    assert scene.ended()["machine"] == "2"
    assert scene.ended()["asked"] is (how != "its own")


async def test_a_sandbox_that_is_to_end_changes_no_machine(scene: Scene) -> None:
    """Else the new one would live on in place of the one that was told to end."""
    link = await scene.link()
    await scene.start(link, "2")
    os.kill(scene.owner.keeper_pid, signal.SIGSTOP)
    os.kill(scene.owner.qemu_pid, signal.SIGSTOP)
    scene.owner.cut()
    asking = asyncio.create_task(link.ask("promote", name="2"))
    await asyncio.sleep(0)
    os.kill(scene.owner.keeper_pid, signal.SIGCONT)
    with pytest.raises(MachineError):
        await asking
    await asyncio.wait_for(scene.owner.wait(), 60)
    assert scene.ended()["machine"] == "1"


async def test_what_is_asked_of_a_sandbox_that_has_ended_says_that_it_has(scene: Scene) -> None:
    link = await scene.link()
    scene.owner.cut()
    await asyncio.wait_for(scene.owner.wait(), 60)
    with pytest.raises(MachineError, match="went away and did not guard") as caught:
        await link.ask("guard", on=True)
    assert "`quicksand-tui ps -a` tells" in hint_of(caught.value)


# Nonsense


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"op": None},
        {"op": "guard"},
        {"op": "fly", "name": "1"},
        {"op": "kill"},
        {"op": "kill", "name": None},
        {"op": "launch", "name": "2"},
        {"op": "launch", "name": "2", "argv": "x", "descriptors": []},
        {"op": "launch", "name": "2", "argv": [], "descriptors": []},
        {"op": "launch", "name": "2", "argv": ["x"], "descriptors": {}},
        {"op": "launch", "name": "2", "argv": ["x"], "descriptors": [1e999]},
        {"op": "launch", "name": "\ud800", "argv": ["x"], "descriptors": []},
        {"op": "launch", "name": "2", "argv": ["/bin/true", "\0"], "descriptors": []},
    ],
    ids=str,
)
async def test_a_request_that_means_nothing_is_answered_with_an_error(
    scene: Scene, line: object
) -> None:
    with contextlib.closing(await scene.raw()) as raw:
        raw.sendall(json.dumps(line).encode() + b"\n")
        assert "error" in json.loads(await asyncio.to_thread(raw.recv, 4096))
        raw.sendall(b'{"op": "guard", "on": false}\n')
        assert json.loads(await asyncio.to_thread(raw.recv, 4096)) == {"ok": True}
    await scene.unharmed()


@pytest.mark.parametrize("number", [1e999, float("nan"), 10**30, -1, "x", None, [1]], ids=repr)
async def test_impossible_numbers_of_descriptors_harm_nobody(scene: Scene, number: object) -> None:
    request = {"op": "launch", "name": "2", "argv": ["/bin/true"], "descriptors": [number]}
    with contextlib.closing(await scene.raw()) as raw, open(os.devnull, "rb") as file:
        socket.send_fds(raw, [json.dumps(request).encode() + b"\n"], [file.fileno()])
        assert await asyncio.to_thread(raw.recv, 4096)
    await scene.unharmed()


@pytest.mark.parametrize(
    "text",
    [
        b"\n",
        b"x\n",
        b"5\n",
        b"[1]\n",
        b"null\n",
        b"\xff\xfe\n",
        b"[" * 200_000 + b"\n",
        b"1" * 5000 + b"\n",
        b"x" * (REQUEST_MAX + 1),
    ],
    ids=lambda text: repr(text[:9]),
)
async def test_what_is_no_request_is_hung_up_on(scene: Scene, text: bytes) -> None:
    with contextlib.closing(await scene.raw()) as raw:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await asyncio.to_thread(raw.sendall, text)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(raw.recv, 4096) == b""
    await scene.unharmed()


async def test_a_request_in_pieces_is_understood_and_several_are_answered_in_order(
    scene: Scene,
) -> None:
    with contextlib.closing(await scene.raw()) as raw:
        for byte in b'{"op": "guard", "on": false}\n':
            raw.sendall(bytes([byte]))
        assert json.loads(await asyncio.to_thread(raw.recv, 4096)) == {"ok": True}
        raw.sendall(b'{"op": "guard", "on": false}\n{"op": "x", "name": "1"}\n')
        text = b""
        while text.count(b"\n") < 2:
            text += await asyncio.to_thread(raw.recv, 4096)
        assert [next(iter(json.loads(line))) for line in text.splitlines()] == ["ok", "error"]


async def test_half_a_request_means_nothing(scene: Scene) -> None:
    with contextlib.closing(await scene.raw()) as raw:
        raw.sendall(b'{"op": "guard", "on": true}')
    await scene.unharmed()
    assert "heard cont" not in scene.console()


async def test_descriptors_without_end_are_hung_up_on(scene: Scene) -> None:
    before = len(os.listdir(f"/proc/{scene.owner.keeper_pid}/fd"))
    with contextlib.closing(await scene.raw()) as raw, open(os.devnull, "rb") as file:
        try:
            for _ in range(20):
                await asyncio.to_thread(socket.send_fds, raw, [b" "], [file.fileno()] * 100)
        except OSError as error:
            # Of a user who is not root the kernel holds no more than he may have open (unix(7)).
            assert error.errno in (errno.EPIPE, errno.ECONNRESET, errno.ETOOMANYREFS)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(raw.recv, 10) == b""
    await scene.unharmed()
    assert len(os.listdir(f"/proc/{scene.owner.keeper_pid}/fd")) <= before + MARGIN


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(["op", "name", "argv", "descriptors", "on"]),
        st.sampled_from(["guard", "promote", "kill", "turn", "1", "9"])
        | st.recursive(
            st.none() | st.booleans() | st.floats() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3),
            max_leaves=4,
        ),
    )
)
def test_any_object_is_answered(request: dict[str, object]) -> None:
    """In this process: whatever a client says, `hear` answers and does not fail."""
    ours, theirs = socket.socketpair()
    found = Keeper("/nowhere", "/nowhere", -1, -1, False, {}, serve)
    client = Client(theirs)
    found.clients.append(client)
    ours.sendall(json.dumps(request).encode() + b"\n")
    found.hear(client)
    assert ours.recv(100_000).startswith((b'{"error"', b'{"ok"'))
    ours.close()
    client.close()
