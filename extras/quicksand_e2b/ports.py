"""Ports of a guest over HTTP: its services are reached by name or by path, websockets too.

The agent carries the connections, so the guest needs no network. `PORT-ID.…` as the Host leads to a
port of a sandbox, and so does the path ``/ports/PORT-ID/…``, which is cut off. A request to the
port of the code interpreter makes it run (`interpreter.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web
from quicksand import AgentRefusedError, GuestConnection, QuicksandError

from quicksand_e2b import interpreter
from quicksand_e2b.errors import PORT_CLOSED, ApiError, is_too_old
from quicksand_e2b.gate import is_same, is_token, require_running
from quicksand_e2b.live import Guest, Live
from quicksand_e2b.network import masked
from quicksand_e2b.rpc import Streams
from quicksand_e2b.sandboxes import Sandboxes
from quicksand_e2b.tasks import Tasks

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler

PIECE = 64 * 1024
MESSAGE_MAX = 16 * 1024 * 1024
"""The most bytes of a message of a websocket."""

TRAFFIC_TOKEN = "E2b-Traffic-Access-Token"  # noqa: S105 - the name of a header
_PATH = re.compile(r"/ports/(?P<port>[0-9]{1,5})-(?P<id>[a-z0-9]{1,63})(?P<rest>/.*|\?.*|)")

_ONE_HOP = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
        "transfer-encoding", "upgrade", TRAFFIC_TOKEN.lower(),
    }
)  # fmt: skip
"""Headers that are for one connection (RFC 9110, 7.6.1), or for us."""


class PortRoutes:
    """Carries requests to ports of guests."""

    def __init__(self, sandboxes: Sandboxes, streams: Streams) -> None:
        self._sandboxes = sandboxes
        self._streams = streams

    async def by_path(self, request: web.Request) -> web.StreamResponse:
        found = _PATH.fullmatch(request.raw_path)
        if found is None:
            raise ApiError(404, "after /ports/ comes PORT-ID of a sandbox")
        return await self.carry(request, found["id"], int(found["port"]), found["rest"] or "/")

    async def by_host(self, request: web.Request, id_: str, port: int) -> web.StreamResponse:
        return await self.carry(request, id_, port, request.raw_path)

    async def carry(
        self, request: web.Request, id_: str, port: int, path: str
    ) -> web.StreamResponse:
        """Carries a request to a port and its answer back. Raises ApiError (502) if nobody listens
        there, 403 without the token of a port that is not public."""
        live = await require_running(self._sandboxes.find(id_), id_, self._sandboxes)
        _require_access(request, live, port)
        self._streams.enter(id_)
        live.enter()
        try:
            try:
                connection = await _dial(live.guest(), port)
            except AgentRefusedError as error:
                if is_too_old(error):
                    raise
                raise ApiError(502, PORT_CLOSED, sandboxId=id_, port=port) from error
            async with connection, _session(connection, self._sandboxes.tasks) as session:
                url = f"http://guest{path if path.startswith('/') else '/' + path}"
                mask = masked(live.record.host_mask, port)
                if request.headers.get("Upgrade", "").lower() == "websocket":
                    return await _carry_websocket(request, session, url, mask)
                return await _carry_request(request, session, url, mask)
        except aiohttp.ClientError as error:
            raise ApiError(502, f"the answer of port {port} is no HTTP: {error}") from error
        finally:
            live.leave()
            self._streams.leave(id_)


def _require_access(request: web.Request, live: Live, port: int) -> None:
    """Checks that a request may reach a port. Raises ApiError (403). Clients of the code
    interpreter can run anything, so that is never public."""
    record = live.record
    if is_same(request.headers.get(TRAFFIC_TOKEN, ""), record.traffic_token):
        return
    if port == interpreter.PORT:
        if not is_token(request, live):
            raise ApiError(403, f"the code interpreter wants {TRAFFIC_TOKEN} or X-Access-Token")
    elif not record.is_public:
        raise ApiError(403, f"the sandbox is not public: {TRAFFIC_TOKEN} is missing or wrong")


async def _dial(guest: Guest, port: int) -> GuestConnection:
    if port == interpreter.PORT:
        return await guest.interpreter.dial()
    return await guest.sandbox.dial(port)


class _OverGuest(aiohttp.BaseConnector):
    """Connects a client of aiohttp by an existing connection."""

    def __init__(self, ours: socket.socket) -> None:
        super().__init__(force_close=True)
        self._ours = ours

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> ResponseHandler:
        # Methods that connectors of aiohttp define; there is no public way to hand it a connection.
        _, protocol = await self._loop.create_connection(self._factory, sock=self._ours)
        return protocol


@contextlib.asynccontextmanager
async def _session(
    connection: GuestConnection, tasks: Tasks
) -> AsyncIterator[aiohttp.ClientSession]:
    """Opens a client whose one connection is that to the guest."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=theirs, limit=PIECE)
    pumps = [
        tasks.start(_from_guest(connection, writer), "api-port-read"),
        tasks.start(_to_guest(connection, reader), "api-port-write"),
    ]
    try:
        async with aiohttp.ClientSession(
            connector=_OverGuest(ours),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
        ) as session:
            yield session
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.wait(pumps)
        writer.close()
        ours.close()


async def _from_guest(connection: GuestConnection, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(QuicksandError, ConnectionError):
        while data := await connection.read():
            writer.write(data)
            await writer.drain()
    writer.close()


async def _to_guest(connection: GuestConnection, reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(QuicksandError, ConnectionError):
        while data := await reader.read(PIECE):
            await connection.write(data)
        connection.write_eof()


def _passed_on(
    headers: Any, *, without: frozenset[str] = frozenset(), host: str = ""
) -> list[tuple[str, str]]:
    """Returns the headers for the other side, with ``host`` in place of the Host unless it is
    ""."""
    named = {name.strip().lower() for name in headers.get("Connection", "").split(",")}
    left_out = _ONE_HOP | named | without
    passed = [(name, text) for name, text in headers.items() if name.lower() not in left_out]
    if not host:
        return passed
    return [("Host", host), *((name, text) for name, text in passed if name.lower() != "host")]


async def _carry_request(
    request: web.Request, session: aiohttp.ClientSession, url: str, host: str
) -> web.StreamResponse:
    headers = _passed_on(request.headers, host=host)
    async with session.request(
        request.method,
        url,
        headers=headers,
        data=request.content if request.body_exists else None,
        allow_redirects=False,
        skip_auto_headers=("User-Agent", "Content-Type", "Accept", "Accept-Encoding"),
    ) as answered:
        response = web.StreamResponse(
            status=answered.status, reason=answered.reason, headers=_passed_on(answered.headers)
        )
        await response.prepare(request)
        try:
            async for data in answered.content.iter_any():
                await response.write(data)
        except aiohttp.ClientError as error:
            if request.transport is not None:  # the client must not take a part for the whole
                request.transport.abort()
            raise ConnectionResetError(str(error)) from error
        await response.write_eof()
        return response


_WEBSOCKET = frozenset(
    {
        "sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions",
        "sec-websocket-protocol", "sec-websocket-accept",
    }
)  # fmt: skip


async def _carry_websocket(
    request: web.Request, session: aiohttp.ClientSession, url: str, host: str
) -> web.StreamResponse:
    offered = request.headers.get("Sec-WebSocket-Protocol", "")
    protocols = tuple(word.strip() for word in offered.split(",") if word.strip())
    headers = _passed_on(request.headers, without=_WEBSOCKET, host=host)
    async with session.ws_connect(
        url, headers=headers, protocols=protocols, max_msg_size=MESSAGE_MAX, autoclose=False
    ) as inner:
        chosen = (inner.protocol,) if inner.protocol else ()
        # Messages are not packed: they would be unpacked on the event loop.
        outer = web.WebSocketResponse(protocols=chosen, max_msg_size=MESSAGE_MAX, compress=False)
        await outer.prepare(request)
        async with asyncio.TaskGroup() as group:
            group.create_task(_messages(outer, inner))
            group.create_task(_messages(inner, outer))
        return outer


async def _messages(source: Any, target: Any) -> None:
    """Carries messages of a websocket until it is closed, and the close."""
    with contextlib.suppress(ConnectionError):
        async for message in source:
            if message.type is aiohttp.WSMsgType.TEXT:
                await target.send_str(message.data)
            elif message.type is aiohttp.WSMsgType.BINARY:
                await target.send_bytes(message.data)
        await target.close(code=source.close_code or 1000)
