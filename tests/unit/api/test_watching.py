"""Watches of directories and metadata of files, over a fake engine."""

from __future__ import annotations

import aiohttp
import pytest
from quicksand import WatchKind
from quicksand_e2b import watching

from tests.unit.api.fakes import Api, next_message

CREATE = "filesystem.Filesystem/CreateWatcher"
EVENTS = "filesystem.Filesystem/GetWatcherEvents"
REMOVE = "filesystem.Filesystem/RemoveWatcher"
WATCH = "filesystem.Filesystem/WatchDir"


async def test_what_is_new_is_told_once_and_a_watcher_that_is_removed_is_gone(api: Api) -> None:
    made = await api.create()
    wanted = {"path": "~", "includeEntry": True}
    watcher = await (await api.rpc(made, CREATE, wanted)).json()
    (watch,) = api.guest(made).watches
    assert (watch.path, watch.local) == ("/home/user", True)
    api.guest(made).files.found["/home/user/a"] = b"x"
    watch.happens(WatchKind.CREATE, "a")
    watch.happens(WatchKind.REMOVE, "b")
    told = (await (await api.rpc(made, EVENTS, watcher)).json())["events"]
    assert [(one["type"], one["name"], "entry" in one) for one in told] == [
        ("EVENT_TYPE_CREATE", "a", True), ("EVENT_TYPE_REMOVE", "b", False),
    ]  # fmt: skip
    assert told[0]["entry"]["path"] == "/home/user/a"
    assert (await (await api.rpc(made, EVENTS, watcher)).json()) == {"events": []}
    assert (await api.rpc(made, REMOVE, watcher)).status == 200
    assert watch.closed
    assert (await api.rpc(made, EVENTS, watcher)).status == 404


async def test_a_client_that_does_not_ask_fills_no_memory_and_losses_are_told(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "HELD_MAX", 1000)
    made = await api.create()
    watcher = await (await api.rpc(made, CREATE, {"path": "/"})).json()
    (watch,) = api.guest(made).watches
    for _ in range(100):
        watch.happens(WatchKind.WRITE, "file")
    watch.happens(WatchKind.LOST, "")
    counts = []
    while (response := await api.rpc(made, EVENTS, watcher)).status == 200:
        counts.append(len((await response.json())["events"]))
    assert sum(counts) == 100
    assert max(counts) < 40
    assert (response.status, (await response.json())["code"]) == (429, "resource_exhausted")


async def test_a_stream_of_events_is_reset_when_the_machine_goes(api: Api) -> None:
    made = await api.create()
    stream = await api.open(made, WATCH, {"path": "/", "allowNetworkMounts": True})
    assert await next_message(stream) == {"start": {}}
    (watch,) = api.guest(made).watches
    assert not watch.local
    watch.happens(WatchKind.RENAME, "x")
    event = {"name": "x", "type": "EVENT_TYPE_RENAME"}
    assert await next_message(stream) == {"filesystem": event}
    assert (await api.call("DELETE", "/sandboxes/" + made["sandboxID"])).status == 204
    with pytest.raises(aiohttp.ClientPayloadError, match="reset"):
        await next_message(stream)


async def test_metadata_of_an_upload_is_kept_and_bad_metadata_refused(api: Api) -> None:
    made = await api.create()
    headers = api.headers(made)

    async def put(**more: str) -> tuple[int, object]:
        response = await api.client.post(
            "/files", params={"path": "f"}, data=b"x", headers={**headers, **more}
        )
        return response.status, await response.json()

    status, told = await put(**{"X-Metadata-Author": "me"})
    assert (status, told) == (200, [
        {"path": "/home/user/f", "name": "f", "type": "file", "metadata": {"author": "me"}}
    ])  # fmt: skip
    stat = await api.rpc(made, "filesystem.Filesystem/Stat", {"path": "f"})
    assert (await stat.json())["entry"]["metadata"] == {"author": "me"}
    for name, value in (("X-Metadata-", "x"), ("X-Metadata-a", "é"), ("X-Metadata-a", "x" * 4096)):
        assert (await put(**{name: value}))[0] == 400
    assert (await put())[0] == 200
    stat = await api.rpc(made, "filesystem.Filesystem/Stat", {"path": "f"})
    assert (await stat.json())["entry"]["metadata"] == {}
