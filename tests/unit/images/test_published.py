"""What helps is said where an image cannot be built that is published, too."""

from __future__ import annotations

import socket
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import DiskSpaceError, HostError, ImageError, UnreachableError
from quicksand.base.tools import ToolError
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.packages.sources import Web
from quicksand_images import apk_mirror, build
from quicksand_images.log import log_path
from quicksand_images.published import naming_published
from quicksand_images.recipe import Layer, Recipe, find_recipe, read_recipe

from quicksand_tui.model.remedy_words import hint_of

HOST = Architecture.host()
OTHER = next(arch for arch in Architecture if arch is not HOST)
INSTALL = "`quicksand-tui install alpine` gets the published image instead"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens where Alpine's mirror is to be."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"

    def read(name: Path | str, arch: Architecture | str | None = None) -> Recipe | Layer:
        found = read_recipe(name, arch)
        assert isinstance(found, Recipe)
        return replace(found, system=replace(found.system, mirror=address))

    monkeypatch.setattr(build, "read_recipe", read)
    monkeypatch.setattr(apk_mirror, "Web", partial(Web, pause=0.0))


@pytest.mark.usefixtures("unreachable")
async def test_where_alpines_mirror_cannot_be_reached_the_published_image_is_named(
    tmp_path: Path,
) -> None:
    store = ImageStore(tmp_path / "images")
    for make in (build.build_image, build.ensure_image):
        with pytest.raises(UnreachableError, match="cannot be reached") as caught:
            await make("alpine", store=store)
        assert hint_of(caught.value) == f"{INSTALL}; the log of the build is {log_path('alpine')}"
        assert caught.value.hint.startswith("`quicksand.install('alpine')` gets the published")


@pytest.mark.usefixtures("unreachable")
async def test_a_recipe_of_ones_own_of_that_name_is_not_what_is_published(tmp_path: Path) -> None:
    recipe = tmp_path / "alpine.toml"
    recipe.write_text(find_recipe("alpine").read_text())
    with pytest.raises(UnreachableError) as caught:
        await build.build_image(recipe, store=ImageStore(tmp_path / "images"))
    assert hint_of(caught.value) == f"the log of the build is {log_path('alpine')}"


def said(error: HostError, *names: str, arch: Architecture = HOST) -> str:
    with pytest.raises(type(error)) as caught, naming_published(*names, arch=arch):
        raise error
    return hint_of(caught.value)


def test_the_image_that_was_asked_for_is_named_and_only_where_it_is_published() -> None:
    assert said(ToolError("apt"), "ubuntu") == INSTALL.replace("alpine", "ubuntu")
    assert "install agent`" in said(UnreachableError("x"), "agent", "debian")
    assert "install alpine`" in said(UnreachableError("x"), "mine", "alpine")
    assert f"install alpine --arch {OTHER.debian}`" in said(ToolError("x"), "alpine", arch=OTHER)
    assert said(ToolError("apt"), "debian") == ""


def test_a_build_below_another_has_said_it_already() -> None:
    outer = naming_published("cua", arch=HOST)
    inner = naming_published("cua", "agent", arch=HOST)
    with pytest.raises(ToolError) as caught, outer, inner:
        raise ToolError("x")
    assert hint_of(caught.value).count("install cua") == 1


def test_what_no_other_image_would_help_keeps_its_hint() -> None:
    assert "install" not in said(DiskSpaceError("full"), "alpine")
    assert said(HostError("x", hint="y"), "alpine") == "y"
    with pytest.raises(ImageError) as caught, naming_published("alpine", arch=HOST):
        raise ImageError("signed by another key")
    assert hint_of(caught.value) == ""
