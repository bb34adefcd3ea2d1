"""Making, listing, changing and ending sandboxes, with an engine that is a fake."""

from __future__ import annotations

import asyncio
import io
import time
import urllib.parse
from typing import Any

import pytest
from quicksand import AgentUnreachableError, MemoryBudgetError
from quicksand_e2b import console, points
from quicksand_e2b.fields import BODY_MAX
from quicksand_e2b.records import engine_name

from tests.each import each
from tests.unit.api.fakes import Api, until

ONE_SANDBOX = [
    ("GET", ""), ("DELETE", ""), ("POST", "/connect"), ("POST", "/pause"), ("POST", "/resume"),
    ("POST", "/timeout"), ("POST", "/refreshes"), ("GET", "/metrics"), ("GET", "/logs"),
    ("POST", "/snapshots"), ("POST", "/fork"),
]  # fmt: skip
ALL = [
    ("POST", "/sandboxes"), ("POST", "/v2/sandboxes"), ("GET", "/sandboxes"),
    ("GET", "/v2/sandboxes"), ("GET", "/snapshots"), ("DELETE", "/templates/x"),
    ("GET", "/templates/aliases/base"), ("POST", "/v3/templates"), ("PUT", "/sandboxes/x/network"),
    ("POST", "/v2/sandboxes/x/connect"), ("GET", "/v2/sandboxes/x/logs"),
    *((method, "/sandboxes/x" + path) for method, path in ONE_SANDBOX),
]  # fmt: skip
WITH_BODY = [
    "/v2/sandboxes", "/sandboxes/ID/connect", "/sandboxes/ID/pause", "/sandboxes/ID/timeout",
    "/sandboxes/ID/refreshes", "/sandboxes/ID/snapshots", "/sandboxes/ID/fork",
]  # fmt: skip


@each(("method", "path"), ALL)
async def test_nothing_is_answered_without_a_valid_key(api: Api, method: str, path: str) -> None:
    for key in ("", "e2b_" + "0" * 40, api.key[:-1], api.key + "0"):
        response = await api.call(method, path, {"templateID": "base"}, key=key)
        assert response.status == 401
        assert (await response.json())["code"] == 401
    assert api.machines.calls == []


@each(("method", "path"), ONE_SANDBOX)
async def test_anothers_sandbox_is_answered_as_missing(api: Api, method: str, path: str) -> None:
    made = await api.create()

    response = await api.call(
        method, f"/sandboxes/{made['sandboxID']}{path}", {"timeout": 0}, key=api.other
    )

    assert response.status == 404
    assert api.runs(made)
    assert (await (await api.call("GET", "/v2/sandboxes", key=api.other)).json()) == []


@each("path", WITH_BODY)
@each(
    ("body", "status"),
    [(b"[]", 400), (b"{", 400), (b"[" * 50_000, 400), (b'{"timeout": "x", "templateID": 7, '
     b'"memory": 1, "duration": [], "name": {}, "count": "many"}', 400),
     (b'{"a": "' + b"x" * BODY_MAX + b'"}', 413)],
    ids=["list", "cut", "deep", "types", "large"],
)  # fmt: skip
async def test_bodies_that_make_no_sense_are_refused(
    api: Api, path: str, body: bytes, status: int
) -> None:
    id_ = "x"
    if "ID" in path:
        id_ = (await api.create())["sandboxID"]

    response = await api.client.post(
        path.replace("ID", id_), data=io.BytesIO(body), headers={"X-API-KEY": api.key}
    )

    assert response.status == status
    assert (await response.json())["code"] == status


async def test_a_sandbox_is_made_told_listed_and_ended(api: Api) -> None:
    made = await api.create(metadata={"a": "b"}, timeout=100)
    id_ = made["sandboxID"]

    assert set(made) == {
        "templateID", "sandboxID", "clientID", "envdVersion", "envdAccessToken",
        "trafficAccessToken",
    }  # fmt: skip
    told = await (await api.call("GET", f"/sandboxes/{id_}")).json()
    assert told["state"] == "running"
    assert told["metadata"] == {"a": "b"}
    assert told["lifecycle"] == {"autoResume": False, "onTimeout": "kill"}
    assert told["diskSizeMB"] == 8192
    assert told["allowInternetAccess"] is False  # it was not allowed to the server
    assert "user" in api.guest(made).users
    (listed,) = await (await api.call("GET", "/v2/sandboxes")).json()
    assert listed["sandboxID"] == id_
    assert (await (await api.call("GET", "/sandboxes")).json()) == [listed]
    assert (await api.call("DELETE", f"/sandboxes/{id_}")).status == 204
    assert api.machines.found == {}
    for method, path in ONE_SANDBOX:
        assert (await api.call(method, f"/sandboxes/{id_}{path}", {"timeout": 1})).status == 404


async def test_a_failed_start_leaves_nothing(api: Api) -> None:
    unknown = await api.call("POST", "/v2/sandboxes", {"templateID": "nothing"})
    assert unknown.status == 404
    assert "nothing" in (await unknown.json())["message"]

    api.machines.fails = MemoryBudgetError("no memory is left")
    full = await api.call("POST", "/v2/sandboxes", {"templateID": "base"})

    assert full.status == 503
    assert full.headers["Should-Retry"] == "false"
    assert api.machines.found == {}
    assert list(api.sandboxes) == []
    assert list(api.sandboxes.records.sandboxes()) == []


async def test_a_sandbox_is_made_even_if_its_client_leaves(api: Api) -> None:
    api.machines.starting = asyncio.Event()
    call = asyncio.create_task(api.call("POST", "/v2/sandboxes", {"templateID": "base"}))
    await until(lambda: api.machines.calls)
    call.cancel()
    await asyncio.wait((call,))

    api.machines.starting.set()

    await until(lambda: [live for live in api.sandboxes if live.is_listed])


async def test_a_second_request_with_the_same_idempotency_key_gets_the_same(api: Api) -> None:
    value = {"templateID": "base"}
    headers = {"Idempotency-Key": "abc-1"}
    api.machines.starting = asyncio.Event()
    calls = [
        asyncio.create_task(api.call("POST", "/v2/sandboxes", value, headers=headers))
        for _ in range(3)
    ]
    await until(lambda: api.machines.calls)
    api.machines.starting.set()
    ids = {(await (await call).json())["sandboxID"] for call in calls}

    assert len(ids) == 1
    other = {**value, "timeout": 5}
    assert (await api.call("POST", "/v2/sandboxes", other, headers=headers)).status == 409
    bad = {"Idempotency-Key": "A b"}
    assert (await api.call("POST", "/v2/sandboxes", value, headers=bad)).status == 400
    theirs = await api.call("POST", "/v2/sandboxes", value, headers=headers, key=api.other)
    assert (await theirs.json())["sandboxID"] not in ids


async def test_lists_are_filtered_ordered_and_paged(api: Api) -> None:
    made = [
        (await api.create(metadata={"n": str(i), "all": "a&=b"}))["sandboxID"] for i in range(5)
    ]
    await api.call("POST", f"/sandboxes/{made[1]}/pause", {})

    async def ids(**query: str) -> tuple[list[str], str]:
        response = await api.call("GET", "/v2/sandboxes", params=query)
        assert response.status == 200, await response.text()
        return [s["sandboxID"] for s in await response.json()], response.headers.get(
            "X-Next-Token", ""
        )

    assert await ids() == (made[::-1], "")
    assert (await ids(order="asc"))[0] == made
    assert (await ids(state="paused"))[0] == [made[1]]
    twice = urllib.parse.urlencode(
        {urllib.parse.quote("all"): urllib.parse.quote("a&=b"), "n": "3"}
    )
    assert (await ids(metadata=twice))[0] == [made[3]]
    assert (await ids(template="other"))[0] == []
    third = await (await api.call("GET", f"/sandboxes/{made[2]}")).json()
    assert (await ids(startedAfter=third["startedAt"]))[0] == made[:1:-1]
    found, token = await ids(limit="2")
    assert found == made[:2:-1]
    await api.call("DELETE", f"/sandboxes/{made[3]}")  # the one that the token names
    found, token = await ids(limit="2", nextToken=token)
    assert found == [made[2], made[1]]
    assert await ids(limit="2", nextToken=token) == ([made[0]], "")
    bad_queries = [{"limit": "0"}, {"state": "x"}, {"order": "x"}, {"nextToken": "?"}]
    for bad in [*bad_queries, {"startedAfter": "yesterday"}]:
        assert (await api.call("GET", "/v2/sandboxes", params=bad)).status == 400


async def test_a_sandbox_ends_when_its_time_is_up_with_no_client(api: Api) -> None:
    made = await api.create(timeout=3600)
    id_ = made["sandboxID"]

    assert (await api.call("POST", f"/sandboxes/{id_}/timeout", {"timeout": 0})).status == 204

    await until(lambda: api.machines.found == {})
    assert (await api.call("GET", f"/sandboxes/{id_}")).status == 404
    health = await api.client.get("/health", headers=api.headers(made))
    assert health.status == 502
    assert await health.json() == {
        "sandboxId": id_, "code": 502, "message": "The sandbox was not found",
    }  # fmt: skip


async def test_one_that_ended_by_itself_is_gone_for_its_clients_and_removed_in_time(
    api: Api,
) -> None:
    made = await api.create(timeout=1)
    api.machines.found[engine_name(made["sandboxID"])].is_live = False

    assert (await api.call("GET", f"/sandboxes/{made['sandboxID']}")).status == 404
    assert await (await api.call("GET", "/v2/sandboxes")).json() == []
    await until(lambda: api.machines.found == {})


async def test_connecting_lengthens_the_time_and_never_shortens_it(api: Api) -> None:
    id_ = (await api.create(timeout=300))["sandboxID"]
    (live,) = api.sandboxes
    before = live.record.ends

    assert (await api.call("POST", f"/sandboxes/{id_}/connect", {"timeout": 10})).status == 200
    assert live.record.ends == before
    longer = await api.call("POST", f"/v2/sandboxes/{id_}/connect", {"timeout": 900})
    assert longer.status == 200
    assert live.record.ends > before + 500
    assert (await longer.json())["sandboxID"] == id_


@each("memory", [True, False])
async def test_a_paused_sandbox_goes_on(api: Api, memory: bool) -> None:
    made = await api.create()
    path = f"/sandboxes/{made['sandboxID']}"

    assert (await api.call("POST", f"{path}/pause", {"memory": memory})).status == 204
    assert (await api.call("POST", f"{path}/pause", {})).status == 409
    told = await (await api.call("GET", path)).json()
    assert (told["state"], told["pauseMode"]) == ("paused", "full" if memory else "filesystem")
    assert (await api.client.get("/health", headers=api.headers(made))).status == 502
    assert (await api.call("POST", f"{path}/fork", {})).status == 409
    assert (await api.call("POST", f"{path}/timeout", {"timeout": 9})).status == 404
    resumed = await api.call("POST", f"{path}/connect", {"timeout": 60})
    assert resumed.status == 201
    assert (await resumed.json())["envdAccessToken"] == made["envdAccessToken"]
    assert ("resume", "memory" if memory else "disk") in api.machines.calls
    assert (await api.client.get("/health", headers=api.headers(made))).status == 204


async def test_a_paused_sandbox_boots_from_its_disk_if_that_is_asked_for(api: Api) -> None:
    path = f"/sandboxes/{(await api.create())['sandboxID']}"
    await api.call("POST", f"{path}/pause", {})

    assert (await api.call("POST", f"{path}/connect", {"memory": False})).status == 201

    assert ("resume", "disk") in api.machines.calls


async def test_a_pause_that_fails_leaves_it_running(api: Api) -> None:
    path = f"/sandboxes/{(await api.create())['sandboxID']}"
    api.machines.fails = MemoryBudgetError("no")

    assert (await api.call("POST", f"{path}/pause", {})).status == 503

    assert (await (await api.call("GET", path)).json())["state"] == "running"


async def test_time_that_is_up_pauses_what_was_made_so_and_a_request_resumes_it(api: Api) -> None:
    made = await api.create(autoPause=True, autoResume={"enabled": True}, timeout=0)
    path = f"/sandboxes/{made['sandboxID']}"
    (live,) = api.sandboxes
    await until(lambda: live.record.state == "paused")
    assert (await api.client.get("/health", headers=api.headers(made))).status == 502

    response = await api.rpc(made, "process.Process/List", {})

    assert response.status == 200
    assert (await (await api.call("GET", path)).json())["state"] == "running"


async def test_a_snapshot_outlives_its_sandbox_and_makes_others(api: Api) -> None:
    made = await api.create()
    id_ = made["sandboxID"]
    api.guest(made).files.found["/home/user/x"] = b"kept"
    response = await api.call("POST", f"/sandboxes/{id_}/snapshots", {"name": "mine"})
    assert response.status == 201
    snapshot = await response.json()
    assert snapshot["names"] == ["mine"]
    await api.call("DELETE", f"/sandboxes/{id_}")
    assert (await api.call("GET", f"/sandboxes/{id_}")).status == 404
    assert await (await api.call("GET", "/snapshots", params={"sandboxID": id_})).json() == [
        snapshot
    ]
    assert await (await api.call("GET", "/snapshots", key=api.other)).json() == []

    for template in ("mine", snapshot["snapshotID"]):
        made = await api.create(templateID=template)
        assert api.guest(made).files.found["/home/user/x"] == b"kept"
        await api.call("DELETE", f"/sandboxes/{made['sandboxID']}")
    theirs = await api.call("POST", "/v2/sandboxes", {"templateID": "mine"}, key=api.other)
    assert theirs.status == 404
    name = urllib.parse.quote(snapshot["snapshotID"] + ":default", safe="")
    assert (await api.call("DELETE", f"/templates/{name}", key=api.other)).status == 404
    assert (await api.call("DELETE", f"/templates/{name}")).status == 204
    assert (await api.call("DELETE", f"/templates/{name}")).status == 404
    assert api.machines.found == {}, "the sandbox stayed for its snapshot alone"


async def test_forks_have_secrets_of_their_own(api: Api) -> None:
    made = await api.create(metadata={"a": "b"})

    response = await api.call("POST", f"/sandboxes/{made['sandboxID']}/fork", {"count": 3})

    assert response.status == 201
    forks = [one["sandbox"] for one in await response.json()]
    assert len({f["envdAccessToken"] for f in [made, *forks]}) == 4
    for one in [made, *forks]:  # names are on command lines, which all users of the host see
        assert engine_name(one["sandboxID"]) in api.machines.found
        assert not any(one["sandboxID"] in name for name in api.machines.found)
    assert len(api.machines.found) == 4
    listed = await (await api.call("GET", "/v2/sandboxes")).json()
    assert all(s["metadata"] == {"a": "b"} for s in listed)


async def test_a_fork_that_fails_is_told_for_each_and_leaves_nothing(api: Api) -> None:
    made = await api.create()
    api.machines.fails = MemoryBudgetError("no memory")

    response = await api.call("POST", f"/sandboxes/{made['sandboxID']}/fork", {"count": 2})

    found: list[dict[str, Any]] = await response.json()
    assert [one["error"]["code"] for one in found] == [503, 503]
    assert len(api.machines.found) == len(list(api.sandboxes)) == 1


async def test_what_there_is_not_says_so_and_what_there_is_instead(api: Api) -> None:
    for method, path, words in (
        ("POST", "/v2/templates", "images build"),
        ("POST", "/v3/templates", "images build"),
        ("GET", "/templates/x/builds/y/status", "images build"),
        ("POST", "/templates/tags", "images build"),
        ("POST", "/volumes", "volumes"),
        ("GET", "/volumes", "volumes"),
        ("DELETE", "/volumes/x", "volumes"),
        ("GET", "/secrets", "secrets"),
        ("POST", "/secrets/x", "secrets"),
    ):
        response = await api.call(method, path, {})
        assert response.status == 501, (method, path)
        message = (await response.json())["message"]
        assert "quicksand-tui" in message and words in message, (method, path)
    for asked, words in (
        ({"templateID": "base", "mcp": {"x": {}}}, "mcp-gateway"),
        ({"templateID": "mcp-gateway"}, "mcp-gateway"),
        ({"templateID": "base", "volumeMounts": [{"name": "x", "path": "/x"}]}, "volumes"),
        ({"templateID": "desktop"}, "Xvfb"),
    ):
        response = await api.call("POST", "/v2/sandboxes", asked)
        assert response.status == 501, asked
        assert words in (await response.json())["message"]
    assert api.machines.found == {}
    api.machines.images.add("desktop")  # somebody's own
    await api.create(templateID="desktop")


async def test_lines_of_the_console_have_the_times_at_which_they_were_written(api: Api) -> None:
    lines = ["firmware", "[  100.000000] early", "[  160.500000] kernel", "a program", "[x] odd",
             "[99999999.000000] of the future"]  # fmt: skip
    found = list(console.timed(lines, 1100.0, 1000.0, 1200.0))
    assert [line for _, line in found] == lines
    assert [at for at, _ in found] == [1100.0, 1100.0, 1160.5, 1160.5, 1160.5, 1200.0]
    assert {at for at, _ in console.timed(lines, 1100.0, None, 1200.0)} == {1100.0}

    made = await api.create()
    told = await (await api.call("GET", f"/v2/sandboxes/{made['sandboxID']}/logs")).json()
    assert [(one["message"], one["fields"]) for one in told["logEntries"]] == [("booted", {})]


async def test_templates_are_known_by_their_names(api: Api) -> None:
    for name in ("base", "debian", "my-save"):
        assert (await api.call("GET", f"/templates/aliases/{name}")).status == 200
    assert (await api.call("GET", "/templates/aliases/nothing")).status == 404
    await api.create(templateID="my-save")
    assert ("start", "my-save") in api.machines.calls


async def test_metrics_have_a_point_for_each_look(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(points, "EVERY_S", 0.01)
    made, broken = await api.create(), await api.create()
    api.machines.found[engine_name(broken["sandboxID"])].guest.stats = fails  # type: ignore[method-assign]
    path = f"/sandboxes/{made['sandboxID']}/metrics"
    began = int(time.time())
    looking = asyncio.create_task(
        points.look_now_and_then(lambda: [live.look for live in api.sandboxes])
    )
    [live] = [one for one in api.sandboxes if one.id == made["sandboxID"]]
    await until(lambda: len(live.history.within(0, 2**40)) >= 3)
    looking.cancel()
    await asyncio.wait([looking])
    told = await (await api.call("GET", path)).json()
    assert len(told) >= 4
    assert [one["timestamp"] for one in told] == sorted(one["timestamp"] for one in told)
    assert all(one["memUsed"] == 3072 and one["cpuCount"] == 1 for one in told)
    query = {"start": str(began - 120), "end": str(began - 60)}
    assert await (await api.call("GET", path, params=query)).json() == []
    live.history._points.extend([live.history.within(0, 2**40)[0]] * 2 * points.POINTS_MAX)
    assert len(live.history.within(0, 2**40)) == points.POINTS_MAX
    # They are told of a paused one, too.
    assert (await api.call("POST", f"/sandboxes/{made['sandboxID']}/pause", {})).status == 204
    assert len(await (await api.call("GET", path)).json()) == points.POINTS_MAX


async def fails() -> None:
    raise AgentUnreachableError("it does not answer")


async def test_metrics_outside_of_the_time_are_left_out(api: Api) -> None:
    path = f"/sandboxes/{(await api.create())['sandboxID']}/metrics"
    hour_ago = int(time.time()) - 3600
    query = {"start": str(hour_ago), "end": str(hour_ago + 60)}

    assert await (await api.call("GET", path, params=query)).json() == []
    assert (await api.call("GET", path, params={"start": "x"})).status == 400


async def test_names_that_lead_here_by_rebinding_are_refused(api: Api) -> None:
    for host in ("evil.example", "evil.example:3000", ""):
        response = await api.call("GET", "/v2/sandboxes", headers={"Host": host})
        assert response.status == 421
    ours = await api.call("GET", "/v2/sandboxes", headers={"Host": "called.example:3000"})
    assert ours.status == 200
    assert "Access-Control-Allow-Origin" not in ours.headers


async def test_unknown_routes_and_methods_are_told_in_json(api: Api) -> None:
    assert (await (await api.call("GET", "/nothing")).json())["code"] == 404
    assert (await (await api.call("PATCH", "/sandboxes")).json())["code"] == 405
