"""`setup`: QEMU, and an image that is built or installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.paths import Paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import StoredImage
from quicksand.qemu.accelerator import AcceleratorStatus
from quicksand.qemu.binaries import QemuBinaries
from quicksand.records.config import Accelerator

from quicksand_tui.cli import lazy_commands
from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from quicksand_tui.cli.progress_display import BuildProgress
from quicksand_tui.verbs import packages
from tests.unit.disks.packages.wheels import make_wheel
from tests.unit.saves.making import publish_image

Output = pytest.CaptureFixture[str]


@pytest.fixture
def built(places: Paths, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of images that were built. QEMU is there."""
    (places.data / "images").unlink()
    names: list[str] = []

    async def get_qemu(progress: object, *, arch: str) -> QemuBinaries:
        return QemuBinaries(system=Path("qemu"), img=None, version=(9, 0, 1), origin="of the test")

    async def find_accelerator(binaries: object, arch: object) -> AcceleratorStatus:
        return AcceleratorStatus(available=Accelerator.TCG)

    async def build(
        name: str, progress: object, *, arch: object, store: ImageStore, any_base: bool
    ) -> StoredImage:
        assert any_base  # a call that takes only a moment
        names.append(name)
        return publish_image(places)

    monkeypatch.setattr(lazy_commands, "ensure_qemu", get_qemu)
    monkeypatch.setattr(lazy_commands, "find_accelerator", find_accelerator)
    monkeypatch.setattr(lazy_commands, "ensure_image", build)
    return names


def test_it_gets_qemu_alone_if_asked(built: list[str], capsys: Output) -> None:
    assert run(["setup", "--no-image"]) == Exit.OK
    assert built == []
    err = capsys.readouterr().err
    assert "ok QEMU 9.0.1 (of the test)" in err and "ok image" not in err


def test_it_builds_the_image_of_a_recipe(built: list[str], capsys: Output) -> None:
    assert run(["setup"]) == Exit.OK
    assert built == ["debian"]
    assert "ok image " in capsys.readouterr().err


def test_an_image_that_is_there_is_left_alone(built: list[str], places: Paths) -> None:
    image = publish_image(places, name="mine")
    assert run(["setup", "--image", image.name]) == Exit.OK
    assert built == []


@pytest.mark.skipif(Architecture.host() is not Architecture.X86_64, reason="the wheel is for amd64")
def test_a_published_image_is_installed(
    built: list[str], places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    make_wheel(tmp_path / "wheels", requires=())
    monkeypatch.setattr(lazy_commands, "recipe_names", tuple)
    install = packages.install
    source = str(tmp_path / "wheels")
    monkeypatch.setattr(
        packages, "install", lambda name, arch: install(name, sources=[source], arch=arch)
    )
    assert run(["setup", "--image", "alpine"]) == Exit.OK
    assert built == []
    assert "ok image alpine 0.10.1" in capsys.readouterr().err
    assert ImageStore(places.images).get("alpine") is not None


def test_a_name_that_nobody_knows_is_said_with_the_recipes_that_there_are(
    places: Paths, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    async def get_qemu(progress: object, *, arch: str) -> QemuBinaries:
        return QemuBinaries(system=Path("qemu"), img=None, version=(9, 0, 1))

    async def find_accelerator(binaries: object, arch: object) -> AcceleratorStatus:
        return AcceleratorStatus(available=Accelerator.TCG)

    monkeypatch.setattr(lazy_commands, "ensure_qemu", get_qemu)
    monkeypatch.setattr(lazy_commands, "find_accelerator", find_accelerator)
    assert run(["setup", "--image", "debina"]) == Exit.FAILURE
    err = capsys.readouterr().err
    assert "there is no recipe 'debina'" in err and "hint: there are recipes for agent, " in err


def test_what_a_guest_writes_as_a_stage_reaches_no_terminal_unescaped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    BuildProgress("setup").stage("a\x1b[2J\nb", 0, 0)
    shown = capsys.readouterr().err
    assert shown.count("a\\x1b[2J\\x0ab") == len(shown.splitlines()) == 1
