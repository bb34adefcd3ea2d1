"""mount, unmount, mounts, and -v, where there is no VM."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import ConfigError, MountError
from quicksand.base.files import try_lock, write_json
from quicksand.base.paths import Paths
from quicksand.base.processes import start_of
from quicksand.life import cloning
from quicksand.life.cloning import mounts_of_clones
from quicksand.life.sandbox_mounts import MountHandle
from quicksand.mounts.directories import KnownDirectory, find
from quicksand.mounts.known_mounts import known_mounts, note_left_out
from quicksand.mounts.shares import Share, read_shares
from quicksand.records.layout import MachineDir, sandbox_dir
from quicksand.records.mount import Mount
from quicksand.records.registry import Registry
from quicksand.sandbox import Sandbox
from quicksand.things.status import MountState

from quicksand_tui.cli.guests import mount_unmount
from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from tests.unit.cli.run_cli import make_stopped
from tests.unit.cli.test_main import complete


class FakeBox:
    """A sandbox that runs."""

    name = "web"
    id = "0123456789ab"

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.error: Exception | None = None
        self.active_mounts = [MountHandle(host="/data", guest="/mnt/data", readonly=True)]

    def __enter__(self) -> FakeBox:
        return self

    def __exit__(self, *_: object) -> None:
        self.done.append(("close",))

    async def mount(self, host: str, guest: str, readonly: bool, **options: object) -> None:
        assert options == {"type": "cifs", "protect": False}
        self._do("mount", host, guest, readonly)

    async def unmount(self, guest: str, *, force: bool) -> None:
        self._do("unmount", guest, force)

    def _do(self, *what: object) -> None:
        self.done.append(what)
        if self.error is not None:
            raise self.error


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> FakeBox:
    found = FakeBox()
    monkeypatch.setattr(mount_unmount, "attached", lambda _name: found)
    return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


Err = Callable[[], str]


@pytest.fixture
def err(capsys: pytest.CaptureFixture[str]) -> Err:
    return lambda: capsys.readouterr().err


def test_a_directory_is_mounted(box: FakeBox, here: Path) -> None:
    assert run(["mount", "web", "./src:/mnt/src"]) == Exit.OK
    assert run(["mount", "web", "src:/mnt/src/:ro"]) == Exit.OK
    assert box.done == [
        ("mount", f"{here}/src", "/mnt/src", False),
        ("close",),
        ("mount", f"{here}/src", "/mnt/src", True),
        ("close",),
    ]


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("./src", "as in ./src:/mnt/src"),
        ("./src:mnt/x", "must be absolute: ./src:/mnt/x"),
        ("./src:mnt/x:ro", "must be absolute: ./src:/mnt/x:ro"),
        ("/mnt/src:./src", "the directory of this host comes first: ./src:/mnt/src"),
        ("/mnt/src:./src:ro", "comes first: ./src:/mnt/src:ro"),
        (":/mnt", "as in ./data:/mnt/data"),
        ("./src:/proc", "choose a directory of its own"),
    ],
)
def test_what_is_wrong_with_a_word_is_said_with_what_was_meant(
    word: str, hint: str, box: FakeBox, here: Path, err: Err
) -> None:
    assert run(["mount", "web", word]) == Exit.USAGE
    assert hint in err()
    assert box.done == []
    assert run(["run", "debian", "-v", word, "--", "true"]) == Exit.USAGE
    assert hint in err()


def test_two_absolute_paths_in_the_wrong_order(box: FakeBox, here: Path, err: Err) -> None:
    box.error = MountError("/mnt/nothing cannot be mounted: No such file", hint="must exist")
    assert run(["mount", "web", f"/mnt/nothing:{here}/src"]) == Exit.FAILURE
    assert f"comes first: {here}/src:/mnt/nothing" in err()
    assert run(["mount", "web", f"{here}/src:/mnt/nothing"]) == Exit.FAILURE
    assert "hint: must exist" in err()


def test_a_sandbox_must_run_and_there_must_be_one(places: Paths, here: Path, err: Err) -> None:
    assert run(["mount", "nobody", "src:/mnt/src"]) == Exit.FAILURE
    assert "nobody" in err()
    make_stopped(places, "web")
    for words in (["mount", "web", "src:/mnt/src"], ["unmount", "web", "/mnt/src"]):
        assert run(words) == Exit.FAILURE
        assert "`quicksand-tui start web`" in err()


def test_a_mount_is_taken_away(box: FakeBox) -> None:
    assert run(["unmount", "web", "/mnt/data/"]) == Exit.OK
    assert run(["unmount", "web", "/mnt/data", "--force"]) == Exit.OK
    assert [done for done in box.done if done[0] == "unmount"] == [
        ("unmount", "/mnt/data", False),
        ("unmount", "/mnt/data", True),
    ]


def test_one_in_use_tells_of_force(box: FakeBox, err: Err) -> None:
    box.error = MountError("/mnt/data is in use in the guest")
    assert run(["unmount", "web", "/mnt/data"]) == Exit.FAILURE
    said = err()
    assert "is in use" in said
    assert "`quicksand-tui unmount --force web /mnt/data`" in said


def test_one_that_could_not_be_mounted_is_taken_from_the_list(box: FakeBox, places: Paths) -> None:
    place = sandbox_dir(places, box.id)
    place.left_out.parent.mkdir(parents=True)
    note_left_out(place, {"/mnt/hot": "a link"})
    assert run(["unmount", "web", "/mnt/hot"]) == Exit.OK
    assert ("unmount", "/mnt/hot", False) in box.done


def test_what_is_not_mounted_is_named_with_what_is(box: FakeBox, err: Err) -> None:
    assert run(["unmount", "web", "/mnt/dat"]) == Exit.USAGE
    said = err()
    assert "did you mean /mnt/data?" in said
    assert "mounted are: /mnt/data" in said
    box.active_mounts = []
    assert run(["unmount", "web", "/mnt/data"]) == Exit.USAGE
    assert "nothing is mounted in 'web'" in err()


# Listing


def test_mounts_of_the_next_start_are_listed(
    places: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    make_stopped(places, "web", mounts=["/data:/mnt/data:ro", "/src:/mnt/a"])
    make_stopped(places, "db")
    assert run(["mounts", "web", "db", "web", "--json"]) == Exit.OK
    first, second = json.loads(capsys.readouterr().out)
    assert first == {
        "sandbox": "web",
        "host": "/src",
        "guest": "/mnt/a",
        "readonly": False,
        "protect": False,
        "type": "cifs",
        "state": "at its start",
        "reason": "",
        "received": None,
        "sent": None,
        "told": [],
    }
    assert (second["guest"], second["readonly"]) == ("/mnt/data", True)
    assert run(["mounts", "web"]) == Exit.OK
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["SANDBOX", "HOST", "GUEST", "MODE", "STATE"]
    assert lines[1].split() == ["web", "/data", "/mnt/data", "ro", "at", "its", "start"]


def test_without_names_those_that_run_are_listed(
    places: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    make_stopped(places, "web", mounts=["/data:/mnt/data"])
    assert run(["mounts", "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out) == []
    assert run(["mounts"]) == Exit.OK
    assert "none: `quicksand-tui mount NAME HOST:GUEST`" in capsys.readouterr().err
    assert run(["mounts", "nobody"]) == Exit.FAILURE


def put(
    machine: MachineDir, number: int, mount: Mount, pid: int, known: KnownDirectory | None = None
) -> None:
    started = start_of(os.getpid())
    share = Share(number=number, name="S", mount=mount, pid=pid, started=started, known=known)
    write_json(machine.share_record(number), share.to_json())


def test_a_mount_whose_server_has_ended_is_listed_as_that(tmp_path: Path) -> None:
    machine = MachineDir(tmp_path)
    ours, ended = os.getpid(), 1 << 22
    put(machine, 0, Mount("/a", "/mnt/a"), ours)
    put(machine, 3, Mount("/b", "/mnt/b"), ended)
    (tmp_path / "smb7.json").write_text("{}")
    found = read_shares(machine)
    assert [(share.number, share.is_served) for share in found] == [(0, True), (3, False)]


def test_what_runs_comes_before_what_was_configured(
    places: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_stopped(places, "web", mounts=["/data:/mnt/data:ro", "/src:/mnt/src"])
    registry = Registry(places)
    entry = registry.find("web")
    machine = MachineDir(tmp_path)
    monkeypatch.setattr(Registry, "machine", lambda self, id_: machine)
    object.__setattr__(entry, "run", object())
    put(machine, 0, Mount("/other", "/mnt/data"), 1 << 22)
    put(machine, 1, Mount("/new", "/mnt/data"), os.getpid())
    put(machine, 2, Mount("/gone", "/mnt/gone"), 1 << 22)
    assert [(one.host, one.guest, one.state) for one in known_mounts(registry, entry)] == [
        ("/new", "/mnt/data", MountState.MOUNTED),
        ("/gone", "/mnt/gone", MountState.NOT_SERVED),
        ("/src", "/mnt/src", MountState.AT_START),
    ]


def test_a_mount_of_a_moment_is_listed_when_a_revert_could_not_mount_it(
    places: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And as long as a revert goes on, none is said to come with the next start."""
    id_ = make_stopped(places, "web", mounts=["/src:/mnt/src"])
    registry = Registry(places)
    entry = registry.find("web")
    machine, place = MachineDir(tmp_path), sandbox_dir(places, entry.id)
    monkeypatch.setattr(Registry, "machine", lambda self, id_: machine)
    object.__setattr__(entry, "run", object())

    def states() -> dict[str, MountState]:
        return {known.guest: known.state for known in known_mounts(registry, entry)}

    note_left_out(place, {"/mnt/hot": "a link"}, [Mount("/hot", "/mnt/hot")])
    assert states() == {"/mnt/hot": MountState.LEFT_OUT, "/mnt/src": MountState.AT_START}, id_
    machine.past_shares.touch()
    assert states()["/mnt/src"] is MountState.UNFINISHED, "nobody is at it"
    lock = try_lock(place.history_lock)
    assert lock is not None
    assert states()["/mnt/src"] is MountState.MOUNTING
    os.close(lock)


def test_a_mount_whose_directory_is_gone_here_is_listed_as_that(
    places: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_stopped(places, "web", mounts=[])
    registry = Registry(places)
    entry = registry.find("web")
    machine, data = MachineDir(tmp_path), tmp_path / "data"
    monkeypatch.setattr(Registry, "machine", lambda self, id_: machine)
    object.__setattr__(entry, "run", object())
    data.mkdir()
    mount = Mount(str(data), "/mnt/data")
    put(machine, 0, mount, os.getpid(), find(mount))
    assert [known.state for known in known_mounts(registry, entry)] == [MountState.MOUNTED]
    data.rmdir()
    (known,) = known_mounts(registry, entry)
    assert known.state is MountState.MOVED
    assert str(data) in known.reason


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (None, []),
        ("ro", ["/new:/mnt/new:ro", "/old:/mnt/old:ro"]),
        ("rw", ["/new:/mnt/new", "/old:/mnt/old:ro"]),
    ],
)
def test_clones_get_what_runs_not_what_was_configured(
    mode: str | None,
    expected: list[str],
    places: Paths,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    config = ["/new:/mnt/new", "/old:/mnt/old:ro"]
    stopped = make_stopped(places, "stopped", mounts=config)
    registry = Registry(places)
    assert [*map(str, mounts_of_clones(registry, stopped, mode))] == expected
    running = make_stopped(places, "running", mounts=["/not:/mnt/not"])
    entry = registry.find("running")
    object.__setattr__(entry, "run", object())
    monkeypatch.setattr(Registry, "inspect", lambda self, id_: entry)
    monkeypatch.setattr(cloning, "runtime_dir", lambda paths, id_: Current(MachineDir(tmp_path)))
    put(MachineDir(tmp_path), 0, Mount("/new", "/mnt/new"), os.getpid())
    put(MachineDir(tmp_path), 1, Mount("/old", "/mnt/old", True), os.getpid())
    put(MachineDir(tmp_path), 2, Mount("/gone", "/mnt/gone"), 1 << 22)
    assert [*map(str, mounts_of_clones(registry, running, mode))] == expected


class Current:
    """A runtime directory."""

    def __init__(self, machine: MachineDir) -> None:
        self._machine = machine

    def current(self) -> MachineDir:
        return self._machine


def test_clones_have_mounts_in_two_ways_only(places: Paths) -> None:
    record = make_stopped(places, "web")
    with pytest.raises(ConfigError, match="cannot have mounts 'no'"):
        mounts_of_clones(Registry(places), record, "no")


# Completion


def test_directories_and_mounts_are_completed(places: Paths) -> None:
    make_stopped(places, "web", mounts=["/data:/mnt/data"])
    assert complete("quicksand-tui mount we", 2) == ["web"]
    assert complete("quicksand-tui mount web ./s", 3) == ["./s"]  # the shell lists directories
    assert complete("quicksand-tui run debian -v ./s", 4) == ["./s"]
    assert complete("quicksand-tui mount web ./s:/m", 3) == [""]
    # What is mounted at a start only cannot be taken away.
    assert complete("quicksand-tui unmount web /m", 3) == [""]
    assert complete("quicksand-tui unmount nobody /m", 3) == [""]


def test_a_stopped_sandbox_has_no_active_mounts(places: Paths) -> None:
    make_stopped(places, "web", mounts=["/data:/mnt/data"])
    sandbox = Sandbox.open("web")
    assert sandbox.active_mounts == []
    sandbox.close()
