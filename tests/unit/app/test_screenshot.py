"""Pictures without a terminal."""

from __future__ import annotations

import asyncio
import html
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image, ImageColor
from quicksand.base.paths import Paths
from rich.cells import cell_len

from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from quicksand_tui.ui.app_pictures import (
    ScreenshotError,
    Shown,
    check_target,
    picture,
    write_picture,
)
from quicksand_tui.ui.drawing import CELL_HEIGHT, CELL_WIDTH, MARGIN, TITLE_HEIGHT, Run
from quicksand_tui.ui.shots import SHOTS, SIZE_MAX, ShotSpec, parse_screen, parse_size
from tests.each import each
from tests.unit.app.fakes import EMPTY, KEPT, FakeService
from tests.unit.cli.run_cli import make_stopped, quicksand

GLYPHS_DRAWN = "●○◐◌‖✗✓▸▾◆▣│─└├╭╮╰╯┏┓┗┛━┃←→↑↓…·–−▁▂▃▄▅▆▇█░⋯äöüßéñЖλ€"
"""What the app draws, and letters of some alphabets."""

WORDS = {
    "main": "● running",
    "tree": "upgraded",
    "desktop": "zoom all",
    "log": "console",
    "shells": "1 shell",
    "stats": "Guest",
    "mounts": "[Mounts]",
    "mount": "Mount a directory in web",
    "jobs": "Jobs",
    "wall": "wall  ",
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


TEXT = re.compile(r'<text class="(\w+)" x="(\d+)" y="(\d+)" textLength="(\d+)">([^<]*)</text>')
RECT = re.compile(r'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="\d+" fill="(#\w+)"/>')


def column_of(x: int) -> int:
    return (x - MARGIN) // CELL_WIDTH


def row_of(y: int) -> int:
    return (y - TITLE_HEIGHT) // CELL_HEIGHT


def words(shown: Shown | str) -> str:
    """The text of the SVG, by the places of its words."""
    svg = shown if isinstance(shown, str) else shown.to_svg()
    cells = [[" "] * SIZE_MAX[0] for _ in range(SIZE_MAX[1])]
    for _, x, y, _, text in TEXT.findall(svg):
        at = column_of(int(x))
        for character in html.unescape(text):
            cells[row_of(int(y))][at] = character
            at += max(1, cell_len(character))
    return "\n".join("".join(row).rstrip() for row in cells)


USUAL = ("desktop", "shells", "mount", "jobs", "wall", "saves", "palette")
"""Those that are pictured outside `make soak`, too: one of each kind. Other tests here picture
"main", "tree", "delete" and "help"."""


def every_screen() -> Iterator[Any]:
    for screen in SHOTS:
        yield pytest.param(screen, marks=[] if screen in USUAL else [pytest.mark.soak])


@pytest.mark.parametrize("screen", every_screen())
async def test_every_screen_can_be_pictured(screen: str) -> None:
    first, *rest = KEPT.sandboxes
    world = replace(KEPT, sandboxes=(replace(first, has_display=True), *rest))
    shown = await picture(FakeService(world), ShotSpec(screen=screen, size=(100, 30)))
    assert WORDS[screen] in words(shown)


async def test_size_theme_sandbox_and_glyphs_are_as_said() -> None:
    spec = ShotSpec(
        screen="delete", sandbox="db", size=(90, 40), theme="quicksand-light", ascii_glyphs=True
    )
    shown = await picture(FakeService(KEPT), spec)
    assert "Delete db?" in words(shown) and words(shown).isascii()
    svg = shown.to_svg().lower()
    assert "#faf8f3" in svg or "#96958e" in svg


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


@each("size", ["", "80", "80x", "axb", "-1x9", "9" * 30 + "x24"])
def test_what_is_no_size_is_refused(size: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        parse_size(size)


@each("size", ["1x1", "401x24", "80x0"])
def test_sizes_have_limits(size: str) -> None:
    with pytest.raises(ValueError, match="20x6 to 400x200"):
        parse_size(size)


SAMPLE = Shown(
    runs=(
        Run(0, 0, 20, "  └─○ clean   wide漢 ", "#ffffff", "#101010"),
        Run(0, 20, 6, " a&<b ", "#ff0000", "#003000", bold=True, underline=True),
        Run(1, 3, 8, "● ok ✓ e\u0301", "#00ff00", "#292929", italic=True, strike=True),
    ),
    size=(30, 3),
)


async def test_the_svg_has_no_spaces_that_a_renderer_could_swallow() -> None:
    shown = await picture(FakeService(KEPT), ShotSpec(screen="tree", size=(100, 30)))
    for one in (shown, SAMPLE):
        for _, _, _, length, text in TEXT.findall(one.to_svg()):
            word = html.unescape(text)
            assert word and not re.search(r"\s", word)
            assert int(length) == cell_len(word) * CELL_WIDTH
    assert "  └─○ clean   wide漢" in words(SAMPLE)
    ElementTree.fromstring(SAMPLE.to_svg())


async def png_of(shown: Shown) -> Image.Image:
    return Image.open(io.BytesIO(await asyncio.to_thread(shown.to_png))).convert("RGB")


def grounds(shown: Shown) -> dict[tuple[int, int], str]:
    """The background of each cell that the SVG gives one, by column and row."""
    return {
        (column_of(int(x)) + at, row_of(int(y))): colour
        for x, y, width, colour in RECT.findall(shown.to_svg())
        for at in range(int(width) // CELL_WIDTH)
    }


def inked(shown: Shown) -> dict[tuple[int, int], str]:
    """The colour of what is in each cell, after the SVG."""
    svg = shown.to_svg()
    rules = dict(re.findall(r"^\.(\w+) \{ fill: (#\w+);", svg, re.MULTILINE))
    found = {}
    for name, x, y, length, _ in TEXT.findall(svg):
        for at in range(int(length) // CELL_WIDTH):
            found[column_of(int(x)) + at, row_of(int(y))] = rules[name]
    return found


@pytest.mark.parametrize(
    "screen", [None, "main", "help", pytest.param("tree", marks=pytest.mark.soak)]
)
async def test_the_png_equals_the_svg_cell_by_cell(screen: str | None) -> None:
    shown = SAMPLE
    if screen is not None:
        shown = await picture(FakeService(KEPT), ShotSpec(screen=screen, size=(100, 30)))
    image, ground, ink = await png_of(shown), grounds(shown), inked(shown)
    columns, rows = shown.size
    for row in range(rows):
        for column in range(columns):
            left = MARGIN + column * CELL_WIDTH
            top = TITLE_HEIGHT + row * CELL_HEIGHT
            # Characters lean over the edges of their cells by a pixel.
            inner = image.crop((left + 2, top + 1, left + CELL_WIDTH - 2, top + CELL_HEIGHT - 1))
            data = inner.tobytes()
            seen = {tuple(data[at : at + 3]) for at in range(0, len(data), 3)}
            below = ImageColor.getrgb(ground.get((column, row), "#292929"))
            wanted = ink.get((column, row))
            if wanted is None:
                assert seen == {below}, (column, row)
            elif wanted != ground.get((column, row)):
                assert seen != {below}, (column, row)
                colour = ImageColor.getrgb(wanted)
                assert all(_is_between(each, below, colour) for each in seen), (column, row)


def _is_between(colour: tuple[int, ...], one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether a colour is a mixture of two, as the edges of characters are."""
    parts = zip(colour, one, other, strict=True)
    return all(min(a, b) - 1 <= c <= max(a, b) + 1 for c, a, b in parts)


async def test_two_characters_look_different_and_the_shipped_font_has_what_the_app_draws() -> None:
    drawn = "".join(sorted(set(GLYPHS_DRAWN)))
    for character in drawn:
        shown = Shown((Run(0, 0, 1, character, "#ffffff", "#000000"),), (1, 1))
        unknown = Shown((Run(0, 0, 1, "\U0010fffd", "#ffffff", "#000000"),), (1, 1))
        assert (await png_of(shown)).tobytes() != (await png_of(unknown)).tobytes(), character


def test_a_png_needs_no_program_and_is_written_whole(tmp_path: Path) -> None:
    target = tmp_path / "a.png"
    check_target(target)
    write_picture(target, SAMPLE)
    before = target.read_bytes()
    assert before.startswith(b"\x89PNG\r\n")

    class Failing(Shown):
        def to_png(self) -> bytes:
            raise OSError("no font")

    with pytest.raises(OSError, match="no font"):
        write_picture(target, Failing((), (1, 1)))
    assert target.read_bytes() == before, "the old picture stays"
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]


def test_the_command_pictures_this_users_sandboxes(places: Paths, tmp_path: Path) -> None:
    make_stopped(places, "old-one")
    target = tmp_path / "main.svg"
    done = quicksand("--screenshot", str(target), "--size", "100x30", "--theme", "quicksand-light")
    assert done.returncode == Exit.OK, done.stderr
    assert "old-one" in words(target.read_text())
    assert not done.stdout and not done.stderr


@each(
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
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(list(arguments)) == code
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
