"""`/metrics`: what the server and its sandboxes use, for Prometheus and what reads its format.

It tells of all owners' sandboxes, so it is for who runs the server: the first owner's key, or that
of an owner called "metrics", who needs no sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from aiohttp import web
from quicksand.base.exposition import CONTENT_TYPE, Histogram, Metric, counter, gauge, render
from quicksand.base.memory import available_memory

from quicksand_tui.api.errors import ApiError
from quicksand_tui.api.gate import AGENT_PORT, LEFT, address_of, is_ours
from quicksand_tui.api.keys import FIRST_OWNER, Keys
from quicksand_tui.api.machines import Usage
from quicksand_tui.api.records import State
from quicksand_tui.api.sandboxes import Sandboxes

READER = "metrics"
"""The owner whose key is for this alone."""

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Of the histogram of requests. A stream's time is that until its end."""


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Metrics:
    """Counts the requests, and answers with that and what there is now."""

    def __init__(self, sandboxes: Sandboxes, keys: Keys, names: frozenset[str]) -> None:
        """``names``: by which the server may be called, too."""
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
        usage, available = await asyncio.to_thread(self._look)
        text = render(self._all(usage, available))
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})

    def _route(self, request: web.Request) -> tuple[str, str]:
        """The method and the route of a request, never what a client chose."""
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

    def _look(self) -> tuple[list[Usage], int]:
        return self._sandboxes.machines.usage(), available_memory()

    def _all(self, usage: list[Usage], available: int) -> Iterator[Metric]:
        known = {live.record.name: live for live in self._sandboxes}
        ours = [(known[found.name].id, found) for found in usage if found.name in known]
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
            [({"sandbox": id_}, found.memory_bytes) for id_, found in ours],
        )
        yield gauge(
            "quicksand_sandbox_memory_limit_bytes",
            "Memory that a sandbox's guest has.",
            [({"sandbox": i}, known[f.name].record.memory_mb << 20) for i, f in ours],
        )
        yield counter(
            "quicksand_sandbox_cpu_seconds_total",
            "Seconds of processor time of a sandbox since it was started or resumed.",
            [({"sandbox": id_}, found.cpu_seconds) for id_, found in ours],
        )
        yield gauge(
            "quicksand_host_memory_available_bytes",
            "Memory that new sandboxes may have together.",
            [({}, available)],
        )
        yield self._requests.metric()


def _presented(request: web.Request) -> str:
    """The key of a request; scrapers send one as a bearer token."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else request.headers.get("X-API-KEY", "")
