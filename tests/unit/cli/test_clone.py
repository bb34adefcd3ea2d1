"""clone, run --cold and OTHER:TAG where there is no VM."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import pytest
from quicksand.base.errors import MachineError, StateError
from quicksand.base.paths import Paths
from quicksand.base.progress import BootTiming
from quicksand.records.config import SandboxConfig
from quicksand.records.port_forwards import PortForward
from quicksand.sandbox import Sandbox

from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from tests.each import each
from tests.unit.cli.histories import add, history_of
from tests.unit.cli.run_cli import make_stopped
from tests.unit.cli.test_main import complete


class FakeClone:
    """A clone that runs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.id = f"id-of-{name}"
        self.accelerator = "tcg"
        self.port_forwards = {80: 4711}
        self.udp_port_forwards: dict[int, int] = {}
        self.agent_url = None
        self.config = SandboxConfig.parse({"image": "debian"})
        self.notices: tuple[str, ...] = ()
        self.boot_timing = BootTiming(connect_agent_s=0.5, mode="checkpoint")
        self.done: list[str] = []

    def detach(self) -> None:
        self.done.append("detach")

    def close(self) -> None:
        self.done.append("close")


class FakeSource:
    """A sandbox that can be cloned, or not."""

    name = "web"

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}
        self.made: list[FakeClone] = []
        self.error: Exception | None = None
        self.interrupt = False
        self.is_closed = False

    async def clone(self, n: int, **asked: Any) -> list[FakeClone]:
        self.asked = {"n": n, **asked}
        if self.error is not None:
            raise self.error
        if self.interrupt:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        names = asked["names"] or [f"web-{number + 1}" for number in range(n)]
        self.made = [FakeClone(name) for name in names]
        return self.made

    async def look(self) -> None:
        """As of a sandbox of this machine."""

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> FakeSource:
    found = FakeSource()
    monkeypatch.setattr(Sandbox, "open", lambda _name, host: found)
    return found


def test_the_names_of_clones_are_printed_and_they_run_on(
    source: FakeSource, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["clone", "web", "-n", "3", "--at", "tag", "--concurrency", "2"]) == Exit.OK
    assert capsys.readouterr().out == "web-1\nweb-2\nweb-3\n"
    assert source.asked == {
        "n": 3,
        "at": "tag",
        "concurrency": 2,
        "names": None,
        "mounts": None,
    }
    assert [clone.done for clone in source.made] == [["detach", "close"]] * 3
    assert source.is_closed


LATE = "the desktop was not there after 180 s"


def test_what_the_start_of_a_clone_could_not_do_is_told(
    source: FakeSource, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = FakeClone("web-1")
    made.notices = (LATE,)

    async def clone(n: int, **asked: Any) -> list[FakeClone]:
        return [made]

    monkeypatch.setattr(source, "clone", clone)
    assert run(["clone", "web"]) == Exit.OK
    said = capsys.readouterr()
    assert (said.out, f"web-1: {LATE}" in said.err) == ("web-1\n", True)


def test_what_a_start_could_not_do_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def start(self: Sandbox) -> None:
        self._parts.life.notices = (LATE,)

    monkeypatch.setattr(Sandbox, "start", start)
    monkeypatch.setattr(Sandbox, "detach", lambda _self: None)
    monkeypatch.setattr("quicksand_tui.cli.guests.run.start_facts", lambda _sandbox: {})
    assert run(["run", "debian", "--name", "d", "--detach"]) == Exit.OK
    said = capsys.readouterr()
    assert (said.out, f"d: {LATE}" in said.err) == ("d\n", True)


def test_one_clone_can_be_named(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["clone", "web", "--name", "new"]) == Exit.OK
    assert capsys.readouterr().out == "new\n"
    assert source.asked.pop("names") == ["new"]
    assert source.asked == {"n": 1, "at": None, "concurrency": None, "mounts": None}


def test_clones_have_mounts_if_asked(source: FakeSource) -> None:
    for mode in ("ro", "rw"):
        assert run(["clone", "web", "--mounts", mode]) == Exit.OK
        assert source.asked["mounts"] == mode
    assert run(["clone", "web", "--mounts", "no"]) == Exit.USAGE


def test_json_has_an_object_a_clone(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["clone", "web", "-n", "2", "--json"]) == Exit.OK
    first, second = json.loads(capsys.readouterr().out)
    assert (first["name"], second["name"]) == ("web-1", "web-2")
    assert first["id"] == "id-of-web-1"
    assert first["ports"] == [{"host": 4711, "guest": 80}]
    assert (first["boot_mode"], first["boot_s"]) == ("checkpoint", 0.5)


def test_a_failure_prints_no_name(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    source.error = MachineError("one of them did not start")
    assert run(["clone", "web", "-n", "2"]) == Exit.FAILURE
    out, err = capsys.readouterr()
    assert (out, err) == ("", "quicksand-tui: one of them did not start\n")
    assert source.is_closed


def test_an_interrupt_prints_no_name(
    source: FakeSource, capsys: pytest.CaptureFixture[str]
) -> None:
    source.interrupt = True
    assert run(["clone", "web", "-n", "2"]) == Exit.INTERRUPTED
    assert capsys.readouterr().out == ""
    assert source.is_closed


@each(
    ("argv", "said"),
    [
        (["clone"], "NAME"),
        (["clone", "web", "-n", "0"], "0 is not in the range"),
        (["clone", "web", "-n", "2", "--name", "x"], "--name goes with one clone"),
        (["clone", "web", "--concurrency", "0"], "0 is not in the range"),
        (["images", "warm", "--memory", "banana"], "memory 'banana' is not a size"),
        (["images", "warm", "--network", "half"], "'half'"),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_explained(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == Exit.USAGE
    assert said in capsys.readouterr().err


def test_what_does_not_exist_is_not_cloned(
    places: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["clone", "nobody"]) == Exit.FAILURE
    assert "nobody" in capsys.readouterr().err
    history_of(places, make_stopped(places, "web"))
    assert run(["clone", "web", "--at", "tga"]) == Exit.FAILURE
    assert "there is no checkpoint 'tga'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["web", "-x", "a b"])
def test_a_name_that_cannot_be_is_refused_before_anything_is_done(
    name: str, places: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    add(history_of(places, make_stopped(places, "web")), 1)
    assert run(["clone", "web", "--at", "tag-1", f"--name={name}"]) != Exit.OK
    assert repr(name) in capsys.readouterr().err
    left = {path.name for path in places.sandboxes.iterdir() if not path.name.startswith(".")}
    assert len(left) == 1


# Completion


def test_checkpoints_of_others_are_completed_for_revert(places: Paths) -> None:
    add(history_of(places, make_stopped(places, "web")), 1)
    other = history_of(places, make_stopped(places, "worker"))
    add(other, 2, tag="clean")
    add(other, 3, tag="dirty")
    make_stopped(places, "without")
    assert complete("quicksand-tui revert web ", 3) == ["tag-1", "worker:"]
    assert complete("quicksand-tui revert web w", 3) == ["worker:"]
    assert complete("quicksand-tui revert web worker:c", 3) == ["worker:clean"]
    assert complete("quicksand-tui revert web nobody:", 3) == [""]
    assert complete("quicksand-tui clone worker --at c", 4) == ["clean"]


# run


@each(("options", "warm"), [((), True), (("--cold",), False)])
def test_options_of_run_reach_the_sandbox(
    options: tuple[str, ...], warm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def construct(_self: Sandbox, **keywords: Any) -> None:
        seen.update(keywords)
        raise StateError("it is not started here")

    monkeypatch.setattr(Sandbox, "__init__", construct)
    machine = ["--memory", "1G", "--cpus", "2", "--network", "full", "--disk-size", "9G"]
    assert run(["run", "debian", "-d", "-p", "80:81", *machine, *options]) != Exit.OK
    assert seen.pop("progress_callback")
    assert seen == {
        "image": "debian",
        "name": None,
        "trust": False,
        "ephemeral": None,
        "warm": warm,
        "build": None,
        "memory": "1G",
        "cpus": 2,
        "network_mode": "full",
        "disk_size": "9G",
        "port_forwards": [PortForward(80, 81)],
    }
