"""One recipe for several architectures."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError, ImageError
from quicksand.disks.images.image_store import ImageStore
from quicksand_images import bases, build, in_vm, mmdebstrap
from quicksand_images.benches import HostBench
from quicksand_images.log import BuildLog
from quicksand_images.mmdebstrap import Builder
from quicksand_images.recipe import find_recipe, load_recipe, read_recipe
from quicksand_images.rootfs import RootTree
from quicksand_images.sources import Mirrors

from tests.each import each
from tests.unit.images.test_image_build import fake_build

X86, ARM = Architecture.X86_64, Architecture.ARM64
HOST = Architecture.host()
OTHER = ARM if HOST is X86 else X86


def edited(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    """The default recipe with other lines."""
    text = find_recipe("debian").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "own.toml"
    path.write_text(text)
    return path


def test_a_recipe_is_read_for_the_host_or_as_asked() -> None:
    assert load_recipe("debian").arch is HOST
    amd, arm = load_recipe("debian", "amd64"), load_recipe("debian", "arm64")
    assert (amd.arch, arm.arch) == (X86, ARM)
    assert amd.kernel.package == "linux-image-cloud-amd64"
    assert arm.kernel.package == "linux-image-cloud-arm64"
    assert "pvpanic-pci" in amd.kernel.boot_modules
    assert "pvpanic-pci" not in arm.kernel.boot_modules, "that kernel has no such driver"
    assert arm.kernel.plain_modules == amd.kernel.plain_modules
    assert arm.system == amd.system
    assert build.recipe_digest(amd) != build.recipe_digest(arm)


def test_what_a_recipe_is_not_for_is_refused_with_what_it_is_for(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="'debian-desktop' is for amd64, not for arm64"):
        load_recipe("debian-desktop", "arm64")
    with pytest.raises(ConfigError, match="'riscv64' is unknown"):
        load_recipe("debian", "riscv64")
    only = edited(tmp_path, ('["amd64", "arm64"]', f'"{OTHER.debian}"'))
    assert load_recipe(only).arch is OTHER, "a recipe for one architecture needs no --arch"


@each(
    ("changes", "reason"),
    [
        ((('["amd64", "arm64"]', "[]"),), "architecture names none"),
        ((('["amd64", "arm64"]', "7"),), "architecture is not a line of text"),
        ((("[arm64.kernel]", "[arm64.kernels]"),), r"arm64\.kernels replaces nothing"),
        ((("[arm64.kernel]", "[arm64]"),), r"arm64\.package replaces nothing"),
        ((("[arm64.kernel]", "[arm64.kernel]\nsurprise = 1"),), r"kernel\.surprise is unknown"),
        ((("[arm64.kernel]", "[riscv64.kernel]"),), "riscv64 is unknown"),
    ],
)
def test_wrong_words_about_an_architecture_are_named(
    tmp_path: Path, changes: tuple[tuple[str, str], ...], reason: str
) -> None:
    with pytest.raises(ImageError, match=reason):
        load_recipe(edited(tmp_path, *changes), "arm64")


async def test_only_a_system_that_this_processor_runs_is_made_without_a_vm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: list[str] = []

    def way(name: str) -> object:
        async def make_tree(*_: object, **__: object) -> RootTree:
            ways.append(name)
            return RootTree(path=tmp_path, owners=None)

        return make_tree

    async def find_builder(*_: object) -> Builder:
        return Builder(command=("mmdebstrap",), env={}, mode="root", makes_directory=True)

    async def find_keyring(*_: object) -> Path:
        return tmp_path

    monkeypatch.setattr(build, "find_keyring", find_keyring)
    monkeypatch.setattr(build, "find_mirrors", lambda recipe: Mirrors(main="m", security="s"))
    monkeypatch.setattr(mmdebstrap, "find_builder", find_builder)
    monkeypatch.setattr(mmdebstrap, "make_tree", way("mmdebstrap"))
    monkeypatch.setattr(in_vm, "make_tree", way("vm"))
    log = BuildLog(tmp_path / "log", None, None)
    for arch in (HOST, OTHER):
        recipe = load_recipe("debian", arch)
        for has_apt in (True, False):
            bench = HostBench(place=tmp_path, makers=None, has_apt=has_apt)  # type: ignore[arg-type]
            await build._make_tree(recipe, tmp_path, None, bench, log)  # type: ignore[arg-type]
    assert ways == ["mmdebstrap", "vm", "vm", "vm"], "mmdebstrap needs the host's apt"


async def test_the_recipe_of_an_older_base_is_read_for_the_processor_of_that_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_build", fake_build)
    own = f'[{OTHER.debian}.system]\nsuite = "other"\n[arm64.kernel]'
    path = edited(tmp_path, ("[arm64.kernel]", own))
    monkeypatch.setattr(bases, "read_recipe", lambda _, *arch: read_recipe(path, *arch))
    image = await build.ensure_image("debian", arch=OTHER, store=ImageStore(tmp_path / "images"))
    system = bases.look_at(image).system
    assert system is not None and system.suite == "other"


async def test_an_image_for_another_processor_does_not_take_the_hosts_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_build", fake_build)
    store = ImageStore(tmp_path / "images")
    ours = await build.ensure_image("debian", store=store)
    other = await build.ensure_image("debian", arch=OTHER, store=store)
    assert (ours.arch, other.arch) == (HOST.value, OTHER.value)
    assert store.get("debian") == ours
    assert await build.ensure_image("debian", arch=OTHER, store=store) == other
    assert await build.ensure_image("debian", store=store) == ours
