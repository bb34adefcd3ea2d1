"""Starts from bundles: what is in one is unpacked once, gets no name that means something else, and
is known again by its content."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import BundleError, ImageError, ImageNotFound, PathError, QuicksandError
from quicksand.base.paths import Paths
from quicksand.base.threads import Stopped
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.resolve import ImageResolver, is_bundle
from quicksand.life.basis import find_basis, unpack_basis
from quicksand.life.cleaning import Cleaner, Waste
from quicksand.life.image_users import find_unneeded
from quicksand.records.config import SandboxConfig
from quicksand.saves.bundle import unpacked
from quicksand.saves.bundle.exporting import export_image, export_tree
from quicksand.saves.bundle.importing import import_bundle
from quicksand.saves.bundle.manifest import BundleKind
from quicksand.saves.bundle.streams import encode_header, padding
from quicksand.saves.bundle.unpacked import (
    Unpacked,
    find_unpacked,
    read_contents,
    read_head,
    unpack,
)

from quicksand_tui.model.remedy_words import hint_of
from tests.each import each
from tests.unit.saves.bundles.boxes import make_box
from tests.unit.saves.bundles.making import Home, contents, digests, forge, gzipped, pack
from tests.unit.saves.bundles.test_images import image

_MANIFEST = image()["manifest.json"]
HEAD = encode_header("manifest.json", len(_MANIFEST), 1.0) + _MANIFEST + padding(len(_MANIFEST))
"""A manifest of the specification."""

IMPORT = "quicksand.saves.bundle.unpacked.import_bundle"


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were just written count as settled."""
    monkeypatch.setattr(unpacked, "SETTLED_S", -3600.0)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The bundles that are read to their end."""
    found: list[str] = []
    real = import_bundle

    def counted(*given: Any, **more: Any) -> Any:
        found.append(more["options"].opened)
        return real(*given, **more)

    monkeypatch.setattr(IMPORT, counted)
    return found


def opened(path: Path, places: Paths) -> Unpacked:
    return unpack(read_head(path), places)


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def image_bundle(home: Home, path: Path) -> Path:
    export_image("debian", path, home.paths)
    return path


# Images


@pytest.mark.parametrize("compress", [False, True])
def test_an_image_of_ours_is_unpacked_once(
    here: Home, places: Paths, tmp_path: Path, reads: list[str], compress: bool
) -> None:
    path = tmp_path / "d.quicksand"
    export_image("debian", path, here.paths, compress=compress)
    own = here.images.get("debian")
    assert own is not None
    first = opened(path, places)
    assert first == Unpacked(image=own.versioned)
    moved = path.rename(tmp_path / "moved.quicksand")
    assert opened(moved, places) == first, "the content is known, wherever it lies"
    assert reads == ["d.quicksand"]
    resolved = ImageResolver(places).resolve(first.image, _arch(own.arch))
    assert resolved.digest == own.digest


def _arch(name: str) -> Any:
    return Architecture.parse(name)


def test_equal_images_give_equal_bundles(here: Home, tmp_path: Path) -> None:
    one, other = (image_bundle(here, tmp_path / name) for name in ("a", "b"))
    assert one.read_bytes() == other.read_bytes()


def test_an_image_of_ours_can_be_imported_as_well(here: Home, there: Home, tmp_path: Path) -> None:
    done = there.import_(image_bundle(here, tmp_path / "d.quicksand"))
    assert (done.kind, done.name, done.image_added) == (BundleKind.IMAGE, "debian", True)
    found, own = there.images.get("debian"), here.images.get("debian")
    assert found is not None
    assert own is not None
    assert (found.digest, found.machine, found.version) == (own.digest, own.machine, own.version)
    assert there.images.verify(found) == []


def test_an_image_that_is_here_can_be_imported_under_another_name(
    here: Home, tmp_path: Path
) -> None:
    done = here.import_(image_bundle(here, tmp_path / "d.quicksand"), name="theirs")
    found, own = here.images.get("theirs"), here.images.get("debian")
    assert found is not None
    assert own is not None
    assert (done.name, found.digest) == ("theirs", own.digest)
    assert found.root != own.root


def test_importing_what_a_start_has_unpacked_gives_it_its_name(
    here: Home, there: Home, tmp_path: Path
) -> None:
    path = image_bundle(here, tmp_path / "d.quicksand")
    opened(path, there.paths)
    assert there.images.get("debian") is None
    assert there.import_(path).name == "debian"
    assert there.images.get("debian") is not None
    assert there.images.unpacked() == []


@pytest.mark.usefixtures("settled")
def test_an_image_without_digests_is_known_by_its_file(
    places: Paths, tmp_path: Path, reads: list[str]
) -> None:
    path = written(tmp_path / "x.quicksand", pack(image()))
    first = opened(path, places)
    assert first.image.startswith("theirs@")
    assert opened(path, places) == first
    assert reads == ["x.quicksand"]
    written(path, pack(image(image_kernel=b"another")))
    second = opened(path, places)
    assert second != first, "a changed file with the same name is another bundle"
    assert reads == ["x.quicksand"] * 2


def test_a_file_that_was_just_written_is_not_known_by_its_times(
    places: Paths, tmp_path: Path, reads: list[str]
) -> None:
    path = written(tmp_path / "x.quicksand", pack(image()))
    assert opened(path, places) == opened(path, places)
    assert reads == ["x.quicksand"] * 2, "its next change could leave its times as they are"


def test_an_image_whose_manifest_has_digests_is_known_by_them(
    places: Paths, tmp_path: Path, reads: list[str]
) -> None:
    import hashlib

    files = image()
    manifest = json.loads(files["manifest.json"])
    manifest["files"] = {
        name: {"sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
        if name != "manifest.json"
    }
    files["manifest.json"] = json.dumps(manifest).encode()
    path = written(tmp_path / "x.quicksand", pack(files))
    assert opened(path, places) == opened(path, places)
    assert reads == ["x.quicksand"]


def test_a_start_changes_what_no_name_means(here: Home, there: Home, tmp_path: Path) -> None:
    path = image_bundle(here, tmp_path / "d.quicksand")
    own = there.add_image("debian", b"another kernel")
    name = opened(path, there.paths).image
    assert there.images.get("debian") == own
    assert name != "debian"
    there.images.withdraw(own)
    assert there.images.get("debian") is None, "no file from elsewhere takes the place"


async def test_what_starts_with_an_image_has_the_unpacked_one_in_its_config(
    here: Home, there: Home, tmp_path: Path
) -> None:
    path = image_bundle(here, tmp_path / "d.quicksand")
    config = SandboxConfig(image=str(path))
    config, save = await unpack_basis(read_head(path), config, there.paths, None)
    assert (config.image, save) == (opened(path, there.paths).image, None)


def test_an_unpacked_image_is_listed_and_named(here: Home, there: Home, tmp_path: Path) -> None:
    path = image_bundle(here, tmp_path / "d.quicksand")
    name = opened(path, there.paths).image
    resolver = ImageResolver(there.paths)
    assert [(one.name, one.source) for one in resolver.list()] == [(name, "bundle")]
    there.add_image("box")
    with pytest.raises(ImageNotFound) as caught:
        resolver.resolve("debian", _arch("amd64"))
    assert f"'{name}' (of d.quicksand)" in hint_of(caught.value)


@pytest.mark.parametrize("other", [False, True])
def test_an_image_that_was_opened_and_is_imported_is_an_image_like_others(
    here: Home, there: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: bool
) -> None:
    path = image_bundle(here, tmp_path / "d.quicksand")
    if other:
        monkeypatch.setattr(Architecture, "host", lambda: Architecture.ARM64)
    opened(path, there.paths)
    assert [one.name for one in there.images.unpacked()] == ["debian"]
    done = there.import_(path)
    assert not done.image_added and not ImageStore.load(done.root).bundle
    assert there.images.unpacked() == []
    there.add_image("debian", b"a later one")
    found = there.images.find_version("debian", ImageStore.load(done.root).digest)
    assert found is not None and not found.bundle


def test_a_version_is_named_by_the_beginning_of_its_digest(there: Home) -> None:
    one, other = there.add_image("debian", b"one"), there.add_image("debian", b"other")
    assert there.images.get(one.versioned) == one
    assert there.images.get(f"debian@{one.digest}") == one
    assert there.images.get(f"debian@{one.digest[:6]}") == one
    assert there.images.get("debian") == other
    for name in (f"debian@{one.digest[:5]}", "debian@", "@", f"x@{one.digest}", "debian@../../x"):
        assert there.images.get(name) is None, name


def test_what_nobody_needs_can_be_pruned_and_is_unpacked_again(
    here: Home, there: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[str]
) -> None:
    path = image_bundle(here, tmp_path / "d.quicksand")
    opened(path, there.paths)
    assert find_unneeded(there.paths) == [], "a start may be about to use it"
    monkeypatch.setattr("quicksand.life.image_users.FRESH_S", -1.0)
    (found,) = find_unneeded(there.paths)
    assert there.images.remove_old(found)
    assert there.images.unpacked() == []
    opened(path, there.paths)
    assert reads == ["d.quicksand"] * 2


# Saves


def test_a_save_is_unpacked_once_and_is_nobodys_own(
    here: Home, there: Home, tmp_path: Path, reads: list[str]
) -> None:
    path = tmp_path / "env.quicksand"
    here.export(path, full=True)
    found = opened(path, there.paths)
    assert found.save is not None
    assert (found.save.name, found.save.error) == ("env", "")
    assert digests(found.save) == digests(here.saves.find("env"))
    assert opened(path, there.paths) == found
    assert reads == ["env.quicksand"]
    assert there.saves.list() == [], "it is no save of the user's"
    assert there.images.get("debian") is None
    assert len(there.images.unpacked()) == 1


def test_a_save_whose_image_is_gone_is_unpacked_with_it_again(
    here: Home, there: Home, tmp_path: Path, reads: list[str]
) -> None:
    path = tmp_path / "env.quicksand"
    here.export(path, full=True)
    opened(path, there.paths)
    there.images.remove("debian")
    opened(path, there.paths)
    assert len(there.images.unpacked()) == 1
    assert reads == ["env.quicksand"] * 2


def test_an_unpacked_save_that_was_damaged_is_unpacked_again(
    here: Home, there: Home, tmp_path: Path
) -> None:
    path = tmp_path / "env.quicksand"
    here.export(path, full=True)
    first = opened(path, there.paths).save
    assert first is not None
    (first.root / "overlays" / "0.qcow2").write_bytes(b"cut")
    again = opened(path, there.paths).save
    assert again is not None
    assert digests(again) == digests(here.saves.find("env"))
    store, _ = unpacked.places_of(there.paths)
    assert store.trash() == []


def test_a_bundle_without_its_image_names_it_and_the_way_to_it(
    here: Home, there: Home, tmp_path: Path
) -> None:
    path = tmp_path / "thin.quicksand"
    here.export(path)
    before = contents(there.paths.data)
    with pytest.raises(BundleError, match="needs the image 'debian' version 13") as caught:
        opened(path, there.paths)
    assert "--full" in hint_of(caught.value)
    assert "quicksand-tui images build debian" in hint_of(caught.value)
    assert contents(there.paths.data) == before


def test_what_a_save_asks_for_is_left_out_unless_its_maker_is_trusted(
    here: Home, there: Home, tmp_path: Path
) -> None:
    def wide(manifest: dict[str, Any], _: dict[str, bytes]) -> None:
        manifest["save"]["config"] |= {
            "network_mode": "full",
            "port_forwards": [{"host": 8080, "guest": 80}],
            "extra_qemu_args": ["-incoming", "exec:id"],
            "mounts": [{"host": "/", "guest": "/mnt"}],
            "memory": "256M",
        }

    path = written(tmp_path / "b.quicksand", forge(here.export(tmp_path / "e", full=True), wide))
    found = find_basis(str(path), {}, there.paths, workspace=None, trust=False)
    config = found.config
    assert (config.network_mode, config.port_forwards) == ("mounts_only", ())
    assert (config.extra_qemu_args, config.mounts, config.memory) == ((), (), "256M")
    assert found.is_surprising
    assert "network full" in found.notices[0]
    assert "-incoming" in found.notices[0]
    given = find_basis(
        str(path), {"network_mode": "full"}, there.paths, workspace=None, trust=False
    )
    assert given.config.network_mode == "full", "the user may say so"
    trusted = find_basis(str(path), {}, there.paths, workspace=None, trust=True)
    assert (trusted.config.network_mode, trusted.config.mounts) == ("full", ())
    assert opened(path, there.paths).save is not None


def test_an_image_suggests_its_machine_and_no_more(there: Home, tmp_path: Path) -> None:
    manifest = {"name": "big", "machine": {"memory": "1G", "network_mode": "full"}}
    path = written(tmp_path / "big.quicksand", pack(image(manifest)))
    found = find_basis(str(path), {}, there.paths, workspace=None, trust=True)
    assert (found.config.memory, found.config.network_mode) == ("1G", "mounts_only")
    assert found.bundle is not None


# What is no bundle, or no good one


def test_a_sandbox_with_checkpoints_is_imported_and_not_run(
    here: Home, there: Home, tmp_path: Path
) -> None:
    path = tmp_path / "a tree.quicksand"
    asyncio.run(export_tree(here.registry, make_box(here), path))
    with pytest.raises(BundleError, match="holds the sandbox") as caught:
        find_basis(str(path), {}, there.paths, workspace=None, trust=False)
    assert f"quicksand-tui import '{path}'" in hint_of(caught.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b"x" * 100, "cut off"),
        (b"x" * 2000, "not a tar"),
        (pack({"readme": b"hello"}), "not a bundle"),
    ],
)
def test_what_is_no_bundle_is_refused_when_the_sandbox_is_made(
    places: Paths, tmp_path: Path, data: bytes, said: str
) -> None:
    path = written(tmp_path / "x.quicksand", data)
    with pytest.raises(BundleError, match=said):
        find_basis(str(path), {}, places, workspace=None, trust=False)


def test_a_bundle_that_is_cut_off_leaves_nothing(here: Home, there: Home, tmp_path: Path) -> None:
    whole = image_bundle(here, tmp_path / "d.quicksand").read_bytes()
    path = written(tmp_path / "cut.quicksand", whole[: len(whole) // 2])
    with pytest.raises(BundleError, match="cut off"):
        read_head(path)
    files = image()
    path = written(tmp_path / "spec.quicksand", pack(files)[:-12_000])
    before = contents(there.paths.data)
    with pytest.raises(BundleError, match="cut off"):
        opened(path, there.paths)
    assert contents(there.paths.data) == before


def test_a_damaged_bundle_leaves_nothing(here: Home, there: Home, tmp_path: Path) -> None:
    data = bytearray(here.export(tmp_path / "e", full=True))
    data[data.rindex(b"kernel")] ^= 1
    path = written(tmp_path / "b.quicksand", bytes(data))
    with pytest.raises(BundleError, match="damaged"):
        opened(path, there.paths)
    assert there.images.unpacked() == []
    store, _ = unpacked.places_of(there.paths)
    assert store.list() == []
    assert not list((there.paths.cache / "bundles").glob("*.lock"))


def test_paths_that_are_bundles_are_told_from_others(here: Home, tmp_path: Path) -> None:
    bundle = image_bundle(here, tmp_path / "d.quicksand")
    packed = tmp_path / "packed"
    export_image("debian", packed, here.paths, compress=True)
    (tmp_path / "dir.quicksand").mkdir()
    os.mkfifo(tmp_path / "fifo")
    disk = written(tmp_path / "disk.qcow2", b"QFI\xfb" + bytes(600))
    renamed = written(tmp_path / "b.tar", bundle.read_bytes())
    for path in (bundle, packed, renamed, tmp_path / "missing.quicksand"):
        assert is_bundle(str(path)), path
    for name in (tmp_path / "dir.quicksand", tmp_path / "fifo", disk, tmp_path / "no", "debian"):
        assert not is_bundle(str(name)), name
    os.chdir(tmp_path)
    assert is_bundle("d.quicksand"), "the name of a bundle is a path"


def test_a_missing_bundle_and_a_directory_are_said(places: Paths, tmp_path: Path) -> None:
    with pytest.raises(ImageNotFound, match="does not exist"):
        find_basis(str(tmp_path / "no.quicksand"), {}, places, workspace=None, trust=False)
    place = tmp_path / "dir.quicksand"
    place.mkdir()
    (place / "image.qcow2").write_bytes(b"")
    with pytest.raises(ImageNotFound, match="a directory, and a bundle is one file"):
        ImageResolver(places).resolve(str(place), _arch("amd64"))
    os.mkfifo(tmp_path / "fifo.quicksand")
    with pytest.raises(BundleError, match="FIFO"):
        read_head(tmp_path / "fifo.quicksand")


def test_where_no_sandbox_starts_a_bundle_is_told_from_a_damaged_disk(
    here: Home, places: Paths, tmp_path: Path
) -> None:
    path = image_bundle(here, tmp_path / "d.quicksand")
    with pytest.raises(ImageError, match="is a bundle, and only a new sandbox"):
        ImageResolver(places).resolve(str(path), _arch("amd64"))


def test_a_cache_that_cannot_be_written_is_said(here: Home, there: Home, tmp_path: Path) -> None:
    path = image_bundle(here, tmp_path / "d.quicksand")
    there.paths.cache.write_text("a file")
    with pytest.raises(PathError):
        opened(path, there.paths)


# At the same time


def test_two_starts_at_once_unpack_it_once(
    here: Home, there: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = image_bundle(here, tmp_path / "d.quicksand")
    head, found, said = read_head(path), list[Unpacked](), threading.Event()
    reads: list[str] = []

    def slow(*given: Any, **more: Any) -> Any:
        assert said.wait(60), "the other one waits"
        reads.append(more["options"].opened)
        return import_bundle(*given, **more)

    monkeypatch.setattr(IMPORT, slow)

    def start() -> None:
        found.append(unpack(head, there.paths, lambda stage, *_: _note(stage)))

    def _note(stage: str) -> None:
        if stage == unpacked.WAITING:
            said.set()

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 2
    assert found[0] == found[1]
    assert reads == ["d.quicksand"]
    assert not list((there.paths.cache / "bundles").glob("*.lock"))


def test_a_bundle_that_was_replaced_after_its_manifest_was_read_is_refused(
    here: Home, there: Home, tmp_path: Path
) -> None:
    path = tmp_path / "env.quicksand"
    here.export(path, full=True)
    head = read_head(path)
    here.add_save("other", b"three" * 9)
    here.export(path, name="other", full=True)
    with pytest.raises(BundleError, match="has changed since"):
        unpack(head, there.paths)
    assert find_unpacked(head, there.paths) is None
    assert opened(path, there.paths).save is not None, "a new start takes the new one"


@pytest.mark.usefixtures("settled")
def test_a_bundle_that_changes_while_it_is_read_is_not_known_again(
    places: Paths, tmp_path: Path
) -> None:
    path = written(tmp_path / "x.quicksand", pack(image()))
    head = read_head(path)

    def touch(*_: Any) -> None:
        os.utime(path, (1, 1))

    with pytest.raises(BundleError, match="has changed since"):
        unpack(head, places, touch)
    assert find_unpacked(head, places) is None


def test_a_cancelled_start_leaves_nothing(here: Home, there: Home, tmp_path: Path) -> None:
    path = tmp_path / "env.quicksand"
    here.export(path, full=True)

    class Stop(Exception):
        pass

    def stop() -> None:
        raise Stop

    with pytest.raises(Stop):
        unpack(read_head(path), there.paths, stop=stop)
    store, _ = unpacked.places_of(there.paths)
    assert store.roots() == store.left_behind() == []
    assert there.images.unpacked() == []
    assert not list((there.paths.cache / "bundles").glob("*.lock"))


# What stands on disk


def test_clean_removes_unpacked_saves(here: Home, there: Home, tmp_path: Path) -> None:
    path = tmp_path / "env.quicksand"
    here.export(path, full=True)
    opened(path, there.paths)
    cleaner = Cleaner(there.paths)
    heaps = [heap for heap in cleaner.look() if heap.kind is Waste.BUNDLES]
    assert len(heaps) == 1
    assert heaps[0].frees > 0
    cleaner.clean(heaps)
    assert find_unpacked(read_head(path), there.paths) is None
    store, _ = unpacked.places_of(there.paths)
    assert store.roots() == []
    assert store.trash() == []


def test_a_bundle_says_what_it_holds(here: Home, tmp_path: Path) -> None:
    path = tmp_path / "env.quicksand"
    here.export(path, full=True, compress=True)
    found = read_contents(path)
    assert (found.head.kind, found.head.name, found.packed) == (BundleKind.SAVE, "env", True)
    assert list(found.files)[-3:] == ["image.qcow2", "image.kernel", "image.initrd"]
    foreign = written(tmp_path / "x.quicksand", pack(dict(reversed(image().items()))))
    told = read_contents(foreign)
    assert (told.head.kind, told.head.name) == (BundleKind.IMAGE, "theirs")
    assert told.files["image.kernel"] == (len(b"kernel"), "")


@each("name", ["image.kernel", "extra"])
def test_info_refuses_what_an_import_would_refuse(tmp_path: Path, name: str) -> None:
    files = image()
    files[name if name == "extra" else "again"] = b"x"
    path = written(tmp_path / "x.quicksand", pack(files))
    with pytest.raises(QuicksandError, match="not part of an image"):
        read_contents(path)


@each(
    ("parts", "said"),
    [
        ((HEAD, encode_header("image.kernel", 1 << 40, 1.0), 600 << 20), "image.kernel has"),
        ((HEAD, encode_header("image.qcow2", 1 << 40, 1.0), 600 << 20), "image.qcow2"),
        ((HEAD, encode_header("image.initrd", 1 << 29, 1.0), 1 << 29), "unpack to"),
    ],
)
def test_info_expands_no_bundle_that_is_made_to_keep_it_busy(
    tmp_path: Path, parts: tuple[Any, ...], said: str
) -> None:
    path = written(tmp_path / "x.quicksand", gzipped(*parts))
    with pytest.raises(BundleError, match=said):
        read_contents(path)


def test_reading_what_a_bundle_holds_can_be_stopped(tmp_path: Path) -> None:
    path = written(tmp_path / "x.quicksand", pack(image()))

    def stop() -> None:
        raise Stopped

    with pytest.raises(Stopped):
        read_contents(path, stop)


def test_the_store_knows_an_unpacked_image_from_an_imported_one(
    here: Home, there: Home, tmp_path: Path
) -> None:
    path = image_bundle(here, tmp_path / "d.quicksand")
    opened(path, there.paths)
    (found,) = ImageStore(there.paths.images).unpacked()
    assert found.bundle == "d.quicksand"

    def claim(manifest: dict[str, Any], _: dict[str, bytes]) -> None:
        manifest["base"]["about"]["bundle"] = "mine"

    there.images.remove("debian")
    there.import_(forge(path.read_bytes(), claim))
    image_ = there.images.get("debian")
    assert image_ is not None
    assert image_.bundle == "", "a bundle does not say that of itself"
