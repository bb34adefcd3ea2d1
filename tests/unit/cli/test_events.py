"""`events` and `ps --watch`: what another process does shows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from quicksand.base.paths import Paths
from quicksand.records.layout import sandbox_dir

from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from tests.unit.cli.run_cli import make_stopped


@contextmanager
def following(*words: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A command that goes on, and its output."""
    with subprocess.Popen(
        [sys.executable, "-m", "quicksand_tui", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ},
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout
        finally:
            process.kill()


def test_the_past_is_told_in_order(places: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    record = make_stopped(places, "web")
    assert run(["events"]) == Exit.OK
    assert capsys.readouterr().out.endswith("  web  created, from debian\n")
    assert run(["events", "--json", "web"]) == Exit.OK
    line = json.loads(capsys.readouterr().out)
    assert line == {
        "time": round(record.created, 3),
        "event": "created",
        "id": record.id,
        "name": "web",
        "image": "debian",
    }
    assert run(["events", "other"]) == Exit.OK
    assert run(["events", "-n", "0"]) == Exit.OK
    assert capsys.readouterr().out == ""


def test_what_happens_in_another_process_is_told_line_by_line(places: Paths) -> None:
    make_stopped(places, "old")
    with following("events", "-f", "--json") as (process, out):
        assert json.loads(out.readline())["event"] == "watching"
        record = make_stopped(places, "web")
        line = json.loads(out.readline())
        assert (line["event"], line["name"], line["state"]) == ("created", "web", "stopped")
        place = sandbox_dir(places, record.id).root
        place.rename(places.data / "elsewhere")
        line = json.loads(out.readline())
        assert (line["event"], line["id"]) == ("deleted", record.id)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == Exit.INTERRUPTED


def test_what_happened_while_no_reader_ran_is_told_to_the_next_one(
    places: Paths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_stopped(places, "old")
    file = tmp_path / "cursor"

    def told() -> list[tuple[str, str]]:
        assert run(["events", "--json", "--since", str(file)]) == Exit.OK
        lines = map(json.loads, capsys.readouterr().out.splitlines())
        return [(line["event"], line["name"]) for line in lines]

    assert told() == [("created", "old")]
    assert told() == []
    record = make_stopped(places, "web")
    assert told() == [("created", "web")]
    sandbox_dir(places, record.id).root.rename(places.data / "elsewhere")
    with following("events", "-f", "--json", "--since", str(file)) as (process, out):
        assert [json.loads(out.readline())["event"] for _ in range(2)] == ["deleted", "watching"]
        process.kill()
    assert told() == []


def test_a_list_that_is_watched_is_shown_again_when_it_changes(places: Paths) -> None:
    with following("ps", "--watch", "-a", "--json") as (process, out):
        assert json.loads(out.readline()) == []
        make_stopped(places, "web")
        assert [entry["name"] for entry in json.loads(out.readline())] == ["web"]
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == Exit.INTERRUPTED


def test_a_watched_list_of_names_is_for_scripts_too(places: Paths) -> None:
    make_stopped(places, "web")
    with following("ps", "--watch", "-aq") as (_, out):
        assert out.readline() == "web\n"
