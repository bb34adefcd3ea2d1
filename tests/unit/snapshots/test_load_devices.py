"""The devices' state is loaded when QEMU says so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from quicksand.base.errors import MachineError, QemuDiedError, QuicksandError
from quicksand.qemu import qemu_hypervisor
from quicksand.qemu.qemu_hypervisor import Qemu
from quicksand.qemu.qmp import Monitor
from quicksand.records.layout import SandboxDir
from quicksand.records.nodes import Node
from quicksand.snapshots import paged
from quicksand.snapshots.pages import write_file


class FakeQemu:
    """A monitor of a QEMU that reports ``steps`` of the migration; "" is its end."""

    def __init__(self, *steps: str) -> None:
        self.steps = steps
        self.said: list[str] = []

    async def pass_descriptor(self, descriptor: int, name: str) -> None:
        self.said.append(f"getfd {name}")

    @contextlib.contextmanager
    def listen(self, *names: str) -> Iterator[AsyncGenerator[dict[str, Any], None]]:
        assert names == ("MIGRATION",)
        self.said.append("listen")
        yield self._hear()

    async def _hear(self) -> AsyncGenerator[dict[str, Any], None]:
        for step in self.steps:
            if not step:
                return
            yield {"event": "MIGRATION", "data": {"status": step}}
        await asyncio.Future()

    async def execute(self, command: str, **arguments: Any) -> Any:
        self.said.append(command)
        return {}


async def load(place: SandboxDir, qemu: FakeQemu) -> None:
    directory = place.checkpoints / "0000000a"
    directory.mkdir(parents=True)
    file = write_file(directory / "devices", iter([b"state"]))
    node = cast(Node, FakeNode(file))
    await paged.load_devices(place, node, Qemu(cast(Monitor, qemu)))


class FakeNode:
    def __init__(self, devices: object) -> None:
        self.id, self.tag, self.devices = "0000000a", "one", devices


@pytest.fixture
def place(tmp_path: Path) -> SandboxDir:
    return SandboxDir(tmp_path)


async def test_it_is_loaded_when_qemu_says_so_and_qemu_is_asked_nothing_meanwhile(
    place: SandboxDir,
) -> None:
    qemu = FakeQemu("setup", "active", "completed")
    await asyncio.wait_for(load(place, qemu), 60)
    assert qemu.said == ["getfd state", "listen", "migrate-set-capabilities", "migrate-incoming"]


@pytest.mark.parametrize(
    ("steps", "error", "told"),
    [
        (("setup", "active", "failed"), MachineError, "did not take the state of 'one'"),
        (("setup", "active", ""), QemuDiedError, "QEMU ended during migrate-incoming"),
        (("setup", "active"), MachineError, "within 0.01 s"),
    ],
    ids=["failed", "died", "hangs"],
)
async def test_a_state_that_is_not_loaded_is_an_error(
    place: SandboxDir,
    monkeypatch: pytest.MonkeyPatch,
    steps: tuple[str, ...],
    error: type[QuicksandError],
    told: str,
) -> None:
    monkeypatch.setattr(qemu_hypervisor, "LOAD_TIMEOUT_S", 0.01 if "within" in told else 10.0)
    with pytest.raises(error, match=told):
        await asyncio.wait_for(load(place, FakeQemu(*steps)), 60)
