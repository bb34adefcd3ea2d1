"""`/metrics`: the resources that the server and its sandboxes use, for Prometheus and readers of
its format.

It tells of all owners' sandboxes, so it is for the operator of the server: the first owner's key,
or that of an owner called "metrics", who needs no sandbox.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from aiohttp import web

from quicksand_e2b.errors import ApiError
from quicksand_e2b.exposition import CONTENT_TYPE, Histogram, Metric, counter, gauge, render
from quicksand_e2b.gate import AGENT_PORT, LEFT, address_of, is_ours
from quicksand_e2b.keys import FIRST_OWNER, Keys
from quicksand_e2b.machines import HostFigures, Usage
from quicksand_e2b.records import SandboxRecord, State
from quicksand_e2b.sandboxes import Sandboxes

READER = "metrics"
"""The owner whose key is for this alone."""

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The bounds of the histogram of requests. A stream's time is that until its end."""


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Metrics:
    """Counts the requests, and answers with the counts and the present figures."""

    def __init__(self, sandboxes: Sandboxes, keys: Keys, names: frozenset[str]) -> None:
        """``names`` are further names by which the server may be called."""
        self._sandboxes = sandboxes
        self._names = names
        self._keys = keys
        self._requests = Histogram(
            "quicksand_api_request_seconds",
            "Seconds from a request's headers to the end of its answer.",
            BOUNDS_S,
        )

    def middleware(self) -> Any:
        """Counts each request that passes it."""

        @web.middleware
        async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
            began, status = time.perf_counter(), LEFT
            try:
                response = await handler(request)
                status = response.status
                return response
            finally:
                method, route = self._route(request)
                seconds = time.perf_counter() - began
                self._requests.observe(seconds, method=method, route=route, status=str(status))

        return count

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/metrics", self._answer, allow_head=False)]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        owner = self._keys.owner_of(_presented(request))
        if owner is None:
            raise ApiError(401, "the API key is missing or not valid")
        if owner not in (FIRST_OWNER, READER):
            raise ApiError(
                403,
                f"/metrics is for the keys of {FIRST_OWNER!r} and {READER!r}: "
                f"`quicksand-tui api keys --add {READER}` makes one",
            )
        figures = await self._sandboxes.machines.figures()
        text = render([*self._of_sandboxes(figures.usage), *_of_hosts(figures.hosts)])
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})

    def _route(self, request: web.Request) -> tuple[str, str]:
        """Returns the method and the route of a request, never a text that a client chose."""
        if not is_ours(request.headers.get("Host", ""), self._names):
            return "", "not-ours"
        with contextlib.suppress(ApiError):
            address = address_of(request)
            if address is not None and address[1] != AGENT_PORT:
                return "", "port"
        resource = request.match_info.route.resource
        if resource is None:
            return "", "none"
        return request.match_info.route.method, resource.canonical

    def _of_sandboxes(self, usage: Sequence[Usage]) -> Iterator[Metric]:
        known = {(live.record.host, live.record.name): live for live in self._sandboxes}
        ours = [
            (live.record, _labels(live.record), found)
            for found in usage
            if (live := known.get((found.host, found.name))) is not None
        ]
        states = Counter(live.record.state for live in known.values())
        yield gauge(
            "quicksand_api_sandboxes",
            "Sandboxes of this server, by what is being done with them.",
            [({"state": state}, states[state]) for state in State],
        )
        yield gauge("quicksand_api_snapshots", "Snapshots.", [({}, len(self._sandboxes.snapshots))])
        yield gauge(
            "quicksand_sandbox_memory_bytes",
            "Memory of the host that a sandbox takes, in RAM or in swap.",
            [(labels, found.memory_bytes) for _, labels, found in ours],
        )
        yield gauge(
            "quicksand_sandbox_memory_limit_bytes",
            "Memory that a sandbox's guest has.",
            [(labels, record.memory_mb << 20) for record, labels, _ in ours],
        )
        yield counter(
            "quicksand_sandbox_cpu_seconds_total",
            "Seconds of processor time of a sandbox since it was started or resumed.",
            [(labels, found.cpu_seconds) for _, labels, found in ours],
        )
        yield self._requests.metric()


def _labels(record: SandboxRecord) -> dict[str, str]:
    return {"sandbox": record.id, "host": record.host} if record.host else {"sandbox": record.id}


def _of_hosts(hosts: Sequence[HostFigures]) -> Iterator[Metric]:
    """Yields the metrics of this machine, or of each host of a fleet."""
    yield gauge(
        "quicksand_host_memory_available_bytes",
        "Memory that new sandboxes may have together.",
        [({"host": one.name} if one.name else {}, one.free_bytes) for one in hosts if one.is_up],
    )
    fleet = [one for one in hosts if one.name]
    if not fleet:
        return
    yield gauge(
        "quicksand_host_up",
        "Whether a host of the fleet tells which sandboxes it has.",
        [({"host": one.name}, int(one.is_up)) for one in fleet],
    )
    yield gauge(
        "quicksand_host_memory_bytes",
        "Memory that all sandboxes of a host may have together.",
        [({"host": one.name}, one.memory_bytes) for one in fleet],
    )
    yield gauge(
        "quicksand_host_sandboxes",
        "Sandboxes that run on a host, whoever has started them.",
        [({"host": one.name}, one.sandboxes) for one in fleet if one.is_up],
    )


def _presented(request: web.Request) -> str:
    """Returns the key of a request; scrapers send one as a bearer token."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else request.headers.get("X-API-KEY", "")
