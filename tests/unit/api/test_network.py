"""What sandboxes may reach, over real HTTP and with a fake engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quicksand_e2b.keys import Keys
from quicksand_e2b.network import masked
from quicksand_e2b.records import engine_name

from tests.unit.api.fakes import USUAL, Api, FakeMachines, make_client, make_sandboxes

ALL = "0.0.0.0/0"


@pytest.fixture
async def online(tmp_path: Path) -> AsyncIterator[Api]:
    """A server with `--internet`."""
    machines, keys, told = FakeMachines(), Keys(tmp_path), list[str]()
    sandboxes = make_sandboxes(machines, tmp_path, told)
    await sandboxes.load()
    client = await make_client(sandboxes, keys, told, replace(USUAL, internet=True))
    made = Api(client, machines, keys)
    made.sandboxes = sandboxes
    yield made
    await client.close()
    await sandboxes.finish()


async def has_internet(api: Api, **more: Any) -> bool:
    """Whether a new sandbox has it, by what is asked of the engine and by what is told."""
    made = await api.create(**more)
    asked = api.machines.orders[engine_name(made["sandboxID"])].internet
    told = await (await api.call("GET", f"/sandboxes/{made['sandboxID']}")).json()
    assert told["allowInternetAccess"] is asked
    return bool(asked)


async def refused(api: Api, **more: Any) -> str:
    response = await api.call("POST", "/v2/sandboxes", {"templateID": "base", **more})
    assert response.status == 501
    assert not list(api.sandboxes), "nothing is left of it"
    return str((await response.json())["message"])


@pytest.mark.parametrize(
    "more", [{"allow_internet_access": False}, {"network": {"denyOut": [ALL]}}]
)
async def test_what_denies_everything_gets_no_network(online: Api, more: dict[str, Any]) -> None:
    assert await has_internet(online)
    assert not await has_internet(online, **more)


@pytest.mark.parametrize(
    "more",
    [
        {"network": {"denyOut": ["8.8.8.8"]}},
        {"network": {"denyOut": [ALL], "allowOut": ["1.1.1.1"]}},
        {"allow_internet_access": False, "network": {"allowOut": ["*.example.com"]}},
    ],
)
async def test_what_denies_a_part_is_refused_and_never_ignored(
    online: Api, more: dict[str, Any]
) -> None:
    assert "deny everything" in await refused(online, **more)


async def test_what_is_allowed_and_nothing_denied_changes_nothing(online: Api) -> None:
    assert await has_internet(online, network={"allowOut": ["example.com", "10.0.0.0/8"]})


async def test_a_server_without_the_internet_takes_all_rules(api: Api) -> None:
    network = {"denyOut": [ALL], "allowOut": ["1.1.1.1"]}
    made = await api.create(network=network)
    path = f"/sandboxes/{made['sandboxID']}"
    assert (await (await api.call("GET", path)).json())["network"] == network

    assert (await api.call("PUT", f"{path}/network", {"denyOut": ["8.8.8.8"]})).status == 204
    told = await (await api.call("GET", path)).json()
    assert told["network"] == {"denyOut": ["8.8.8.8"]}
    assert not told["allowInternetAccess"]
    assert (await api.call("PUT", f"{path}/network", {})).status == 204
    assert "network" not in await (await api.call("GET", path)).json()


async def test_a_sandbox_keeps_the_network_that_it_has(online: Api) -> None:
    open_, shut = await online.create(), await online.create(allow_internet_access=False)
    change: Callable[..., Any] = lambda made, **rules: online.call(  # noqa: E731
        "PUT", f"/sandboxes/{made['sandboxID']}/network", rules
    )

    assert (await change(open_)).status == 204
    assert (await change(open_, denyOut=[ALL])).status == 501
    assert (await change(open_, allow_internet_access=False)).status == 501
    assert (await change(open_, rules={"example.com": []})).status == 501
    assert (await change(shut, denyOut=[ALL])).status == 204
    assert (await change(shut)).status == 501
    assert (await change(shut, denyOut=["example.com"])).status == 400
    assert (await change({"sandboxID": "i" * 20})).status == 404


async def test_what_is_made_of_a_snapshot_has_its_network_and_says_so(online: Api) -> None:
    for internet in (True, False):
        made = await online.create(allow_internet_access=internet)
        snapshot = await (
            await online.call("POST", f"/sandboxes/{made['sandboxID']}/snapshots", {})
        ).json()
        asked = {"templateID": snapshot["snapshotID"], "allow_internet_access": False}
        response = await online.call("POST", "/v2/sandboxes", asked)
        assert response.status == (501 if internet else 201)

        again = await online.create(templateID=snapshot["snapshotID"])
        told = await (await online.call("GET", f"/sandboxes/{again['sandboxID']}")).json()
        assert told["allowInternetAccess"] is internet


async def test_a_server_without_the_internet_makes_nothing_of_what_has_it(online: Api) -> None:
    made = await online.create()
    id_ = made["sandboxID"]
    snapshot = await (await online.call("POST", f"/sandboxes/{id_}/snapshots", {})).json()
    later = copy(online)
    later.client = await make_client(online.sandboxes, online.keys, [])

    asked = {"templateID": snapshot["snapshotID"]}
    assert (await later.call("POST", "/v2/sandboxes", asked)).status == 403
    assert (await later.call("POST", f"/sandboxes/{id_}/fork", {})).status == 403
    assert len(online.machines.found) == 1
    await later.client.close()


def test_a_mask_has_the_port() -> None:
    assert masked("custom.example.com:${PORT}", 8080) == "custom.example.com:8080"
    assert masked("", 8080) == ""
