"""What another machine does for a client with sandboxes: each call once, and nothing for longer
than somebody is there."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from quicksand.base.errors import (
    ConfigError,
    MachineError,
    QuicksandError,
    RemoteRefusedError,
    RemoteUnreachableError,
    StateError,
)
from quicksand.base.paths import Paths
from quicksand.hosted import holding
from quicksand.hosted.calling import ask, call
from quicksand.hosted.codec import Known
from quicksand.hosted.holding import HeldSandboxes
from quicksand.hosted.life import FarLife
from quicksand.hosted.remote_host import RemoteHost
from quicksand.records.config import SandboxConfig
from quicksand.remote.destination import Destination
from quicksand.remote.peer_link import Link, Request

from tests.unit.hosted.test_codec import CHECKPOINT
from tests.unit.remote.far import links, until

HANDLE = "ab" * 16


@dataclass
class Machine:
    """What the sandboxes of a test do."""

    calls: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    going: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def make(self, **options: Any) -> Fake:
        if options["image"] == "none":
            raise ConfigError("there is no such image")
        return Fake(self, options["image"], options["progress_callback"])

    def attach(self, name: str) -> Fake:
        return Fake(self, name, lambda *_: None)


class Fake:
    """A sandbox."""

    accelerator = boot_timing = agent_token = None
    qemu_command: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    is_running = True

    def __init__(self, machine: Machine, name: str, progress: Callable[..., None]) -> None:
        self.machine, self.name, self.id = machine, name, "0123456789ab"
        self.config = SandboxConfig("debian")
        self.port_forwards: dict[int, int] = {8080: 80}
        self.udp_port_forwards: dict[int, int] = {}
        self.active_mounts: list[Any] = []
        self._progress = progress

    def checkpoints(self) -> list[Any]:
        return [CHECKPOINT]

    async def start(self, *, at: str | None = None) -> None:
        self.machine.calls.append(f"start {at}")
        self._progress("disk", 1, 2)
        self._progress("guest", 2, 2)

    async def checkpoint(self, tag: str | None = None, **options: Any) -> Any:
        self.machine.calls.append(f"checkpoint {tag}")
        self.machine.going.set()
        try:
            await self.machine.go_on.wait()
        except asyncio.CancelledError:
            self.machine.calls.append("undone")
            raise
        return replace(CHECKPOINT, tag=tag or "1")

    async def clone(self, n: int, **options: Any) -> list[Fake]:
        self.machine.going.set()
        await self.machine.go_on.wait()
        return [Fake(self.machine, "clone", self._progress) for _ in range(n)]

    async def pause(self) -> None:
        raise StateError("it is not running", hint="start it")

    async def press_key(self, *keys: str, hold: float = 0.02) -> None:
        self.machine.calls.append(f"{keys} {hold}")

    def detach(self) -> None:
        self.machine.calls.append("detach")

    def close(self) -> None:
        self.machine.closed.append(self.name)


class Line:
    """A connection to it, which can break (a `SharedConnection`)."""

    generation = 1
    destination = Destination(host="box")

    def __init__(self, held: HeldSandboxes) -> None:
        self.held = held
        self._stack = contextlib.AsyncExitStack()
        self._ends: tuple[Link, Link] | None = None

    async def link(self) -> Link:
        if self._ends is None or self._ends[0].ended.is_set():
            await self._stack.aclose()
            self._ends = await self._stack.enter_async_context(links(self._answer))
            self.held.back()
        return self._ends[0]

    async def _answer(self, request: Request) -> None:
        async def before_keeping() -> None:
            pass

        await self.held.answer(request, before_keeping)

    def cut(self) -> None:
        assert self._ends is not None
        for end in self._ends:
            end.end(RemoteUnreachableError("cut"))
        self.held.away()

    def got_on(self) -> None:
        pass

    def use(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def can(self, capability: str) -> bool:
        return True

    async def close(self) -> None:
        await self._stack.aclose()


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
async def line(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    monkeypatch.setattr(holding, "_is_there", lambda sandbox: True)

    class Make:
        __call__ = staticmethod(machine.make)
        attach = staticmethod(machine.attach)

    held = HeldSandboxes(Make())
    found = Line(held)
    yield found
    machine.go_on.set()
    await held.leave()
    await found.close()
    assert held.is_empty


def asked(name: str, *args: Any, grace: float = 30.0, **keywords: Any) -> dict[str, Any]:
    opening = {"make": {"image": "debian"}}
    return {
        **{"handle": HANDLE, "open": opening, "name": name},
        **{"args": [*args], "keywords": keywords, "grace_s": grace},
    }


async def test_a_method_is_called_and_its_progress_told(line: Any, machine: Machine) -> None:
    stages: list[tuple[Any, ...]] = []
    answer = await call(line, asked("start", at=None), lambda *told: stages.append(told))
    assert machine.calls == ["start None"]
    assert stages == [("disk", 1, 2), ("guest", 2, 2)]
    assert answer["known"]["name"] == "debian"
    await call(line, asked("press_key", "ctrl", "c", hold=0.5))
    assert machine.calls[1:] == ["('ctrl', 'c') 0.5"]


async def test_a_call_whose_connection_breaks_is_made_once(line: Any, machine: Machine) -> None:
    calling = asyncio.create_task(call(line, asked("checkpoint", "one")))
    await machine.going.wait()
    line.cut()
    machine.go_on.set()
    assert (await calling)["value"]["tag"] == "one"
    assert machine.calls == ["checkpoint one"]
    assert machine.closed == []


async def test_a_call_that_nobody_knows_of_any_more_is_unknown(line: Any, machine: Machine) -> None:
    calling = asyncio.create_task(call(line, asked("checkpoint")))
    await machine.going.wait()
    line.generation += 1
    line.cut()
    machine.go_on.set()
    with pytest.raises(RemoteUnreachableError, match="is unknown"):
        await calling


async def test_a_call_that_is_cancelled_is_undone_there(line: Any, machine: Machine) -> None:
    calling = asyncio.create_task(call(line, asked("checkpoint")))
    await machine.going.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert machine.calls == ["checkpoint None", "undone"]


async def test_an_error_of_the_caller_s_function_ends_the_call(line: Any, machine: Machine) -> None:
    def fail(*told: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await call(line, asked("start", at=None), fail)


async def test_errors_keep_their_class(line: Any) -> None:
    with pytest.raises(StateError, match="not running") as found:
        await call(line, asked("pause"))
    assert found.value.hint == "start it"
    with pytest.raises(ConfigError, match="no such image"):
        params = {
            **asked("start", at=None),
            "handle": "cd" * 16,
            "open": {"make": {"image": "none"}},
        }
        await call(line, params)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "execute"},
        {"name": "__init__"},
        {"name": ["start"]},
        {"open": {"make": {"image": "debian", "host": "ssh://further"}}},
        {"open": None},
        {"open": {"name": "x"}},
        {"args": "one"},
        {"args": [1, 2, 3]},
        {"keywords": {"tga": "x"}},
        {"keywords": {"at": 7}},
        {"grace_s": "long"},
        {"grace_s": 1e9},
    ],
)
async def test_what_makes_no_sense_is_refused(
    line: Any, machine: Machine, wrong: dict[str, Any]
) -> None:
    with pytest.raises(QuicksandError):
        await call(line, {**asked("start", at=None), **wrong})
    assert machine.calls == []


async def test_a_request_that_makes_no_sense_is_refused(line: Any) -> None:
    link = await line.link()
    for method, params in (("call", {"once": "x"}), ("events", {}), ("events", {"handle": []})):
        with pytest.raises(RemoteRefusedError):
            await link.request(method, **params)


async def test_a_sandbox_ends_when_its_client_is_away_for_longer_than_its_grace(
    line: Any, machine: Machine
) -> None:
    await call(line, asked("start", at=None, grace=0.01))
    assert not line.held.is_empty
    line.cut()
    await line.held.settle()
    assert machine.closed == ["debian"]


async def test_a_sandbox_stays_when_its_client_comes_again(line: Any, machine: Machine) -> None:
    await call(line, asked("start", at=None))
    line.cut()
    await line.link()
    assert not line.held._ending
    await call(line, asked("press_key", "a"))
    assert machine.closed == []


async def test_what_is_under_way_ends_with_the_grace(line: Any, machine: Machine) -> None:
    calling = asyncio.create_task(call(line, asked("checkpoint", grace=0.01)))
    await machine.going.wait()
    with contextlib.suppress(QuicksandError):
        calling.cancel()
        line.cut()
        await line.held.settle()
    assert machine.calls[-1] == "undone"
    with contextlib.suppress(asyncio.CancelledError, QuicksandError):
        await calling


async def test_a_call_whose_sandbox_is_still_looked_for_goes_on_without_its_client(
    line: Any, machine: Machine
) -> None:
    calling = asyncio.create_task(call(line, asked("checkpoint", "one")))
    await machine.going.wait()
    line.held._held.clear()  # as before it was found
    line.held.away()
    await asyncio.sleep(0)
    line.held.back()
    machine.go_on.set()
    assert (await calling)["value"]["tag"] == "one"


async def test_a_clone_that_is_made_when_its_client_is_gone_ends_with_the_grace_too(
    line: Any, machine: Machine
) -> None:
    options = {"concurrency": None, "at": None, "names": None, "mounts": None}
    calling = asyncio.create_task(call(line, asked("clone", 1, grace=0.5, **options)))
    await machine.going.wait()
    line.held.away()  # before the clone is there
    machine.go_on.set()
    await calling
    async with asyncio.timeout(30):
        await line.held.settle()
    assert sorted(machine.closed) == ["clone", "debian"]


async def test_a_sandbox_that_is_let_go_of_is_detached_before_it_is_closed(
    line: Any, machine: Machine
) -> None:
    await call(line, asked("start", at=None))
    link = await line.link()
    link.open("call", once=os.urandom(16).hex(), **asked("detach")).close()
    await link.request("release", handle=HANDLE)
    assert machine.calls[-1] == "detach"
    assert machine.closed == ["debian"]


async def test_the_end_of_one_sandbox_is_not_that_of_another_s_start(
    line: Any, machine: Machine
) -> None:
    await call(line, asked("start", at=None))
    other = {**asked("checkpoint", "other"), "handle": "cd" * 16}
    calling = asyncio.create_task(call(line, other))
    await machine.going.wait()
    line.held._held.pop("cd" * 16)  # as before it was found
    await (await line.link()).request("release", handle=HANDLE)
    machine.go_on.set()
    assert (await calling)["value"]["tag"] == "other"


async def test_a_goodbye_waits_for_what_detaches(line: Any, machine: Machine) -> None:
    await call(line, asked("start", at=None))
    link = await line.link()
    link.open("call", once=os.urandom(16).hex(), **asked("detach")).close()
    await until(
        lambda: "detach" in [*machine.calls, *(one.name for one in line.held._calls.values())],
        "it to arrive",
    )
    await line.held.leave()
    assert (machine.calls[-1], machine.closed) == ("detach", ["debian"])


def test_a_sandbox_ends_with_the_event_loop_that_started_it(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next loop is told so at once."""
    monkeypatch.setattr(holding, "_is_there", lambda sandbox: True)

    async def begin() -> FarLife:
        machine = Machine()
        held = HeldSandboxes(machine.make)
        line: Any = Line(held)
        known = Known(id="", name="web", config=SandboxConfig("debian"))
        life = FarLife(RemoteHost.by(line), known, {"make": {"image": "debian"}})
        await life.start(None)
        await held.leave()
        await line.close()
        return life

    life = asyncio.run(begin())
    for ask_it in (life.session, life.stats):
        with pytest.raises(MachineError, match="has ended with the event loop that started it"):
            asyncio.run(ask_it())
        life._is_held = True
    life.close()


async def test_another_machine_s_sandboxes_are_listed(
    line: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "_list", lambda: ["listed"])
    assert await ask(line, "sandboxes") == ["listed"]
