"""Image bundles of the specification: whoever made them, they become images or nothing."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import BundleError, ConfigError, QuicksandError
from quicksand.saves.bundle.exporting import export_image
from quicksand.saves.bundle.manifest import BundleKind

from quicksand_tui.model.remedy_words import hint_of
from tests.each import each
from tests.unit.disks.test_qcow2 import header
from tests.unit.saves.bundles.disks import backed
from tests.unit.saves.bundles.making import Home, contents, members, pack, sign

GOOD: dict[str, Any] = {"name": "theirs", "version": "24.04", "arch": "amd64", "cmdline": "quiet"}


def image(manifest: dict[str, Any] | None = None, **files: bytes) -> dict[str, bytes]:
    parts = {"image.qcow2": header(), "image.kernel": b"kernel", "image.initrd": b"initrd"}
    parts |= {name.replace("_", "."): data for name, data in files.items()}
    return {"manifest.json": json.dumps(GOOD if manifest is None else manifest).encode(), **parts}


@each("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 2, 3, 0)])
def test_an_image_arrives(there: Home, order: tuple[int, ...]) -> None:
    files = list(image().items())
    done = there.import_(pack(dict(files[n] for n in order)))
    assert (done.kind, done.name, done.image_added) == (BundleKind.IMAGE, "theirs", True)
    found = there.images.get("theirs")
    assert found is not None
    assert (found.version, found.arch, found.cmdline) == ("24.04", "x86_64", "quiet")
    assert found.errors == ()
    assert there.images.verify(found) == []
    assert found.disk.read_bytes() == header()
    assert there.import_(pack(image())).name == "theirs", "the same once more is no trouble"


def test_a_bundle_of_ours_without_its_manifest_is_an_image_too(
    here: Home, there: Home, tmp_path: Path
) -> None:
    """Its three files have the names that the specification gives them."""
    files = members(here.export(tmp_path / "b", full=True))
    parts = {name: data for name, data in files.items() if name.startswith("image.")}
    done = there.import_(pack({"manifest.json": json.dumps(GOOD).encode(), **parts}))
    assert done.kind is BundleKind.IMAGE


def test_what_it_does_not_say_has_a_value(there: Home, tmp_path: Path) -> None:
    path = tmp_path / "mine-1.quicksand"
    path.write_bytes(pack(image({})))
    assert there.import_(path).name == "mine-1"
    with pytest.raises(BundleError, match="cannot be the name of an image"):
        there.import_(pack(image({})))
    assert there.import_(pack(image({})), name="named").name == "named"


def test_the_image_in_use_stays_unless_it_is_to_be_replaced(there: Home) -> None:
    own = there.add_image("theirs")
    with pytest.raises(BundleError, match="and it is another one") as caught:
        there.import_(pack(image()))
    assert "--name" in hint_of(caught.value)
    assert there.images.get("theirs") == own
    there.import_(pack(image()), replace=True)
    assert there.images.get("theirs") != own


def test_one_for_another_processor_lies_beside_the_image_in_use(
    there: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Architecture, "host", lambda: Architecture.X86_64)
    own = there.add_image("theirs")
    there.import_(pack(image({**GOOD, "arch": "arm64"})))
    assert there.images.get("theirs") == own
    other = there.images.get("theirs", Architecture.ARM64)
    assert other is not None
    assert (other.arch, other.version) == ("aarch64", "24.04")
    with pytest.raises(BundleError, match="and it is another one"):
        there.import_(pack(image({**GOOD, "arch": "arm64", "cmdline": "debug"})))


def test_a_bundle_of_ours_for_another_processor_lies_beside_the_image_in_use(
    here: Home, there: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Architecture, "host", lambda: Architecture.ARM64)
    path = tmp_path / "d.quicksand"
    export_image("debian", path, here.paths)
    there.import_(pack(image({**GOOD, "name": "debian", "arch": "arm64"})))
    own = there.images.get("debian")
    assert own is not None and own.arch == "aarch64"
    for _ in range(2):
        there.import_(path)
        assert there.images.get("debian") == own
    other, first = there.images.get("debian", Architecture.X86_64), here.images.get("debian")
    assert other is not None and first is not None and other.digest == first.digest
    there.import_(path, name="alone")
    alone = there.images.get("alone")
    assert alone is not None and alone.arch == "x86_64"


@each(
    ("files", "said"),
    [
        (image(image_qcow2=backed(b"/etc/passwd.qcow2")), "backing file"),
        (image(image_qcow2=header(incompatible=4)), "external data file"),
        (image(image_qcow2=b"KDMV" + bytes(600)), "usable qcow2"),
        (image({**GOOD, "name": "../x"}), "cannot be the name of an image"),
        (image({**GOOD, "name": 7}), "cannot be the name of an image"),
        (image({**GOOD, "arch": "vax"}), "vax"),
        (image({**GOOD, "cmdline": "a\nb"}), "cannot be printed"),
        (image({**GOOD, "cmdline": ["a"]}), "not a text"),
        (image({**GOOD, "recipe": 1}), "not a text"),
        (image({**GOOD, "files": {"image.kernel": {"sha256": "0" * 64}}}), "image.kernel"),
        (image({**GOOD, "files": {"kernel": {"sha256": "0" * 64}}}), "image.kernel"),
        ({**image(), "more": b""}, "'more'"),
        ({**image(), "../more": b""}, "more"),
    ],
)
def test_what_is_not_right_is_refused(
    there: Home, tmp_path: Path, files: dict[str, bytes], said: str
) -> None:
    before = contents(tmp_path)
    with pytest.raises(QuicksandError, match=said.replace(".", r"\.")):
        there.import_(pack(files))
    assert contents(tmp_path) == before


@each("name", ["image.qcow2", "image.kernel", "image.initrd", "manifest.json"])
def test_each_of_its_files_is_needed(there: Home, tmp_path: Path, name: str) -> None:
    before = contents(tmp_path)
    with pytest.raises(BundleError, match=name.replace(".", r"\.")):
        there.import_(pack({key: data for key, data in image().items() if key != name}))
    assert contents(tmp_path) == before


def test_digests_that_it_tells_are_held_to(there: Home) -> None:
    there.import_(pack(image({**GOOD, "format": "x", "created": 10**19})), name="other")
    told = {"image.kernel": {"sha256": hashlib.sha256(b"kernel").hexdigest()}}
    assert there.import_(pack(image({**GOOD, "files": told}))).name == "theirs"


def test_our_manifest_has_to_come_first(there: Home) -> None:
    files = image()
    del files["manifest.json"]
    with pytest.raises(BundleError, match="manifest"):
        there.import_(pack({**files, "manifest.json": sign({"format": "quicksand-bundle"})}))


def test_a_name_that_cannot_be_is_refused(there: Home) -> None:
    for name in ("../x", "a b", "/x"):
        with pytest.raises((BundleError, ConfigError), match="cannot be the name"):
            there.import_(pack(image()), name=name)
