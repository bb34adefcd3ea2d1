"""The engine's sandboxes behind the API."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from quicksand.base.paths import Paths
from quicksand_e2b import machines as module
from quicksand_e2b.machines import PAUSE_TAG, LocalMachines


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
    machines = LocalMachines(places)
    monkeypatch.setattr(machines, "_id", lambda record: "0123456789ab")
    await machines.pause(cast(Any, None), memory=False)
    assert sandbox.calls == ["delete 2", "stop", "close"]
