"""Directories that QEMU serves by 9p: what is written down, asked of guests, and refused."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from quicksand import Mount, SandboxConfig
from quicksand.base.errors import (
    AgentCode,
    AgentRefusedError,
    ConfigError,
    MachineError,
    MountError,
    StateError,
)
from quicksand.base.paths import Paths
from quicksand.mounts import devices, ninep
from quicksand.mounts.devices import Device
from quicksand.mounts.directories import find
from quicksand.qemu.binaries import QemuBinaries, find_binaries
from quicksand.qemu.command import SharedDirectory, count_directories, plan
from quicksand.qemu.qemu_hypervisor import Qemu
from quicksand.qemu.qmp import Monitor
from quicksand.records.layout import MachineDir
from quicksand.records.mount import NINEP, parse_mount

from quicksand_tui.model.remedy_words import hint_of
from tests.each import each
from tests.unit.qemu.test_command import INHERITED, PLAIN

BLOCKED = (
    "Migration is disabled when VirtFS export path '/d' is mounted in the guest using mount_tag "
    "'quicksand9p0'"
)
"""Of QEMU 7.2."""


@pytest.fixture
def machine(places: Paths) -> Iterator[MachineDir]:
    root = places.runtime / "m"
    root.mkdir(parents=True)
    yield MachineDir(root)
    for path in root.iterdir():
        path.unlink()
    root.rmdir()


@pytest.fixture
def data(tmp_path: Path) -> Mount:
    (tmp_path / "data").mkdir()
    return Mount(str(tmp_path / "data"), "/mnt/data", type=NINEP)


class Guest:
    """A guest's agent; ``refusals`` are the errors by method."""

    def __init__(self, **refusals: AgentRefusedError) -> None:
        self.refusals = refusals
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def ask(self, method: str, params: dict[str, Any], _seconds: float) -> dict[str, Any]:
        self.asked.append((method, params))
        if method in self.refusals:
            raise self.refusals[method]
        return {"type": "dir"} if method == "file_stat" else {}


# What may be said


@each(
    ("word", "readonly"),
    [("/a:/mnt:9p", False), ("/a:/mnt:ro,9p", True), ("/a:/mnt:9p,ro", True)],
)
def test_the_type_is_said_behind_the_paths(word: str, readonly: bool) -> None:
    mount = parse_mount(word)
    assert mount == Mount("/a", "/mnt", readonly, NINEP)
    assert parse_mount(str(mount)) == mount


def test_a_mount_is_not_read_only_and_writable() -> None:
    with pytest.raises(ConfigError, match="read-only and not"):
        parse_mount("/a:/mnt:ro,rw")


def test_no_network_card_is_needed() -> None:
    config = {"image": "x", "network_mode": "none"}
    SandboxConfig.parse({**config, "mounts": ["/a:/mnt:9p"]})
    with pytest.raises(ConfigError, match="network card") as raised:
        SandboxConfig.parse({**config, "mounts": ["/a:/mnt:9p", "/b:/b"]})
    assert "9p" in raised.value.hint


# QEMU


def test_each_directory_has_a_device_and_its_own_kind_of_owners() -> None:
    shared = (
        SharedDirectory(path="/a,b=c", readonly=False),
        SharedDirectory(path="/d", readonly=True),
    )
    words = plan(replace(PLAIN, directories=shared), INHERITED, "linux")
    assert [word for word in words if word.startswith("local,")] == [
        "local,id=fs0,path=/a,,b=c,security_model=mapped-xattr,readonly=off,multidevs=remap",
        "local,id=fs1,path=/d,security_model=none,readonly=on,multidevs=remap",
    ]
    tags = [json.loads(word) for word in words if "virtio-9p" in word]
    assert [(tag["fsdev"], tag["mount_tag"]) for tag in tags] == [
        ("fs0", "quicksand9p0"),
        ("fs1", "quicksand9p1"),
    ]
    assert count_directories(words) == 2
    assert count_directories(plan(PLAIN, INHERITED)) == 0


@pytest.fixture
def qemu() -> QemuBinaries:
    return find_binaries()


@pytest.mark.parametrize("name", ["a,b=c", "readonly=on,x", "é ,, y"])
def test_qemu_itself_takes_the_very_directory(
    qemu: QemuBinaries, tmp_path: Path, name: str
) -> None:
    ninep.require_server(qemu)
    (tmp_path / name).mkdir()
    shared = (SharedDirectory(path=str(tmp_path / name), readonly=True),)
    words = plan(replace(PLAIN, directories=shared), INHERITED)
    wanted = [w for i, w in enumerate(words) if w == "-fsdev" or words[i - 1] == "-fsdev"]
    device = next(word for word in words if "virtio-9p" in word)
    done = subprocess.run(
        [
            *(str(qemu.system), *qemu.firmware_arguments, "-M", "q35", "-S", "-nodefaults"),
            *("-display", "none", "-m", "64M", "-qmp", "stdio", *wanted, "-device", device),
        ],
        input='{"execute":"qmp_capabilities"}{"execute":"quit"}',
        env={**os.environ, **qemu.env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_qemu_without_it_is_told_before_anything_starts(
    qemu: QemuBinaries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: Paths, data: Mount
) -> None:
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "qemu").write_text("#!/bin/sh\necho \"Device '$4' not found\" >&2\n")
    (tmp_path / "qemu").chmod(0o755)
    poor = replace(qemu, system=tmp_path / "qemu")
    for _ in range(2):  # the second time it is remembered
        with pytest.raises(MountError, match="without 9p") as raised:
            ninep.choose([data], find, poor, may_leave_out=True)
        assert "cifs" in raised.value.hint
    assert ninep.choose([Mount("/", "/mnt")], find, poor, may_leave_out=False) == []


def test_a_missing_directory_keeps_only_a_first_start_from_happening(
    qemu: QemuBinaries, places: Paths, data: Mount
) -> None:
    gone = Mount(f"{data.host}/gone", "/mnt/gone", type=NINEP)
    found = ninep.choose([gone, data], find, qemu, may_leave_out=True)
    assert [device.mount for device in found] == [data]
    with pytest.raises(MountError, match="gone"):
        ninep.choose([gone, data], find, qemu, may_leave_out=False)
    with pytest.raises(MountError, match="9p device"):
        ninep.require_there(Device(mount=gone))


def test_a_file_system_without_attributes_is_refused_to_be_written(
    places: Paths, data: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(path: str, name: str) -> bytes:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    ninep.check_shareable(data)
    monkeypatch.setattr(os, "getxattr", none)
    with pytest.raises(MountError, match="keeps no attributes"):
        ninep.check_shareable(data)
    ninep.check_shareable(replace(data, readonly=True))


# The guest


async def test_what_is_mounted_is_written_down(machine: MachineDir, data: Mount) -> None:
    other = replace(data, guest="/mnt/other", readonly=True)
    devices.note(machine, [Device(mount=data), Device(mount=other)])
    guest = Guest()
    await ninep.mount_all(machine, [other], guest.ask)
    assert devices.mounted(machine) == [other]
    (method, params), look = guest.asked
    assert method == "mount_share"
    assert look == ("file_stat", {"path": "/mnt/other"})
    assert params["share"] == "quicksand9p1"
    assert params["read_only"] is True
    await ninep.unmount(machine, other, guest.ask)
    assert devices.mounted(machine) == []
    assert len(devices.read(machine)) == 2


async def test_a_kernel_without_9p_is_named_and_nothing_counts_as_mounted(
    machine: MachineDir, data: Mount
) -> None:
    devices.note(machine, [Device(mount=data)])
    missing = "this guest's kernel has no 9p client (the kernel module 9p)"
    guest = Guest(mount_share=AgentRefusedError(missing, code="unsupported"))
    with pytest.raises(MountError, match="kernel module 9p") as raised:
        await ninep.mount_all(machine, [data], guest.ask)
    assert "cifs" in raised.value.hint
    assert devices.mounted(machine) == []


@pytest.mark.parametrize(("code", "stays"), [("busy", True), ("not_found", False)])
async def test_what_is_in_use_stays_and_what_the_guest_took_away_does_not(
    machine: MachineDir, data: Mount, code: AgentCode, stays: bool
) -> None:
    devices.note(machine, [Device(mount=data, mounted=True)])
    guest = Guest(unmount_share=AgentRefusedError("no", code=code))
    if stays:
        with pytest.raises(MountError, match="in use"):
            await ninep.unmount(machine, data, guest.ask)
    else:
        await ninep.unmount(machine, data, guest.ask)
    assert devices.mounted(machine) == [data] * stays


@pytest.mark.parametrize("text", ["", "[]", '{"devices": 5}', '{"devices": [{"mount": 5}]}'])
def test_a_record_that_cannot_be_read_has_no_devices(machine: MachineDir, text: str) -> None:
    assert devices.read(machine) == []
    machine.ninep.write_text(text)
    assert devices.read(machine) == []


# Checkpoints


class FakeQemu:
    """A monitor that says why QEMU cannot be saved."""

    def __init__(self, *reasons: str) -> None:
        self.reply: dict[str, Any] = {"blocked-reasons": [*reasons]} if reasons else {}
        self.asked = 0

    async def execute(self, command: str, **_: Any) -> dict[str, Any]:
        assert command == "query-migrate"
        self.asked += 1
        return self.reply


async def _refuse(qemu: FakeQemu, *mounts: str, **options: Any) -> None:
    config = SandboxConfig.parse({"image": "x", "mounts": mounts, **options})
    await ninep.refuse_mounted(config, Qemu(cast("Monitor", qemu)), "web")


async def test_qemu_itself_says_whether_a_checkpoint_is_possible() -> None:
    with pytest.raises(StateError, match="9p") as raised:
        await _refuse(FakeQemu("something else", BLOCKED), "/d:/mnt:9p")
    assert "--unmount-9p" in hint_of(raised.value)
    await _refuse(FakeQemu("something else"), "/d:/mnt:9p")
    await _refuse(FakeQemu(), "/d:/mnt:9p")
    with pytest.raises(StateError, match="9p"):
        await _refuse(FakeQemu(BLOCKED), extra_qemu_args=["-virtfs", "x"])


async def test_a_machine_without_9p_is_not_asked() -> None:
    qemu = FakeQemu(BLOCKED)
    await _refuse(qemu, "/d:/mnt")
    assert qemu.asked == 0


async def test_what_qemu_says_is_checked() -> None:
    qemu = FakeQemu()
    qemu.reply = {"blocked-reasons": 5}
    with pytest.raises(MachineError, match="5"):
        await _refuse(qemu, "/d:/mnt:9p")
