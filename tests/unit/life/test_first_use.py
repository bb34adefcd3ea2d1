"""An image that is not here is built when somebody first wants it, where somebody sees it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from quicksand import Sandbox
from quicksand.base.errors import HostError, ImageNotFound
from quicksand.base.paths import Paths, paths
from quicksand.base.progress import Progress
from quicksand.disks.images.resolve import ImageResolver
from quicksand.life import image_building
from quicksand.life.image_building import build_if_missing, buildable_images
from quicksand_images import builder as real

from quicksand_tui.door.look import Reader
from quicksand_tui.model.remedies import hint_of
from tests.unit.cli.run_cli import quicksand


class Builder:
    """In place of the one that takes minutes."""

    def __init__(self) -> None:
        self.built: list[str] = []

    async def ensure_image(self, name: str, progress: Progress | None, **options: object) -> None:
        self.built.append(name)
        assert options["any_recipe"] is True
        if progress is not None:
            progress("downloading packages", 1, 4)


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """Places without an image."""
    monkeypatch.setenv("QUICKSAND_DATA_DIR", str(tmp_path / "data"))
    return paths()


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Builder:
    found = Builder()
    monkeypatch.setattr(real, "ensure_image", found.ensure_image)
    return found


async def test_where_nobody_sees_it_the_error_says_which_command_builds_it(
    empty: Paths, builder: Builder
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
    assert "building the image 'debian': downloading packages, 25 %" in written.getvalue()
    assert written.getvalue().endswith(image_building.CLEAR_LINE)


async def test_who_shows_progress_gets_it_and_nothing_is_written(
    empty: Paths, builder: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[tuple[str, int, int]] = []
    await build_if_missing("debian", empty, build=True, progress=lambda *step: told.append(step))
    assert told == [("building the image 'debian': downloading packages", 1, 4)]
    assert capsys.readouterr().err == ""


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
def test_the_command_does_not_build_where_it_must_not(empty: Paths, words: list[str]) -> None:
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
