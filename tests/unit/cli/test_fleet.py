"""The command `fleet`: brought up, shown, drained and ended, with nodes that have no sandboxes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand.base.listing import own_sockets
from quicksand.base.paths import Paths
from quicksand.records.config import SandboxConfig
from quicksand.records.fleet_files import fleet_file, machine_id
from quicksand.records.host_sockets import HOST_SOCKETS
from quicksand.records.registry import Registry
from quicksand_fleet import command as module
from quicksand_fleet import desk
from quicksand_fleet.fleet import Fleet
from quicksand_fleet.interface import FleetHost, HostState
from quicksand_fleet.keeping.book import Book, Exported, Kept, Older, Phase
from quicksand_fleet.keeping.kept import KeptSandbox
from quicksand_fleet.record import FleetRecord, NodeRecord, read_fleet, write_fleet

from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from tests.conftest import blank_record, wait_for
from tests.ssh_server import FarHost, far_environ, without_sshd
from tests.unit.cli.test_main import complete


def test_from_up_to_down(places: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet"]) == Exit.FAILURE
    assert "there is no fleet" in capfd.readouterr().err
    assert run(["fleet", "up"]) == Exit.FAILURE
    assert "names no other machine" in capfd.readouterr().err
    assert run(["fleet", "down"]) == Exit.FAILURE
    assert "no fleet is up" in capfd.readouterr().err

    assert run(["fleet", "up", "--local", "2"]) == Exit.OK
    heads, *rows = capfd.readouterr().out.splitlines()
    assert heads.split() == ["NAME", "STATE", "SANDBOXES", "MEMORY", "FREE", "CPUS", "IMAGES"]
    assert [row.split()[:3] for row in rows] == [["node-1", "ready", "0"], ["node-2", "ready", "0"]]

    assert run(["fleet", "drain", "node-3"]) == Exit.FAILURE
    assert "no machine 'node-3'" in capfd.readouterr().err
    assert run(["fleet", "drain", "node-1"]) == Exit.OK
    assert run(["fleet", "status", "--json"]) == Exit.OK
    told = {one["name"]: one for one in json.loads(capfd.readouterr().out)}
    assert (told["node-1"]["state"], told["node-2"]["state"]) == ("drained", "ready")
    assert told["node-1"]["machine_id"] != told["node-2"]["machine_id"]
    assert run(["fleet", "drain", "node-1", "--off"]) == Exit.OK
    record = read_fleet(places)
    assert record is not None and not record.drained

    node = record.nodes[0]
    registry = Registry(node.paths(places))
    config = SandboxConfig("debian")
    os.close(registry.create(replace(blank_record(config), name="web", committed=True)))
    assert run(["--host", "node-1", "ps", "--all"]) == Exit.OK
    assert "web" in capfd.readouterr().out
    assert run(["fleet", "down"]) == Exit.FAILURE
    told_of = capfd.readouterr().err
    assert "web@node-1" in told_of and "--yes" in told_of
    assert read_fleet(places) == record
    assert run(["fleet", "down", "--yes"]) == Exit.OK
    assert read_fleet(places) is None


@pytest.fixture
def far(places: Paths, monkeypatch: pytest.MonkeyPatch) -> Iterator[FarHost]:
    """A machine that is reached over ssh: this one."""
    with (
        tempfile.TemporaryDirectory(prefix="qsh-") as root,
        without_sshd(Path(root), far_environ()) as found,
    ):
        monkeypatch.setenv("PATH", found.environ()["PATH"])
        yield found
        wait_for(lambda: not own_sockets(places.runtime, HOST_SOCKETS), what="the far end to end")


def test_the_machines_of_the_config_are_a_fleet(
    far: FarHost, places: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["hosts", "add", "box", far.address]) == Exit.OK
    assert run(["fleet", "up"]) == Exit.OK
    assert capfd.readouterr().out.splitlines()[1].split()[:3] == ["box", "ready", "0"]
    assert run(["fleet", "down"]) == Exit.OK
    assert read_fleet(places) is None
    # Without one that is up, they are one all the same.
    assert run(["fleet", "status", "--json"]) == Exit.OK
    assert json.loads(capfd.readouterr().out)[0]["machine_id"] == machine_id(places)


def test_a_machine_that_is_away_is_named_with_since_when(
    far: FarHost, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    broken = tmp_path / "ssh"
    broken.write_text("#!/bin/sh\necho no route to host >&2\nexit 255\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert run(["hosts", "add", "box", far.address]) == Exit.OK
    assert run(["fleet", "status"]) == Exit.FAILURE
    told = capfd.readouterr()
    assert "unreachable since" in told.out
    assert "no route to host" in told.err


def test_a_machine_that_has_not_answered_yet_is_not_called_unreachable() -> None:
    """On a busy host a healthy one takes its time."""
    host = FleetHost(name="box", state=HostState.UNREACHABLE, why="it has not answered yet")
    assert module._row(host)[:2] == ("box", "no answer yet")


def test_json_has_what_is_kept_with_the_machine_that_it_is_on(
    places: Paths, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    web = KeptSandbox(
        name="web",
        host="node-2",
        id="0123456789ab",
        epoch=2,
        is_starting=False,
        saved_at=1.0,
        saved_on=("node-1",),
        restarted="2026-11-27, since node-1 was lost",
        older_on=("node-1",),
        trouble="",
        is_coordinated=True,
    )
    placing = replace(web, name="db", host="", is_starting=True)
    lost = replace(web, name="old", host="node-9")

    async def kept(self: Fleet) -> list[KeptSandbox]:
        return [web, placing, lost]

    monkeypatch.setattr(Fleet, "kept", kept)
    assert run(["fleet", "up", "--local", "2"]) == Exit.OK
    capfd.readouterr()
    assert run(["fleet", "status", "--json"]) == Exit.OK
    out, err = capfd.readouterr()
    told = {one["name"]: one["kept"] for one in json.loads(out)}
    ((first,), (second,)) = told["node-1"], told["node-2"]
    assert (first["name"], first["host"], first["starting"]) == ("db", None, True)
    assert (second["name"], second["epoch"], second["older_on"]) == ("web", 2, ["node-1"])
    assert "old" in err and "none of these machines" in err
    assert run(["fleet", "down", "--yes"]) == Exit.OK


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--restart-elsewhere", "--name", "web"], "needs --fleet"),
        (["--fleet", "--restart-elsewhere"], "needs --fleet and --name"),
        (["--fleet", "--restart-elsewhere", "--name", "web", "--rm"], "excludes --rm"),
        (["--fleet", "--save", "mine"], "does not go with --fleet"),
    ],
)
def test_run_refuses_what_a_fleet_cannot_do(
    words: list[str], why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", *words, "debian", "--", "true"]) == Exit.USAGE
    assert why in capfd.readouterr().err


def test_status_shows_what_is_kept_and_that_nobody_renews_its_lease(
    places: Paths, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody(_: Paths) -> None: ...

    monkeypatch.setattr(desk, "ensure_coordinator", nobody)
    assert run(["fleet", "up", "--local", "2"]) == Exit.OK
    Book(places).add(
        Kept(
            name="web",
            epoch=2,
            phase=Phase.LEASED,
            host="node-2",
            id="0123456789ab",
            lease=30.0,
            every=None,
            make="{}",
            exported=Exported(name="web.kept-0123456789ab", at=1.0, hosts=("node-1",)),
            older=(Older(host="node-1", id="0123456789ac", epoch=1),),
            restarted="2026-11-27 10:07:30, from the save of 10:06, since node-1 was lost",
            trouble="no room",
        )
    )
    capfd.readouterr()
    assert run(["fleet", "status"]) == Exit.OK
    out, err = capfd.readouterr()
    assert "web   node-2  2" in out and "node-1" in out.splitlines()[-1]
    for words in ("since node-1 was lost", "earlier epoch", "no room", "no coordinator"):
        assert words in err
    assert run(["fleet", "down", "--yes"]) == Exit.OK
    assert not Book(places).read_all()


def test_names_of_machines_are_completed(
    places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[hosts]\nbox = "ssh://me@box"\nbarn = "ssh://barn"\n')
    monkeypatch.setenv("QUICKSAND_CONFIG", str(config))
    assert complete("quicksand-tui hosts rm b", 3) == ["barn", "box"]
    assert complete("quicksand-tui hosts check b", 3) == ["barn", "box"]
    assert complete("quicksand-tui fleet drain bo", 3) == ["box"]
    write_fleet(places, FleetRecord(drained=frozenset({"box"})))
    assert complete("quicksand-tui fleet drain b", 3) == ["barn"]
    assert complete("quicksand-tui fleet drain --off b", 4) == ["box"]
    node = NodeRecord(id="0a1b2c3d", name="node-1", memory_bytes=1, cpus=1)
    write_fleet(places, FleetRecord(nodes=(node,)))
    assert complete("quicksand-tui fleet drain ", 3) == ["node-1"]
    fleet_file(places).write_text("nonsense")
    assert complete("quicksand-tui fleet drain b", 3) == ["barn", "box"]
    config.write_text("nonsense")
    assert complete("quicksand-tui fleet drain b", 3) == [""]
