"""What users get: an sdist, and a wheel that needs nothing beside it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

import pytest

from quicksand_tui import __version__
from quicksand_tui.cli.completing import LOADERS
from quicksand_tui.verbs.index import all_verbs
from tests.unit.test_house import PACKAGES, ROOT

WHEEL_MAX = 5 * 1000 * 1000
"""Bytes. It is without QEMU and images."""

EPOCH = "1700000000"
"""What SOURCE_DATE_EPOCH says in all builds here."""


def build(source: Path, place: Path, kind: str) -> Path:
    """Build an sdist or a wheel of a tree with hatchling, without a network."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(place)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    subprocess.run(command, cwd=source, env=environment, check=True, capture_output=True)
    (found,) = place.iterdir()
    return found


@dataclass(frozen=True, slots=True)
class Built:
    sdist: Path
    wheel: Path
    unpacked: Path
    """The sdist as a tree."""

    def names(self) -> set[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return set(archive.namelist())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    place = tmp_path_factory.mktemp("built")
    sdist = build(ROOT, place / "sdist", "sdist")
    subprocess.run(["tar", "-xf", sdist, "-C", place], check=True)
    wheel = build(ROOT, place / "wheel", "wheel")
    return Built(sdist=sdist, wheel=wheel, unpacked=place / sdist.name.removesuffix(".tar.gz"))


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked where Python finds it before this checkout."""
    place = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(built.wheel) as archive:
        archive.extractall(place)
    return place


OF_DISTRIBUTION = {
    f"{package}/{name}"
    for package in (
        "quicksand_disks",
        "quicksand_driver",
        "quicksand_panes",
        "quicksand_pixels",
        "quicksand_vnc",
        "quicksand_wheels",
    )
    for name in ("LICENSE", "README.md", "pyproject.toml")
}
"""Files of the distribution of a package, which lie in it and are no part of it."""


def ours() -> Iterator[tuple[str, Path]]:
    """The files of our packages, by their names in the wheel."""
    for package, root in PACKAGES.items():
        for path in root.rglob("*"):
            name = f"{package}/{path.relative_to(root).as_posix()}"
            if path.is_file() and path.suffix != ".pyc" and name not in OF_DISTRIBUTION:
                yield name, path


def test_a_wheel_of_the_sdist_is_the_wheel_of_the_tree(built: Built, tmp_path: Path) -> None:
    again = build(built.unpacked, tmp_path / "again", "wheel")
    assert again.name == built.wheel.name
    assert again.read_bytes() == built.wheel.read_bytes()


def test_the_sdist_is_the_same_each_time(built: Built, tmp_path: Path) -> None:
    assert build(ROOT, tmp_path / "again", "sdist").read_bytes() == built.sdist.read_bytes()


def test_the_wheel_is_small(built: Built) -> None:
    assert built.wheel.stat().st_size <= WHEEL_MAX


def test_the_wheel_has_every_file_of_our_packages_and_no_others(built: Built) -> None:
    found = {name for name in built.names() if ".dist-info/" not in name and ".data/" not in name}
    expected = {name for name, _ in ours()}
    extra = found - expected
    assert expected - found == set()
    allowed = re.compile(r"quicksand/_agent/[a-z0-9_]+/|quicksand_images/recipes/")
    assert [name for name in extra if not allowed.match(name)] == []


def test_what_ssh_starts_is_executable_in_the_wheel(built: Built) -> None:
    """Installers keep that bit of a file's mode, and no other."""
    with zipfile.ZipFile(built.wheel) as archive:
        mode = archive.getinfo("quicksand/remote/askpass.sh").external_attr >> 16
    assert mode & 0o111 == 0o111


def test_the_wheel_has_every_recipe_and_every_agent(built: Built) -> None:
    recipes = {
        f"quicksand_images/recipes/{path.relative_to(ROOT / 'images').as_posix()}"
        for path in (ROOT / "images").rglob("*")
        if path.suffix in (".toml", ".sh")
        and not {"quicksand_disks", "quicksand_images", "quicksand_wheels"}.intersection(path.parts)
    }
    agents = {
        f"quicksand/_agent/{path.parent.name}/{path.name}"
        for path in (ROOT / "guest-agent" / "prebuilt").glob("*/quicksand-agent")
    }
    assert len(recipes) >= 2 and agents
    assert recipes | agents <= built.names()


def test_the_wheel_has_man_pages_and_completions_where_they_are_looked_for(built: Built) -> None:
    data = f"quicksand_tui-{__version__}.data/data/share"
    pages = {
        f"{data}/man/man1/quicksand-tui{one}.1"
        for one in ["", *(f"-{v.name}" for v in all_verbs())]
    }
    completions = {
        f"{data}/bash-completion/completions/{LOADERS['bash']}",
        f"{data}/zsh/site-functions/{LOADERS['zsh']}",
        f"{data}/fish/vendor_completions.d/{LOADERS['fish']}",
    }
    found = {name for name in built.names() if ".data/" in name}
    assert found == pages | completions


def test_nothing_in_it_names_a_directory_of_the_machine_that_built_it(built: Built) -> None:
    home = str(ROOT).encode()
    with zipfile.ZipFile(built.wheel) as archive:
        found = [name for name in archive.namelist() if home in archive.read(name)]
    assert found == []


def test_the_sdist_has_what_builds_and_tests_it_and_nothing_that_is_made(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        "LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "hatch_build.py",
        "scripts/manual.py", "images/debian.toml", "guest-agent/Cargo.lock", "tests/conftest.py",
        "docs/internals/architecture.md", "Makefile",
    }  # fmt: skip
    assert wanted <= names
    made = re.compile(r"(^|/)(\.venv|__pycache__|target|\.[a-z]+_cache|dist|build)(/|$)")
    assert [name for name in names if made.search(name)] == []


def test_its_metadata_says_what_the_project_says(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        text = archive.read(f"quicksand_tui-{__version__}.dist-info/METADATA").decode()
    found = HeaderParser().parsestr(text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (found["Name"], found["Version"]) == (project["name"], __version__)
    assert found["License-Expression"] == project["license"]
    assert found["Requires-Python"] == project["requires-python"]
    required = [one for one in found.get_all("Requires-Dist", []) if "extra ==" not in one]
    assert len(required) == len(project["dependencies"])


def test_the_version_is_the_same_everywhere() -> None:
    cargo = tomllib.loads((ROOT / "guest-agent" / "Cargo.toml").read_text())
    lock = tomllib.loads((ROOT / "guest-agent" / "Cargo.lock").read_text())
    agent = next(one for one in lock["package"] if one["name"] == cargo["package"]["name"])
    assert cargo["package"]["version"] == agent["version"] == __version__
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == __version__
    assert "version" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dynamic"]


ASKED = """
import json, quicksand, quicksand_images.recipe as recipe, quicksand_smb, quicksand_vt
from quicksand.disks.images import recipes
from quicksand.base.arch import Architecture
from quicksand.disks.images.boot_files import find_agent
names = recipes.recipe_names()
print(json.dumps({
    "engine": quicksand.__file__,
    "agent": str(find_agent(Architecture.host())),
    "recipes": {name: str(recipe.find_recipe(name)) for name in names},
    "loaded": [recipe.read_recipe(name).name for name in names],
}))
"""


def run_installed(installed: Path, *words: str, home: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed), "HOME": str(home)}
    done = subprocess.run(
        [sys.executable, *words], env=environment, cwd=home, check=True, capture_output=True
    )
    return done.stdout.decode()


def test_what_is_installed_finds_its_own_agent_and_recipes(installed: Path, tmp_path: Path) -> None:
    found = json.loads(run_installed(installed, "-c", ASKED, home=tmp_path))
    places = [found["engine"], found["agent"], *found["recipes"].values()]
    assert [place for place in places if not place.startswith(str(installed))] == []
    assert sorted(found["loaded"]) == sorted(found["recipes"])


def test_the_command_that_is_installed_says_its_version(installed: Path, tmp_path: Path) -> None:
    said = run_installed(installed, "-m", "quicksand_tui", "--version", home=tmp_path)
    assert said == f"quicksand-tui, version {__version__}\n"
