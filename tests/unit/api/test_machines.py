"""The engine's sandboxes behind the API."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from quicksand.base.paths import Paths

from quicksand_tui.api import machines as module
from quicksand_tui.api.machines import PAUSE_TAG, Machines


class Recorder:
    """A sandbox with a checkpoint of an earlier pause that was left behind."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def checkpoints(self) -> list[Any]:
        return [SimpleNamespace(id="1", tag="mine"), SimpleNamespace(id="2", tag=PAUSE_TAG)]

    async def delete_checkpoint(self, id_: str) -> None:
        self.calls.append(f"delete {id_}")

    async def stop(self) -> None:
        self.calls.append("stop")

    def close(self) -> None:
        self.calls.append("close")


async def test_a_pause_of_the_disk_alone_first_deletes_what_would_be_taken_for_its_memory(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = Recorder()
    monkeypatch.setattr(module, "Sandbox", SimpleNamespace(open=lambda id_: sandbox))
    machines = Machines(places)
    monkeypatch.setattr(machines, "_id", lambda name: "0123456789ab")
    await machines.pause("api-x", memory=False)
    assert sandbox.calls == ["delete 2", "stop", "close"]


class Entries:
    """A registry of one sandbox, which counts how often all records were read."""

    def __init__(self, name: str) -> None:
        self.by_id = {"0123456789ab": SimpleNamespace(id="0123456789ab", name=name, status="x")}
        self.walks = 0

    def inspect(self, id_: str) -> Any:
        return self.by_id.get(id_)

    def named(self, name: str) -> Any:
        self.walks += 1
        return next((entry for entry in self.by_id.values() if entry.name == name), None)


async def test_a_sandbox_is_looked_for_once_and_then_read_alone(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines, entries = Machines(places), Entries("api-x")
    monkeypatch.setattr(machines, "_registry", entries)

    assert all(machines.exists("api-x") for _ in range(3))
    assert entries.walks == 1
    entries.by_id = {"ba9876543210": SimpleNamespace(id="ba9876543210", name="api-x", status="x")}
    assert machines.exists("api-x"), "another one has its name by now"
    entries.by_id = {}
    assert not machines.exists("api-x")
    assert not machines.is_live("api-x")
