"""What the server writes: never on its loop, in order, and before a client hears of it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.files import anything, write_json
from quicksand_e2b import process_list, records
from quicksand_e2b.process import Facts
from quicksand_e2b.process_list import WORDS_MAX, ProcessList
from quicksand_e2b.tasks import Tasks

from tests.unit.api.fakes import Api, next_message, until

SLEEP = {"cmd": "/bin/bash", "args": ["-l", "-c", "sleep"]}


class Disk:
    """A disk that can be held up."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.begun = 0

    def write(self, path: Path, value: Any, *, read: Any = anything, durable: bool = True) -> None:
        self.begun += 1
        assert self.goes_on.wait(60)
        write_json(path, value, read=read, durable=durable)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    found = Disk()
    monkeypatch.setattr(records, "write_json", found.write)
    monkeypatch.setattr(process_list, "write_json", found.write)
    yield found
    found.goes_on.set()


async def test_a_slow_disk_holds_nobody_else_up_and_no_key_makes_two(api: Api, disk: Disk) -> None:
    made = await api.create()
    before = disk.begun
    disk.goes_on.clear()
    value, headers = {"templateID": "base"}, {"Idempotency-Key": "abc"}
    calls = [
        asyncio.create_task(api.call("POST", "/v2/sandboxes", value, headers=headers))
        for _ in range(3)
    ]
    await until(lambda: disk.begun > before)

    assert (await api.client.get("/health", headers=api.headers(made))).status == 204
    assert len(await (await api.call("GET", "/v2/sandboxes")).json()) == 1
    disk.goes_on.set()
    assert len({(await (await call).json())["sandboxID"] for call in calls}) == 1


async def test_a_client_that_leaves_while_its_record_is_written_breaks_no_order(
    api: Api, disk: Disk, tmp_path: Path
) -> None:
    made = await api.create()
    path = f"/sandboxes/{made['sandboxID']}/timeout"
    before = disk.begun
    disk.goes_on.clear()
    calls = [asyncio.create_task(api.call("POST", path, {"timeout": n})) for n in (1000, 2000)]
    await until(lambda: disk.begun > before)
    calls[0].cancel()
    await asyncio.wait((calls[0],))
    disk.goes_on.set()
    assert (await calls[1]).status == 204

    (live,) = api.sandboxes
    assert live.record.ends > live.record.created + 1900
    assert list(api.sandboxes.records.sandboxes()) == [live.record]


async def test_what_a_client_hears_of_is_on_disk_and_nothing_of_what_is_gone(
    api: Api, disk: Disk
) -> None:
    made = await api.create()
    listed = api.sandboxes.records.processes_of(made["sandboxID"])
    value = {"process": SLEEP, "stdin": False}
    stream = await api.open(made, "process.Process/Start", value)
    pid = (await next_message(stream))["event"]["start"]["pid"]
    assert [found["pid"] for found in json.loads(listed.read_text())["processes"]] == [pid]

    before = disk.begun
    disk.goes_on.clear()
    stop = {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"}
    await api.rpc(made, "process.Process/SendSignal", stop)
    await until(lambda: disk.begun > before)  # it has ended, which is being written
    ending = asyncio.create_task(api.call("DELETE", f"/sandboxes/{made['sandboxID']}"))
    await until(lambda: disk.begun > before + 1)
    disk.goes_on.set()
    assert (await ending).status == 204
    assert not listed.exists()


async def test_a_list_is_written_as_it_was_last_and_not_as_often_as_it_changes(
    tmp_path: Path, disk: Disk
) -> None:
    told: list[str] = []
    tasks = Tasks(lambda name, error: told.append(f"{name}: {error}"))
    found = ProcessList(tmp_path / "list.json", tasks, told.append)
    disk.goes_on.clear()
    long = {"cmd": "a", "args": ["x" * WORDS_MAX], "envs": {"B": "c"}, "cwd": "/tmp"}
    facts = [Facts(pid=number, tag="", config=long) for number in range(1, 50)]
    for count in range(1, 50):
        found.put(facts[:count])
    disk.goes_on.set()
    await found.written()

    assert disk.begun <= 2
    assert list(found.read()) == list(range(1, 50))
    assert found.read()[7].config == {"cmd": "a", "args": [], "envs": {}, "cwd": "/tmp"}
    await found.close()
    (tmp_path / "list.json").unlink()
    found.put(facts)
    await found.written()
    assert not (tmp_path / "list.json").exists()
    assert not told


async def test_a_list_that_cannot_be_written_is_told_and_holds_nothing_up(tmp_path: Path) -> None:
    told: list[str] = []
    found = ProcessList(tmp_path / "no" / "list.json", Tasks(lambda *_: None), told.append)
    found.put([])
    await found.written()
    assert "not written" in told[0]
    assert found.read() == {}
