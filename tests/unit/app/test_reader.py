"""Snapshots of a store on disk."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand.base.files import try_lock, write_json
from quicksand.base.paths import Paths
from quicksand.base.processes import start_of
from quicksand.mounts.shares import Share
from quicksand.records.config import SandboxConfig
from quicksand.records.dialled import ForwarderFiles
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.records.mount import Mount
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record, RunState
from quicksand.things.status import MountState, Status

from quicksand_tui.door import look as reader
from quicksand_tui.door.look import Reader
from quicksand_tui.model.shown_sandboxes import SandboxView

VISIBLE: frozenset[str] = frozenset({"0" * 12})


def make(places: Paths, number: int = 0, **fields: object) -> Record:
    """A stopped sandbox on disk."""
    record = Record(
        id=f"{number:012x}",
        name=f"box-{number}",
        config=SandboxConfig.parse({"image": "debian"}),
        image_digest="",
        chain=("/nowhere/disk.qcow2",),
        created=1000.0 + number,
        committed=True,
        discard=False,
    )
    record = replace(record, **fields)  # type: ignore[arg-type]
    os.close(Registry(places).create(record))
    return record


def run_state(qemu_pid: int) -> RunState:
    return RunState(
        keeper_pid=qemu_pid,
        qemu_pid=qemu_pid,
        token="secret",
        accel="tcg",
        accel_reason="kvm: no\x1b[2J",
        forwards=((8080, 80),),
        udp_forwards=((5353, 53),),
        http_port=None,
        run="r1",
        origin="",
        started=time.time(),
        paused=False,
        qemu_command=(),
    )


def only(found: tuple[SandboxView, ...]) -> SandboxView:
    (view,) = found
    return view


def test_nothing_on_disk_is_an_empty_world() -> None:
    world = Reader().read(frozenset())
    assert world.sandboxes == ()
    assert world.error == ""
    assert world.host.memory_free


def test_sandboxes_come_oldest_first_with_their_configuration(places: Paths) -> None:
    make(places, 2)
    make(places, 1)
    first, second = Reader().read(frozenset()).sandboxes
    assert (first.name, second.name) == ("box-1", "box-2")
    assert first.state is Status.STOPPED
    assert first.memory_limit == 512 * 2**20
    assert first.disk


def test_a_new_sandbox_a_change_and_a_removal_show_at_the_next_look(places: Paths) -> None:
    looking = Reader()
    assert looking.read(VISIBLE).sandboxes == ()
    record = make(places)
    assert only(looking.read(VISIBLE).sandboxes).state is Status.STOPPED
    place = sandbox_dir(places, record.id)
    write_json(place.exit, {"code": -9, "asked": False})
    assert only(looking.read(VISIBLE).sandboxes).error == "QEMU was ended by SIGKILL"
    Registry(places).remove(record.id)
    assert looking.read(VISIBLE).sandboxes == ()


def test_a_running_one_has_memory_at_once_and_cpu_at_the_second_reading(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "USAGE_EVERY_S", 0.0)
    record = make(places)
    runtime = runtime_dir(places, record.id)
    machine = runtime.make("1")
    runtime.current_link.symlink_to("1")
    lock = try_lock(sandbox_dir(places, record.id).lock)
    assert lock is not None
    try:
        machine.state.write_text(json.dumps(run_state(os.getpid()).to_json()))
        looking = Reader()
        first = only(looking.read(VISIBLE).sandboxes)
        assert first.state is Status.RUNNING
        assert first.cpu_percent is None
        assert first.memory_used
        assert first.accel_reason == "kvm: no"
        second = only(looking.read(VISIBLE).sandboxes)
        assert second.cpu_percent is not None
        unseen = only(Reader().read(frozenset({"other"})).sandboxes)
        assert unseen.state is Status.RUNNING
    finally:
        os.close(lock)
        shutil.rmtree(runtime.root)


def test_a_sandbox_that_has_no_record_yet_is_followed_until_it_has(places: Paths) -> None:
    coming = sandbox_dir(places, "0123456789ab").root
    coming.mkdir(parents=True)
    looking = Reader()
    assert looking.read(VISIBLE).sandboxes == ()
    assert coming in set(looking.directories())
    coming.rmdir()
    looking.read(VISIBLE)
    assert coming not in set(looking.directories())


def test_forwards_show_as_they_come_and_go(places: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    record = make(places)
    runtime = runtime_dir(places, record.id)
    machine = runtime.make("1")
    runtime.current_link.symlink_to("1")
    files = ForwarderFiles(runtime.root)
    lock = try_lock(sandbox_dir(places, record.id).lock)
    assert lock is not None
    try:
        machine.state.write_text(json.dumps(run_state(os.getpid()).to_json()))
        looking = Reader()
        found = only(looking.read(VISIBLE).sandboxes)
        assert (found.ports, found.forwards) == (((8080, 80),), ())
        assert (found.udp_ports, found.udp_forwards) == (((5353, 53),), ())
        # No reading of what it uses is due: they show nevertheless.
        monkeypatch.setattr(reader, "USAGE_EVERY_S", 3600.0)
        looking.read(frozenset(), fresh=True)
        forwarder = try_lock(files.lock)
        assert forwarder is not None
        try:
            for made in (((9000, 90),), ((7000, 70), (9000, 90)), ((9000, 90),)):
                write_json(files.forwards, {"forwards": made})
                found = only(looking.read(VISIBLE).sandboxes)
                assert found.ports == tuple(sorted(((8080, 80), *made)))
                assert found.forwards == made
        finally:
            os.close(forwarder)
        files.forwards.unlink()
        assert only(looking.read(VISIBLE).sandboxes).ports == ((8080, 80),)
    finally:
        os.close(lock)
        shutil.rmtree(runtime.root)


def test_mounts_show_when_they_are_made_and_when_their_server_ends(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SandboxConfig.parse({"image": "debian", "mounts": ["/srv\x1b[2J:/srv"]})
    record = make(places, config=config)
    looking = Reader()
    (later,) = only(looking.read(VISIBLE).sandboxes).mounts
    assert (later.guest, later.state) == ("/srv", MountState.AT_START)
    assert later.host.isprintable()
    runtime = runtime_dir(places, record.id)
    machine = runtime.make("1")
    runtime.current_link.symlink_to("1")
    lock = try_lock(sandbox_dir(places, record.id).lock)
    assert lock is not None
    mount, started = Mount("/data", "/mnt/data", readonly=True), start_of(os.getpid())
    share = Share(number=0, name="QUICKSAND0", mount=mount, pid=os.getpid(), started=started)
    try:
        machine.state.write_text(json.dumps(run_state(os.getpid()).to_json()))
        looking.read(VISIBLE)
        # No reading of what it uses is due: a mount shows nevertheless.
        monkeypatch.setattr(reader, "USAGE_EVERY_S", 3600.0)
        looking.read(frozenset(), fresh=True)
        write_json(machine.share_record(0), share.to_json())
        for visible in (VISIBLE, frozenset[str]()):
            found = only(looking.read(visible).sandboxes).mounts
            assert [(one.key, one.host, one.readonly, one.state) for one in found] == [
                ("/mnt/data", "/data", True, MountState.MOUNTED),
                ("/srv", later.host, False, MountState.AT_START),
            ]
        write_json(machine.share_record(0), replace(share, pid=1 << 22).to_json())
        assert only(looking.read(VISIBLE).sandboxes).mounts[0].state is MountState.NOT_SERVED
    finally:
        os.close(lock)
        shutil.rmtree(runtime.root)


def test_a_machine_that_dies_with_its_keeper_is_found_out(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = make(places)
    runtime = runtime_dir(places, record.id)
    machine = runtime.make("1")
    runtime.current_link.symlink_to("1")
    machine.state.write_text(json.dumps(run_state(2**22 + 1).to_json()))
    lock = try_lock(sandbox_dir(places, record.id).lock)
    assert lock is not None
    looking = Reader()
    assert only(looking.read(VISIBLE).sandboxes).state is Status.RUNNING
    os.close(lock)  # no file changes
    looking._next_usage = 0.0
    assert only(looking.read(VISIBLE).sandboxes).state is Status.STOPPED
    shutil.rmtree(runtime.root)


def test_one_broken_record_does_not_hide_the_others_and_its_text_is_harmless(
    places: Paths,
) -> None:
    make(places, 1)
    record = make(places, 2)
    sandbox_dir(places, record.id).record.write_text('{"schema_version": "\\u001b[2J\\u202e"}')
    broken, good = sorted(Reader().read(VISIBLE).sandboxes, key=lambda view: view.state)
    assert (broken.state, good.state) == (Status.BROKEN, Status.STOPPED)
    assert "\x1b" not in broken.error and "\u202e" not in broken.error


def test_foreign_names_are_made_harmless(places: Paths) -> None:
    record = make(places)
    path = sandbox_dir(places, record.id).record
    path.write_text(
        json.dumps({**record.to_json(), "name": "\x1b]0;x\x07[red]a\nb", "id": record.id})
    )
    view = only(Reader().read(VISIBLE).sandboxes)
    assert (view.state, view.name) == (Status.BROKEN, record.id)
    assert not set(view.error) & {"\x1b", "\x07", "\n"}


def test_an_unreadable_store_is_an_error_and_no_exception(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> list[str]:
        if path == places.sandboxes:
            raise PermissionError(13, "Permission denied", str(path))
        return []

    monkeypatch.setattr(reader, "directories", refuse)
    world = Reader().read(VISIBLE)
    assert world.sandboxes == ()
    assert "Permission denied" in world.error


def test_an_idle_look_at_twenty_sandboxes_costs_little(places: Paths) -> None:
    for number in range(20):
        make(places, number)
    looking = Reader()
    looking.read(VISIBLE)

    def cost() -> float:
        begun = time.process_time()
        for _ in range(20):
            looking.read(VISIBLE)
        return (time.process_time() - begun) / 20

    # Python may look for garbage meanwhile, but not each time.
    assert any(cost() < 0.005 for _ in range(3))
