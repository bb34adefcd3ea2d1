"""`images sbom, tag, verify` and the other names of `list` and `inspect`."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError, ImageError, StateError
from quicksand.base.files import try_lock
from quicksand.base.paths import Paths, paths
from quicksand.disks.images.bill import bill_of
from quicksand.disks.images.image_store import ImageStore, tag_image
from quicksand.disks.images.stored_image import StoredImage
from quicksand.life.cleaning import Cleaner, Waste

from tests.unit.cli.run_cli import quicksand

PACKAGES = {"bash": "5.2-1", "libstdc++6": "1:14.2~1"}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageStore:
    for kind in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"QUICKSAND_{kind}_DIR", str(tmp_path / kind.lower()))
    return ImageStore(paths().images)


def publish(
    store: ImageStore,
    name: str = "one",
    content: str = "disk",
    arch: str = "x86_64",
    **more: object,
) -> StoredImage:
    staging = store.root / "staging"
    staging.mkdir(parents=True)
    for part in ("disk", "kernel", "initrd"):
        (staging / part).write_text(f"{part} {content}")
    manifest = {
        "name": name,
        "version": "1",
        "arch": arch,
        "created": 1,
        "machine": {"memory": "1G"},
        "packages": PACKAGES,
        "python": {"uv": "1.0"},
        "system": {"distribution": "ubuntu"},
        "files": {part: {"name": part} for part in ("disk", "kernel", "initrd")},
        **more,
    }
    return store.publish(staging, manifest)


def test_a_bill_of_materials_names_all_packages_and_is_the_same_each_time(
    store: ImageStore,
) -> None:
    image = publish(store)
    bill = json.loads(quicksand("images", "sbom", "one").stdout)
    assert bill == bill_of(image)
    assert [found["purl"] for found in bill["components"]] == [
        "pkg:deb/ubuntu/bash@5.2-1?arch=amd64",
        "pkg:deb/ubuntu/libstdc%2B%2B6@1:14.2~1?arch=amd64",
        "pkg:pypi/uv@1.0",
    ]
    assert bill["metadata"]["component"]["hashes"][0]["content"] == image.digest


def test_an_image_of_which_nobody_knows_what_is_in_it_has_no_bill(store: ImageStore) -> None:
    image = publish(store)
    path = image.root / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "packages": {}, "python": [1]}))
    with pytest.raises(ImageError, match="no recipe made it"):
        bill_of(image)


def test_a_tag_is_an_image_of_its_own_with_the_same_files(store: ImageStore) -> None:
    image = publish(store)
    done = quicksand("images", "tag", "one", "two")
    assert (done.returncode, done.stdout) == (0, b"two\n")
    tagged = store.get("two")
    assert tagged is not None
    assert (tagged.name, tagged.digest) == ("two", image.digest)
    assert tagged.machine == {"memory": "1G"}
    assert tagged.disk.samefile(image.disk)
    assert quicksand("images", "rm", "one").returncode == 0
    assert ImageStore.verify(tagged) == []
    assert bill_of(tagged)["components"] == bill_of(tagged)["components"] != []


def test_a_tag_moves_to_another_image(store: ImageStore) -> None:
    first, other = publish(store), publish(store, "other", "more")
    tag_image(store, first, "tag")
    assert tag_image(store, other, "tag").digest == other.digest
    assert tag_image(store, first, "tag").digest == first.digest
    found = store.get("tag")
    assert found is not None and found.digest == first.digest
    assert len(store.versions("tag")) == 2


def test_a_tag_of_an_image_for_another_processor_takes_nothing_from_this_hosts(
    store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Architecture, "host", lambda: Architecture.X86_64)
    own, other = publish(store), publish(store, "other", "more", arch="aarch64")
    tag_image(store, other, "tag")
    found = store.get("tag")
    assert found is not None and found.digest == other.digest, "there is no other"
    tag_image(store, own, "tag")
    tag_image(store, other, "tag")
    found, beside = store.get("tag"), store.get("tag", Architecture.ARM64)
    assert found is not None and found.digest == own.digest
    assert beside is not None and beside.digest == other.digest


@pytest.mark.parametrize("name", ["../x", "", "A", "a/b", "x" * 65, "-x", ".x"])
def test_a_tag_that_can_be_no_name_is_refused(store: ImageStore, name: str) -> None:
    image = publish(store)
    with pytest.raises(ConfigError):
        tag_image(store, image, name)


def test_a_damaged_image_or_a_name_that_is_just_being_built_gets_no_tag(
    store: ImageStore,
) -> None:
    image = publish(store)
    lock = try_lock(store.root / ".two.lock")
    assert lock is not None
    with pytest.raises(StateError, match="just being built"):
        tag_image(store, image, "two")
    os.close(lock)
    image.kernel.write_text("")
    broken = store.get("one")
    assert broken is not None
    with pytest.raises(ImageError, match="damaged"):
        tag_image(store, broken, "three")


def test_verify_reads_every_byte_of_every_version(store: ImageStore) -> None:
    publish(store)
    image = publish(store, content="later")
    assert quicksand("images", "verify").returncode == 0
    data = bytearray(image.disk.read_bytes())
    data[0] ^= 1
    image.disk.chmod(0o600)
    image.disk.write_bytes(data)
    done = quicksand("images", "verify", "one", "--json")
    assert done.returncode == 1
    verdicts = {found["digest"]: found for found in json.loads(done.stdout)}
    assert [found["whole"] for found in verdicts.values()].count(True) == 1
    assert "another digest (disk)" in verdicts[image.digest]["problems"][0]
    shown = quicksand("images", "verify").stdout.decode()
    assert "BAD" in shown and "whole" in shown


def test_an_image_that_is_not_here_is_said(store: ImageStore) -> None:
    for words in (["verify", "nothing"], ["sbom", "nothing"], ["tag", "nothing", "x"]):
        done = quicksand("images", *words)
        assert done.returncode != 0
        assert b"Image not found: 'nothing'" in done.stderr


def test_ls_and_info_are_list_and_inspect(store: ImageStore) -> None:
    publish(store)
    for one, other in (("ls", "list"), ("info", "inspect")):
        words = [] if one == "ls" else ["one"]
        both = [json.loads(quicksand("images", w, *words, "--json").stdout) for w in (one, other)]
        assert both[0] == both[1]
    assert json.loads(quicksand("images", "info", "one", "--json").stdout)["packages"] == 3


@pytest.mark.parametrize("ending", ["_amd64.deb", "-r0.apk", "-py3-none-any.whl"])
def test_downloads_of_builds_are_cleaned_but_not_while_one_is_under_way(
    store: ImageStore, places: Paths, ending: str
) -> None:
    kept = paths().cache / "packages" / "debian-amd64"
    kept.mkdir(parents=True, mode=0o700)
    for parent in (kept, *kept.parents[:2]):
        parent.chmod(0o700)
    mine, others = kept / f"a_1%3a2.0{ending}", kept / "notes.txt"
    for path in (mine, others):
        path.write_bytes(b"x" * 8192)
    cleaner = Cleaner(paths())
    (heap,) = [found for found in cleaner.look() if found.kind is Waste.DOWNLOADS]
    assert heap.paths == (mine,)
    lock = try_lock(kept / ".lock")
    assert lock is not None
    cleaner.clean([heap])
    assert mine.exists()
    os.close(lock)
    assert cleaner.clean([heap]) > 0
    assert not mine.exists()
    assert others.exists(), "nobody knows whose that is"


def test_what_an_image_has_of_a_container_and_its_age_are_told_in_words(store: ImageStore) -> None:
    container = {"name": "app:1", "init": False, "cmd": ["sh", "-c", "a b\x1b[2J"], "env": []}
    publish(store, created=time.time() - 7200, container=container)
    said = quicksand("images", "info", "one").stdout.decode()
    rows = dict(re.findall(r"^(container \w+|newest file|\w+) +(.*)$", said, re.MULTILINE))
    assert rows["newest file"] == "2h ago"
    assert rows["container name"] == "app:1"
    assert rows["container init"] == "no"
    assert rows["container cmd"].startswith("sh -c 'a b")
    assert "\x1b" not in rows["container cmd"]
