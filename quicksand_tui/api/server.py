"""The server: one for a data directory, which it locks."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from aiohttp import web
from quicksand import HostError, PortInUseError, StateError
from quicksand.base.accepting import close_server
from quicksand.base.files import try_lock
from quicksand.base.loopback import BACKLOG
from quicksand.base.paths import Paths, make_private_dir

from quicksand_tui.api.contents import FileRoutes
from quicksand_tui.api.control_routes import ControlRoutes
from quicksand_tui.api.gate import middleware
from quicksand_tui.api.guest_routes import GuestRoutes
from quicksand_tui.api.keys import Keys
from quicksand_tui.api.machines import Machines
from quicksand_tui.api.making import Making, Usual
from quicksand_tui.api.metrics import Metrics
from quicksand_tui.api.places import api_dir
from quicksand_tui.api.ports import PortRoutes
from quicksand_tui.api.records import Records
from quicksand_tui.api.rpc import Streams
from quicksand_tui.api.sandboxes import Sandboxes
from quicksand_tui.api.tls import DOMAIN, Certificates

END_S = 5.0
"""Seconds that requests have to end when the server does."""

HEADERS_MAX = 16 * 1024
"""Bytes of one header, and of the first line of a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `quicksand-tui api` was told."""

    host: str
    port: int
    usual: Usual
    names: frozenset[str] = field(default_factory=frozenset)
    """By which it may be called, too."""
    tls: tuple[str, int] | None = None
    """Where it listens with TLS, too, for names below `qs.localhost`."""


def make_app(
    sandboxes: Sandboxes,
    keys: Keys,
    options: Options,
    tell: Callable[[str], None],
    domain: str = "",
) -> web.Application:
    """The application, which tells clients ``domain`` as that of sandboxes' names. The caller
    loads, watches and finishes its `Sandboxes`."""
    streams = Streams()
    ports = PortRoutes(sandboxes, streams)
    gate = middleware(options.names, ports.by_host, tell)
    metrics = Metrics(sandboxes, keys, options.names)
    app = web.Application(middlewares=[metrics.middleware(), gate], client_max_size=0)
    app.add_routes(metrics.routes())
    making = Making(sandboxes, options.usual)
    app.add_routes(ControlRoutes(sandboxes, making, keys, domain).routes())
    app.add_routes(GuestRoutes(sandboxes, streams).routes())
    app.add_routes(FileRoutes(sandboxes, streams).routes())
    app.router.add_route("*", "/ports/{rest:.*}", ports.by_path)
    return app


@contextlib.asynccontextmanager
async def serving(
    paths: Paths, options: Options, tell: Callable[[str], None]
) -> AsyncIterator[tuple[str, int]]:
    """Serve within the block; yields the address. Sandboxes outlive it.

    Raises StateError if another server has this data directory, PortInUseError, HostError."""
    place = api_dir(paths)
    make_private_dir(place)
    lock = try_lock(place / "server.lock")
    if lock is None:
        raise StateError(
            f"another server has the sandboxes of {paths.data}",
            hint="end that one first, or give this one a QUICKSAND_DATA_DIR of its own",
        )
    keys = Keys(place)
    sandboxes = Sandboxes(Machines(paths), Records(place, tell), tell)
    domain = f"{DOMAIN}:{options.tls[1]}" if options.tls is not None else ""
    app = make_app(sandboxes, keys, options, tell, domain)
    runner = web.AppRunner(
        app,
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=END_S,
        max_line_size=HEADERS_MAX,
        max_field_size=HEADERS_MAX,
    )
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(os.close, lock)
        await sandboxes.load()
        stack.push_async_callback(sandboxes.finish)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        first = await _listen(runner, (options.host, options.port))
        stack.push_async_callback(close_server, first)
        if options.tls is not None:
            other = await _listen(runner, options.tls, Certificates(place).context())
            stack.push_async_callback(close_server, other)
        clock = asyncio.create_task(sandboxes.watch(), name="api-clock")
        stack.push_async_callback(_end, clock)
        address = first.sockets[0].getsockname()
        yield address[0], address[1]
        for live in sandboxes:
            live.let_go()  # streams must not hold the end up


async def _listen(
    runner: web.AppRunner, address: tuple[str, int], tls: ssl.SSLContext | None = None
) -> asyncio.Server:
    """Raises PortInUseError, HostError."""
    host, port = address
    assert runner.server is not None
    try:
        # Not as a site of the runner: that loses connections when it is closed.
        return await asyncio.get_running_loop().create_server(
            runner.server, host, port, ssl=tls, backlog=BACKLOG
        )
    except OSError as error:
        kind = PortInUseError if error.errno == errno.EADDRINUSE else HostError
        raise kind(f"cannot listen at {host}:{port}: {error.strerror or error}") from error


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
