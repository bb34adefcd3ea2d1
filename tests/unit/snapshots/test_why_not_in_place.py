"""Why a sandbox cannot be reverted in the QEMU that runs, as far as one sees beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from quicksand.base.hypervisor import Features
from quicksand.qemu import disconnecting
from quicksand.records.config import SandboxConfig
from quicksand.records.layout import MachineDir
from quicksand.records.nodes import Head
from quicksand.snapshots import in_place
from quicksand.things.checkpoint import INTERNAL, PAGES

IMAGE = "0000000a.ram"


def features(**changes: bool) -> Features:
    return replace(Features(devices_alone=True, whole_state=True, loads_again=True), **changes)


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A sandbox that can be reverted in place, as far as one sees."""
    monkeypatch.setattr(
        in_place, "choose_tier", lambda *_, **__: SimpleNamespace(way=SimpleNamespace(tier=PAGES))
    )
    monkeypatch.setattr(disconnecting, "why_not", lambda _: "")

    async def reasons() -> Any:
        return found.reasons

    async def count() -> Any:
        return found.connections

    head = Head(layers=(), top="0000000b", memory=IMAGE)
    found = SimpleNamespace(
        history=SimpleNamespace(head=lambda: head),
        machine=MachineDir(tmp_path),
        record=SimpleNamespace(config=SandboxConfig.parse({"image": "debian", "arch": "x86_64"})),
        run=SimpleNamespace(qemu_pid=1, run="r", qemu_command=("qemu", "-kernel", "/i/kernel")),
        hypervisor=SimpleNamespace(
            features=features(), why_unsavable=reasons, count_connections=count
        ),
        is_unfinished=False,
        reasons=[],
        connections=3,
    )
    return found


@pytest.fixture
def node() -> Any:
    return SimpleNamespace(
        tier=PAGES, memory=IMAGE, line=IMAGE, devices=SimpleNamespace(size=300_000)
    )


async def test_nothing_is_in_the_way(live: Any, node: Any) -> None:
    assert await in_place.why_not(live, node) == ""


def put(thing: Any, **values: Any) -> None:
    for name, value in values.items():
        setattr(thing, name, value)


def configured(**options: Any) -> Callable[[Any, Any], None]:
    def change(live: Any, _: Any) -> None:
        given = {"image": "debian", "arch": "x86_64", **options}
        live.record.config = SandboxConfig.parse(given)

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda live, _: put(live, is_unfinished=True), "a revert before it"),
        (lambda live, _: live.machine.oversized.touch(), "too much of the host"),
        (lambda live, _: live.machine.disk_full.touch(), "too much of the host"),
        (lambda _, node: put(node, tier=INTERNAL), "of the tier 'internal'"),
        (
            lambda live, _: put(live.hypervisor, features=features(loads_again=False)),
            "loads a state only once",
        ),
        (configured(arch="aarch64"), "the guest's processor is not an x86_64"),
        (configured(extra_qemu_args=["-device", "edu"]), "arguments of its own"),
        (
            lambda live, _: put(live.run, qemu_command=("qemu", "/c/initrd/0a.elf")),
            "the first revert after a boot needs one",
        ),
        (lambda _, node: put(node, memory="0b.ram", line="0b.ram"), "another memory image"),
        (lambda live, _: put(live, connections=201), "many connections"),
        (lambda live, _: live.reasons.append("VirtFS is mounted"), "VirtFS is mounted"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_each_obstacle_is_named(
    live: Any, node: Any, change: Callable[[Any, Any], object], why: str
) -> None:
    change(live, node)
    assert why in await in_place.why_not(live, node)


async def test_memory_that_cannot_be_written_is_an_obstacle(
    live: Any, node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = SimpleNamespace(way=SimpleNamespace(tier=INTERNAL))
    monkeypatch.setattr(in_place, "choose_tier", lambda *_, **__: choice)
    assert "cannot be written" in await in_place.why_not(live, node)


async def test_a_kernel_that_refuses_duplicates_of_sockets_is_an_obstacle(
    live: Any, node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disconnecting, "why_not", lambda _: "pidfd_getfd: not permitted")
    assert await in_place.why_not(live, node) == "pidfd_getfd: not permitted"
