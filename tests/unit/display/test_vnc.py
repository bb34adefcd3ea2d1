"""The port for viewers: nobody gets in without the password, and a port that is taken is said."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import ConfigError, PortInUseError, StateError
from quicksand.display import vnc
from quicksand.qemu.qmp import Monitor
from quicksand.records.config import SandboxConfig
from quicksand.records.layout import MachineDir

from quicksand_tui.model.remedy_words import hint_of
from tests.each import each


class FakeMonitor:
    """Notes what is asked of QEMU."""

    def __init__(self, *, taken: bool = False) -> None:
        self.taken = taken
        self.done: list[tuple[str, dict[str, Any]]] = []

    async def execute(self, command: str, **arguments: Any) -> None:
        self.done.append((command, arguments))
        if command == "display-update" and self.taken:
            raise StateError("QEMU refused display-update: Failed to bind socket")

    async def close(self) -> None:
        self.done.append(("close", {}))


@pytest.fixture
def machine(tmp_path: Path) -> MachineDir:
    (tmp_path / "1").mkdir()
    return MachineDir(tmp_path / "1")


@pytest.fixture
def monitor(monkeypatch: pytest.MonkeyPatch) -> FakeMonitor:
    found = FakeMonitor()

    async def connect(_machine: MachineDir, **_: object) -> FakeMonitor:
        return found

    monkeypatch.setattr(Monitor, "connect", connect)
    return found


async def test_the_password_is_set_before_anybody_can_come(
    machine: MachineDir, monitor: FakeMonitor
) -> None:
    await vnc.serve_at(machine, 5901)
    word = machine.vnc_password.read_text()
    assert len(word) == 8 and word.isalnum()
    assert stat.S_IMODE(machine.vnc_password.stat().st_mode) == 0o600
    address = {"type": "inet", "host": "127.0.0.1", "port": "5901"}
    assert monitor.done == [
        ("set_password", {"protocol": "vnc", "display": "port", "password": word}),
        ("display-update", {"type": "vnc", "addresses": [address]}),
        ("close", {}),
    ]


async def test_without_a_port_nothing_is_done(machine: MachineDir, monitor: FakeMonitor) -> None:
    await vnc.serve_at(machine, None)
    assert monitor.done == [] and not machine.vnc_password.exists()


async def test_a_port_that_is_taken(machine: MachineDir, monitor: FakeMonitor) -> None:
    monitor.taken = True
    with pytest.raises(PortInUseError, match="port 5901") as caught:
        await vnc.serve_at(machine, 5901)
    assert "--vnc-port" in caught.value.hint
    assert monitor.done[-1] == ("close", {})


@each("port", [-1, 65536, True, "5901", 5.5])
def test_what_is_no_port(port: object) -> None:
    with pytest.raises(ConfigError, match="is not a port"):
        SandboxConfig.parse({"image": "x", "enable_display": True, "vnc_port": port})


def test_a_port_needs_a_screen() -> None:
    with pytest.raises(ConfigError, match="needs a screen") as caught:
        SandboxConfig.parse({"image": "x", "vnc_port": 0})
    assert "--display" in hint_of(caught.value)
