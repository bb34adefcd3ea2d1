"""Pictures without a terminal."""

from __future__ import annotations

import html
import re
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand.base.paths import Paths

from quicksand_tui.cli.output import Exit
from quicksand_tui.ui.pictures import ScreenshotError, check_target, picture, write_picture
from quicksand_tui.ui.shots import SHOTS, ShotSpec, parse_screen, parse_size
from tests.unit.app.fakes import EMPTY, KEPT, FakeService
from tests.unit.cli.run_cli import make_stopped, quicksand

WORDS = {
    "main": "● running",
    "tree": "upgraded",
    "desktop": "zoom all",
    "log": "console",
    "shells": "1 shell",
    "stats": "Within the guest",
    "mounts": "Mounts of web",
    "mount": "Mount a directory in web",
    "jobs": "Jobs",
    "new": "New sandbox",
    "checkpoint": "Checkpoint of web",
    "save": "Save",
    "delete": "Delete web?",
    "saves": "Saves",
    "trash": "Trash",
    "commands": "Commands",
    "palette": "earch for",
    "help": "Keys",
}


def words(svg: str) -> str:
    found = re.findall(r">([^<]*)</text>", svg)
    return html.unescape("\n".join(found)).replace("\xa0", " ")


@pytest.mark.parametrize("screen", SHOTS)
async def test_every_screen_can_be_pictured(screen: str) -> None:
    first, *rest = KEPT.sandboxes
    world = replace(KEPT, sandboxes=(replace(first, has_display=True), *rest))
    svg = await picture(FakeService(world), ShotSpec(screen=screen, size=(100, 30)))
    assert WORDS[screen] in words(svg)


async def test_size_theme_sandbox_and_glyphs_are_as_said() -> None:
    spec = ShotSpec(
        screen="delete", sandbox="db", size=(90, 40), theme="quicksand-light", ascii_glyphs=True
    )
    svg = await picture(FakeService(KEPT), spec)
    assert "Delete db?" in words(svg) and words(svg).isascii()
    assert "#faf8f3" in svg.lower() or "#96958e" in svg.lower()


async def test_what_cannot_be_pictured_says_why() -> None:
    with pytest.raises(ScreenshotError, match="there is no sandbox 'nobody'"):
        await picture(FakeService(KEPT), ShotSpec(screen="tree", sandbox="nobody"))
    with pytest.raises(ScreenshotError, match="needs a sandbox"):
        await picture(FakeService(EMPTY), ShotSpec(screen="log"))
    with pytest.raises(ScreenshotError, match="there is no theme 'mud'"):
        await picture(FakeService(KEPT), ShotSpec(theme="mud"))
    with pytest.raises(ScreenshotError, match=r"checkpoint cannot be shown: db "):
        await picture(FakeService(KEPT), ShotSpec(screen="checkpoint", sandbox="db"))


def test_names_and_sizes_are_read() -> None:
    assert parse_screen("tree:web") == ("tree", "web")
    assert parse_size("80x24") == (80, 24)
    with pytest.raises(ValueError, match="there is no screen 'x'"):
        parse_screen("x")


@pytest.mark.parametrize("size", ["", "80", "80x", "axb", "-1x9", "9" * 30 + "x24"])
def test_what_is_no_size_is_refused(size: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        parse_size(size)


@pytest.mark.parametrize("size", ["1x1", "401x24", "80x0"])
def test_sizes_have_limits(size: str) -> None:
    with pytest.raises(ValueError, match="20x6 to 400x200"):
        parse_size(size)


def test_a_png_is_made_by_rsvg_convert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.png"
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ScreenshotError, match="is not installed"):
        check_target(target)
    monkeypatch.undo()
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "rsvg-convert"
    program.write_text("#!/bin/sh\nprintf PNG; exec cat\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    check_target(target)
    write_picture(target, "<svg/>")
    assert target.read_text() == "PNG<svg/>"
    program.write_text("#!/bin/sh\necho broken >&2; exit 1\n")
    with pytest.raises(ScreenshotError, match="broken"):
        write_picture(target, "<svg/>")
    assert target.read_text() == "PNG<svg/>", "the old picture stays"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "bin"]


def test_the_command_pictures_this_users_sandboxes(places: Paths, tmp_path: Path) -> None:
    make_stopped(places, "old-one")
    target = tmp_path / "main.svg"
    done = quicksand("--screenshot", str(target), "--size", "100x30", "--theme", "quicksand-light")
    assert done.returncode == Exit.OK, done.stderr
    assert "old-one" in words(target.read_text())
    assert not done.stdout and not done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--screen", "tree"), Exit.USAGE, "Usage:"),
        (("--screenshot", "a.svg", "--screen", "x"), Exit.USAGE, "there is no screen 'x'"),
        (("--screenshot", "a.svg", "--size", "9"), Exit.USAGE, "'9' is no size"),
        (("--screenshot", "a.gif"), Exit.FAILURE, "neither .svg nor .png"),
        (("--screenshot", "none/a.svg"), Exit.FAILURE, "there is no directory"),
        (("--screenshot", "/dev/null/a.svg"), Exit.FAILURE, "there is no directory"),
        (("--screenshot", "a.svg", "--theme", "mud"), Exit.FAILURE, "there is no theme 'mud'"),
        (("--theme", "nord", "ps"), Exit.USAGE, "--theme is for the app"),
        (("--ascii", "ps"), Exit.USAGE, "--ascii is for the app"),
    ],
)
def test_mistakes_are_told(
    arguments: tuple[str, ...],
    code: Exit,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = quicksand(*arguments)
    assert done.returncode == code
    assert said in done.stderr.decode()
    assert not list(tmp_path.iterdir())
