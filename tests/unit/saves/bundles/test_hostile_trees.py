"""Sandboxes in bundles: hostile ones, damaged ones, and accidents on their way."""

from __future__ import annotations

import errno
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quicksand.base.errors import BundleError, QuicksandError
from quicksand.records.sandboxes import Record
from quicksand.saves.bundle.exporting import Exported, export_tree
from quicksand.snapshots.pages import PageIndex, PageRun
from quicksand.things.status import Status

from tests.conftest import examples
from tests.faults import Fault, fault
from tests.unit.saves.bundles.boxes import MEMORY, check_whole, make_box, place_of
from tests.unit.saves.bundles.disks import backed
from tests.unit.saves.bundles.making import Home, contents, forge, members
from tests.unit.saves.bundles.test_accidents import each_fault, each_kill

__all__ = ["fault"]


@pytest.fixture
def record(here: Home) -> Record:
    return make_box(here)


async def export(here: Home, record: Record, target: Path, **options: Any) -> Exported:
    return await export_tree(here.registry, record, target, **options)


@pytest.fixture
async def bundle(here: Home, record: Record, tmp_path: Path) -> bytes:
    await export(here, record, tmp_path / "tree", full=True)
    return (tmp_path / "tree").read_bytes()


# Hostile ones


Change = Callable[[dict[str, Any], dict[str, bytes]], None]


def records(files: dict[str, bytes]) -> list[str]:
    return [name for name in files if name.endswith("node.json")]


def edit(**values: Any) -> Change:
    """Change the record of the first checkpoint."""

    def change(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        name = records(files)[0]
        files[name] = json.dumps({**json.loads(files[name]), **values}).encode()

    return change


def edit_sandbox(**values: Any) -> Change:
    def change(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        manifest["sandbox"].update(values)

    return change


def edit_config(**values: Any) -> Change:
    def change(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        manifest["sandbox"]["config"].update(values)

    return change


def replace_file(ending: str, data: bytes) -> Change:
    def change(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        files[next(name for name in files if name.endswith(ending))] = data

    return change


def add_file(name: str) -> Change:
    def change(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        files[name] = b"x"
        manifest["files"].insert(len(manifest["files"]) - 3, {"name": name, "size": 1})

    return change


def drop(ending: str) -> Change:
    def change(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        name = next(name for name in files if name.endswith(ending))
        del files[name]
        manifest["files"] = [file for file in manifest["files"] if file["name"] != name]

    return change


def circle(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
    first, second, _ = records(files)
    ids = [json.loads(files[name])["id"] for name in (first, second)]
    for name, parent in ((first, ids[1]), (second, ids[0])):
        files[name] = json.dumps({**json.loads(files[name]), "parent": parent}).encode()


INDEX_FAR = PageIndex(MEMORY, (PageRun(0, 2, 0, 1),)).encode()
INDEX_LARGE = PageIndex(1 << 50, (PageRun(1 << 30, 2, 0, 0),)).encode()

HOSTILE: dict[str, Change] = {
    "a circle of checkpoints": circle,
    "a parent that is not there": edit(parent="f" * 12),
    "another id than its directory": edit(id="f" * 12),
    "an id that is a path": edit(id="../../x"),
    "a layer that is a path": edit(layers=["../../../etc/x"]),
    "a layer that is not there": edit(layers=["f" * 12]),
    "no layers": edit(layers=[]),
    "memory elsewhere": edit(memory="../../x"),
    "memory that nobody vouches for": edit(image=None),
    "an image of another size": edit(image=["x.ram", MEMORY * 2, [0] * 32]),
    "a file that is a path": edit(firmware=["../x", 1, [0]]),
    "a file that is not there": edit(firmware=["x.rom", 1, [0]]),
    "devices of a tebibyte": edit(devices=["devices", 1 << 40, [0]]),
    "an index of a tebibyte": edit(index=["pages.index", 1 << 40, [0]]),
    "firmware of a tebibyte": edit(firmware=["x.rom", 1 << 40, [0]]),
    "pages of more than its memory": edit(pages=[["x.pages", MEMORY * 2, [0]]]),
    "a shape of much else": lambda m, f: edit(
        shape={**json.loads(f[records(f)[0]])["shape"], "more": [[]] * 20_000}
    )(m, f),
    "an unknown tier": edit(tier="magic"),
    "an unknown schema": edit(schema_version=2),
    "a tag that a terminal acts on": edit(tag="\x1b[2J"),
    "a shape of much memory": edit(shape={"memory": 1 << 50, "image": "", "arch": "x86_64"}),
    "no shape": edit(shape={}),
    "values of another type": edit(shape=7),
    "numbers without end": edit(created=float("inf")),
    "standing nowhere": edit_sandbox(node="f" * 12),
    "a top that is frozen": lambda m, f: m["sandbox"].update(top=m["sandbox"]["layers"][0]),
    "a top that is a path": edit_sandbox(top="../../x"),
    "a top that is not there": edit_sandbox(top="f" * 12),
    "layers that are none": edit_sandbox(layers="abc"),
    "an id of the sandbox that is a path": edit_sandbox(id="../x"),
    "QEMU arguments": edit_config(extra_qemu_args=["-monitor", "stdio"]),
    "unknown options": edit_config(mounts=[{"host": "/", "guest": "/mnt"}]),
    "another image": edit_config(image="/etc/passwd"),
    "other memory": edit_config(memory="128M"),
    "one more file in the memory": add_file("memory/x.pages"),
    "one more file beside it": add_file("head.json"),
    "one more file elsewhere": add_file("../../x"),
    "one file less": drop(".rom"),
    "a seal less": drop(".json"),
    "a layer of a host's file": replace_file(".qcow2", backed(b"/etc/passwd")),
    "a layer by json": replace_file(".qcow2", backed(b"json:{}.qcow2")),
    "another memory image": replace_file(".ram", b"x" * MEMORY),
    "another file of pages": replace_file(".pages", b"x" * 8192),
    "a state with a backing file": replace_file(".state", backed(b"x.qcow2")),
    "a state that is none": replace_file(".state", b"x"),
    "an index that leads out of its files": replace_file("pages.index", INDEX_FAR),
    "an index of a larger memory": replace_file("pages.index", INDEX_LARGE),
    "a seal of another file": replace_file(
        ".json", b'{"schema_version": 1, "file": ["../x", 1, [0]]}'
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
async def test_hostile_ones_are_refused(
    there: Home, bundle: bytes, tmp_path: Path, what: str
) -> None:
    data = forge(bundle, HOSTILE[what])
    assert data != bundle
    before = contents(tmp_path)
    with pytest.raises(QuicksandError) as caught:
        there.import_(data)
    assert str(caught.value)
    assert contents(tmp_path) == before
    assert there.registry.list() == []


async def test_records_that_know_the_files_are_still_looked_into(
    there: Home, bundle: bytes, tmp_path: Path
) -> None:
    """As above, but by somebody who has done all the sums."""

    def hostile(data: bytes, part: str) -> Change:
        def change(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
            for record in records(files):
                plain = json.loads(files[record])
                own = record.replace("node.json", part)
                if own in files:
                    files[own] = data
                    plain["index"] = [part, len(data), [zlib.crc32(data)]]
                    files[record] = json.dumps(plain).encode()
                    return

        return change

    for data in (INDEX_FAR, INDEX_LARGE, b"no index"):
        before = contents(tmp_path)
        with pytest.raises(BundleError):
            there.import_(forge(bundle, hostile(data, "pages.index")))
        assert contents(tmp_path) == before


@pytest.fixture(scope="module")
def ground() -> dict[str, bytes]:
    """The bundle that is damaged again and again."""
    return {}


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes_and_truncations(
    there: Home, bundle: bytes, ground: dict[str, bytes], data: st.DataObject
) -> None:
    """What is refused leaves nothing; what is taken is what was sent."""
    good = ground.setdefault("bundle", bundle)
    damaged = bytearray(good)
    near = st.integers(0, len(good) // 512 - 1).flatmap(
        lambda block: st.integers(block * 512, block * 512 + 511)
    )
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.one_of(near, st.integers(0, 16_000)))
        damaged[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.one_of(st.none(), near))
    before = contents(there.paths.data / "sandboxes")
    try:
        done = there.import_(bytes(damaged[:cut]))
    except QuicksandError:
        assert contents(there.paths.data / "sandboxes") == before
        return
    assert cut is None
    record = there.registry.find(done.id).record
    assert record is not None
    assert (done.name, len(check_whole(there, done.id))) == ("box", 3)
    place = place_of(there, record)
    files = members(good)
    for name in files:
        if name.endswith(("qcow2", ".ram", ".pages", ".state", "devices", "pages.index")):
            if name.startswith("image."):
                continue
            assert (place.root / name).read_bytes() == files[name]
    there.registry.remove(done.id)


# Accidents


async def test_an_import_that_is_killed(there: Home, bundle: bytes, tmp_path: Path) -> None:
    """A whole sandbox, or none; never one that is seen and is not whole."""

    def look() -> None:
        for entry in there.registry.list():
            assert entry.status is Status.STOPPED
            assert len(check_whole(there, entry.id)) == 3
            there.registry.remove(entry.id)

    path = tmp_path / "tree"
    count = each_kill(there.paths.data, lambda: there.import_(path), look)
    assert count > 100
    done = there.import_(path, name="last")
    there.registry.reap()
    # What its maker had no time to write a record for goes after some seconds.
    left = {p.name for p in there.paths.sandboxes.iterdir() if p.name[0] != "."}
    for name in left - {done.id} - {entry.id for entry in there.registry.list()}:
        assert not (there.paths.sandboxes / name / "sandbox.json").exists()
    hidden = {p.name for p in there.paths.sandboxes.iterdir() if p.name[0] == "."}
    assert hidden == {".names.lock", ".importing-lock"}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
async def test_an_import_to_a_full_disk(
    there: Home, bundle: bytes, tmp_path: Path, fault: Fault, code: int
) -> None:
    path = tmp_path / "tree"
    there.add_image()

    def look() -> None:
        assert there.registry.list() == []
        left = contents(there.paths.data)
        assert not [name for name in left if name.startswith("sandboxes/")]

    count = each_fault(fault, there.paths.data, code, lambda: there.import_(path), look)
    assert count > 50
    (entry,) = there.registry.list()
    assert len(check_whole(there, entry.id)) == 3
