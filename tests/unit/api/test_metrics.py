"""`/metrics` of the API server: who may read it, and what it tells."""

from __future__ import annotations

import asyncio

from tests.each import each
from tests.unit.api.fakes import Api, until


async def _read(api: Api, key: str | None = None) -> dict[str, float]:
    """Series -> value."""
    response = await api.call("GET", "/metrics", key=key)
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = [line for line in (await response.text()).splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_it_tells_of_sandboxes_by_state_and_what_they_take(api: Api) -> None:
    made, other = await api.create(), await api.create()
    await api.call("POST", f"/sandboxes/{other['sandboxID']}/pause", {})

    found = await _read(api)

    assert found['quicksand_api_sandboxes{state="running"}'] == 1
    assert found['quicksand_api_sandboxes{state="paused"}'] == 1
    assert found['quicksand_api_sandboxes{state="making"}'] == 0
    one = f'{{sandbox="{made["sandboxID"]}"}}'
    assert found[f"quicksand_sandbox_memory_bytes{one}"] == 3 << 20
    assert found[f"quicksand_sandbox_memory_limit_bytes{one}"] == 512 << 20
    assert found[f"quicksand_sandbox_cpu_seconds_total{one}"] == 1.5
    assert not any(other["sandboxID"] in name for name in found)
    assert found["quicksand_host_memory_available_bytes"] > 0


async def test_figures_of_a_fleet_name_its_hosts(api: Api) -> None:
    api.machines.place = "box"
    made = await api.create()

    found = await _read(api)

    one = f'{{sandbox="{made["sandboxID"]}",host="box"}}'
    assert found[f"quicksand_sandbox_memory_bytes{one}"] == 3 << 20
    assert found['quicksand_host_up{host="box"}'] == 1
    assert found['quicksand_host_sandboxes{host="box"}'] == 1
    assert found['quicksand_host_memory_bytes{host="box"}'] == 2 << 30
    assert found['quicksand_host_memory_available_bytes{host="box"}'] == 1 << 30
    api.machines.away.add("box")
    assert (await _read(api))['quicksand_host_up{host="box"}'] == 0


async def test_requests_are_counted_by_route_and_never_by_what_a_client_chose(api: Api) -> None:
    made = await api.create()
    for path in ("/sandboxes/SECRET", "/no/such/SECRET", "/ports/1-SECRET/"):
        await api.call("GET", path)
    await api.client.request("PROPFIND", "/files")
    await api.call("GET", "/health", headers={"Host": "stranger.example"})
    await api.call("GET", "/", headers={"Host": "8000-nobodys.qs.localhost"})
    await api.run(made, "echo hi")

    found = await _read(api)

    assert not any("SECRET" in name for name in found)
    count = "quicksand_api_request_seconds_count"
    started = 'method="POST",route="/process.Process/Start",status="200"'
    assert found[f"{count}{{{started}}}"] == 1
    assert found[f'{count}{{method="GET",route="/sandboxes/{{id}}",status="404"}}'] == 1
    assert found[f'{count}{{method="",route="none",status="404"}}'] == 1
    assert found[f'{count}{{method="",route="not-ours",status="421"}}'] == 1
    assert any('route="port"' in name for name in found)
    bucket = f"quicksand_api_request_seconds_bucket{{{started}"
    assert found[f'{bucket},le="+Inf"}}'] == 1


async def test_a_request_whose_client_has_left_is_counted_too(api: Api) -> None:
    made = await api.create()
    call = asyncio.create_task(api.run(made, "sleep"))
    await until(lambda: api.guest(made).commands)
    call.cancel()
    await asyncio.wait((call,))
    name = (
        'quicksand_api_request_seconds_count{method="POST",route="/process.Process/Start",'
        'status="499"}'
    )
    async with asyncio.timeout(60):
        while name not in await _read(api):
            await asyncio.sleep(0.01)


@each(("key", "wanted"), [("", 401), ("e2b_wrong", 401), ("theirs", 403)])
async def test_it_is_for_who_runs_the_server(api: Api, key: str, wanted: int) -> None:
    presented = api.other if key == "theirs" else key
    assert (await api.call("GET", "/metrics", key=presented)).status == wanted


async def test_a_scraper_has_a_key_of_its_own_as_a_bearer_token(api: Api) -> None:
    key = api.keys.add("metrics").key
    response = await api.client.get("/metrics", headers={"Authorization": f"Bearer {key}"})
    assert response.status == 200
    assert await _read(api, key)
