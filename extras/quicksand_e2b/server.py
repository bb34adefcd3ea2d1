"""The server: one for a data directory, which it locks."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from aiohttp import web
from quicksand import HostError, PortInUseError, StateError
from quicksand.extending import Paths, close_server, make_private_dir, try_lock

from quicksand_e2b.connections import KEEP_S, LINGER_S, SILENT_S, Connection, Connections
from quicksand_e2b.contents import FileRoutes
from quicksand_e2b.control_routes import ControlRoutes
from quicksand_e2b.gate import middleware
from quicksand_e2b.guest_routes import GuestRoutes
from quicksand_e2b.keys import Keys
from quicksand_e2b.machines import LocalMachines, Machines
from quicksand_e2b.making import Making, Usual
from quicksand_e2b.metrics import Metrics
from quicksand_e2b.places import api_dir
from quicksand_e2b.points import look_now_and_then
from quicksand_e2b.ports import PortRoutes
from quicksand_e2b.records import Records
from quicksand_e2b.rpc import Streams
from quicksand_e2b.sandboxes import Sandboxes
from quicksand_e2b.tls import DOMAIN, Certificates

BACKLOG = 1024
"""Connections that wait until they are taken; the kernel's own limit is 4096 (listen(2))."""

END_S = 5.0
"""Seconds that requests have to end when the server does."""

HEADERS_MAX = 16 * 1024
"""The most bytes of one header, and of the first line of a request."""

HTTP: Mapping[str, Any] = MappingProxyType(
    {
        "auto_decompress": False,
        "access_log": None,
        "keepalive_timeout": KEEP_S,
        "lingering_time": LINGER_S,
        "max_line_size": HEADERS_MAX,
        "max_field_size": HEADERS_MAX,
    }
)
"""Settings of the HTTP library for each connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `quicksand-tui api`."""

    host: str
    port: int
    usual: Usual
    names: frozenset[str] = field(default_factory=frozenset)
    """Further names by which it may be called."""
    tls: tuple[str, int] | None = None
    """The address where it listens with TLS, too, for names below `qs.localhost`."""
    fleet: bool = False
    """Whether its sandboxes are placed on the hosts of the fleet that is up."""


def make_app(
    sandboxes: Sandboxes,
    keys: Keys,
    options: Options,
    tell: Callable[[str], None],
    domain: str = "",
) -> web.Application:
    """Returns the application, which tells clients ``domain`` as that of sandboxes' names. The
    caller loads, watches and finishes its `Sandboxes`."""
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
    """Serves within the block; yields the address. Sandboxes outlive it.

    Raises StateError if another server has this data directory, PortInUseError, HostError,
    FleetError if there is no fleet.
    """
    place = api_dir(paths)
    make_private_dir(place)
    lock = try_lock(place / "server.lock")
    if lock is None:
        raise StateError(
            f"another server has the sandboxes of {paths.data}",
            hint="end that one first, or give this one a QUICKSAND_DATA_DIR of its own",
        )
    keys = Keys(place)
    domain = f"{DOMAIN}:{options.tls[1]}" if options.tls is not None else ""
    connections = Connections()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(os.close, lock)
        machines = await stack.enter_async_context(_machines(paths, options, tell))
        sandboxes = Sandboxes(machines, Records(place, tell), tell)
        app = make_app(sandboxes, keys, options, tell, domain)
        app.middlewares.insert(0, connections.middleware())
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=END_S)
        await sandboxes.load()
        stack.push_async_callback(sandboxes.finish)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        assert runner.server is not None
        factory = connections.factory(runner.server, HTTP)
        first = await _listen(factory, (options.host, options.port))
        stack.push_async_callback(close_server, first)
        if options.tls is not None:
            other = await _listen(factory, options.tls, Certificates(place).context())
            stack.push_async_callback(close_server, other)
        clock = asyncio.create_task(sandboxes.watch(), name="api-clock")
        stack.push_async_callback(_end, clock)
        looks = look_now_and_then(lambda: [live.look for live in sandboxes])
        stack.push_async_callback(_end, asyncio.create_task(looks, name="api-looks"))
        address = first.sockets[0].getsockname()
        yield address[0], address[1]
        for live in sandboxes:
            live.let_go()  # streams must not hold the end up


@contextlib.asynccontextmanager
async def _machines(
    paths: Paths, options: Options, tell: Callable[[str], None]
) -> AsyncIterator[Machines]:
    """Opens the sandboxes of this machine, or of the fleet. Raises FleetError, ConfigError."""
    here = LocalMachines(paths)
    if not options.fleet:
        yield here
        return
    from quicksand_e2b.fleet_machines import open_fleet  # noqa: PLC0415

    async with open_fleet(here, tell) as machines:
        image = options.usual.image
        is_one_up = any(one.is_up for one in (await machines.figures()).hosts)
        if is_one_up and not await machines.has_image(image):
            tell(
                f"no host of the fleet tells of the image {image!r}, which the template base is: "
                f"`quicksand-tui --host HOST images build {image}` makes it there"
            )
        yield machines


async def _listen(
    factory: Callable[[], Connection], address: tuple[str, int], tls: ssl.SSLContext | None = None
) -> asyncio.Server:
    """Listens at an address. Raises PortInUseError, HostError."""
    host, port = address
    try:
        # Not as a site of the runner: that loses connections when it is closed.
        return await asyncio.get_running_loop().create_server(
            factory,
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=SILENT_S if tls is not None else None,
            backlog=BACKLOG,
        )
    except OSError as error:
        kind = PortInUseError if error.errno == errno.EADDRINUSE else HostError
        raise kind(f"cannot listen at {host}:{port}: {error.strerror or error}") from error


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
