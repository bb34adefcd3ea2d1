"""`images new`: packages that are begun, built with a quicksand-tui that only pretends, and then
installed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError, ImageNotFound, PathError, QuicksandError, StateError
from quicksand.base.paths import Paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import StoredImage
from quicksand.disks.packages.installing import install_package
from quicksand_images.recipe import load_recipe
from quicksand_images.scaffold import TAKEN, make_scaffold

from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from tests.unit.disks.packages.wheels import X86_KERNEL, disk, make_wheel
from tests.unit.saves.making import publish_image
from tests.unit.test_house import PACKAGES

pytestmark = pytest.mark.skipif(
    Architecture.host() is not Architecture.X86_64, reason="the images are for amd64"
)

PROGRAM = """\
#!{python}
import json, os, sys
from pathlib import Path

place, words = Path({place!r}), sys.argv[1:]
with (place / "calls").open("a") as calls:
    calls.write(json.dumps(words) + "\\n")
if "PYTHONPATH" in os.environ:
    sys.exit("pip hides our packages by that")
if words[0] == (place / "fails").read_text():
    print("what it printed before", flush=True)
    sys.exit("it failed, as it was told to")
if words[:2] == ["images", "inspect"]:
    names = {{"disk": "disk.qcow2", "kernel": "kernel", "initrd": "initrd"}}
    files = {{part: {{"path": str(place / name)}} for part, name in names.items()}}
    print(json.dumps({{"arch": "x86_64", "files": files}}))
elif words[:2] == ["images", "list"]:
    print((place / "list").read_text())
elif words[0] == "exec":
    (place / "script").write_text(sys.stdin.read())
elif words[0] == "save":
    save = Path(words[4]) / words[2]
    (save / "overlays").mkdir(parents=True)
    (save / "overlays" / "0.qcow2").write_bytes((place / "layer.qcow2").read_bytes())
    (save / "manifest.json").write_text((place / "manifest.json").read_text())
"""


class Quicksand:
    """A program quicksand-tui that notes how it is called, and makes what it is told to."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()
        (place / "bin").mkdir()
        program = place / "bin" / "quicksand-tui"
        program.write_text(PROGRAM.format(python=sys.executable, place=str(place)))
        program.chmod(0o755)
        (place / "fails").write_text("nothing")
        (place / "list").write_text("[]")
        (place / "disk.qcow2").write_bytes(disk())
        (place / "layer.qcow2").write_bytes(disk(backing="/somewhere/base.qcow2"))
        (place / "kernel").write_bytes(X86_KERNEL)
        (place / "initrd").write_bytes(b"initrd")

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.place / "calls").read_text().splitlines()]

    def build(self, package: Path) -> subprocess.CompletedProcess[bytes]:
        """Build the wheel of a package."""
        path = f"{self.place / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
            cwd=package,
            env={**os.environ, "PATH": path, "PYTHONPATH": "/somewhere"},
            capture_output=True,
            check=False,
        )


@pytest.fixture
def quicksand(tmp_path: Path) -> Quicksand:
    return Quicksand(tmp_path / "quicksand")


@pytest.fixture
def store(places: Paths) -> ImageStore:
    (places.data / "images").unlink()
    return ImageStore(places.images)


@pytest.fixture
def alpine(store: ImageStore, tmp_path: Path) -> StoredImage:
    """An image that was installed from a package."""
    wheel = make_wheel(tmp_path / "wheels", requires=())
    (found,) = asyncio.run(install_package(str(wheel), store))
    return found.image


def wheel_of(package: Path) -> Path:
    (found,) = (package / "dist").iterdir()
    return found


def test_a_base_package_has_a_recipe_that_can_be_built(tmp_path: Path) -> None:
    made = make_scaffold("base", "my-tools", place=tmp_path / "new")
    assert (made.image, made.package) == ("my-tools", "quicksand-my-tools")
    assert {path.relative_to(made.place).as_posix() for path in made.place.rglob("*.*")} >= {
        *made.files
    }
    recipe = load_recipe(made.place / "my-tools.toml")
    assert (recipe.name, recipe.arch) == ("my-tools", Architecture.host())
    project = tomllib.loads((made.place / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["quicksand.images"] == {
        "my-tools": "quicksand_my_tools:ImageProvider"
    }


@pytest.mark.parametrize("kind", ["base", "layer"])
def test_no_word_of_a_template_is_left(kind: str, tmp_path: Path, alpine: StoredImage) -> None:
    made = make_scaffold(kind, "tools", place=tmp_path / "new")
    for name in made.files:
        assert not re.search(r"@[A-Z_]+@", (made.place / name).read_text())


def test_a_base_package_is_built_installed_and_found(
    tmp_path: Path, quicksand: Quicksand, store: ImageStore
) -> None:
    package = make_scaffold("base", "tools", place=tmp_path / "new").place
    done = quicksand.build(package)
    assert done.returncode == 0, done.stderr
    assert quicksand.calls()[0] == ["images", "build", str(package / "tools.toml")]
    (found,) = asyncio.run(install_package(str(wheel_of(package)), store))
    assert (found.image.name, found.image.version) == ("tools", "0.1.0")
    assert found.image.disk.read_bytes() == (quicksand.place / "disk.qcow2").read_bytes()


def test_its_provider_finds_the_same_files(tmp_path: Path, quicksand: Quicksand) -> None:
    package = make_scaffold("base", "tools", place=tmp_path / "new").place
    quicksand.build(package)
    code = (
        "from quicksand_tools import ImageProvider as P; found = P().resolve('x86_64')\n"
        "print(*found.chain, found.kernel, found.initrd, found.guest_arch)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(package / "src")},
        capture_output=True,
        check=True,
    )
    place = package / "src" / "quicksand_tools" / "images" / "tools-0.1.0-amd64"
    expected = [f"{place}{suffix}" for suffix in (".qcow2", ".kernel", ".initrd")]
    assert done.stdout.decode().split() == [*expected, "amd64"]


def test_a_layer_package_is_built_on_its_base_installed_and_found(
    tmp_path: Path, quicksand: Quicksand, store: ImageStore, alpine: StoredImage
) -> None:
    package = make_scaffold("layer", "tools", place=tmp_path / "new").place
    base = {"name": "alpine", "version": alpine.version, "digest": alpine.digest}
    config = {"image": "alpine", "memory": "512M", "cpus": 1, "network_mode": "full"}
    manifest = {"version": 6, "config": config, "arch": "x86_64", "base": base, "note": "x"}
    (quicksand.place / "manifest.json").write_text(json.dumps(manifest))
    done = quicksand.build(package)
    assert done.returncode == 0, done.stderr
    verbs = [call[0] for call in quicksand.calls()]
    assert verbs == ["images", "install", "run", "exec", "save", "rm"]
    assert quicksand.calls()[1] == ["install", "alpine==0.10.1"]
    assert (quicksand.place / "script").read_text() == (package / "setup.sh").read_text()
    (found,) = asyncio.run(install_package(str(wheel_of(package)), store))
    assert found.image.name == "tools"
    assert [path.read_bytes() for path in found.image.chain] == [
        alpine.disk.read_bytes(),
        (quicksand.place / "layer.qcow2").read_bytes(),
    ]


def test_a_base_that_is_there_in_that_version_is_not_installed_again(
    tmp_path: Path, quicksand: Quicksand, alpine: StoredImage
) -> None:
    package = make_scaffold("layer", "tools", place=tmp_path / "new").place
    there = {"name": "alpine", "version": "0.10.1", "source": "store"}
    (quicksand.place / "list").write_text(json.dumps([there]))
    (quicksand.place / "fails").write_text("run")
    assert quicksand.build(package).returncode != 0
    assert [call[0] for call in quicksand.calls()] == ["images", "run"]


def test_the_sandbox_of_a_build_that_fails_is_removed_and_there_is_no_wheel(
    tmp_path: Path, quicksand: Quicksand, alpine: StoredImage
) -> None:
    package = make_scaffold("layer", "tools", place=tmp_path / "new").place
    (quicksand.place / "fails").write_text("exec")
    done = quicksand.build(package)
    assert done.returncode != 0
    assert b"`quicksand-tui exec" in done.stderr
    assert b"what it printed before" in done.stderr
    name = quicksand.calls()[2][3]
    assert quicksand.calls()[-1] == ["rm", "--force", "--now", name]
    assert not list((package / "dist").glob("*.whl"))


def test_without_our_program_a_build_says_what_is_missing(tmp_path: Path) -> None:
    package = make_scaffold("base", "tools", place=tmp_path / "new").place
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        cwd=package,
        env={**os.environ, "QUICKSAND_TUI": "no-such-program"},
        capture_output=True,
        check=False,
    )
    assert done.returncode != 0
    assert b"quicksand-tui, which builds the image, is not on the PATH" in done.stderr


@pytest.mark.parametrize(
    "name",
    ["", ".", "../x", "a/b", "9p", "-a", "a b", "ä", "x" * 80, 'a"b', "a\nb", "quicksand-"],
)
def test_what_can_be_no_name_of_a_package_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be the name"):
        make_scaffold("base", name, place=tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["tui", "quicksand-smb", "Images", "core", "qemu"])
def test_the_name_of_another_package_of_ours_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is another package, which is no image"):
        make_scaffold("base", name, place=tmp_path / "new")


def test_no_module_of_ours_could_be_the_module_of_an_image() -> None:
    ours = {name.removeprefix("quicksand_").replace("_", "-") for name in PACKAGES}
    assert ours - {"quicksand"} <= set(TAKEN)


@pytest.mark.parametrize("name", ["alpine", "quicksand-ubuntu", "debian", "Debian"])
def test_a_name_that_people_know_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is the name of an image with a recipe or a package"):
        make_scaffold("base", name, place=tmp_path / "new")


def test_a_directory_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(StateError, match="is there already"):
        make_scaffold("base", "tools", place=tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["mine"]
    with pytest.raises(StateError, match="is there already"):
        make_scaffold("base", "tools", place=tmp_path / "mine")
    (tmp_path / "empty").mkdir()
    assert make_scaffold("base", "tools", place=tmp_path / "empty").files


def test_a_directory_that_cannot_be_made_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PathError):
        make_scaffold("base", "tools", place=tmp_path / "file" / "new")


def test_a_layer_lies_only_on_what_others_can_get(
    tmp_path: Path, store: ImageStore, places: Paths
) -> None:
    with pytest.raises(ImageNotFound, match="'alpine', on which the layer is to lie"):
        make_scaffold("layer", "tools", place=tmp_path / "new")
    image = publish_image(places)
    with pytest.raises(StateError, match="was built or imported here"):
        make_scaffold("layer", "tools", place=tmp_path / "new", on=image.name)
    assert not (tmp_path / "new").exists()


def test_a_layer_cannot_lie_on_itself(tmp_path: Path, store: ImageStore) -> None:
    wheel = make_wheel(tmp_path / "wheels", "quicksand-tools", requires=())
    asyncio.run(install_package(str(wheel), store))
    with pytest.raises(QuicksandError, match="cannot be based on itself"):
        make_scaffold("layer", "tools", place=tmp_path / "new", on="tools")


def test_the_command_says_where_it_is_and_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["images", "new", "base", "tools"]) == Exit.OK
    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 'quicksand-tools'}\n"
    assert err.startswith("edit tools.toml; README.md tells")
    assert run(["images", "new", "base", "other", "--into", "there", "--json"]) == Exit.OK
    facts = json.loads(capsys.readouterr().out)
    assert facts["path"] == str(tmp_path / "there")
    assert "other.toml" in facts["files"]
    assert run(["images", "new", "base", "tools"]) == Exit.FAILURE
