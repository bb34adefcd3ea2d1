"""Images on a base that was built anew: which of them are built anew, too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from quicksand.base.sharing import share_file
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.recipes import recipe_places
from quicksand.disks.images.stored_image import StoredImage
from quicksand_images import build
from quicksand_images.layers import layer_digest
from quicksand_images.recipe import Layer, Recipe

from tests.unit.disks.kernels import write_bzimage

PARTS = {"disk": "disk.qcow2", "kernel": "kernel", "initrd": "initrd"}


class Builder:
    """Builds images of files that say what they are."""

    def __init__(self) -> None:
        self.built: list[str] = []
        self.told: list[str] = []
        self.content = "one"

    async def base(self, recipe: Recipe, store: ImageStore, place: Path, *_: object) -> StoredImage:
        self.built.append("debian")
        staging = place / "staging"
        staging.mkdir()
        (staging / "disk.qcow2").write_text(self.content)
        (staging / "initrd").write_text("initrd")
        write_bzimage(staging / "kernel")
        manifest = {
            "name": "debian",
            "version": "13",
            "arch": recipe.arch.value,
            "recipe": build.recipe_digest(recipe),
            "created": 1,
            "files": {part: {"name": name} for part, name in PARTS.items()},
        }
        return build.publish(recipe, store, staging, manifest)

    async def layer(
        self,
        layer: Layer,
        base: StoredImage,
        store: ImageStore,
        place: Path,
        *_: object,
        **__: object,
    ) -> StoredImage:
        self.built.append(layer.name)
        staging = place / "staging"
        staging.mkdir()
        for name in PARTS.values():
            share_file(base.root / name, staging / name)
        (staging / "layer1.qcow2").write_text("ours")
        manifest = {
            "name": layer.name,
            "version": layer.version,
            "arch": base.arch,
            "recipe": layer_digest(layer, base.digest),
            "created": 1,
            "machine": {**base.machine, **layer.machine},
            "below": {"name": base.name, "version": base.version, "digest": base.digest},
            "files": {
                part: {"name": name} for part, name in {**PARTS, "layer1": "layer1.qcow2"}.items()
            },
        }
        return store.publish(staging, manifest)

    def tell(self, stage: str, done: int, total: int) -> None:
        if "debian" in stage:
            self.told.append(stage)


Ensure = Callable[..., Awaitable[StoredImage]]


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    found = Builder()
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "_build", found.base)
    monkeypatch.setattr(build, "build_layer", found.layer)
    place = tmp_path / "recipes"
    place.mkdir()
    (place / "mine.toml").write_text('base = "debian"\nsteps = ["echo made >/srv/made"]\n')
    places = (place, *recipe_places())
    monkeypatch.setattr("quicksand_images.recipe.recipe_places", lambda: places)
    return found


@pytest.fixture
def ensure(builder: Builder, tmp_path: Path) -> Ensure:
    store = ImageStore(tmp_path / "images")
    return lambda **how: build.ensure_image("mine", builder.tell, store=store, **how)


async def test_on_a_base_of_equal_files_nothing_is_built_anew(
    builder: Builder, ensure: Ensure, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await ensure()
    assert builder.built == ["debian", "mine"]
    # The base has another digest, since its recipe has, and the same files.
    monkeypatch.setattr(build, "FORM", build.FORM + 1)
    assert await ensure() == first
    assert builder.built == ["debian", "mine", "debian"]
    assert builder.told == []


async def test_on_another_base_it_is_said_first_and_can_be_left(
    builder: Builder, ensure: Ensure, tmp_path: Path
) -> None:
    first = await ensure()
    builder.content = "two"
    await build.build_image("debian", store=ImageStore(tmp_path / "images"))
    builder.built.clear()
    assert await ensure(any_base=True) == first
    assert await ensure(any_recipe=True) == first
    assert builder.built == []
    (said,) = builder.told
    told = "'mine' is based on an earlier version of 'debian': `images build mine` makes it anew"
    assert said == told
    builder.told.clear()
    assert (await ensure()).root != first.root
    assert builder.built == ["mine"]
    assert builder.told == ["'mine' is built anew, since 'debian' below it has changed"]


async def test_with_another_recipe_it_is_built_on_any_base(
    builder: Builder, ensure: Ensure, tmp_path: Path
) -> None:
    first = await ensure()
    (tmp_path / "recipes" / "mine.toml").write_text('base = "debian"\nsteps = ["echo other"]\n')
    assert (await ensure(any_base=True)).root != first.root
    assert builder.built == ["debian", "mine", "mine"]
    assert builder.told == []
