"""Machines are named in words of the command line, and these words mean the same machine."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.paths import Paths
from quicksand.life import spare_names
from quicksand.life.spare_names import machine_name, name_of, order_command
from quicksand.records.config import NetworkMode, SandboxConfig
from quicksand.records.sandboxes import SaveSource
from quicksand.warm.spares.orders import plain

from quicksand_tui.cli.main import run
from tests.conftest import blank_record
from tests.each import each

MACHINES: Sequence[tuple[dict[str, Any], str]] = [
    ({}, "debian"),
    ({"memory": "1024M"}, "debian --memory 1G"),
    ({"memory": 1536, "cpus": 2}, "debian --memory 1536M --cpus 2"),
    ({"network_mode": NetworkMode.MOUNTS_ONLY}, "debian"),
    ({"network_mode": NetworkMode.FULL}, "debian --network full"),
    ({"enable_display": True}, "debian --display"),
    ({"disk_size": "10240M"}, "debian --disk-size 10G"),
    ({"accel": None}, "debian --accel tcg"),
    ({"arch": Architecture.host()}, "debian"),
    ({"port_forwards": [{"host": 0, "guest": 80}], "boot_timeout": 5}, "debian"),
]


@each(("options", "name"), MACHINES)
def test_a_machine_is_named_by_what_is_unusual(options: dict[str, Any], name: str) -> None:
    assert machine_name(SandboxConfig.parse({"image": "debian", **options})) == name


def test_a_save_is_named_instead_of_its_image() -> None:
    record = blank_record(SandboxConfig(image="debian", cpus=2))
    assert name_of(record) == "debian --cpus 2"
    source = SaveSource(path="/saves/my save", below=(), name="my save", id="i", digest="d")
    assert name_of(replace(record, source=source)) == "save 'my save' --cpus 2"


@pytest.mark.parametrize("suggested", [{}, {"memory": "2G", "enable_display": True, "cpus": 2}])
@pytest.mark.parametrize(("options", "name"), MACHINES)
def test_the_command_orders_that_very_machine(
    places: Paths,
    monkeypatch: pytest.MonkeyPatch,
    suggested: dict[str, Any],
    options: dict[str, Any],
    name: str,
) -> None:
    """Also where the image suggests other options than usual, which the command would take."""
    monkeypatch.setattr(spare_names, "suggested_options", lambda *_: suggested)
    monkeypatch.setattr("quicksand_tui.cli.lazy_commands.suggested_options", lambda *_: suggested)
    ended: list[SandboxConfig] = []

    async def end_order(registry: object, config: SandboxConfig, *, as_json: bool) -> None:
        ended.append(config)

    monkeypatch.setattr("quicksand_tui.cli.this_host.image_making.end_order", end_order)
    wanted = SandboxConfig.parse({"image": "debian", **options})
    program, *words = shlex.split(order_command(places, wanted, 0))
    assert (program, run(words)) == ("quicksand-tui", 0)
    assert [plain(config) for config in ended] == [plain(wanted)]
