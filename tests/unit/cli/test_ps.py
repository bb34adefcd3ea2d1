"""Listing what is on disk."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from quicksand.base.files import write_json
from quicksand.base.paths import Paths
from quicksand.records.fleet_files import LeaseRecord, lease_file, write_lease
from quicksand.records.layout import sandbox_dir

from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from tests.unit.cli.run_cli import make_stopped, quicksand


def test_nothing_is_listed_where_nothing_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ps"]) == Exit.OK
    out, err = capsys.readouterr()
    assert out.split() == ["NAME", "STATUS", "IMAGE", "AGE", "CPUS", "MEMORY", "ACCEL", "PORTS"]
    assert err == ""


def test_only_running_ones_are_listed_unless_asked(
    places: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    make_stopped(places, "web", memory="1.5G", cpus=3)
    assert run(["ps"]) == Exit.OK
    out, err = capsys.readouterr()
    assert "web" not in out
    assert "ps -a" in err
    assert run(["ps", "-a"]) == Exit.OK
    line = capsys.readouterr().out.splitlines()[1]
    assert line.split()[0] == "web"
    for part in ("stopped", "debian", "60m", "3", "1.5 GiB"):
        assert part in line


def test_names_alone_are_for_scripts(places: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    make_stopped(places, "web")
    assert run(["ps", "-aq"]) == Exit.OK
    assert capsys.readouterr().out == "web\n"


def test_json_has_it_all(places: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    record = make_stopped(places, "web", memory="64M")
    assert run(["ps", "-a", "--json"]) == Exit.OK
    (found,) = json.loads(capsys.readouterr().out)
    assert found["id"] == record.id
    assert found["name"] == "web"
    assert found["status"] == "stopped"
    assert found["memory"] == 64 * 2**20
    assert found["error"] is None


def test_a_crashed_one_says_why(places: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    record = make_stopped(places, "web")
    write_json(sandbox_dir(places, record.id).exit, {"code": -9, "asked": False})
    assert run(["ps", "-a"]) == Exit.OK
    head, line = capsys.readouterr().out.splitlines()
    assert head.endswith("REASON")
    assert "crashed" in line
    assert "SIGKILL" in line


def test_a_broken_one_is_listed_and_breaks_nothing(
    places: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    make_stopped(places, "web")
    bad = sandbox_dir(places, "0123456789ab")
    bad.root.mkdir()
    bad.record.write_text('{"schema_version": 1, "name": "\\u001b[2J')
    assert run(["ps", "-a"]) == Exit.OK
    out = capsys.readouterr().out
    assert "✗ broken" in out
    assert "web" in out
    assert "\x1b" not in out


def test_hostile_text_in_a_record_is_shown_harmless(
    places: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    make_stopped(places, "web", image="debian\x1b]0;owned\x07\u202e")
    assert run(["ps", "-a"]) == Exit.OK
    out = capsys.readouterr().out
    assert "\\x1b]0;owned\\x07\\u202e" in out
    assert out.replace("\n", "").isprintable()


def test_without_utf8_the_table_is_ascii(places: Paths) -> None:
    make_stopped(places, "web")
    result = quicksand("ps", "-a", env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert result.returncode == Exit.OK
    assert b"- stopped" in result.stdout


def test_one_that_a_fleet_keeps_tells_its_epoch(
    places: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, old = make_stopped(places, "web"), make_stopped(places, "db-epoch-1")
    make_stopped(places, "plain")
    lease = LeaseRecord(name="web", epoch=3, boot="x")
    write_lease(sandbox_dir(places, kept.id), lease)
    gone = replace(lease, name="db", epoch=1, superseded_by="node-2")
    write_lease(sandbox_dir(places, old.id), gone)
    assert run(["ps", "-a"]) == Exit.OK
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.endswith("EPOCH")
    told = {line.split()[0]: line.split()[-1] for line in lines}
    assert (told["web"], told["db-epoch-1"]) == ("3", "1")
    assert run(["ps", "-a", "--json"]) == Exit.OK
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert {name: one["epoch"] for name, one in found.items()} == {
        "web": 3,
        "db-epoch-1": 1,
        "plain": None,
    }
    assert found["db-epoch-1"]["superseded_by"] == "node-2"
    lease_file(sandbox_dir(places, kept.id)).write_text("{")
    assert run(["ps", "-a", "--json"]) == Exit.OK
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert (found["web"]["epoch"], found["web"]["status"]) == (None, "stopped")
