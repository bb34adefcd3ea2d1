"""The host, as scripts ask for it."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import quicksand
from quicksand import (
    OS,
    Accelerator,
    AcceleratorStatus,
    Architecture,
    MachineType,
    PlatformConfig,
    get_machine_type,
    get_platform_config,
)
from quicksand.base.blocking import run_and_wait
from quicksand.base.errors import ConfigError, HostError, QemuNotFound
from quicksand.base.paths import paths
from quicksand.qemu import runtime
from quicksand.qemu.binaries import QemuBinaries

from tests.each import each

QEMU = QemuBinaries(
    system=Path("/opt/qemu/usr/bin/qemu-system-x86_64"),
    img=Path("/opt/qemu/usr/bin/qemu-img"),
    version=(9, 1, 0),
    data_dirs=(Path("/opt/qemu/usr/share/qemu"),),
    env={"QEMU_MODULE_DIR": "/opt/qemu/usr/lib/qemu"},
    origin="unpacked by setup",
)


@each(("platform", "os"), [("linux", OS.LINUX), ("darwin", OS.MACOS), ("win32", OS.WINDOWS)])
def test_the_kind_of_the_system_has_the_specifications_name(
    monkeypatch: pytest.MonkeyPatch, platform: str, os: OS
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    config = get_platform_config()
    assert isinstance(config, PlatformConfig)
    assert config.os.os_type is os
    assert isinstance(config.os.os_type, OS)


def test_an_unknown_system_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "plan9")
    with pytest.raises(ConfigError, match="plan9"):
        get_platform_config()


def test_the_specifications_names_of_systems_and_architectures_mean_ours() -> None:
    assert OS["DARWIN"] is OS.MACOS
    assert Architecture.from_str("AMD64") is Architecture.X86_64
    assert [arch.image_arch for arch in Architecture] == ["amd64", "arm64"]
    assert get_platform_config().arch.arch_type is Architecture.host()
    with pytest.raises(ValueError, match="sparc"):
        Architecture.from_str("sparc")


@each(("arch", "kind"), [("amd64", "q35"), ("aarch64", "virt")])
def test_each_architecture_has_its_machine_type(arch: str, kind: str) -> None:
    assert get_machine_type(arch) is MachineType(kind)
    assert get_platform_config(arch).machine_type is MachineType(kind)


def test_guests_of_another_architecture_have_no_accelerator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = next(arch for arch in Architecture if arch is not Architecture.host())
    config = get_platform_config(other)
    assert config.accelerator is None
    status = AcceleratorStatus(None, error="emulated")
    asked: list[str | None] = []

    def detect(arch: str | None = None) -> AcceleratorStatus:
        asked.append(arch)
        return status

    monkeypatch.setattr(runtime, "detect_accelerator", detect)
    assert config.detect_accelerator() is status
    assert config.get_accelerator() is Accelerator.TCG
    assert asked == [other, other]


def test_the_qemu_of_a_platform_is_asked_for_its_architecture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def find(arch: str) -> QemuBinaries:
        asked.append(arch)
        return QEMU

    monkeypatch.setattr(runtime, "find_binaries", find)
    for arch in ("arm64", get_platform_config("arm64"), "amd64", get_platform_config("amd64")):
        assert quicksand.get_runtime(arch).version == "9.1.0"
    assert asked == ["aarch64", "aarch64", "x86_64", "x86_64"]


def test_a_platform_has_its_directories() -> None:
    config = get_platform_config()
    assert (config.cache_dir, config.images_dir) == (paths().cache, paths().images)


@each("is_in_a_loop", [False, True])
def test_a_qemu_is_made_sure_of_and_told(
    monkeypatch: pytest.MonkeyPatch, is_in_a_loop: bool
) -> None:
    asked: list[str] = []

    async def ensure(*, arch: str) -> QemuBinaries:
        asked.append(arch)
        return QEMU

    async def within_a_loop() -> quicksand.RuntimeInfo:
        return quicksand.ensure_runtime("amd64")

    monkeypatch.setattr(runtime, "ensure_qemu", ensure)
    found = run_and_wait(within_a_loop) if is_in_a_loop else quicksand.ensure_runtime("amd64")
    assert asked == ["x86_64"]
    assert (found.qemu_binary, found.runtime_dir) == (QEMU.system, QEMU.system.parent)
    assert found.data_dir == Path("/opt/qemu/usr/share/qemu")
    assert found.module_dir == Path("/opt/qemu/usr/lib/qemu")
    quicksand.install_qemu()
    assert asked == ["x86_64", Architecture.host().value]


def test_a_host_without_a_qemu_is_a_runtime_error_as_the_specification_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ensure(*, arch: str) -> QemuBinaries:
        raise QemuNotFound("there is none", hint="get one")

    monkeypatch.setattr(runtime, "ensure_qemu", ensure)
    with pytest.raises(RuntimeError, match="there is none") as caught:
        quicksand.ensure_runtime()
    assert isinstance(caught.value, HostError)


def test_the_package_tells_its_version() -> None:
    assert quicksand.__version__ == version("quicksand-tui")
