"""Ray's processes on this machine: whose they are, and their end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from quicksand.base.errors import FleetError, PathError
from quicksand.base.removal import make_marked
from quicksand_fleet.over_ray import cluster
from quicksand_fleet.over_ray.cluster_record import MARK, ClusterRecord, machine_of, resource_of
from quicksand_fleet.over_ray.ray_processes import processes_of_cluster

from tests.unit.fleet.over_ray.fakes import ONE

WAITS = "import sys; print('x', flush=True); sys.stdin.read()"


@pytest.fixture
def record(tmp_path: Path) -> ClusterRecord:
    return made(tmp_path, os.urandom(6).hex())


def made(root: Path, id_: str) -> ClusterRecord:
    return ClusterRecord(id=id_, address="127.0.0.1:1", directory=root / id_)


@contextmanager
def process(environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits; its environment can be read by then."""
    pipe = subprocess.PIPE
    argv = [sys.executable, "-c", WAITS]
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, env=environment) as made:
        assert made.stdout is not None
        made.stdout.read(1)
        try:
            yield made
        finally:
            made.kill()


def test_only_processes_with_the_mark_of_the_cluster_are_ended(record: ClusterRecord) -> None:
    other = made(record.directory.parent, os.urandom(6).hex())
    make_marked(record.directory)
    with process({MARK: record.id}) as ours, process({MARK: other.id}) as theirs, process({}) as no:
        assert [pid for pid, _ in processes_of_cluster(record)] == [ours.pid]
        cluster.end_cluster(record)
        assert ours.wait() < 0
        assert (theirs.poll(), no.poll()) == (None, None)
    assert not record.directory.exists()
    cluster.end_cluster(record)


def test_a_raylet_is_told_from_those_of_other_machines(record: ClusterRecord) -> None:
    mark = {MARK: record.id}
    seat = cluster.Seat(machine_id=ONE, memory_bytes=1, environment={"QUICKSAND_DATA_DIR": "/a"})
    with (
        process({**mark, **seat.environment}) as one,
        process({**mark, "QUICKSAND_DATA_DIR": "/b"}),
    ):
        found = processes_of_cluster(record, having=seat.environment)
        assert [pid for pid, _ in found] == [one.pid]


def test_what_writes_to_the_directory_is_found_without_its_environment(
    record: ClusterRecord,
) -> None:
    make_marked(record.directory)
    log = record.directory / "log"
    with log.open("wb") as output:
        pipe = subprocess.PIPE
        argv = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        with subprocess.Popen(argv, stdin=pipe, stderr=output, env={}) as hidden:
            assert [pid for pid, _ in processes_of_cluster(record)] == [hidden.pid]
            cluster.end_processes(record)


def test_a_directory_that_is_not_ours_stays(record: ClusterRecord) -> None:
    record.directory.mkdir()
    (record.directory / "precious").touch()
    with pytest.raises(PathError):
        cluster.end_cluster(record)
    assert (record.directory / "precious").exists()


def test_without_ray_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "find_spec", lambda _: None)
    with pytest.raises(FleetError) as caught:
        cluster.require_ray()
    assert "quicksand-tui[fleet]" in str(caught.value.hint)


def test_a_record_survives_its_file_and_a_damaged_one_is_refused(record: ClusterRecord) -> None:
    told = record.to_json()
    assert ClusterRecord.from_json(told) == record
    for name, value in (("id", "../x"), ("address", "x"), ("directory", "/etc"), ("id", 7)):
        with pytest.raises(FleetError):
            ClusterRecord.from_json({**told, name: value})
    with pytest.raises(FleetError):
        ClusterRecord.from_json({})


def test_a_token_is_for_this_user_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ray_root", lambda: tmp_path / "ray")
    monkeypatch.setattr(cluster, "find_spec", lambda _: object())
    found = cluster.new_cluster()
    assert found.token.stat().st_mode & 0o777 == 0o600
    assert len(found.token.read_text()) == 64
    assert found.address.startswith("127.0.0.1:")
    environment = found.environment()
    assert environment["RAY_AUTH_MODE"] == "token"
    assert MARK not in environment  # clients have it, too, and are none of Ray's processes
    cluster.end_cluster(found)


def test_the_resource_of_a_machine_is_found_among_others() -> None:
    assert machine_of({"memory": 1, "machine:x": 1, resource_of(ONE): 1}) == ONE
    assert machine_of({"memory": 1, "node:127.0.0.1": 1}) == ""
