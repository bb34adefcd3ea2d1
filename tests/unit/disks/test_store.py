"""The image store: what is published is found whole, what is damaged is shown as such."""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError, ImageNotFound, StateError
from quicksand.base.files import try_lock
from quicksand.base.listing import own_directories
from quicksand.base.paths import paths
from quicksand.base.removal import MARK, remove
from quicksand.disks.images import image_store as stores
from quicksand.disks.images.image_store import CURRENT, MANIFEST, ImageStore
from quicksand.disks.images.resolve import ImageResolver
from quicksand.disks.images.stored_image import StoredImage
from quicksand.life.cleaning import DOOMED

PARTS = {"disk": "disk.qcow2", "kernel": "kernel", "initrd": "initrd"}


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


def publish(
    store: ImageStore,
    name: str = "debian",
    content: str = "1",
    *,
    keeps_current: bool = False,
    **more: Any,
) -> StoredImage:
    store.root.mkdir(exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".building-", dir=store.root))
    for part, file in PARTS.items():
        (staging / file).write_text(f"{part} {content}")
    manifest = {
        "name": name,
        "version": "13",
        "arch": "x86_64",
        "created": 1_700_000_000,
        "cmdline": "rootfstype=ext4",
        "files": {part: {"name": file} for part, file in PARTS.items()},
        **more,
    }
    return store.publish(staging, manifest, current=not keeps_current)


def rewrite(image: StoredImage, **changes: Any) -> None:
    path = image.root / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_what_images_have_in_common_is_on_the_disk_once(store: ImageStore) -> None:
    """Unless the one that is there has been spoilt since, or others may write to it."""
    first, second = publish(store), publish(store, "other")
    assert first.kernel.samefile(second.kernel)
    assert first.initrd.samefile(second.initrd)
    assert not first.kernel.samefile(publish(store, "third", "3").kernel)
    first.kernel.write_text("kernel !")
    first.initrd.chmod(0o666)
    fourth = publish(store, "fourth")
    assert store.verify(fourth) == []
    assert not fourth.kernel.samefile(first.kernel)
    assert not fourth.initrd.samefile(first.initrd)


def test_each_architecture_has_its_newest_version_beside_the_current_one(
    store: ImageStore,
) -> None:
    ours = publish(store)
    arm = publish(store, content="2", arch="aarch64", keeps_current=True)
    assert store.get("debian") == ours
    assert store.get("debian", Architecture.X86_64) == ours
    assert store.get("debian", Architecture.ARM64) == arm
    assert store.of_all_archs(ours) == [ours, arm]
    listed = ImageResolver(replace(paths(), data=store.root.parent)).list
    assert [info.arch for info in listed()] == ["x86_64"]
    assert [info.arch for info in listed(every_arch=True)] == ["x86_64", "aarch64"]
    store.withdraw(ours)
    assert store.get("debian", Architecture.X86_64) == arm, "who asks sees what is there instead"


def test_of_another_architecture_the_newest_counts_though_an_older_one_came_first(
    store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image that was first built for the other processor, and then anew."""
    monkeypatch.setattr(Architecture, "host", lambda: Architecture.X86_64)
    old = publish(store, arch="aarch64", keeps_current=True)
    os.utime(old.root / MANIFEST, (1, 1))
    new = publish(store, content="2", arch="aarch64", keeps_current=True)
    assert store.get("debian", Architecture.ARM64) == new
    (current,) = store.list()
    assert store.of_all_archs(current) == [new]


def test_a_broken_version_for_another_architecture_is_not_taken(store: ImageStore) -> None:
    ours = publish(store)
    publish(store, content="2", arch="aarch64", keeps_current=True).disk.unlink()
    assert store.get("debian", Architecture.ARM64) == ours
    assert store.of_all_archs(ours) == [ours]


def test_an_empty_store_has_no_images(store: ImageStore) -> None:
    assert store.list() == []
    assert store.get("debian") is None


def test_a_published_image_is_the_current_one(store: ImageStore) -> None:
    published = publish(store)
    found = store.get("debian")
    assert found == published
    assert found.errors == ()
    assert found.root.name == found.digest[:12]
    assert found.disk.read_text() == "disk 1"
    assert store.list() == [found]
    assert store.verify(found) == []


def test_the_age_of_an_image_is_that_of_its_build_and_not_of_its_sources(
    store: ImageStore,
) -> None:
    before = time.time() - 1
    found = publish(store)
    assert found.created == 1_700_000_000
    assert found.built is not None
    assert before < found.built < time.time() + 1


def test_two_that_publish_the_same_version_at_once_both_get_it(
    store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename
    others: list[StoredImage] = []

    def another_is_first(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        others.append(publish(store))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", another_is_first)
    published = publish(store)
    assert [published] == others
    assert store.verify(published) == []
    assert [path.name for path in published.root.iterdir() if path.name.startswith(".")] == [MARK]


def test_publishing_again_replaces_the_current_one_and_keeps_the_old(store: ImageStore) -> None:
    first, second = publish(store), publish(store, content="2")
    assert store.get("debian") == second
    assert store.load(first.root) == first


def test_equal_files_are_one_image(store: ImageStore) -> None:
    first = publish(store)
    assert publish(store) == first
    assert [path.name for path in first.root.parent.iterdir() if path.is_dir()] == [first.root.name]


def test_another_command_line_is_another_image(store: ImageStore) -> None:
    assert publish(store).digest != publish(store, cmdline="rootfstype=ext4 ro").digest


def test_one_broken_image_does_not_hide_the_others(store: ImageStore) -> None:
    broken, good = publish(store, name="broken"), publish(store, name="good")
    (broken.root / MANIFEST).write_text("{")
    names = {image.name: image.errors for image in store.list()}
    assert names["good"] == ()
    assert "damaged" in names["broken"][0]
    assert store.get("good") == good


@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_truncated_file_is_noticed_without_reading_it(store: ImageStore, size: int) -> None:
    image = publish(store)
    with image.disk.open("r+b") as file:
        file.truncate(size)
    found = store.get("debian")
    assert found is not None
    assert "truncated" in found.errors[0]


def test_a_changed_byte_is_noticed_by_verify(store: ImageStore) -> None:
    image = publish(store)
    image.kernel.write_text("kernel 2")
    found = store.get("debian")
    assert found is not None
    assert found.errors == ()
    assert "kernel" in store.verify(found)[0]


def test_a_missing_or_linked_file_is_an_error_of_that_image(store: ImageStore) -> None:
    image = publish(store)
    image.initrd.unlink()
    assert "missing" in errors_of(store)
    image.initrd.symlink_to("/etc/hostname")
    assert "symbolic link" in errors_of(store)


def errors_of(store: ImageStore) -> str:
    found = store.get("debian")
    assert found is not None
    return "; ".join(found.errors)


@pytest.mark.parametrize(
    "changes",
    [
        {"schema_version": 3},
        {"schema_version": None},
        {"files": {}},
        {"files": []},
        {"files": {part: {"name": "../x", "size": 1, "sha256": ""} for part in PARTS}},
        {"files": {part: {"name": "/etc/passwd", "size": 1, "sha256": ""} for part in PARTS}},
        {"digest": "0" * 64},
        {"cmdline": "init=/bin/sh"},
        {"created": "yesterday"},
    ],
)
def test_a_changed_manifest_is_refused(store: ImageStore, changes: dict[str, Any]) -> None:
    image = publish(store)
    rewrite(image, **changes)
    with pytest.raises(ImageError, match="damaged"):
        store.load(image.root)
    assert "damaged" in errors_of(store)


def test_a_manifest_cut_at_any_byte_is_refused(store: ImageStore) -> None:
    image = publish(store)
    path = image.root / MANIFEST
    content = path.read_bytes()
    for size in range(len(content.rstrip())):
        path.write_bytes(content[:size])
        with pytest.raises(ImageError):
            store.load(image.root)


@pytest.mark.parametrize("pointer", ["", "..", "../other", ".hidden", "\xff"])
def test_a_bad_pointer_is_an_error_of_that_image(store: ImageStore, pointer: str) -> None:
    publish(store)
    (store.root / "debian" / CURRENT).write_bytes(pointer.encode("latin-1"))
    assert errors_of(store)


def test_removing_twice_says_that_it_is_gone(store: ImageStore) -> None:
    publish(store)
    store.remove("debian")
    assert store.list() == []
    with pytest.raises(ImageNotFound, match=r"^Image not found"):
        store.remove("debian")


def test_an_image_that_is_being_built_is_not_removed(store: ImageStore) -> None:
    image = publish(store)
    lock = try_lock(store.root / ".debian.lock")
    assert lock is not None
    with pytest.raises(StateError, match="'debian' is just being built"):
        store.remove("debian")
    assert store.get("debian") == image
    os.close(lock)
    store.remove("debian")
    assert list(store.root.iterdir()) == []


def test_copies_of_one_image_are_removed_at_the_same_time(
    store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("debian", "tagged")
    (version,) = {publish(store, name).root.name for name in names}
    monkeypatch.setattr(stores, "remove", lambda _: None)  # neither has come to its end
    for name in names:
        store.remove(name)
    left = own_directories(store.root, DOOMED)
    assert len(left) == 2 and all(path.name.endswith(f"-{version}") for path in left)
    for path in left:
        remove(path)
    assert list(store.root.iterdir()) == []


@pytest.mark.parametrize("name", ["../images", ".debian.lock", "a/b", "", "nul\0"])
def test_only_images_can_be_removed(store: ImageStore, name: str) -> None:
    publish(store)
    with pytest.raises(ImageNotFound):
        store.remove(name)
    assert store.get("debian") is not None


def publish_layers(store: ImageStore, *contents: str) -> StoredImage:
    """An image whose disk has a layer for each content."""
    store.root.mkdir(exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".building-", dir=store.root))
    layers = {f"layer{number}": f"layer{number}.qcow2" for number in range(1, len(contents))}
    files = {**PARTS, **layers}
    for file in files.values():
        (staging / file).write_text(file)
    for part, content in zip(("disk", *layers), contents, strict=True):
        (staging / files[part]).write_text(content)
    manifest = {
        "name": "agent",
        "version": "1",
        "arch": "x86_64",
        "created": 0,
        "files": {part: {"name": file} for part, file in files.items()},
    }
    return store.publish(staging, manifest)


def test_a_disk_may_have_layers_in_their_order(store: ImageStore) -> None:
    contents = [str(number) for number in range(12)]
    image = publish_layers(store, *contents)
    assert [path.read_text() for path in image.chain] == contents
    assert image.disk == image.chain[0] and store.verify(image) == []
    assert store.get("agent") == image


def test_layers_are_part_of_the_digest(store: ImageStore) -> None:
    digests = {
        publish_layers(store, "a", *more).digest for more in ((), ("b",), ("c",), ("b", "c"))
    }
    assert len(digests) == 4


def test_an_earlier_program_refuses_layers_instead_of_leaving_them_out(store: ImageStore) -> None:
    about = json.loads((publish_layers(store, "a", "b").root / MANIFEST).read_text())
    assert about["schema_version"] == 2
    assert json.loads((publish(store).root / MANIFEST).read_text())["schema_version"] == 1


@pytest.mark.parametrize("layers", [["layer2"], ["layer1", "layer3"], ["layer0"], ["layer01"]])
def test_layers_with_a_gap_are_damage(store: ImageStore, layers: list[str]) -> None:
    image = publish(store)
    files = json.loads((image.root / MANIFEST).read_text())["files"]
    rewrite(image, files={**files, **dict.fromkeys(layers, files["disk"])})
    found = store.get("debian")
    assert found is not None and "its layers are" in found.errors[0]


def test_a_missing_layer_is_an_error_of_that_image(store: ImageStore) -> None:
    image = publish_layers(store, "a", "b")
    image.chain[1].unlink()
    found = store.get("agent")
    assert found is not None and found.errors == ("layer1.qcow2 is missing",)


def test_a_withdrawn_version_gives_its_place_to_the_newest_other(store: ImageStore) -> None:
    first, second, third = (publish(store, content=str(number)) for number in range(3))
    store.make_current(second)
    assert store.get("debian") == second
    store.withdraw(second)
    assert store.get("debian") in (first, third) and not second.root.exists()
    store.withdraw(first)
    assert store.get("debian") == third
    store.withdraw(third)
    assert store.get("debian") is None and not (store.root / "debian").exists()
    with pytest.raises(ImageNotFound):
        store.withdraw(third)


def test_withdrawing_another_version_leaves_the_current_one(store: ImageStore) -> None:
    first, second = publish(store), publish(store, content="2")
    store.withdraw(first)
    assert store.get("debian") == second


def test_a_broken_version_does_not_take_a_withdrawn_ones_place(store: ImageStore) -> None:
    first, second = publish(store), publish(store, content="2")
    (first.root / MANIFEST).write_text("{")
    store.withdraw(second)
    assert store.get("debian") is None
    assert first.root.exists(), "what cannot be read is not removed"
