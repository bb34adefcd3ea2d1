"""The routes by which sandboxes are made, listed, changed and ended."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from quicksand import QuicksandError

from quicksand_e2b import console, listing, not_here
from quicksand_e2b.asked import OLD_TIMEOUT_S, TIMEOUT_MAX_S, TIMEOUT_S, Asked
from quicksand_e2b.bodies import read_body
from quicksand_e2b.errors import ApiError, api_error
from quicksand_e2b.fields import Body, parse_json, whole
from quicksand_e2b.gate import answer, require_owner
from quicksand_e2b.gate import whole as to_its_end
from quicksand_e2b.keys import Keys
from quicksand_e2b.live import Live
from quicksand_e2b.making import ALIASES, FORKS_MAX, Making, digest_of
from quicksand_e2b.network import Egress
from quicksand_e2b.points import Point
from quicksand_e2b.records import State
from quicksand_e2b.sandboxes import Sandboxes

LOG_LINES = 1000
SLACK_S = 10.0
"""Seconds around a range of time within which a present reading belongs to it."""

_IDEMPOTENCY = re.compile(r"[a-z0-9-]{1,255}")
_SNAPSHOT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")

Route = Callable[[web.Request, str], Awaitable[web.StreamResponse]]


class ControlRoutes:
    """Handles the requests. Each has a key, and sees its owner's sandboxes only."""

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
            *not_here.routes(),
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

    # Lists

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
        found = [
            live.record for live in self._sandboxes if live.is_listed and live.record.owner == owner
        ]
        running = await self._sandboxes.machines.running(
            [record for record in found if record.state is State.RUNNING]
        )
        return [r for r in found if r.state is not State.RUNNING or r.id in running]

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
        if not known and not await self._sandboxes.machines.has_image(name):
            raise ApiError(404, f"there is no template {name!r:.140}")
        return answer({"templateID": name, "public": False})

    # Looking

    async def _metrics(self, request: web.Request, owner: str) -> web.Response:
        live = self._one(request, owner)
        now = time.time()
        start = whole(request.query.get("start") or "0", "start", least=0, most=2**40)
        end = whole(request.query.get("end") or str(2**40), "end", least=0, most=2**40)
        if live.record.state is State.RUNNING and start <= now <= end + SLACK_S:
            await live.history.look(live.guest().sandbox)
            end = max(end, int(time.time()) + 1)
        found = live.history.within(start, end)
        return answer([_told(point, live.record.cpus) for point in found])

    async def _logs(self, request: web.Request, owner: str) -> web.Response:
        live = self._one(request, owner)
        lines = await self._sandboxes.machines.console(live.record)
        booted = await _booted(live)
        timed = console.timed(lines[-LOG_LINES:], live.record.created, booted, time.time())
        told = [(listing.moment(at), line) for at, line in timed]
        logs = [{"timestamp": at, "line": line} for at, line in told]
        entries = [
            {"timestamp": at, "level": "info", "message": line, "fields": {}} for at, line in told
        ]
        return answer({"logs": logs, "logEntries": entries})


async def _booted(live: Live) -> float | None:
    """Returns the Unix time at which the clock of the guest's console began; None if unknown."""
    if not live.is_up():
        return None
    try:
        uptime = (await live.guest().sandbox.request("info")).get("uptime_s")
    except QuicksandError:
        return None
    return time.time() - uptime if isinstance(uptime, int | float) else None


def _told(point: Point, cpus: int) -> dict[str, Any]:
    return {
        "timestamp": listing.moment(point.at),
        "timestampUnix": int(point.at),
        "cpuCount": cpus,
        "cpuUsedPct": point.cpu_percent,
        "memUsed": point.memory_used,
        "memTotal": point.memory_total,
        "memCache": point.memory_cached,
        "diskUsed": point.disk_used,
        "diskTotal": point.disk_total,
    }
