"""The routes by which sandboxes are made, listed, changed and ended."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from quicksand import QuicksandError

from quicksand_tui.api import listing
from quicksand_tui.api.asked import OLD_TIMEOUT_S, TIMEOUT_MAX_S, TIMEOUT_S, Asked
from quicksand_tui.api.errors import ApiError, api_error
from quicksand_tui.api.fields import Body, parse_json, whole
from quicksand_tui.api.gate import answer, read_body, require_owner
from quicksand_tui.api.gate import whole as to_its_end
from quicksand_tui.api.keys import Keys
from quicksand_tui.api.live import Live
from quicksand_tui.api.making import ALIASES, FORKS_MAX, Making, digest_of
from quicksand_tui.api.network import Egress
from quicksand_tui.api.records import State
from quicksand_tui.api.sandboxes import Sandboxes

LOG_LINES = 1000
LOG_BYTES = 256 * 1024
SLACK_S = 10.0
"""Seconds around a range of time within which a reading of now belongs to it."""

_IDEMPOTENCY = re.compile(r"[a-z0-9-]{1,255}")
_SNAPSHOT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")

Route = Callable[[web.Request, str], Awaitable[web.StreamResponse]]


class ControlRoutes:
    """Handlers. Each request has a key, and sees what is its owner's."""

    def __init__(self, sandboxes: Sandboxes, making: Making, keys: Keys, domain: str) -> None:
        """``domain`` is told to clients as that of the sandboxes' names, unless it is ""."""
        self._sandboxes = sandboxes
        self._making = making
        self._keys = keys
        self._domain = domain

    def routes(self) -> list[web.RouteDef]:
        one = "/sandboxes/{id}"
        table: list[tuple[str, str, Route]] = [
            ("POST", "/sandboxes", self._create_old),
            ("POST", "/v2/sandboxes", self._create),
            ("GET", "/sandboxes", self._list_old),
            ("GET", "/v2/sandboxes", self._list),
            ("GET", one, self._get),
            ("DELETE", one, self._delete),
            ("POST", f"{one}/connect", self._connect),
            ("POST", f"/v2{one}/connect", self._connect),
            ("POST", f"{one}/resume", self._connect),
            ("POST", f"{one}/pause", self._pause),
            ("POST", f"{one}/timeout", self._set_timeout),
            ("POST", f"{one}/refreshes", self._refresh),
            ("GET", f"{one}/metrics", self._metrics),
            ("GET", f"{one}/logs", self._logs),
            ("GET", f"/v2{one}/logs", self._logs),
            ("PUT", f"{one}/network", self._set_network),
            ("POST", f"{one}/snapshots", self._snapshot),
            ("GET", "/snapshots", self._list_snapshots),
            ("POST", f"{one}/fork", self._fork),
            ("DELETE", "/templates/{name}", self._delete_snapshot),
            ("GET", "/templates/aliases/{alias}", self._alias),
            ("POST", "/v2/templates", _not_here(_BUILD)),
            ("POST", "/v3/templates", _not_here(_BUILD)),
            ("POST", "/templates", _not_here(_BUILD)),
        ]
        return [web.route(method, path, self._owned(route)) for method, path, route in table]

    def _owned(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            return await route(request, require_owner(request, self._keys))

        return handle

    def _one(self, request: web.Request, owner: str) -> Live:
        return self._sandboxes.require_up(request.match_info["id"], owner)

    # Making

    async def _create(self, request: web.Request, owner: str) -> web.Response:
        return await self._make(request, owner, TIMEOUT_S)

    async def _create_old(self, request: web.Request, owner: str) -> web.Response:
        return await self._make(request, owner, OLD_TIMEOUT_S)

    async def _make(self, request: web.Request, owner: str, timeout_s: int) -> web.Response:
        data = await read_body(request)
        asked = Asked.parse(Body(parse_json(data)), timeout_s=timeout_s)
        key = request.headers.get("Idempotency-Key", "")
        if key and not _IDEMPOTENCY.fullmatch(key):
            raise ApiError(400, "an idempotency key has 1 to 255 of a-z 0-9 -")
        work = self._making.create(owner, asked, (key, digest_of(data) if key else ""))
        live = await to_its_end(self._sandboxes, work, "api-create")
        return answer(listing.created(live.record, self._domain), status=201)

    async def _fork(self, request: web.Request, owner: str) -> web.Response:
        live = self._one(request, owner)
        body = Body(parse_json(await read_body(request)))
        count = body.whole("count", 1, least=1, most=FORKS_MAX)
        timeout_s = body.whole("timeout", TIMEOUT_S, most=TIMEOUT_MAX_S)
        if live.record.state is not State.RUNNING:
            raise ApiError(409, f"the sandbox {live.id} is paused")
        work = self._making.fork(live, count, timeout_s)
        try:
            made = await to_its_end(self._sandboxes, work, f"api-fork-{live.id}")
        except QuicksandError as error:
            failure = api_error(error)
            told = {"error": {"code": failure.status, "message": failure.message}}
            return answer([told] * count, status=201)
        told_all = [{"sandbox": listing.created(m.record, self._domain)} for m in made]
        return answer(told_all, status=201)

    # Which there are

    async def _list(self, request: web.Request, owner: str) -> web.Response:
        query = dict(request.query)
        wanted = listing.Wanted.parse(query)
        part, token = listing.page(wanted.of(await self._of_owner(owner)), query)
        headers = {"X-Next-Token": token} if token else None
        return answer([listing.listed(record) for record in part], headers=headers)

    async def _list_old(self, request: web.Request, owner: str) -> web.Response:
        query = {"state": "running", **request.query}
        found = listing.Wanted.parse(query).of(await self._of_owner(owner))
        return answer([listing.listed(record) for record in found])

    async def _of_owner(self, owner: str) -> list[Any]:
        names = await asyncio.to_thread(self._sandboxes.machines.live_names)
        return [
            live.record
            for live in self._sandboxes
            if live.is_listed
            and live.record.owner == owner
            and (live.record.state is not State.RUNNING or live.record.name in names)
        ]

    async def _get(self, request: web.Request, owner: str) -> web.Response:
        return answer(listing.detailed(self._one(request, owner).record, self._domain))

    # Its end, and its time

    async def _delete(self, request: web.Request, owner: str) -> web.Response:
        live = self._sandboxes.require(request.match_info["id"], owner)
        await to_its_end(self._sandboxes, self._sandboxes.kill(live), f"api-kill-{live.id}")
        return web.Response(status=204)

    async def _connect(self, request: web.Request, owner: str) -> web.Response:
        live = self._one(request, owner)
        body = Body(parse_json(await read_body(request)))
        timeout_s = body.whole("timeout", TIMEOUT_S, most=TIMEOUT_MAX_S)
        work = self._sandboxes.resume(live, timeout_s, memory=body.flag("memory", True))
        was_paused = await to_its_end(self._sandboxes, work, f"api-resume-{live.id}")
        told = listing.created(live.record, self._domain)
        return answer(told, status=201 if was_paused else 200)

    async def _pause(self, request: web.Request, owner: str) -> web.Response:
        live = self._one(request, owner)
        body = Body(parse_json(await read_body(request)))
        work = self._sandboxes.pause(live, memory=body.flag("memory", True))
        await to_its_end(self._sandboxes, work, f"api-pause-{live.id}")
        return web.Response(status=204)

    async def _set_timeout(self, request: web.Request, owner: str) -> web.Response:
        live = self._one(request, owner)
        body = Body(parse_json(await read_body(request)))
        await self._sandboxes.set_timeout(live, body.whole("timeout", most=TIMEOUT_MAX_S))
        return web.Response(status=204)

    async def _set_network(self, request: web.Request, owner: str) -> web.Response:
        live = self._one(request, owner)
        body = Body(parse_json(await read_body(request)))
        internet = body.flag("allow_internet_access", True)
        await self._making.set_egress(live, Egress.parse(body, internet=internet))
        return web.Response(status=204)

    async def _refresh(self, request: web.Request, owner: str) -> web.Response:
        live = self._one(request, owner)
        body = Body(parse_json(await read_body(request)))
        await self._sandboxes.set_timeout(live, body.whole("duration", 60, most=TIMEOUT_MAX_S))
        return web.Response(status=204)

    # Snapshots

    async def _snapshot(self, request: web.Request, owner: str) -> web.Response:
        live = self._one(request, owner)
        body = Body(parse_json(await read_body(request)))
        name = body.text("name", "", most=128)
        if name and (not _SNAPSHOT_NAME.fullmatch(name) or name in ALIASES):
            raise ApiError(400, f"{name!r:.140} is no name for a snapshot")
        if live.record.state is not State.RUNNING:
            raise ApiError(409, f"the sandbox {live.id} is paused")
        work = self._making.snapshot(live, name, memory=body.flag("memory", True))
        made = await to_its_end(self._sandboxes, work, f"api-snapshot-{live.id}")
        return answer(listing.told_snapshot(made), status=201)

    async def _list_snapshots(self, request: web.Request, owner: str) -> web.Response:
        query = dict(request.query)
        name, source = query.get("name", ""), query.get("sandboxID", "")
        found = [
            snapshot
            for snapshot in self._sandboxes.snapshots.values()
            if snapshot.is_whole
            and snapshot.owner == owner
            and name in ("", snapshot.name, snapshot.id)
            and source in ("", snapshot.source)
        ]
        found.sort(key=lambda snapshot: (snapshot.created, snapshot.id), reverse=True)
        part, token = listing.page(found, query)
        headers = {"X-Next-Token": token} if token else None
        return answer([listing.told_snapshot(snapshot) for snapshot in part], headers=headers)

    async def _delete_snapshot(self, request: web.Request, owner: str) -> web.Response:
        name = request.match_info["name"].removesuffix(":default").removesuffix(":latest")
        snapshot = self._making.find_snapshot(owner, name)
        if snapshot is None:
            raise ApiError(404, f"there is no snapshot {name!r:.140}")
        work = self._sandboxes.forget_snapshot(snapshot)
        await to_its_end(self._sandboxes, work, f"api-forget-{snapshot.id}")
        return web.Response(status=204)

    async def _alias(self, request: web.Request, owner: str) -> web.Response:
        name = request.match_info["alias"]
        await self._making.require_alias(name)
        known = name in ALIASES or self._making.find_snapshot(owner, name) is not None
        if not known and not await asyncio.to_thread(self._sandboxes.machines.has_image, name):
            raise ApiError(404, f"there is no template {name!r:.140}")
        return answer({"templateID": name, "public": False})

    # Looking

    async def _metrics(self, request: web.Request, owner: str) -> web.Response:
        live = self._one(request, owner)
        now = time.time()
        start = whole(request.query.get("start") or "0", "start", least=0, most=2**40)
        end = whole(request.query.get("end") or str(2**40), "end", least=0, most=2**40)
        if live.record.state is not State.RUNNING or not start <= now <= end + SLACK_S:
            return answer([])
        return answer([await read_metrics(live, now)])

    async def _logs(self, request: web.Request, owner: str) -> web.Response:
        live = self._one(request, owner)
        lines = await asyncio.to_thread(self._sandboxes.machines.console, live.record.name)
        at = listing.moment(time.time())
        told = [{"timestamp": at, "line": line} for line in lines[-LOG_LINES:]]
        entries = [{"timestamp": at, "level": "info", "message": t["line"]} for t in told]
        return answer({"logs": told, "logEntries": entries})


async def read_metrics(live: Live, now: float) -> dict[str, Any]:
    """What a sandbox uses at this moment; memory and disk in bytes."""
    sandbox = live.guest().sandbox
    stats = await sandbox.stats()
    memory = (await sandbox.request("info")).get("memory")
    cached = memory.get("cached") if isinstance(memory, dict) else 0
    seconds, at = stats.host.cpu_seconds, time.monotonic()
    before, live.last_reading = live.last_reading, (seconds, at)
    if before is not None and at > before[1]:
        share = (seconds - before[0]) / (at - before[1])
    else:
        share = seconds / max(stats.host.uptime_s, 0.001)
    return {
        "timestamp": listing.moment(now),
        "timestampUnix": int(now),
        "cpuCount": live.record.cpus,
        "cpuUsedPct": round(100 * max(0.0, share), 2),
        "memUsed": max(0, stats.guest_memory_total - stats.guest_memory_available),
        "memTotal": stats.guest_memory_total,
        "memCache": cached if isinstance(cached, int) and 0 <= cached < 2**63 else 0,
        "diskUsed": max(0, stats.guest_disk_total - stats.guest_disk_free),
        "diskTotal": stats.guest_disk_total,
    }


def _not_here(what: str) -> Route:
    async def refuse(request: web.Request, owner: str) -> web.StreamResponse:
        raise ApiError(501, f"{what} is not implemented by quicksand-tui")

    return refuse


_BUILD = "building templates (`quicksand-tui images build` makes an image, which is one)"
