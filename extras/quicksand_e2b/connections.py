"""The connections of clients, of which anybody on the host may open many: silent connections are
ended, and those whose request was refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

SILENT_S = 10.0
"""Seconds that a new connection may take for TLS, and then until its first request is there."""

SILENT_MAX = 256
"""The most new connections without a request: the next one ends the oldest of them."""

KEEP_S = 310.0
"""Seconds that a connection whose last request was granted is kept: longer than the SDK keeps one
for its next request (300), so that no request meets its end."""

REFUSED = 400
"""The least status of an answer that grants nothing."""

LINGER_S = 2.0
"""Seconds for which the rest of a refused body is read, and dropped, so that its sender comes to
see the answer."""


class Connections:
    """Makes the handler of each client."""

    def __init__(self) -> None:
        self._silent: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        """The silent connections, the oldest first."""

    def factory(self, server: web.Server, options: Mapping[str, Any]) -> Callable[[], Connection]:
        """Returns the function that the loop calls for each client. ``options`` are those of
        `web.RequestHandler`."""
        return lambda: Connection(self, server, options)

    def enter(self, connection: web.RequestHandler) -> None:
        """Notes a client that has asked for nothing yet."""
        while len(self._silent) >= SILENT_MAX:
            self._end(next(iter(self._silent)))
        loop = asyncio.get_running_loop()
        self._silent[connection] = loop.call_later(SILENT_S, self._end, connection)

    def leave(self, connection: web.RequestHandler) -> None:
        """Notes that a client's first request is there, or that the client has gone."""
        if (timer := self._silent.pop(connection, None)) is not None:
            timer.cancel()

    def middleware(self) -> Any:
        """Returns the middleware that comes before all others."""

        @web.middleware
        async def heard(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            self.leave(request.protocol)
            response = await handler(request)
            if response.status >= REFUSED and not response.prepared:
                response.force_close()
            return response

        return heard

    def _end(self, connection: web.RequestHandler) -> None:
        self.leave(connection)
        connection.force_close()


class Connection(web.RequestHandler):
    """The connection of a client; with TLS, from when that is agreed on."""

    def __init__(
        self, connections: Connections, server: web.Server, options: Mapping[str, Any]
    ) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connections.enter(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.leave(self)
        super().connection_lost(exc)
