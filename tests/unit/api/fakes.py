"""An engine without machines: what the API asks of it, in memory."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer
from quicksand import (
    AgentRefusedError,
    GuestFile,
    GuestFileNotFoundError,
    GuestIsADirectoryError,
    ImageNotFound,
    Login,
    Sandbox,
    StateError,
    WatchEvent,
    WatchKind,
)
from quicksand.guest.agent.wire import Stream
from quicksand.guest.execution import ExitStatus
from quicksand_e2b.errors import HostAwayError
from quicksand_e2b.keys import Keys
from quicksand_e2b.machines import Figures, HostFigures, Made, Usage
from quicksand_e2b.making import Usual
from quicksand_e2b.records import Records, SandboxRecord, engine_name
from quicksand_e2b.sandboxes import Sandboxes
from quicksand_e2b.server import HTTP, Options, make_app

USUAL = Usual(image="debian", memory_mb=512, cpus=1, internet=False)


class FakeCommand:
    """A shell that knows four words: echo, exit, cat and sleep."""

    def __init__(self, guest: FakeGuest, argv: Sequence[str], timeout: float | None) -> None:
        self.pid = guest.next_pid()
        self.status: ExitStatus | None = None
        self.argv = list(argv)
        self.timeout = timeout
        self.input: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.signalled: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.closed = False
        self.breaks: Exception | None = None
        """The next input of `cat` raises it: the connection to the guest has broken."""
        self.name = f"c{self.pid}"

    async def __aenter__(self) -> FakeCommand:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed = True

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        word, _, rest = self.argv[-1].partition(" ")
        code, signal, timed_out = 0, None, False
        if word == "echo":
            yield Stream.STDOUT, rest.encode() + b"\n"
        elif word == "flood":
            for _ in range(int(rest)):
                yield Stream.STDOUT, b"x" * 65536
        elif word == "exit":
            yield Stream.STDERR, b"bye"
            code = int(rest)
        elif word == "cat":
            while (data := await self.input.get()) is not None:
                if self.breaks is not None:
                    raise self.breaks
                yield Stream.STDOUT, data
        elif word == "sleep":
            try:
                async with asyncio.timeout(self.timeout):
                    signal = await asyncio.shield(self.signalled)
            except TimeoutError:
                timed_out = True
        self.status = ExitStatus(
            exit_code=code, signal=signal, timed_out=timed_out, canceled=False, duration_s=0.0
        )

    async def write(self, data: bytes) -> None:
        self.input.put_nowait(data)

    def close_stdin(self) -> None:
        self.input.put_nowait(None)


class FakeWatch:
    """A watch whose events the test makes."""

    def __init__(self, path: str, *, recursive: bool, local: bool) -> None:
        self.path, self.recursive, self.local = path, recursive, local
        self.events: asyncio.Queue[WatchEvent] = asyncio.Queue()
        self.closed = False
        self._asked = asyncio.Event()

    def happens(self, kind: WatchKind, name: str) -> None:
        self.events.put_nowait(WatchEvent(kind=kind, name=name))

    def __aiter__(self) -> FakeWatch:
        return self

    async def __anext__(self) -> WatchEvent:
        if self.events.empty():
            self._asked.set()
        return await self.events.get()

    async def catch_up(self) -> None:
        self._asked.clear()
        if not self.events.empty():
            await self._asked.wait()
        await asyncio.sleep(0)

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeFiles:
    """Files by path; a directory is None."""

    notes: dict[str, dict[str, str]] = field(default_factory=dict)
    found: dict[str, bytes | None] = field(
        default_factory=lambda: {
            "/": None, "/home": None, "/home/user": None, "/etc": None,
            "/etc/passwd": b"root:x:0:0:::\nuser:x:1000:1000:::\n",
            "/etc/group": b"root:x:0:\nuser:x:1000:\n",
        }
    )  # fmt: skip

    def _about(self, path: str) -> GuestFile:
        if path not in self.found:
            raise GuestFileNotFoundError(f"{path} does not exist", code="not_found", errno=2)
        content = self.found[path]
        return GuestFile(
            name=path.rpartition("/")[2], type="dir" if content is None else "file",
            size=len(content or b""), allocated=0, mode=0o755 if content is None else 0o644,
            uid=1000, gid=1000, mtime=1.5, mtime_ns=1_500_000_000, target=None,
            metadata=self.notes.get(path, {}),
        )  # fmt: skip

    async def stat(self, path: str, *, follow: bool = True, metadata: bool = False) -> GuestFile:
        return self._about(path)

    async def list(self, path: str, *, metadata: bool = False) -> list[GuestFile]:
        below = path.rstrip("/") + "/"
        names = [
            p for p in sorted(self.found) if p.startswith(below) and "/" not in p[len(below) :]
        ]
        return [self._about(name) for name in names if name != "/"]

    async def read(self, path: str, *, length: int | None = None) -> bytes:
        return b"".join([piece async for piece in self.stream(path)])[:length]

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        self._about(path)
        content = self.found[path]
        if content is None:
            raise GuestIsADirectoryError(f"{path} is a directory", code="bad_request")
        yield content

    async def write(
        self, path: str, content: Any, *, user: str, in_place: bool, metadata: dict[str, str]
    ) -> int:
        if path.startswith("/full/"):
            raise AgentRefusedError("no space left", code="no_space", errno=28)
        if path in self.found and self.found[path] is None:
            raise GuestIsADirectoryError(f"{path} is a directory", code="bad_request")
        self.found[path] = b"".join([piece async for piece in content])
        self.notes[path] = metadata
        return len(self.found[path] or b"")

    async def mkdir(self, path: str) -> None:
        self.found[path] = None

    async def chown(self, path: str, user: str) -> None:
        self._about(path)

    async def rename(self, source: str, target: str) -> None:
        self._about(source)
        self.found[target] = self.found.pop(source)

    async def remove(self, path: str, *, recursive: bool, missing_ok: bool) -> None:
        for name in [n for n in self.found if n == path or n.startswith(path + "/")]:
            del self.found[name]


class FakeGuest:
    """A guest with the users root and user."""

    def __init__(self) -> None:
        self.files = FakeFiles()
        self.commands: dict[int, FakeCommand] = {}
        self.watches: list[FakeWatch] = []
        self.spawned: list[dict[str, Any]] = []
        self.users = {"root"}
        self.closed = False
        self._pid = 100

    def next_pid(self) -> int:
        self._pid += 1
        return self._pid

    async def find_user(self, name: str) -> Login:
        if name not in self.users:
            raise AgentRefusedError(f"no user {name!r}", code="not_found", parameter="user")
        home = "/root" if name == "root" else f"/home/{name}"
        return Login(name=name, uid=1000, gid=1000, home=home, shell="/bin/bash")

    async def create_user(self, name: str, *, sudo: bool) -> None:
        self.users.add(name)

    async def spawn(self, argv: Sequence[str], **more: Any) -> FakeCommand:
        self.spawned.append({"argv": list(argv), **more})
        if argv[0] == "/no/such":
            raise AgentRefusedError("no such program", code="not_found", parameter="argv")
        command = FakeCommand(self, argv, more["timeout"])
        self.commands[command.pid] = command
        return command

    async def attach_command(self, name: str, *, stdin: bool) -> FakeCommand:
        for command in self.commands.values():
            if command.name == name:
                return command
        raise AgentRefusedError(f"no command {name!r}", code="not_found")

    async def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        if method == "info":
            return {"disk": {"total": 8 << 30}}
        assert method == "kill"
        assert params is not None
        command = self.commands.get(params["pid"])
        if command is None or command.status is not None:
            raise AgentRefusedError("no such process", code="not_found", errno=3)
        command.signalled.set_result(params["signal"])
        return {}

    async def watch(self, path: str, *, recursive: bool, local: bool) -> FakeWatch:
        self.watches.append(FakeWatch(path, recursive=recursive, local=local))
        return self.watches[-1]

    async def stats(self) -> Any:
        return SimpleNamespace(
            host=SimpleNamespace(cpu_seconds=1.0, uptime_s=2.0),
            guest_memory_total=4096,
            guest_memory_available=1024,
            guest_disk_total=8 << 30,
            guest_disk_free=4 << 30,
        )

    async def shells(self) -> list[Any]:
        return []

    def close(self) -> None:
        self.closed = True

    disconnect = close


@dataclass
class FakeMachine:
    guest: FakeGuest
    is_live: bool = True
    checkpoints: set[str] = field(default_factory=set)


class FakeMachines:
    """What `Machines` does, with `FakeGuest`."""

    def __init__(self) -> None:
        self.found: dict[str, FakeMachine] = {}
        self.calls: list[tuple[str, str]] = []
        self.starting: asyncio.Event | None = None
        """A start waits for it."""
        self.fails: Exception | None = None
        """The next start, clone or pause raises it."""

        self.orders: dict[str, SandboxRecord] = {}
        """With what each sandbox was started."""

        self.images = {"debian", "my-save"}
        self.prepare: Callable[[FakeGuest], None] | None = None
        """It is called with the guest of each start."""

        self.stays: Exception | None = None
        """Removing raises it."""

        self.place = ""
        """The host on which sandboxes are made."""

        self.away: set[str] = set()
        """Hosts that cannot be asked."""

    def _fail(self) -> None:
        if (failure := self.fails) is not None:
            self.fails = None
            raise failure

    def _name(self, record: SandboxRecord) -> str:
        if record.host in self.away:
            raise HostAwayError(f"the host {record.host!r} is away")
        return record.name

    async def start(
        self, record: SandboxRecord, image: str, placed: Callable[[str, str], Any]
    ) -> Made:
        name = record.name
        self.calls.append(("start", image))
        self.orders[name] = record
        if self.place:
            await placed(self.place, "ab" * 16)
        if self.starting is not None:
            await self.starting.wait()
        self._fail()
        if image not in self.images:
            raise ImageNotFound(f"Image not found: {image!r}")
        self.found[name] = FakeMachine(FakeGuest())
        if self.prepare is not None:
            self.prepare(self.found[name].guest)
        return self._made(name)

    def _made(self, name: str) -> Made:
        id_ = f"id of {name}" if self.place else ""
        return Made(sandbox=as_sandbox(self.found[name].guest), id=id_)

    def attach(self, record: SandboxRecord) -> FakeGuest:
        machine = self.found[self._name(record)]
        if not machine.is_live:
            raise StateError(f"the sandbox {record.name!r} is not running")
        return machine.guest

    def is_live(self, record: SandboxRecord) -> bool:
        name = self._name(record)
        return name in self.found and self.found[name].is_live

    def exists(self, record: SandboxRecord) -> bool:
        return self._name(record) in self.found

    async def running(self, records: Sequence[SandboxRecord]) -> set[str]:
        return {one.id for one in records if one.host in self.away or self.is_live(one)}

    async def figures(self) -> Figures:
        live = sorted(name for name, machine in self.found.items() if machine.is_live)
        usage = [
            Usage(host=self.place, name=name, memory_bytes=3 << 20, cpu_seconds=1.5)
            for name in live
        ]
        here = HostFigures(
            name=self.place,
            free_bytes=1 << 30,
            is_up=self.place not in self.away,
            memory_bytes=2 << 30,
            sandboxes=len(live),
        )
        return Figures(usage=usage, hosts=[here])

    async def pause(self, record: SandboxRecord, *, memory: bool) -> None:
        name = self._name(record)
        self._fail()
        self.found[name].is_live = False
        if memory:
            self.found[name].checkpoints.add("api-pause")

    async def resume(self, record: SandboxRecord, *, memory: bool) -> FakeGuest:
        name = self._name(record)
        self._fail()
        self.calls.append(("resume", "memory" if memory else "disk"))
        self.found[name].is_live = True
        return self.found[name].guest

    async def has_pause(self, record: SandboxRecord) -> bool:
        return "api-pause" in self.found[self._name(record)].checkpoints

    async def end(self, record: SandboxRecord) -> None:
        self.found[self._name(record)].is_live = False

    async def remove(self, record: SandboxRecord) -> None:
        if self.stays is not None:
            raise self.stays
        self.found.pop(self._name(record), None)

    async def checkpoint(self, record: SandboxRecord, tag: str) -> None:
        name = self._name(record)
        self._fail()
        self.found[name].checkpoints.add(tag)

    async def delete_checkpoint(self, record: SandboxRecord, tag: str) -> None:
        name = self._name(record)
        if name in self.found:
            self.found[name].checkpoints.discard(tag)

    async def clone(
        self,
        source_record: SandboxRecord,
        records: Sequence[SandboxRecord],
        *,
        at: str | None,
        memory: bool,
    ) -> list[Made]:
        self._fail()
        source = self.found[self._name(source_record)]
        assert at is None or at in source.checkpoints
        names = [record.name for record in records]
        for new in names:
            guest = FakeGuest()
            guest.users |= source.guest.users
            guest.files = FakeFiles(found=dict(source.guest.files.found))
            self.found[new] = FakeMachine(guest)
        return [self._made(new) for new in names]

    async def has_image(self, name: str) -> bool:
        return name in self.images

    async def console(self, record: SandboxRecord) -> list[str]:
        return ["booted"]


class Api:
    """A server with a fake engine, and two owners' keys."""

    def __init__(self, client: TestClient[Any, Any], machines: FakeMachines, keys: Keys) -> None:
        self.client = client
        self.machines = machines
        self.keys = keys
        self.key = keys.require().key
        self.other = keys.add("other").key
        self.told: list[str] = []
        self.sandboxes: Sandboxes

    async def call(
        self, method: str, path: str, value: object = None, *, key: str | None = None, **more: Any
    ) -> ClientResponse:
        headers = {"X-API-KEY": self.key if key is None else key, **more.pop("headers", {})}
        body = None if value is None else json.dumps(value)
        return await self.client.request(method, path, data=body, headers=headers, **more)

    async def create(self, **more: Any) -> dict[str, Any]:
        response = await self.call("POST", "/v2/sandboxes", {"templateID": "base", **more})
        assert response.status == 201, await response.text()
        return cast("dict[str, Any]", await response.json())

    def guest(self, made: dict[str, Any]) -> FakeGuest:
        return self.machines.found[engine_name(made["sandboxID"])].guest

    def runs(self, made: dict[str, Any]) -> bool:
        machine = self.machines.found.get(engine_name(made["sandboxID"]))
        return machine is not None and machine.is_live

    async def rpc(
        self, made: dict[str, Any], name: str, value: object, **headers: str
    ) -> ClientResponse:
        return await self.client.post(
            f"/{name}", json=value, headers={**self.headers(made), **headers}
        )

    @staticmethod
    def headers(made: dict[str, Any]) -> dict[str, str]:
        return {
            "E2b-Sandbox-Id": made["sandboxID"],
            "E2b-Sandbox-Port": "49983",
            "X-Access-Token": made["envdAccessToken"],
        }

    async def open(
        self, made: dict[str, Any], name: str, value: object, **headers: str
    ) -> ClientResponse:
        """Begin a stream."""
        return await self.client.post(
            f"/{name}",
            data=envelope(value),
            headers={
                **self.headers(made),
                "Content-Type": "application/connect+json",
                **headers,
            },
        )

    async def run(self, made: dict[str, Any], script: str, **more: Any) -> list[dict[str, Any]]:
        """The messages of a command from its start to its end."""
        stdin = more.pop("stdin", False)
        value = {"process": {"cmd": "/bin/bash", "args": ["-l", "-c", script]}, "stdin": stdin}
        response = await self.open(made, "process.Process/Start", {**value, **more})
        assert response.status == 200
        return decode(await response.read())


def envelope(value: object, flags: int = 0) -> bytes:
    body = json.dumps(value).encode()
    return bytes([flags]) + len(body).to_bytes(4, "big") + body


def decode(data: bytes) -> list[dict[str, Any]]:
    """The messages of a stream; the last one is its end."""
    found = []
    while data:
        length = int.from_bytes(data[1:5], "big")
        value = json.loads(data[5 : 5 + length])
        found.append({"end of stream": value} if data[0] & 2 else value)
        data = data[5 + length :]
    return found


async def next_message(response: ClientResponse) -> dict[str, Any]:
    head = await response.content.readexactly(5)
    body = await response.content.readexactly(int.from_bytes(head[1:], "big"))
    return cast("dict[str, Any]", json.loads(body))


def text_of(messages: Sequence[dict[str, Any]], stream: str = "stdout") -> str:
    data = [m["event"]["data"] for m in messages if "data" in m.get("event", {})]
    return b"".join(base64.b64decode(d[stream]) for d in data if stream in d).decode()


async def until(condition: Any, *, within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.01)


def make_sandboxes(machines: FakeMachines, place: Path, told: list[str]) -> Sandboxes:
    return Sandboxes(cast(Any, machines), Records(place, told.append), told.append)


async def make_client(
    sandboxes: Sandboxes, keys: Keys, told: list[str], usual: Usual = USUAL
) -> TestClient[Any, Any]:
    options = Options(host="127.0.0.1", port=0, usual=usual, names=frozenset({"called.example"}))
    app = make_app(sandboxes, keys, options, told.append)
    server = TestServer(app)
    await server.start_server(**{**HTTP, "lingering_time": 0.1})
    client: TestClient[Any, Any] = TestClient(server)
    await client.start_server()
    return client


def as_sandbox(guest: FakeGuest) -> Sandbox:
    return cast(Sandbox, guest)
