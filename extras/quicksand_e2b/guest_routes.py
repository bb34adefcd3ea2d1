"""The routes of a sandbox's guest: its processes, its file system, its health."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiohttp import web

from quicksand_e2b import rpc
from quicksand_e2b.errors import RpcError, not_running
from quicksand_e2b.fanout import Event, Listener, Source
from quicksand_e2b.fields import Body
from quicksand_e2b.filesystem import DEPTH_MAX
from quicksand_e2b.gate import address_of, by_token, is_token, require_running, whole
from quicksand_e2b.guest_paths import absolute
from quicksand_e2b.live import Guest, Live
from quicksand_e2b.process import Facts, Process
from quicksand_e2b.processes import Order
from quicksand_e2b.sandboxes import Sandboxes
from quicksand_e2b.users import user_of

PID_MAX = 2**22
"""Linux's own limit (proc(5), pid_max)."""

SIZE_MAX = 4096
"""The most columns or rows of a terminal."""

SIGNALS = {"SIGNAL_SIGTERM": 15, "SIGNAL_SIGKILL": 9, 15: 15, 9: 9}


class GuestRoutes:
    """Handles the requests, which name their sandbox by headers, by Host, or by its token."""

    def __init__(self, sandboxes: Sandboxes, streams: rpc.Streams) -> None:
        self._sandboxes = sandboxes
        self._streams = streams

    def routes(self) -> list[web.RouteDef]:
        unary: dict[str, Callable[[Guest, Live, web.Request, Body], Awaitable[dict[str, Any]]]] = {
            "process.Process/List": self._list,
            "process.Process/Update": self._update,
            "process.Process/SendInput": self._send_input,
            "process.Process/SendSignal": self._send_signal,
            "process.Process/CloseStdin": self._close_stdin,
            "filesystem.Filesystem/Stat": self._stat,
            "filesystem.Filesystem/MakeDir": self._make_dir,
            "filesystem.Filesystem/Move": self._move,
            "filesystem.Filesystem/ListDir": self._list_dir,
            "filesystem.Filesystem/Remove": self._remove,
            "filesystem.Filesystem/CreateWatcher": self._create_watcher,
            "filesystem.Filesystem/GetWatcherEvents": self._watcher_events,
            "filesystem.Filesystem/RemoveWatcher": self._remove_watcher,
        }
        found = [web.post(f"/{name}", self._unary(method)) for name, method in unary.items()]
        return [
            *found,
            web.post("/process.Process/Start", self._start),
            web.post("/process.Process/Connect", self._connect),
            web.post("/process.Process/StreamInput", self._stream_input),
            web.post("/filesystem.Filesystem/WatchDir", self._watch),
            web.get("/health", self._health),
        ]

    # The sandbox of a request

    @contextlib.asynccontextmanager
    async def using(self, request: web.Request) -> AsyncIterator[tuple[Live, Guest]]:
        """Opens the sandbox of a request that has its token, and its guest. Raises ApiError (401
        for a wrong token, 502 if it does not run)."""
        address = address_of(request)
        live = self._sandboxes.find(address[0]) if address else by_token(request, self._sandboxes)
        if live is not None and not is_token(request, live):
            raise RpcError("unauthenticated", "the access token is missing or not valid")
        live = await require_running(live, address[0] if address else "", self._sandboxes)
        live.enter()
        try:
            yield live, live.guest()
        finally:
            live.leave()

    def _unary(
        self, method: Callable[[Guest, Live, web.Request, Body], Awaitable[dict[str, Any]]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            async with self.using(request) as (live, guest):
                return await rpc.unary(request, lambda body: method(guest, live, request, body))

        return handle

    async def _health(self, request: web.Request) -> web.Response:
        address = address_of(request)
        live = self._sandboxes.find(address[0]) if address else by_token(request, self._sandboxes)
        if live is None or not live.is_up():
            raise not_running(address[0] if address else "")
        return web.Response(status=204)

    # Processes

    async def _start(self, request: web.Request) -> web.StreamResponse:
        async with self.using(request) as (live, guest):

            async def begin(body: Body) -> _Begun:
                wanted = body.part("process")
                login = await guest.users.require(user_of(request.headers.get("Authorization")))
                env = {**live.record.variables, **wanted.text_map("envs")}
                cwd = wanted.maybe_text("cwd")
                order = Order(
                    config={
                        "cmd": wanted.text("cmd"),
                        "args": wanted.texts("args"),
                        "envs": wanted.text_map("envs"),
                        "cwd": absolute(cwd, login) if cwd else None,
                    },
                    user=login.name,
                    env=env,
                    tag=body.text("tag", "", most=1024),
                    has_stdin=body.flag("stdin", True),
                    terminal=_size(body) if body.has("pty") else None,
                    timeout_s=rpc.timeout_of(request),
                )
                starting = guest.processes.start(order)
                # A client that leaves now must not leave a process of which nobody knows.
                return _begun(*await whole(self._sandboxes, starting, f"api-start-{live.id}"))

            return await self._streamed(request, live, begin, bounded=False)

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        async with self.using(request) as (live, guest):

            async def begin(body: Body) -> _Begun:
                return _begun(*await guest.processes.listen(*_selected(body)))

            return await self._streamed(request, live, begin, bounded=True)

    async def _streamed(
        self,
        request: web.Request,
        live: Live,
        begin: Callable[[Body], Awaitable[_Begun]],
        *,
        bounded: bool,
    ) -> web.StreamResponse:
        self._streams.enter(live.id)
        try:
            return await rpc.stream(request, begin, bounded=bounded)
        finally:
            self._streams.leave(live.id)

    async def _list(
        self, guest: Guest, live: Live, request: web.Request, body: Body
    ) -> dict[str, Any]:
        return {"processes": [_described(found) for found in await guest.processes.list()]}

    async def _update(
        self, guest: Guest, live: Live, request: web.Request, body: Body
    ) -> dict[str, Any]:
        process = await guest.processes.require(*_selected(body))
        if body.has("pty"):
            await process.resize(*_size(body))
        return {}

    async def _send_input(
        self, guest: Guest, live: Live, request: web.Request, body: Body
    ) -> dict[str, Any]:
        process = await guest.processes.require(*_selected(body))
        await _write(process, body.part("input"))
        return {}

    async def _send_signal(
        self, guest: Guest, live: Live, request: web.Request, body: Body
    ) -> dict[str, Any]:
        number = SIGNALS.get(body.any("signal")) if _is_word(body.any("signal")) else None
        if number is None:
            raise RpcError("invalid_argument", "signal must be SIGNAL_SIGTERM or SIGNAL_SIGKILL")
        await guest.processes.signal(*_selected(body), number)
        return {}

    async def _close_stdin(
        self, guest: Guest, live: Live, request: web.Request, body: Body
    ) -> dict[str, Any]:
        await (await guest.processes.require(*_selected(body))).close_stdin()
        return {}

    async def _stream_input(self, request: web.Request) -> web.StreamResponse:
        async with self.using(request) as (live, guest):

            async def begin(body: Body) -> Process:
                return await guest.processes.require(*_selected(body.part("start")))

            self._streams.enter(live.id)
            try:
                return await rpc.take(request, begin, _take_input)
            finally:
                self._streams.leave(live.id)

    # Files

    async def _stat(
        self, guest: Guest, live: Live, request: web.Request, body: Body
    ) -> dict[str, Any]:
        login = await guest.users.require(user_of(request.headers.get("Authorization")))
        return {"entry": await guest.filesystem.stat(body.text("path", ""), login)}

    async def _make_dir(
        self, guest: Guest, live: Live, request: web.Request, body: Body
    ) -> dict[str, Any]:
        login = await guest.users.require(user_of(request.headers.get("Authorization")))
        return {"entry": await guest.filesystem.make_directory(body.text("path", ""), login)}

    async def _move(
        self, guest: Guest, live: Live, request: web.Request, body: Body
    ) -> dict[str, Any]:
        login = await guest.users.require(user_of(request.headers.get("Authorization")))
        source, destination = body.text("source"), body.text("destination")
        return {"entry": await guest.filesystem.move(source, destination, login)}

    async def _list_dir(
        self, guest: Guest, live: Live, request: web.Request, body: Body
    ) -> dict[str, Any]:
        login = await guest.users.require(user_of(request.headers.get("Authorization")))
        depth = body.whole("depth", 1, most=2**32) or 1
        path = body.text("path", "")
        listed = await guest.filesystem.list_directory(path, min(depth, DEPTH_MAX), login)
        return {"entries": listed}

    async def _remove(
        self, guest: Guest, live: Live, request: web.Request, body: Body
    ) -> dict[str, Any]:
        login = await guest.users.require(user_of(request.headers.get("Authorization")))
        await guest.filesystem.remove(body.text("path"), login)
        return {}

    # Watches

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        async with self.using(request) as (live, guest):

            async def begin(body: Body) -> _Begun:
                login = await guest.users.require(user_of(request.headers.get("Authorization")))
                _, watcher = await guest.watchers.open(body, login)
                return {"start": {}}, watcher, lambda: None

            self._streams.enter(live.id)
            try:
                return await rpc.stream(request, begin, bounded=True, wrap=lambda event: event)
            finally:
                self._streams.leave(live.id)

    async def _create_watcher(
        self, guest: Guest, live: Live, request: web.Request, body: Body
    ) -> dict[str, Any]:
        login = await guest.users.require(user_of(request.headers.get("Authorization")))
        id_, _ = await guest.watchers.open(body, login)
        return {"watcherId": id_}

    async def _watcher_events(
        self, guest: Guest, live: Live, request: web.Request, body: Body
    ) -> dict[str, Any]:
        return {"events": await guest.watchers.require(body.text("watcherId")).news()}

    async def _remove_watcher(
        self, guest: Guest, live: Live, request: web.Request, body: Body
    ) -> dict[str, Any]:
        guest.watchers.require(body.text("watcherId")).close()
        return {}


_Begun = tuple[Event, Source, Callable[[], RpcError | None]]


def _begun(process: Process, listener: Listener) -> _Begun:
    return {"start": {"pid": process.facts.pid}}, listener, lambda: process.error


def _selected(body: Body) -> tuple[int | None, str]:
    """Returns the process that a message names: by its number, or by its tag."""
    selector = body.part("process")
    pid = selector.maybe_whole("pid", least=1, most=PID_MAX)
    tag = selector.text("tag", "", most=1024)
    if pid is None and not tag:
        raise RpcError("invalid_argument", "process must have a pid or a tag")
    return pid, tag


def _size(body: Body) -> tuple[int, int]:
    size = body.part("pty").part("size")
    return (
        size.whole("cols", 80, least=1, most=SIZE_MAX),
        size.whole("rows", 24, least=1, most=SIZE_MAX),
    )


async def _write(process: Process, given: Body) -> None:
    key = "pty" if given.has("pty") else "stdin"
    await process.write(given.data(key), to_terminal=key == "pty")


async def _take_input(process: Process, body: Body) -> None:
    if body.has("data"):
        await _write(process, body.part("data").part("input"))


def _described(facts: Facts) -> dict[str, Any]:
    config = {key: value for key, value in facts.config.items() if value is not None}
    found: dict[str, Any] = {"config": config, "pid": facts.pid}
    if facts.tag:
        found["tag"] = facts.tag
    return found


def _is_word(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)
