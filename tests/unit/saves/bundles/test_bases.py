"""What a save lies on: named, brought along, or bound to it on the way."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import BundleError, SaveError
from quicksand.disks.images.disk_layers import create_overlay
from quicksand.disks.images.stored_image import NAMES, StoredImage
from quicksand.saves.bundle.bases import check_files
from quicksand.saves.bundle.exporting import export_image
from quicksand.saves.bundle.manifest import Bundle, BundleKind
from quicksand.saves.save_manifest import check_save

from quicksand_tui.model.remedy_words import hint_of
from tests.unit.saves.bundles.making import Home, contents, digests
from tests.unit.saves.making import MIB, make_published


def test_a_thin_bundle_needs_its_base(here: Home, there: Home, tmp_path: Path) -> None:
    bundle = here.export(tmp_path / "b")
    for present in (False, True):
        if present:
            there.add_image(content=b"another kernel")
        before = contents(there.paths.data)
        with pytest.raises(
            BundleError, match=r"'debian' version 13, digest \w{12}, which"
        ) as caught:
            there.import_(bundle)
        assert "--full" in hint_of(caught.value)
        assert "images build debian" in hint_of(caught.value)
        assert contents(there.paths.data) == before
    assert ("the 'debian' here has the digest" in str(caught.value)) is True


def test_an_image_that_comes_with_a_save_does_not_become_the_one_in_use(
    here: Home, there: Home, tmp_path: Path
) -> None:
    """New sandboxes must not boot from what somebody sent."""
    own = there.add_image(content=b"another kernel")
    there.import_(here.export(tmp_path / "b", full=True))
    assert there.images.get("debian") == own
    base = there.saves.find("env").require().base
    assert base is not None
    found = there.images.find_version("debian", base.digest)
    assert found is not None
    assert found.root != own.root


def test_the_base_may_have_another_name_there(here: Home, there: Home, tmp_path: Path) -> None:
    there.add_image(name="renamed")
    there.import_(here.export(tmp_path / "b"))
    assert check_save(there.saves.find("env").root)


def test_an_image_that_is_there_is_not_written_again(
    here: Home, there: Home, tmp_path: Path
) -> None:
    image = there.add_image()
    before = contents(image.root)
    bundle = here.export(tmp_path / "b", full=True)
    assert there.import_(bundle).image_added is False
    assert contents(image.root) == before
    # It is looked at all the same.
    damaged = bundle.replace(b"kernel" + bytes(506), b"kermel" + bytes(506))
    assert damaged != bundle
    with pytest.raises(BundleError, match=r"image\.kernel is damaged"):
        there.import_(damaged, name="again")


def test_a_damaged_image_in_the_store_is_told(here: Home, there: Home, tmp_path: Path) -> None:
    image = there.add_image()
    image.kernel.write_bytes(b"")
    with pytest.raises(Exception, match="damaged version") as caught:
        there.import_(here.export(tmp_path / "b", full=True))
    assert "images rm debian" in hint_of(caught.value)
    assert there.saves.list() == []


def test_without_its_image_a_save_is_exported_thin_only(here: Home, tmp_path: Path) -> None:
    here.images.remove("debian")
    assert here.export(tmp_path / "b")
    with pytest.raises(SaveError, match="which is not here") as caught:
        here.export(tmp_path / "full", full=True)
    assert "without --full" in hint_of(caught.value)
    assert not (tmp_path / "full").exists()


# Saves of the published packages


def test_a_published_save_moves_and_is_bound_to_its_base(
    here: Home, there: Home, tmp_path: Path
) -> None:
    make_published(here.paths.saves / "theirs", b"one", b"two", b"two")
    first = here.export(tmp_path / "1", "theirs", full=True)
    assert here.export(tmp_path / "2", "theirs", full=True) == first
    there.import_(first)
    found = there.saves.find("theirs").require()
    image = here.images.get("debian")
    assert image is not None
    assert found.base is not None
    assert (found.base.digest, found.version) == (image.digest, 6)
    assert digests(there.saves.find("theirs")) == digests(here.saves.find("theirs"))
    assert len({layer.id for layer in found.layers or ()}) == 3


def test_a_published_save_brings_the_saves_below_it(
    here: Home, there: Home, tmp_path: Path
) -> None:
    """Theirs name another save as their image; what moves needs nobody but the image."""
    make_published(here.paths.saves / "theirs", b"three", image="env")
    make_published(here.paths.saves / "upper", b"four", image="theirs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here.paths.saves)
        there.import_(here.export(tmp_path / "b", "upper", full=True))
    found = there.saves.find("upper")
    below = [here.saves.find(name) for name in ("env", "theirs", "upper")]
    assert digests(found) == [digest for save in below for digest in digests(save)]
    assert found.require().config.image == "debian"


def test_what_nobody_knows_is_kept(here: Home, there: Home, tmp_path: Path) -> None:
    path = here.saves.find("env").root / "manifest.json"
    plain = {**json.loads(path.read_text()), "colour": {"of": ["the", "sky"]}}
    plain["config"]["sound_card"] = True
    path.write_text(json.dumps(plain))
    there.import_(here.export(tmp_path / "b", full=True))
    there_path = there.saves.find("env").root / "manifest.json"
    assert json.loads(there_path.read_text()) == plain


def names_in(bundle: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(bundle)) as archive:
        return archive.getnames()


def read_manifest_of(bundle: bytes) -> dict[str, Any]:
    with tarfile.open(fileobj=io.BytesIO(bundle)) as archive:
        file = archive.extractfile("manifest.json")
        assert file is not None
        found: dict[str, Any] = json.load(file)
        return found


def signed(manifest: dict[str, Any]) -> dict[str, Any]:
    """With the digest that fits."""
    plain = {key: value for key, value in manifest.items() if key != "sha256"}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return {**plain, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def add_layered(home: Home, backing: Path | None = Path("disk.qcow2")) -> StoredImage:
    """An image whose disk has two layers, as that of a package that lies on another has."""
    staging = home.images.root / ".building-ab"
    staging.mkdir(parents=True, exist_ok=True)
    create_overlay(staging / "disk.qcow2", backing=None, size=MIB)
    create_overlay(staging / "layer1.qcow2", backing=backing, size=MIB)
    names = {**NAMES, "layer1": "layer1.qcow2"}
    for part in ("kernel", "initrd"):
        (staging / part).write_bytes(b"one of two layers")
    manifest = {
        "name": "debian",
        "version": "2",
        "arch": "x86_64",
        "created": 0,
        "files": {part: {"name": file} for part, file in names.items()},
    }
    return home.images.publish(staging, manifest)


def test_a_bundle_holds_all_layers_of_an_image(here: Home, there: Home, tmp_path: Path) -> None:
    image = add_layered(here)
    here.add_save("layered")
    with pytest.raises(BundleError, match="which is not here"):
        there.import_(here.export(tmp_path / "thin", "layered"))
    bundle = here.export(tmp_path / "full", "layered", full=True)
    assert names_in(bundle)[-4:] == [
        "image.qcow2",
        "image.layer1.qcow2",
        "image.kernel",
        "image.initrd",
    ]
    assert there.import_(bundle).name == "layered"
    found = there.images.get("debian")
    assert found is not None and found.digest == image.digest
    assert [path.name for path in found.chain] == ["disk.qcow2", "layer1.qcow2"]
    assert not there.images.verify(found)


def test_an_image_of_several_layers_is_exported_and_imported(
    here: Home, there: Home, tmp_path: Path
) -> None:
    image = add_layered(here)
    export_image("debian", tmp_path / "image", here.paths)
    assert read_manifest_of((tmp_path / "image").read_bytes())["version"] == 2
    added = there.import_(tmp_path / "image")
    assert added.kind is BundleKind.IMAGE and added.image_added
    assert there.import_(tmp_path / "image").image_added is False
    found = there.images.get("debian")
    assert found is not None and found.digest == image.digest and not found.errors


def test_a_bundle_without_layers_is_of_the_version_that_older_programs_know(
    here: Home, tmp_path: Path
) -> None:
    assert read_manifest_of(here.export(tmp_path / "b", full=True))["version"] == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda files: files[:1] + files[2:], "digest of its base does not fit"),
        (lambda files: [files[1], files[0], *files[2:]], "disagree on whether it contains"),
        (
            lambda files: [{**f, "name": f["name"].replace("layer1", "layer2")} for f in files],
            "disagree on whether it contains",
        ),
    ],
)
def test_layers_of_an_image_that_are_missing_or_in_disorder_are_refused(
    here: Home,
    there: Home,
    tmp_path: Path,
    change: Callable[[list[dict[str, object]]], list[dict[str, object]]],
    reason: str,
) -> None:
    add_layered(here)
    export_image("debian", tmp_path / "image", here.paths)
    manifest = read_manifest_of((tmp_path / "image").read_bytes())
    with pytest.raises((ValueError, BundleError), match=reason):
        check_files(Bundle.from_json(signed({**manifest, "files": change(manifest["files"])})))


def test_a_layer_of_an_image_that_is_a_whole_disk_is_refused(
    here: Home, there: Home, tmp_path: Path
) -> None:
    add_layered(here, backing=None)
    export_image("debian", tmp_path / "image", here.paths)
    with pytest.raises(BundleError, match=r"image\.layer1\.qcow2 is a whole disk, and no layer"):
        there.import_(tmp_path / "image")
    assert there.images.get("debian") is None


def test_a_bundle_cannot_say_that_its_image_was_installed(
    here: Home, there: Home, tmp_path: Path
) -> None:
    image = here.images.get("debian")
    assert image is not None
    path = image.root / "manifest.json"
    origin = {"name": "quicksand-debian", "version": "1", "file": "", "sha256": "", "source": ""}
    path.write_text(json.dumps({**json.loads(path.read_text()), "package": origin}))
    there.import_(here.export(tmp_path / "b", full=True))
    found = there.images.get("debian")
    assert found is not None and found.package is None
