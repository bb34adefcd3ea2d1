"""What an image suggests for its machines, and where that applies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from quicksand import Sandbox
from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError, ImageError
from quicksand.base.paths import Paths, paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import StoredImage, check_suggested
from quicksand.life.image_building import suggested_options

SUGGESTED = {"memory": "3G", "cpus": 3, "enable_display": True}


def publish(store: ImageStore, name: str = "big", **more: Any) -> StoredImage:
    staging = store.root / f".staging-{name}"
    staging.mkdir(parents=True, mode=0o700)
    files = {}
    for part in ("disk", "kernel", "initrd"):
        (staging / part).write_text(part)
        files[part] = {"name": part}
    manifest = {"name": name, "version": "1", "arch": "x86_64", "created": 1, "files": files}
    return store.publish(staging, {**manifest, **more})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setenv("QUICKSAND_DATA_DIR", str(tmp_path / "data"))
    return paths()


def config_of(image: str, **options: Any) -> tuple[str, int, bool]:
    config = Sandbox(image=image, **options)._parts.life.config
    return config.memory, config.cpus, config.enable_display


def test_a_machine_gets_what_its_image_suggests_and_what_is_said_instead(place: Paths) -> None:
    image = publish(ImageStore(place.images), machine=SUGGESTED)
    assert config_of("big") == ("3G", 3, True)
    assert config_of(str(image.root)) == ("3G", 3, True)
    assert config_of("big", memory="1G", enable_display=False) == ("1G", 3, False)
    # Also where the user says the default.
    assert config_of("big", memory="512M", cpus=1) == ("512M", 1, True)


def test_an_image_without_suggestions_leaves_the_defaults(place: Paths) -> None:
    publish(ImageStore(place.images))
    assert config_of("big") == ("512M", 1, False)
    assert config_of("debian") == ("512M", 1, False)


def test_an_image_that_is_not_built_yet_suggests_what_its_recipe_does(place: Paths) -> None:
    assert config_of("debian-desktop") == ("2G", 2, True)
    publish(ImageStore(place.images), "debian-desktop", machine={"memory": "4G"})
    assert config_of("debian-desktop") == ("4G", 1, False)


def test_the_version_for_the_machines_processor_suggests(
    place: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Architecture, "host", lambda: Architecture.X86_64)
    store = ImageStore(place.images)
    publish(store, machine={"memory": "1G"})
    staging = store.root / ".staging-other"
    staging.mkdir()
    for part in ("disk", "kernel", "initrd"):
        (staging / part).write_text(f"other {part}")
    files = {part: {"name": part} for part in ("disk", "kernel", "initrd")}
    about = {"name": "big", "version": "1", "arch": "aarch64", "created": 1, "files": files}
    store.publish(staging, {**about, "machine": {"memory": "3G"}}, current=False)
    assert suggested_options("big", place) == {"memory": "1G"}
    assert suggested_options("big", place, "arm64") == {"memory": "3G"}
    assert config_of("big", arch="arm64")[0] == "3G"


@pytest.mark.parametrize("name", ["absent", "/nowhere", "../x", "", "a\nb"])
def test_an_image_that_does_not_exist_suggests_nothing(place: Paths, name: str) -> None:
    assert suggested_options(name, place) == {}


@pytest.mark.parametrize(
    "machine",
    [{"memory": 3}, {"cpus": True}, {"cpus": "2"}, {"enable_display": 1}, ["memory"], "2G", None],
)
def test_suggestions_of_another_kind_are_refused_and_damage_a_manifest(
    place: Paths, machine: object
) -> None:
    with pytest.raises(ValueError, match="machine"):
        check_suggested(machine)
    store = ImageStore(place.images)
    with pytest.raises(ImageError, match="machine"):
        publish(store, "other", machine=machine)
    image = publish(store)
    path = image.root / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "machine": machine}))
    found = store.get("big")
    assert found is not None
    assert "machine" in found.errors[0]
    assert suggested_options("big", place) == {}


def test_what_reaches_beyond_the_guest_cannot_be_suggested(place: Paths) -> None:
    sly = {"network_mode": "full", "extra_qemu_args": ["-x"], "mounts": ["/:/mnt"], "memory": "1G"}
    publish(ImageStore(place.images), machine=sly)
    assert suggested_options("big", place) == {"memory": "1G"}


def test_a_machine_that_cannot_be_is_refused_by_name(place: Paths) -> None:
    publish(ImageStore(place.images), machine={"memory": "lots"})
    with pytest.raises(ConfigError, match="'lots'"):
        Sandbox(image="big")
    assert config_of("big", memory="1G")[0] == "1G"
