"""Local nodes, and the record of the fleet that is up."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand.base.capacity import available_memory
from quicksand.base.errors import (
    ConfigError,
    FleetError,
    MemoryBudgetError,
    PathError,
    RemoteUnreachableError,
    StateError,
)
from quicksand.base.paths import SHARED_IMAGES, Paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.life.image_users import ImageUsers
from quicksand.records.config import SandboxConfig
from quicksand.records.fleet_files import fleet_file, machine_id
from quicksand.records.memory_budget import BUDGET
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.remote.destination import find_node, parse_address
from quicksand.saves.finding import remember, store_at
from quicksand_fleet import node as reaching
from quicksand_fleet import nodes as making
from quicksand_fleet.local import nodes_of
from quicksand_fleet.node import NodeDestination
from quicksand_fleet.nodes import end_fleet, make_nodes, sandboxes_of, saves_of
from quicksand_fleet.opening import addresses_of, open_back_end
from quicksand_fleet.record import FleetRecord, read_fleet, set_drained, write_fleet

from tests.conftest import blank_record
from tests.unit.saves.making import make_save


async def end(places: Paths) -> list[str]:
    told: list[str] = []
    await end_fleet(places, told=told.append)
    return told


async def test_nodes_share_the_images_and_divide_the_memory(places: Paths) -> None:
    record = make_nodes(places, 3)
    assert [node.name for node in record.nodes] == ["node-1", "node-2", "node-3"]
    assert read_fleet(places) == record
    assert sum(node.memory_bytes for node in record.nodes) < available_memory()
    for node in record.nodes:
        there = node.paths(places)
        assert there.images == places.images
        assert there.sandboxes != places.sandboxes
        way = parse_address(f"node://{node.name}")
        assert way == find_node(node.name)
        assert isinstance(way, NodeDestination)
        assert way.environment()[BUDGET] == str(node.memory_bytes)
    with pytest.raises(StateError, match="of 3 local nodes"):
        make_nodes(places, 1)
    assert await end(places) == []
    assert read_fleet(places) is None
    assert find_node("node-1") is None
    with pytest.raises(FleetError, match="no fleet is up"):
        await end(places)
    with pytest.raises(ConfigError, match="'node-1'"):
        parse_address("node://node-1")


async def test_a_nodes_program_works_in_a_home_of_its_own(
    places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with ssh: what it makes without being told where is not made where its client is."""
    monkeypatch.chdir(tmp_path)
    (node,) = make_nodes(places, 1).nodes
    way = NodeDestination.of(node, places)
    monkeypatch.setattr(
        reaching, "PROGRAM", ("-P", "-c", "import os; print(os.getcwd(), os.stat('.').st_mode)")
    )
    for _ in range(2):
        process = await way.start(stdout=asyncio.subprocess.PIPE)
        said = (await process.communicate())[0].decode()
        assert said == f"{way.home} {0o40700}\n"
    assert await end(places) == []
    assert not way.home.exists()
    with pytest.raises(RemoteUnreachableError, match="ended"):
        await way.start()
    assert not node.runtime(places).exists()


async def test_saves_that_go_with_a_node_are_known_wherever_they_were_made(places: Paths) -> None:
    (node,) = make_nodes(places, 1).nodes
    own = node.paths(places)
    home = node.data(places) / "home"
    elsewhere = places.data.parent / "elsewhere"
    for root, name in (
        (own.saves, "imported"),
        (own.saves, "web.kept-0123456789ab"),  # the fleet's own
        (home / ".quicksand" / "sandboxes", "mine"),
        (home / "w", "of a workspace"),
        (elsewhere, "stays"),
    ):
        root.mkdir(parents=True, exist_ok=True)
        make_save(store_at(root, own), name, b"1")
        remember(root, own)
    assert saves_of(places, node) == ["imported", "mine", "of a workspace"]
    assert await end(places) == []
    assert (elsewhere / "stays").exists()


async def test_what_is_not_provably_a_nodes_is_left_alone(places: Paths) -> None:
    record = make_nodes(places, 1)
    data = record.nodes[0].data(places)
    kept = data.with_name("kept")
    data.rename(kept)
    data.mkdir(mode=0o700)
    (data / "precious").write_text("of somebody")
    with pytest.raises(PathError, match="is left alone"):
        await end(places)
    assert (data / "precious").read_text() == "of somebody"
    assert read_fleet(places) == record  # it can be tried again
    (data / "precious").unlink()
    data.rmdir()
    kept.rename(data)
    await end(places)
    assert places.images.is_dir()


@pytest.mark.parametrize("which", ["data", "runtime"])
async def test_a_link_in_place_of_a_nodes_directory_leads_nowhere(
    places: Paths, tmp_path: Path, which: str
) -> None:
    """It would lead to another data directory, whose sandboxes `fleet down` would remove."""
    (node,) = make_nodes(places, 1).nodes
    place = getattr(node, which)(places)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    theirs = Registry(replace(places, data=elsewhere, runtime=elsewhere))
    os.close(theirs.create(replace(blank_record(SandboxConfig("debian")), committed=True)))
    place.rename(place.with_name("kept"))
    place.symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))

    with pytest.raises(PathError, match="node-1, is left alone"):
        await NodeDestination.of(node, places).start()
    for look in (sandboxes_of, saves_of):
        with pytest.raises(PathError, match="is left alone"):
            look(places, node)
    with pytest.raises(PathError, match="is left alone"):
        ImageUsers(places)
    with pytest.raises(PathError, match="is left alone"):
        await end(places)
    assert sorted(elsewhere.rglob("*")) == before
    assert place.is_symlink()


async def test_sandboxes_of_nodes_are_ended_and_told(places: Paths) -> None:
    node = make_nodes(places, 1).nodes[0]
    os.close(Registry(node.paths(places)).create(_committed("web")))
    assert await end(places) == ["web@node-1"]


def test_an_image_that_a_node_needs_is_in_use(places: Paths) -> None:
    node = make_nodes(places, 1).nodes[0]
    os.close(Registry(node.paths(places)).create(_committed("web")))
    image = ImageStore(places.images).get("debian")
    assert image is not None, "make setup builds it"
    assert "web@node-1" in ImageUsers(places).of(image).sandboxes


def test_a_node_does_not_change_the_images(
    places: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(SHARED_IMAGES, "1")
    with pytest.raises(StateError, match="does not change them"):
        ImageStore(tmp_path).remove("debian")


def test_too_many_nodes_for_the_memory_are_refused(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "available_memory", lambda: 1024**3)
    with pytest.raises(MemoryBudgetError, match="3 nodes would have"):
        make_nodes(places, 3)
    with pytest.raises(ConfigError, match="not 0"):
        make_nodes(places, 0)
    assert not fleet_file(places).exists()


def test_a_failure_in_the_midst_leaves_nothing(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise PathError("no space left")

    monkeypatch.setattr(making, "write_fleet", fail)
    with pytest.raises(PathError):
        make_nodes(places, 2)
    assert not list((places.data / "fleet" / "nodes").iterdir())


def test_a_damaged_record_is_named(places: Paths) -> None:
    write_fleet(places, FleetRecord(made=1.0))
    fleet_file(places).write_text('{"schema_version": 99}')
    with pytest.raises(FleetError, match=r"fleet.json cannot be read: schema_version 99"):
        read_fleet(places)
    assert nodes_of(places) == ()


def test_draining_is_kept(places: Paths) -> None:
    set_drained(places, "box", on=True)
    set_drained(places, "lab", on=True)
    set_drained(places, "box", on=False)
    assert (read_fleet(places) or FleetRecord()).drained == {"lab"}


def test_without_a_fleet_it_is_said_how_to_get_one(places: Paths) -> None:
    assert addresses_of(FleetRecord()) == {}
    with pytest.raises(FleetError, match="there is no fleet") as caught:
        open_back_end()
    assert "fleet up --local" in caught.value.hint


def test_a_fleet_over_ray_without_ray_names_the_extra(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    write_fleet(places, FleetRecord(back_end="ray", made=1.0))
    with pytest.raises(FleetError) as caught:
        open_back_end()
    assert "quicksand-tui[fleet]" in caught.value.hint


def test_a_machine_keeps_its_id(places: Paths) -> None:
    found = machine_id(places)
    assert (len(found), machine_id(places)) == (32, found)
    (places.data / "fleet" / "machine").write_text("nonsense")
    with pytest.raises(PathError, match="is damaged"):
        machine_id(places)


def _committed(name: str) -> Record:
    record = blank_record(SandboxConfig("debian"))
    return replace(record, name=name, committed=True)
