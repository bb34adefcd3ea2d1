"""`du` and `clean`, of what fleets, other machines and builds of images leave."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from quicksand.base.files import try_lock
from quicksand.base.paths import Paths, make_private_dir, paths
from quicksand.base.removal import make_marked, remove
from quicksand.records.fleet_files import fleet_file, nodes_dir
from quicksand.records.registry import Registry
from quicksand_fleet.local import lost_nodes
from quicksand_fleet.nodes import make_nodes

from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from quicksand_tui.cli.this_host.doctor import _strangers
from tests.unit.cli.test_house import Output, read_json

DIGEST = "ab" * 32


@pytest.fixture(autouse=True)
def own(places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images, a cache and a current directory of the test's own."""
    for name in ("images", "qemu"):
        (places.data / name).unlink()
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(places.data.parent / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def fill_for_others() -> list[Path]:
    """What commands and saves of other machines leave in the cache, and builds of images."""
    cache = paths().cache
    place = make_marked(make_private_dir(cache / "hosts") / ".importing-0123456789ab")
    (place / "made").mkdir()
    (place / "made" / "file").write_bytes(bytes(5000))
    make_private_dir(cache / "incoming")
    make_private_dir(cache / "builds")
    arrived = cache / "incoming" / f"{DIGEST}.part"
    log = cache / "builds" / "debian.log"
    for path in (arrived, log):
        path.write_text("long")
    return [place, arrived, log]


def test_clean_removes_what_other_machines_and_builds_left(places: Paths, capsys: Output) -> None:
    left = fill_for_others()
    strange = [paths().cache / name for name in ("hosts/mine", "incoming/mine", "builds/mine")]
    for path in strange:
        path.write_text("not ours")
    plan = read_json(capsys, "clean", "--dry-run")
    kinds = {heap["kind"]: len(heap["paths"]) for heap in plan["heaps"]}
    assert kinds == {"parts of saves": 1, "build logs": 1, "leftovers": 1}
    read_json(capsys, "clean", "--yes")
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in strange)


def test_clean_leaves_alone_what_other_machines_and_builds_use(
    places: Paths, capsys: Output
) -> None:
    left = fill_for_others()
    locks = [left[0] / "lock", left[1].with_name("lock"), make_private_dir(places.images)]
    locks[2] /= ".debian.lock"
    held = [try_lock(lock) for lock in locks]
    try:
        assert read_json(capsys, "clean", "--yes")["heaps"] == []
    finally:
        for lock in held:
            assert lock is not None
            os.close(lock)
    assert all(path.exists() for path in left)


def test_what_a_lost_fleet_has_left_is_named_and_only_what_is_empty_removed(
    places: Paths, capsys: Output
) -> None:
    (node,) = make_nodes(places, 1).nodes
    empty, full = (node.runtime(places).with_name(name) for name in ("00000001", "00000002"))
    for place in (empty, full):
        make_marked(place)
    (full / "something").touch()
    try:
        assert lost_nodes(places) == [empty, full]
        assert read_json(capsys, "clean", "--yes")["heaps"][0]["paths"] == [str(empty)]
        fleet_file(places).unlink()
        read_json(capsys, "clean", "--yes")
        assert lost_nodes(places) == [node.data(places), full]
        told = [check.found for check in _strangers(Registry(places), {})]
        assert f"{full} is of a local node that no fleet has" in told
        assert node.runtime(places).exists()
        fleet_file(places).write_text("{")  # which nodes it has is not known
        assert lost_nodes(places) == []
    finally:
        (full / "something").unlink()
        for place in (full, node.runtime(places), node.data(places)):
            remove(place)


def test_du_counts_nodes_and_whatever_else_is_in_the_data_directory(
    places: Paths, capsys: Output
) -> None:
    size = 1 << 20
    node = make_marked(make_private_dir(nodes_dir(places)) / "01234567")
    for place in (node, *(make_private_dir(places.data / n) for n in ("tools", "ssh", "api"))):
        (place / "file").write_bytes(os.urandom(size))
    (places.data / "spares.json").write_bytes(os.urandom(size))
    told = read_json(capsys, "du")
    kinds = {kind["kind"]: (kind["number"], kind["own"] // size) for kind in told["kinds"]}
    assert kinds == {"local nodes": (1, 1), "other files": (4, 4)}
    assert told["total"] // size == 5


def test_what_is_no_sandbox_but_has_an_id_for_its_name_ends_no_look(
    places: Paths, capsys: Output
) -> None:
    root = make_private_dir(places.data / "sandboxes")
    planted = [root / f"{number:012x}" for number in range(5)]
    planted[0].write_bytes(b"x" * 5000)
    os.mkfifo(planted[1])
    planted[2].symlink_to("nowhere")
    planted[3].symlink_to(planted[0])
    planted[4].mkdir()
    (planted[4] / "sandbox.json").symlink_to(planted[1])
    before = [as_it_stands(path) for path in planted]
    checks = read_json(capsys, "doctor", code=Exit.FAILURE)  # there is no QEMU
    told = [check["found"] for check in checks if str(places.sandboxes) in check["found"]]
    assert len(told) == 5 and all(" is left alone: " in found for found in told)
    assert {check["name"] for check in checks} >= {"memory", "mounts", "leftovers", "terminal"}
    looks = ("ps -a", "du --each", "du", "clean --dry-run", "trash", "saves")
    for words in map(str.split, looks):
        read_json(capsys, *words)
    run(["ps"])
    assert "broken" in capsys.readouterr().err
    assert [as_it_stands(path) for path in planted] == before


def as_it_stands(path: Path) -> tuple[int, ...]:
    """Its status without the time of its last access, which a look may change (`relatime`)."""
    found = path.lstat()
    return found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
