"""Work in the background waits for the machine that somebody uses."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from quicksand.base.processes import start_of
from quicksand.records.config import SandboxConfig
from quicksand.warm import template_maker
from quicksand.warm.template_maker import until_idle
from quicksand.warm.templates import TemplateOrder

from tests.conftest import blank_record

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

WORKS_UNTIL_TOLD = """
import os, select, sys
while not select.select([0], [], [], 0)[0]:
    pass
sys.stdin.readline()
print("rests", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_maker, "WINDOW_S", 0.1)
    monkeypatch.setattr(template_maker, "QUIET_S", 0.3)


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", WORKS_UNTIL_TOLD]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as started:
        yield started
        started.kill()


def waiting(worker: subprocess.Popen[str]) -> asyncio.Task[None]:
    return asyncio.create_task(until_idle(worker.pid, start_of(worker.pid)))


async def test_it_waits_as_long_as_that_is_busy(worker: subprocess.Popen[str]) -> None:
    task = waiting(worker)
    done, _ = await asyncio.wait([task], timeout=2)
    assert not done
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write("rest\n")
    worker.stdin.flush()
    assert await asyncio.to_thread(worker.stdout.readline) == "rests\n"
    await asyncio.wait_for(task, 60)


async def test_it_waits_for_nobody_who_has_ended(worker: subprocess.Popen[str]) -> None:
    task = waiting(worker)
    await asyncio.sleep(0)
    worker.kill()
    await asyncio.to_thread(worker.wait)
    await asyncio.wait_for(task, 60)


async def test_it_does_not_wait_for_ever(
    worker: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_maker, "PATIENCE_S", 1.0)
    await asyncio.wait_for(waiting(worker), 60)


async def test_another_process_of_that_number_is_not_waited_for(
    worker: subprocess.Popen[str],
) -> None:
    await asyncio.wait_for(until_idle(worker.pid, "at another time"), 60)


def test_what_a_maker_is_told_comes_through() -> None:
    record = blank_record(SandboxConfig.parse({"image": "debian"}))
    for order in (TemplateOrder(record), TemplateOrder(record, beside=(7, "then"))):
        assert TemplateOrder.from_json(json.loads(json.dumps(order.to_json()))) == order
    some: list[dict[str, object]] = [
        {},
        {"record": {}, "beside": None},
        {**TemplateOrder(record).to_json(), "beside": [1]},
    ]
    for bad in some:
        with pytest.raises(ValueError, match=r"order|record|schema|version"):
            TemplateOrder.from_json(bad)
