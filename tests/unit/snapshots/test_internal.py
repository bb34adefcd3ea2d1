"""Checkpoints by QEMU's own snapshots, with a QEMU that only takes notes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from quicksand.base.errors import DiskSpaceError, MachineError, QemuDiedError, StateError
from quicksand.base.removal import make_marked
from quicksand.disks.images.disk_layers import create_overlay
from quicksand.qemu.qemu_hypervisor import Qemu
from quicksand.qemu.qmp import Monitor
from quicksand.records.layout import MachineDir, SandboxDir
from quicksand.records.nodes import Head, Node
from quicksand.records.sandboxes import RunState
from quicksand.snapshots import internal
from quicksand.snapshots.history import History
from quicksand.snapshots.internal import InternalCapture, load_snapshot
from quicksand.snapshots.verified import Verified

MIB = 1024 * 1024
HEAD = Head(layers=(), top="00000001", node="0000000a", run="run", machine="1")
RUN = RunState(
    keeper_pid=1,
    qemu_pid=2,
    run="run",
    origin="",
    token="t",
    accel="tcg",
    accel_reason="",
    forwards=(),
    http_port=None,
    started=0.0,
    paused=False,
    qemu_command=(),
)


class FakeQemu:
    """A QEMU whose monitor keeps the list of block nodes and jobs."""

    def __init__(self, active: Path) -> None:
        self.active = active
        self.said: list[str] = []
        self.nodes: dict[str, dict[str, Any]] = {}
        self.jobs: list[dict[str, Any]] = []
        self.job_error = ""
        self.saves = True
        """Whether a snapshot is there after the job."""
        self.fails: dict[str, Exception] = {}

    @property
    def hypervisor(self) -> Qemu:
        return Qemu(cast(Monitor, self))

    @contextlib.contextmanager
    def listen(self, *_: str) -> Iterator[AsyncGenerator[dict[str, Any], None]]:
        yield self._hear()

    async def _hear(self) -> AsyncGenerator[dict[str, Any], None]:
        for job in self.jobs:
            yield {"data": {"id": job["id"], "status": job["status"]}}

    async def execute(self, command: str, **arguments: Any) -> Any:
        self.said.append(command)
        if command in self.fails:
            raise self.fails[command]
        match command:
            case "qom-get":
                return f"disk-{self.active.stem}"
            case "blockdev-add":
                name = arguments["node-name"]
                image: dict[str, Any] = {"snapshots": []}
                self.nodes[name] = {**arguments, "image": image}
            case "blockdev-del":
                if self.nodes.pop(arguments["node-name"], None) is None:
                    raise StateError("no such node")
            case "query-named-block-nodes":
                return [{"node-name": "disk-file", "file": str(self.active)}, *self.nodes.values()]
            case "snapshot-save" | "snapshot-load":
                self.run_job(arguments)
            case "query-jobs":
                return self.jobs
            case "query-status":
                return {"running": False}
            case "job-dismiss":
                self.jobs = []
        return {}

    def run_job(self, arguments: dict[str, Any]) -> None:
        assert arguments["devices"] == [arguments["vmstate"]]
        job = {"id": arguments["job-id"], "status": "concluded"}
        self.jobs.append({**job, "error": self.job_error} if self.job_error else job)
        if self.saves:
            found = {"name": arguments["tag"], "vm-state-size": 5}
            self.nodes[arguments["vmstate"]]["image"]["snapshots"].append(found)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SandboxDir:
    place = SandboxDir(make_marked(tmp_path / "b0c5b0c5b0c5"))
    for directory in (place.layers, place.memory, place.checkpoints):
        directory.mkdir()
    create_overlay(place.layer(HEAD.top), backing=Path("/image"), size=MIB)
    History(place).set_head(HEAD)
    verified = Verified(tmp_path / "verified", "boot")
    monkeypatch.setattr(Verified, "of_user", lambda: verified)
    return place


@pytest.fixture
def qemu(place: SandboxDir) -> FakeQemu:
    return FakeQemu(place.layer(HEAD.top))


@pytest.fixture
def capture(place: SandboxDir, qemu: FakeQemu) -> InternalCapture:
    machine = MachineDir(place.root)
    return InternalCapture(
        History(place),
        RUN,
        qemu.hypervisor,
        machine,
        memory_bytes=MIB,
        arch="x86_64",
        why="a reason",
    )


async def take(capture: InternalCapture, **marks: bool) -> Node:
    await capture.prepare()
    await capture.freeze(resume=True)
    node = await capture.store(tag="one", note="", tier_note="", shape={}, **marks)
    await capture.advance_head(node)
    return node


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


async def test_memory_and_disk_are_of_one_pause(
    place: SandboxDir, qemu: FakeQemu, capture: InternalCapture
) -> None:
    node = await take(capture)
    pause = qemu.said[qemu.said.index("stop") : qemu.said.index("cont") + 1]
    assert [pause[1], *pause[-3:-1]] == ["snapshot-save", "blockdev-snapshot", "query-status"]
    assert qemu.said.count("stop") == 1
    assert (node.tier.name, node.tier_note) == ("internal", "QEMU's own snapshot: a reason")
    assert (node.layers, node.parent) == ((HEAD.top,), HEAD.node)
    assert names(place.memory) == {f"{node.id}.state"}
    assert node.files == (node.state,)
    assert History(place).get(node.id) == node
    # QEMU has let go of the file, and has only the new layer in addition.
    assert [name for name in qemu.nodes if not name.startswith("disk-")] == []


async def test_the_sandbox_stands_on_it_and_knows_no_pages(
    place: SandboxDir, capture: InternalCapture
) -> None:
    node = await take(capture)
    head = History(place).head()
    assert (head.node, head.run, head.layers) == (node.id, None, (HEAD.top,))


async def test_one_that_nobody_sees_leaves_the_sandbox_where_it_stood(
    place: SandboxDir, capture: InternalCapture
) -> None:
    node = await take(capture, hidden=True)
    head = History(place).head()
    assert (head.node, head.run, head.layers) == (HEAD.node, HEAD.run, node.layers)


@pytest.mark.parametrize("wrong", ["job", "no snapshot", "died", "disk"])
async def test_a_failure_in_the_pause_leaves_nothing_and_the_vm_runs(
    place: SandboxDir, qemu: FakeQemu, capture: InternalCapture, wrong: str
) -> None:
    qemu.job_error = "Error while writing VM state" if wrong == "job" else ""
    qemu.saves = wrong != "no snapshot"
    if wrong == "died":
        qemu.fails["query-jobs"] = QemuDiedError("QEMU ended")
    if wrong == "disk":
        qemu.fails["blockdev-snapshot"] = StateError("no")
    await capture.prepare()
    with pytest.raises((MachineError, StateError)):
        await capture.freeze(resume=True)
    await capture.discard()
    assert qemu.said.count("cont") == 1
    assert names(place.memory) == set()
    assert names(place.checkpoints) == set()
    assert names(place.layers) == {f"{HEAD.top}.qcow2"}
    assert History(place).head() == HEAD
    assert qemu.nodes == {}


async def test_a_full_disk_is_called_that_whatever_qemu_calls_it(
    qemu: FakeQemu, capture: InternalCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await capture.prepare()

    def full(_: Path, need: int = 0) -> None:
        raise DiskSpaceError("no space")

    monkeypatch.setattr(internal, "check_space", full)
    qemu.job_error = "Error while writing VM state: Input/output error"
    with pytest.raises(DiskSpaceError) as caught:
        await capture.freeze(resume=True)
    assert "Input/output error" in str(caught.value.__cause__)


async def test_too_little_space_is_found_before_the_pause(
    place: SandboxDir, qemu: FakeQemu
) -> None:
    greedy = InternalCapture(
        History(place),
        RUN,
        qemu.hypervisor,
        MachineDir(place.root),
        memory_bytes=2**60,
        arch="x86_64",
    )
    with pytest.raises(DiskSpaceError):
        await greedy.prepare()
    await greedy.discard()
    assert "stop" not in qemu.said
    assert names(place.memory) == set()
    assert names(place.layers) == {f"{HEAD.top}.qcow2"}


async def test_what_a_killed_client_has_left_in_qemu_is_dropped(
    place: SandboxDir, qemu: FakeQemu, capture: InternalCapture
) -> None:
    left = {"node-name": "state", "filename": "/gone", "image": {}}
    qemu.nodes = {"state": left, "state-file": left}
    await take(capture)
    assert not {"state", "state-file"} & qemu.nodes.keys()


async def test_a_cancellation_in_the_pause_waits_for_its_end(
    place: SandboxDir, qemu: FakeQemu, capture: InternalCapture
) -> None:
    await capture.prepare()
    freezing = asyncio.create_task(capture.freeze(resume=True))
    while "stop" not in qemu.said:
        await asyncio.sleep(0)
    freezing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await freezing
    assert qemu.said.count("cont") == 1
    await capture.discard()
    assert names(place.memory) == set()


# Loading


async def test_qemu_writes_beside_the_file_that_it_loads(
    place: SandboxDir, qemu: FakeQemu, capture: InternalCapture, tmp_path: Path
) -> None:
    node = await take(capture)
    path = place.memory / f"{node.id}.state"
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    other = FakeQemu(place.layer("0000000f"))
    seen: dict[str, Any] = {}
    run_job = other.run_job

    def note(arguments: dict[str, Any]) -> None:
        seen.update(other.nodes)
        run_job(arguments)

    other.run_job = note  # type: ignore[method-assign]
    execute = other.execute

    async def with_snapshot(command: str, **arguments: Any) -> Any:
        result = await execute(command, **arguments)
        if command == "blockdev-add" and arguments["node-name"] == "state":
            other.nodes["state"]["image"]["snapshots"].append({"name": node.id, "vm-state-size": 5})
        return result

    other.execute = with_snapshot  # type: ignore[method-assign]
    scratch = tmp_path / "loading"
    await load_snapshot(other.hypervisor, place, node, scratch)
    files = {n["filename"]: n["read-only"] for n in seen.values() if n["driver"] == "file"}
    assert files == {str(path): True, str(scratch): False}
    assert seen["state"]["file"] == "state-inner"
    assert (seen["state-inner"]["file"], seen["state-inner"]["backing"]) == (
        "state-file",
        "state-saved",
    )
    assert not scratch.exists()
    assert other.nodes == {}
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


async def test_a_file_without_the_checkpoint_s_snapshot_is_not_loaded(
    place: SandboxDir, qemu: FakeQemu, capture: InternalCapture, tmp_path: Path
) -> None:
    node = await take(capture)
    other = FakeQemu(place.layer("0000000f"))
    with pytest.raises(MachineError, match=node.id):
        await load_snapshot(other.hypervisor, place, node, tmp_path / "loading")
    assert "snapshot-load" not in other.said
    assert other.nodes == {}
    assert not (tmp_path / "loading").exists()
