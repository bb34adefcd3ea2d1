"""Which kernel a machine gets: what starts fastest if its guest boots, the image's own if it goes
on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.paths import Paths, paths
from quicksand.disks.images import boot_files
from quicksand.disks.images.boot_files import start_file_of
from quicksand.disks.images.disk_layers import create_overlay
from quicksand.qemu import planning
from quicksand.qemu.accelerator import AcceleratorStatus
from quicksand.qemu.binaries import QemuBinaries
from quicksand.qemu.command import Inherited, plan
from quicksand.qemu.planning import Parts, Ports, gather_parts, plan_machine
from quicksand.records.config import Accelerator, SandboxConfig
from quicksand.records.layout import SandboxDir
from quicksand.records.nodes import Head, Node
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.things.checkpoint import DISK, INTERNAL, PAGES, Tier
from quicksand.warm.templates import Templates

from tests.conftest import blank_record
from tests.unit.disks.kernels import (
    ARM64,
    OTHER_NOTE,
    make_elf,
    make_zboot,
    pack_gzip,
    write_bzimage,
)
from tests.unit.snapshots.boxes import MIB, commit_node

X86, ARM = Architecture.X86_64, Architecture.ARM64
PLACES = Inherited(
    qmp=range(1), agent=range(1), shares=range(1), vnc=Path("vnc"), vnc_port=Path("port")
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(params=[Accelerator.TCG, Accelerator.KVM])
def accelerator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Accelerator:
    found: Accelerator = request.param
    available = None if found is Accelerator.TCG else found

    async def choose(*_: object) -> AcceleratorStatus:
        return AcceleratorStatus(available=available)

    binaries = QemuBinaries(system=Path("/bin/sh"), img=None, version=(9, 0, 0))
    monkeypatch.setattr(planning, "choose_accelerator", choose)
    monkeypatch.setattr(planning, "find_binaries", lambda _: binaries)
    # A wheel may have none for arm64.
    monkeypatch.setattr(boot_files, "find_agent", lambda _: binaries.system)
    return found


def record_of(tmp_path: Path, arch: Architecture = X86) -> Record:
    """A sandbox of an image whose kernel is ``image.kernel`` in that directory."""
    base = tmp_path / "base.qcow2"
    create_overlay(base, backing=None, size=64 * MIB)
    (tmp_path / "base.initrd").write_bytes(b"initrd")
    return blank_record(SandboxConfig(image=str(base), arch=arch))


def kernel_of(record: Record, parts: Parts, place: Path, tier: Tier | None = None) -> Path:
    """The kernel in the command line of a machine that boots or, with a ``tier``, goes on."""
    at = None if tier is None else replace(node_in(place), tier=tier)
    head, ports = Head(layers=(), top="top"), Ports()
    machine = plan_machine(record, parts, head, ports, SandboxDir(place), at=at)
    words = plan(machine, PLACES)
    assert words.count("-kernel") == 1
    return Path(words[words.index("-kernel") + 1])


def node_in(place: Path) -> Node:
    box = SandboxDir(place / "box")
    for directory in (box.layers, box.memory, box.checkpoints):
        directory.mkdir(parents=True, exist_ok=True)
    return commit_node(box, ())


async def test_a_guest_boots_from_the_elf_file_and_goes_on_with_the_bzimage(
    tmp_path: Path, accelerator: Accelerator
) -> None:
    record, kernel = record_of(tmp_path), write_bzimage(tmp_path / "base.kernel")
    parts = await gather_parts(Registry(paths()), record)
    assert parts.status.accelerator is accelerator
    made = start_file_of(kernel, paths().cache)
    assert made.read_bytes().startswith(b"\x7fELF")
    assert kernel_of(record, parts, tmp_path) == made
    assert kernel_of(record, parts, tmp_path, DISK) == made
    assert kernel_of(record, parts, tmp_path, PAGES) == kernel
    assert kernel_of(record, parts, tmp_path, INTERNAL) == kernel
    again = await gather_parts(Registry(paths()), record)
    assert again.kernel == made


@pytest.mark.usefixtures("accelerator")
async def test_a_qemu_without_the_firmware_for_elf_files_gets_the_bzimage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    firmware = tmp_path / "share" / "qemu"
    firmware.mkdir(parents=True)
    places = (tmp_path, firmware)
    binaries = QemuBinaries(system=Path("/bin/sh"), img=None, version=(9, 0, 0), data_dirs=places)
    monkeypatch.setattr(planning, "find_binaries", lambda _: binaries)
    record, kernel = record_of(tmp_path), write_bzimage(tmp_path / "base.kernel")
    parts = await gather_parts(Registry(paths()), record)
    assert kernel_of(record, parts, tmp_path) == kernel
    (firmware / "pvh.bin").touch()
    parts = await gather_parts(Registry(paths()), record)
    assert kernel_of(record, parts, tmp_path) == start_file_of(kernel, paths().cache)


@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize("content", [make_elf(), ARM64], ids=["elf", "arm64"])
async def test_other_kernels_stay_as_they_are(tmp_path: Path, content: bytes) -> None:
    """The ELF files of images that an earlier version has built; those of other processors."""
    arch = ARM if content == ARM64 else X86
    record, kernel = record_of(tmp_path, arch), tmp_path / "base.kernel"
    kernel.write_bytes(content)
    parts = await gather_parts(Registry(paths()), record)
    for tier in (None, DISK, PAGES, INTERNAL):
        assert kernel_of(record, parts, tmp_path, tier) == kernel
    assert not start_file_of(kernel, paths().cache).exists()


@pytest.mark.usefixtures("accelerator")
async def test_an_arm64_kernel_is_taken_out_of_its_efi_program_for_both(tmp_path: Path) -> None:
    """A guest that goes on may boot again, too; nothing would decompress it then."""
    record, kernel = record_of(tmp_path, ARM), tmp_path / "base.kernel"
    kernel.write_bytes(make_zboot(pack_gzip(ARM64)))
    parts = await gather_parts(Registry(paths()), record)
    for tier in (None, DISK, PAGES, INTERNAL):
        found = kernel_of(record, parts, tmp_path, tier)
        assert found == start_file_of(kernel, paths().cache)
        assert found.read_bytes() == ARM64


@pytest.mark.usefixtures("accelerator")
async def test_a_kernel_whose_inside_qemu_cannot_start_serves_for_both(tmp_path: Path) -> None:
    record = record_of(tmp_path)
    kernel = write_bzimage(tmp_path / "base.kernel", make_elf(notes=OTHER_NOTE))
    parts = await gather_parts(Registry(paths()), record)
    assert kernel_of(record, parts, tmp_path) == kernel
    assert kernel_of(record, parts, tmp_path, PAGES) == kernel


@pytest.mark.usefixtures("accelerator")
async def test_the_key_of_a_template_tells_what_its_guest_booted_from(
    tmp_path: Path, places: Paths
) -> None:
    """Another kernel gives another key; that the cache was emptied meanwhile does not."""
    record, kernel = record_of(tmp_path), write_bzimage(tmp_path / "base.kernel")
    parts = await gather_parts(Registry(paths()), record)
    key = Templates(places, record, parts).key
    parts.kernel.unlink()
    parts.initrd.unlink()
    again = await gather_parts(Registry(paths()), record)
    assert Templates(places, record, again).key == key
    elsewhere = replace(again, kernel=tmp_path / again.kernel.name)
    assert Templates(places, record, elsewhere).key == key
    kernel.unlink()
    write_bzimage(kernel, make_elf(zeros=4000))
    other = await gather_parts(Registry(paths()), record)
    assert Templates(places, record, other).key != key
