"""Sandboxes on disk: whatever lies there is listed, the living are left alone, the dead cleared."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import (
    ConfigError,
    DiskSpaceError,
    NameTakenError,
    PathError,
    QuicksandError,
    SandboxNotFoundError,
    StateError,
)
from quicksand.base.files import is_locked, write_json
from quicksand.base.paths import Paths, make_private_dir
from quicksand.base.processes import processes_of
from quicksand.base.removal import make_marked
from quicksand.records.config import SandboxConfig
from quicksand.records.last_run import find_panic
from quicksand.records.layout import MachineDir, RuntimeDir, SandboxDir, runtime_dir, sandbox_dir
from quicksand.records.port_forwards import PortForward
from quicksand.records.registry import Registry, publish_state
from quicksand.records.sandboxes import LOCK_WAIT_S, Entry, Record, RunState, Status, new_id
from quicksand.records.trash import remove_tree

from quicksand_tui.model.remedies import hint_of
from tests.conftest import fake_qemu
from tests.unit.base.test_files import locked_elsewhere

PROCESSES = 8
RECORD = Record(
    id="0123456789ab",
    name="box",
    config=SandboxConfig("debian", port_forwards=(PortForward(8080, 80),), extra_qemu_args=("-x",)),
    image_digest="d" * 64,
    chain=("/images/debian/disk.qcow2",),
    created=1_700_000_000.5,
    committed=True,
    discard=False,
)
RUN = RunState(
    keeper_pid=1,
    qemu_pid=2,
    token="secret",
    accel="kvm",
    accel_reason="",
    forwards=((8080, 80),),
    http_port=None,
    run="r1",
    origin="",
    started=1_700_000_001.5,
    paused=False,
    qemu_command=("qemu-system-x86_64", "-nodefaults"),
)


@pytest.fixture
def registry(places: Paths) -> Registry:
    return Registry(places)


def make(registry: Registry, name: str = "box", **changes: Any) -> Record:
    """A sandbox that nobody runs."""
    record = replace(RECORD, id=new_id(), name=name, **changes)
    os.close(registry.create(record))
    return record


def place_of(registry: Registry, record: Record) -> SandboxDir:
    return sandbox_dir(registry.paths, record.id)


def runtime_of(registry: Registry, record: Record) -> RuntimeDir:
    """Its runtime directory, made."""
    found = runtime_dir(registry.paths, record.id)
    if not found.root.exists():
        make_private_dir(registry.paths.runtime)
        make_marked(found.root, of=found.of)
    return found


def machine_of(registry: Registry, record: Record) -> MachineDir:
    """The directory of its QEMU, made."""
    runtime = runtime_of(registry, record)
    runtime.machine("1").root.mkdir(exist_ok=True)
    if not runtime.current_link.is_symlink():
        runtime.current_link.symlink_to("1")
    return runtime.current()


def only(registry: Registry) -> Entry:
    (entry,) = registry.list()
    return entry


def age(path: Path) -> None:
    """Let a directory be older than anybody needs between two instructions."""
    past = time.time() - 2 * LOCK_WAIT_S
    os.utime(path, (past, past))


def names(path: Path) -> list[str]:
    return sorted(p.name for p in path.iterdir()) if path.exists() else []


# Records


def test_a_record_comes_back_as_it_was() -> None:
    assert Record.from_json(json.loads(json.dumps(RECORD.to_json()))) == RECORD
    assert RunState.from_json(json.loads(json.dumps(RUN.to_json()))) == RUN


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -1, 2**63])
    | st.floats()
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("kind", [Record, RunState])
@given(st.data())
def test_any_json_in_any_field_is_taken_or_a_value_error(
    kind: type[Record] | type[RunState], data: st.DataObject
) -> None:
    good: dict[str, Any] = (RECORD if kind is Record else RUN).to_json()
    field = data.draw(st.sampled_from(sorted(good)))
    try:
        kind.from_json({**good, field: data.draw(JSON)})
    except ValueError as error:
        assert str(error)


@pytest.mark.parametrize("field", sorted(RECORD.to_json()))
def test_a_field_that_is_missing_is_named(field: str) -> None:
    value = RECORD.to_json()
    del value[field]
    with pytest.raises(ValueError, match=field):
        Record.from_json(value)


@pytest.mark.parametrize(
    "changes",
    [
        {"schema_version": 2},
        {"schema_version": "1"},
        {"created": "nan"},
        {"created": float("inf")},
        {"created": 10**400},
        {"name": "../../etc"},
        {"name": "\x1b[31m"},
        {"config": {}},
        {"config": []},
        {"config": {"image": "x", "boot_timeout": 10**400}},
        {"config": {"image": "x", "option": "of a later version"}},
        {"chain": None},
        {"chain": "abc"},
        {"id": None},
        {"discard": "false"},
        {"committed": 0},
        {"image_digest": {}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_record_that_makes_no_sense_is_shown_as_broken_with_the_reason(
    registry: Registry, changes: dict[str, Any]
) -> None:
    record = make(registry)
    good = make(registry, "good")
    write_json(place_of(registry, record).record, {**record.to_json(), **changes})
    found = {entry.id: entry for entry in registry.list()}
    assert found[good.id].status is Status.STOPPED
    assert found[record.id].status is Status.BROKEN
    assert found[record.id].error.startswith(("bad record: ", "schema_version "))
    assert registry.reap() == [], "it may be somebody's data"


def damages(content: bytes) -> Iterator[bytes]:
    """A file torn at every byte, and with a bit of every byte turned."""
    yield from (content[:size] for size in range(len(content)))
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 1 << position % 8
        yield bytes(changed)


def test_a_damaged_record_never_stops_the_listing(registry: Registry) -> None:
    record, good = make(registry), make(registry, "good")
    path = place_of(registry, record).record
    content = path.read_bytes()
    statuses = set()
    for damaged in damages(content):
        path.write_bytes(damaged)
        entries = {entry.id: entry for entry in registry.list()}
        assert entries[good.id].status is Status.STOPPED
        if (entry := entries.get(record.id)) is not None:
            statuses.add(entry.status)
            assert entry.error or entry.status is Status.STOPPED
    assert statuses == {Status.BROKEN, Status.STOPPED}
    path.write_bytes(content)
    assert {entry.record for entry in registry.list()} == {record, good}


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 1000, b"[]", b"null", b"{}", b'"' + b"x" * 5_000_000 + b'"', b"[" * 200_000],
    ids=["empty", "zeroes", "list", "null", "object", "huge", "deep"],
)
def test_a_record_that_is_something_else_is_broken(registry: Registry, content: bytes) -> None:
    record = make(registry)
    place_of(registry, record).record.write_bytes(content)
    entry = only(registry)
    assert (entry.id, entry.name, entry.status) == (record.id, record.id, Status.BROKEN)
    assert entry.error
    assert not entry.is_live
    assert registry.find(record.id) == entry


def test_of_a_key_given_twice_the_last_counts(registry: Registry) -> None:
    record = make(registry)
    path = place_of(registry, record).record
    path.write_text(path.read_text().rstrip().removesuffix("}") + ', "schema_version": 7}')
    assert "schema_version 7" in only(registry).error


def test_a_copy_of_a_sandbox_is_not_taken_for_it(registry: Registry) -> None:
    """Otherwise removing the copy would remove the other one."""
    record = make(registry)
    copy = sandbox_dir(registry.paths, "ffffffffffff")
    copy.root.mkdir()
    copy.record.write_bytes(place_of(registry, record).record.read_bytes())
    found = {entry.id: entry for entry in registry.list()}
    assert found[copy.root.name].status is Status.BROKEN
    assert record.id in found[copy.root.name].error
    with pytest.raises(PathError, match=r"no \.quicksand of ours"):
        registry.remove(copy.root.name)
    assert copy.root.exists(), "whoever made the copy may have a use for it"
    assert {entry.record for entry in registry.list()} == {record, None}


@pytest.mark.parametrize("name", ["sandbox.json", "lock", "console.log", "exit.json"])
def test_a_directory_in_place_of_a_file_never_stops_the_listing(
    registry: Registry, name: str
) -> None:
    record, good = make(registry), make(registry, "good")
    place = place_of(registry, record)
    write_json(place.exit, {"code": 1, "asked": False})
    (place.root / name).unlink(missing_ok=True)
    (place.root / name).mkdir()
    found = {entry.id: entry for entry in registry.list()}
    assert found[record.id].status in (Status.BROKEN, Status.CRASHED)
    assert "directory" in found[record.id].error
    assert found[good.id].status is Status.STOPPED
    make(registry, "another")


def test_what_is_no_sandbox_is_not_listed(registry: Registry) -> None:
    record = make(registry)
    root = registry.paths.sandboxes
    (root / "file").write_text("x")
    (root / ".hidden").mkdir()
    (root / "empty").mkdir()
    (root / "dangling").symlink_to("/nowhere")
    assert only(registry).record == record


def test_nothing_at_all_is_an_empty_list(registry: Registry) -> None:
    assert registry.list() == []
    assert registry.reap() == []
    assert names(registry.paths.data) == ["images", "qemu"], "looking makes nothing"


def test_the_oldest_comes_first(registry: Registry) -> None:
    for name, created in (("b", 2.0), ("c", 3.0), ("a", 1.0)):
        make(registry, name, created=created)
    assert [entry.name for entry in registry.list()] == ["a", "b", "c"]


# States


def test_a_sandbox_without_an_end_is_stopped(registry: Registry) -> None:
    record = make(registry)
    assert only(registry) == Entry(
        id=record.id, name="box", status=Status.STOPPED, record=record, run=None, error=""
    )


@pytest.mark.parametrize(
    ("end", "status", "reason"),
    [
        ({"code": 0, "asked": False}, Status.STOPPED, ""),
        ({"code": 0, "asked": True}, Status.STOPPED, ""),
        ({"code": -9, "asked": True}, Status.STOPPED, ""),
        ({"code": 1, "asked": False}, Status.CRASHED, "QEMU ended with status 1"),
        ({"code": -11, "asked": False}, Status.CRASHED, "QEMU was ended by SIGSEGV"),
        ({"code": -9}, Status.CRASHED, "QEMU was ended by SIGKILL"),
        ({"code": -999, "asked": False}, Status.CRASHED, "QEMU ended with status -999"),
        ({"code": -(10**30)}, Status.CRASHED, "QEMU ended with status -1"),
        ({}, Status.CRASHED, "QEMU ended with an unknown status"),
        ({"code": "x", "asked": []}, Status.CRASHED, "QEMU ended with status x"),
    ],
)
def test_how_it_ended_tells_a_stop_from_a_crash(
    registry: Registry, end: dict[str, Any], status: Status, reason: str
) -> None:
    record = make(registry)
    write_json(place_of(registry, record).exit, end)
    entry = only(registry)
    assert entry.status is status
    assert entry.error.startswith(reason)
    assert bool(entry.error) is bool(reason)


def test_a_run_that_left_no_word_of_its_end_is_a_crash(registry: Registry) -> None:
    """As after the host went down."""
    record = make(registry)
    place_of(registry, record).qemu_log.touch()
    entry = only(registry)
    assert entry.status is Status.CRASHED
    assert entry.error.startswith("it is unknown how it ended")


@pytest.mark.parametrize("content", [b"", b'{"code": 1', b"\xff", b"[]", b"9" * 5000])
def test_an_end_that_cannot_be_read_is_a_crash(registry: Registry, content: bytes) -> None:
    place_of(registry, make(registry)).exit.write_bytes(content)
    entry = only(registry)
    assert entry.status is Status.CRASHED
    assert "cannot be read" in entry.error


def test_a_panic_is_told_in_the_kernels_words_without_control_characters(
    registry: Registry,
) -> None:
    record = make(registry)
    place = place_of(registry, record)
    write_json(place.exit, {"code": 0, "asked": False})
    place.console_log.write_bytes(
        b"x" * 20_000 + b"\n[ 1.0] Kernel panic - not syncing: \x1b[31mWhy\xff\x9b?" + b"y" * 999
    )
    entry = only(registry)
    assert entry.status is Status.CRASHED
    assert entry.error.startswith("Kernel panic - not syncing: ?[31mWhy")
    assert entry.error.isprintable()
    assert len(entry.error) <= 200


def test_a_panic_in_the_rotated_piece_is_found(registry: Registry) -> None:
    place = place_of(registry, make(registry))
    place.console_log.write_text("later\n")
    place.console_log.with_name("console.log.1").write_text("Kernel panic - not syncing: x\n")
    assert find_panic(place) == "Kernel panic - not syncing: x"


def test_a_locked_sandbox_is_starting_until_its_state_is_published(registry: Registry) -> None:
    record = make(registry)
    with locked_elsewhere(place_of(registry, record).lock):
        assert only(registry).status is Status.STARTING
        publish_state(machine_of(registry, record), RUN)
        assert only(registry).status is Status.RUNNING
        assert only(registry).run == RUN
        publish_state(machine_of(registry, record), replace(RUN, paused=True))
        assert only(registry).status is Status.PAUSED
        assert only(registry).is_live
    assert only(registry).status is Status.STOPPED, "the lock ended with its holder"
    assert registry.reap() == [record.id]


def test_an_end_of_the_run_before_does_not_make_a_running_one_crashed(registry: Registry) -> None:
    record = make(registry)
    write_json(place_of(registry, record).exit, {"code": 1, "asked": False})
    publish_state(machine_of(registry, record), RUN)
    with locked_elsewhere(place_of(registry, record).lock):
        assert only(registry).status is Status.RUNNING
    registry.reap()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"keeper_pid": Infinity}', b"{}", b'{"keeper_pid": "x"}']
)
def test_a_damaged_state_never_stops_the_listing(registry: Registry, content: bytes) -> None:
    record = make(registry)
    machine_of(registry, record).state.write_bytes(content)
    with locked_elsewhere(place_of(registry, record).lock):
        assert only(registry).status is Status.STARTING
    registry.reap()


def test_process_ids_mean_nothing(registry: Registry) -> None:
    """R8: after a reboot the ids belong to others, here to this very process."""
    record = make(registry)
    publish_state(
        machine_of(registry, record), replace(RUN, keeper_pid=os.getpid(), qemu_pid=os.getpid())
    )
    assert only(registry).status is Status.STOPPED
    registry.reap()


def test_a_first_start_is_listed_while_it_lives_and_forgotten_when_it_died(
    registry: Registry,
) -> None:
    record = replace(RECORD, id=new_id(), committed=False)
    lock = registry.create(record)
    assert only(registry).status is Status.STARTING
    os.close(lock)
    assert registry.list() == []
    assert registry.inspect(record.id) is None
    assert registry.reap() == [record.id]
    assert not place_of(registry, record).root.exists()


# Finding


def test_a_sandbox_is_found_by_name_id_or_start_of_the_id(registry: Registry) -> None:
    record = replace(RECORD, id="abcd12345678", name="box")
    other = replace(RECORD, id="abce12345678", name="abcd1")
    for each in (record, other):
        os.close(registry.create(each))
    assert registry.find("box").record == record
    assert registry.find("abcd12345678").record == record
    assert registry.find("abcd1").record == other, "a whole name wins over a part of an id"
    assert registry.find("abcd12").record == record
    for unclear in ("abc", "ab", "", "bcd1", "12345678"):
        with pytest.raises(SandboxNotFoundError):
            registry.find(unclear)


def test_an_id_is_found_without_a_look_at_others(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = make(registry)
    monkeypatch.setattr(Registry, "list", lambda _: pytest.fail("it looked at all of them"))
    assert registry.find(record.id).record == record


def test_a_start_that_two_ids_have_is_none_of_them(registry: Registry) -> None:
    for number in range(2):
        os.close(registry.create(replace(RECORD, id=f"abcdef00000{number}", name=f"n{number}")))
    with pytest.raises(SandboxNotFoundError):
        registry.find("abcdef")
    assert registry.find("abcdef000001").name == "n1"


def test_a_near_name_is_suggested_else_the_command_that_lists_them(registry: Registry) -> None:
    make(registry, "webserver")
    with pytest.raises(SandboxNotFoundError, match="no sandbox is called 'webservr'") as caught:
        registry.find("webservr")
    assert caught.value.hint == "did you mean 'webserver'?"
    with pytest.raises(SandboxNotFoundError) as caught:
        registry.find("zzz")
    assert "ps -a" in hint_of(caught.value)


@given(st.text(max_size=20))
def test_any_text_can_be_looked_for(text: str) -> None:
    with pytest.raises(SandboxNotFoundError):
        Registry(Paths(runtime=Path("/nowhere"), data=Path("/nowhere"), cache=Path("/x"))).find(
            text
        )


# Making


def test_a_new_sandbox_is_private_and_locked_by_its_maker(registry: Registry) -> None:
    lock = registry.create(RECORD)
    place = place_of(registry, RECORD)
    assert place.root.stat().st_mode & 0o777 == 0o700
    assert is_locked(place.lock)
    assert names(place.root) == [".quicksand", "lock", "sandbox.json"]
    os.close(lock)
    assert not is_locked(place.lock)


@pytest.mark.parametrize("live", [True, False])
def test_a_taken_name_is_refused_with_its_owners_state(registry: Registry, live: bool) -> None:
    lock = registry.create(RECORD)
    if not live:
        os.close(lock)
    state = "starting" if live else "stopped"
    for name in (RECORD.name, RECORD.id):
        with pytest.raises(NameTakenError, match=f"{name!r} is taken .* {state}") as caught:
            registry.create(replace(RECORD, id=new_id(), name=name))
        assert "rm" in hint_of(caught.value)
    assert len(registry.list()) == 1
    if live:
        os.close(lock)


def test_names_that_differ_in_capitals_alone_are_not_both_given(registry: Registry) -> None:
    """For ssh they are one host where it looks for a connection to go on with."""
    os.close(registry.create(replace(RECORD, name="Web.qs")))
    with pytest.raises(NameTakenError, match=r"capitals alone from that of the sandbox 'Web\.qs'"):
        registry.create(replace(RECORD, id=new_id(), name="web.qs"))
    found = registry.named("Web.qs")
    assert found is not None and found.name == "Web.qs"
    assert registry.named("web.qs") is None


def test_the_name_of_a_start_that_died_is_free(registry: Registry) -> None:
    os.close(registry.create(replace(RECORD, committed=False)))
    record = make(registry)
    assert only(registry).record == record
    assert names(registry.paths.sandboxes) == [".names.lock", record.id]


def test_the_name_of_a_broken_sandbox_can_be_used(registry: Registry) -> None:
    place_of(registry, make(registry)).record.write_text("{")
    make(registry)
    assert {entry.status for entry in registry.list()} == {Status.BROKEN, Status.STOPPED}


def test_a_bad_name_makes_nothing(registry: Registry) -> None:
    with pytest.raises(ConfigError):
        registry.create(replace(RECORD, name="../x"))
    assert names(registry.paths.sandboxes) == []


def test_a_full_disk_leaves_neither_directory_nor_descriptor(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(registry, "another")
    before = len(os.listdir("/proc/self/fd")), names(registry.paths.sandboxes)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DiskSpaceError):
            registry.create(RECORD)
    assert (len(os.listdir("/proc/self/fd")), names(registry.paths.sandboxes)) == before
    os.close(registry.create(RECORD))


def create_in_process(
    paths: Paths, name: str, barrier: Barrier, results: Queue[str], end: Barrier
) -> None:
    """One of several that make a sandbox at the same moment, and keep it until all have tried."""
    barrier.wait(30)
    try:
        Registry(paths).create(replace(RECORD, id=new_id(), name=name))
        results.put("made")
    except QuicksandError as error:
        results.put(type(error).__name__)
    end.wait(30)


def remove_in_process(
    paths: Paths, id_: str, barrier: Barrier, results: Queue[str], end: Barrier
) -> None:
    barrier.wait(30)
    try:
        Registry(paths).remove(id_)
        results.put("removed")
    except (QuicksandError, OSError) as error:
        results.put(type(error).__name__)
    end.wait(30)


def reap_in_process(
    paths: Paths, _: str, barrier: Barrier, results: Queue[str], end: Barrier
) -> None:
    barrier.wait(30)
    try:
        Registry(paths).reap()
        results.put("reaped")
    except (QuicksandError, OSError) as error:
        results.put(type(error).__name__)
    end.wait(30)


def at_once(target: Callable[..., None], paths: Paths, argument: str) -> list[str]:
    """What PROCESSES processes report that run ``target`` at the same moment."""
    context = multiprocessing.get_context("fork")
    barrier, end = context.Barrier(PROCESSES), context.Barrier(PROCESSES)
    results: Queue[str] = context.Queue()
    children = [
        context.Process(target=target, args=(paths, argument, barrier, results, end))
        for _ in range(PROCESSES)
    ]
    for child in children:
        child.start()
    found = sorted(results.get(timeout=30) for _ in children)
    for child in children:
        child.join(30)
        assert child.exitcode == 0
        child.close()
    results.close()
    results.join_thread()
    return found


def test_of_eight_that_make_the_same_name_at_once_exactly_one_wins(registry: Registry) -> None:
    found = at_once(create_in_process, registry.paths, "box")
    assert found == ["NameTakenError"] * (PROCESSES - 1) + ["made"]
    assert only(registry).name == "box"
    assert len(names(registry.paths.sandboxes)) == 2, "the lock of names and the one sandbox"


# Removing


def broken(registry: Registry, record: Record) -> None:
    place_of(registry, record).record.write_text("{")


def crashed(registry: Registry, record: Record) -> None:
    write_json(place_of(registry, record).exit, {"code": 1})


def with_runtime(registry: Registry, record: Record) -> None:
    publish_state(machine_of(registry, record), RUN)


def without_lock(registry: Registry, record: Record) -> None:
    place_of(registry, record).lock.unlink()


def without_record(registry: Registry, record: Record) -> None:
    place_of(registry, record).record.unlink()


@pytest.mark.parametrize(
    "state", [broken, crashed, with_runtime, without_lock, without_record], ids=lambda f: f.__name__
)
def test_a_sandbox_can_be_removed_in_any_state(
    registry: Registry, state: Callable[[Registry, Record], None]
) -> None:
    record, good = make(registry), make(registry, "good")
    (place_of(registry, record).root / "disk.qcow2").write_text("data")
    state(registry, record)
    registry.remove(record.id)
    assert not place_of(registry, record).root.exists()
    assert not runtime_dir(registry.paths, record.id).root.exists()
    assert only(registry).record == good
    with pytest.raises(SandboxNotFoundError, match="does not exist any more"):
        registry.remove(record.id)


def test_a_live_sandbox_cannot_be_removed(registry: Registry) -> None:
    record = make(registry)
    with locked_elsewhere(place_of(registry, record).lock):
        publish_state(machine_of(registry, record), RUN)
        with pytest.raises(StateError, match="running"):
            registry.remove(record.id)
        assert only(registry).status is Status.RUNNING
    registry.remove(record.id)


def test_looking_for_one_that_is_gone_does_not_wait_for_its_lock(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("quicksand.records.registry.lock_within")
    with pytest.raises(SandboxNotFoundError):
        registry.lock("gone")
    assert names(registry.paths.sandboxes) == []


def test_of_eight_that_remove_it_at_once_one_does_and_the_others_are_told(
    registry: Registry,
) -> None:
    for _ in range(3):
        record = make(registry)
        for number in range(50):
            (place_of(registry, record).root / f"file{number}").touch()
        found = at_once(remove_in_process, registry.paths, record.id)
        assert found.count("removed") == 1
        assert {*found} <= {"removed", "SandboxNotFoundError", "StateError"}
        assert names(registry.paths.sandboxes) == [".names.lock"]


def test_removing_a_tree_that_is_gone_is_no_error(tmp_path: Path) -> None:
    remove_tree(tmp_path / "gone")


def test_removing_follows_no_link(registry: Registry, tmp_path: Path) -> None:
    record = make(registry)
    (tmp_path / "kept").write_text("data")
    (place_of(registry, record).root / "link").symlink_to(tmp_path)
    registry.remove(record.id)
    assert names(tmp_path) == ["kept"]


# Reaping


def test_what_dead_owners_left_is_removed(registry: Registry) -> None:
    good = make(registry, "good")
    half_made = replace(RECORD, id=new_id(), name="half-made", committed=False)
    to_discard = replace(RECORD, id=new_id(), name="to-discard", discard=True)
    write_record(registry, half_made)
    write_record(registry, to_discard)
    runtime_of(registry, to_discard)
    nameless = sandbox_dir(registry.paths, new_id()).root
    nameless.mkdir()
    age(nameless)
    assert sorted(registry.reap()) == sorted([half_made.id, to_discard.id, nameless.name])
    assert names(registry.paths.sandboxes) == sorted([".names.lock", good.id])
    assert names(registry.paths.runtime) == []
    assert registry.reap() == []


def test_the_runtime_directory_of_a_dead_machine_is_removed_its_sandbox_kept(
    registry: Registry,
) -> None:
    record = make(registry)
    publish_state(machine_of(registry, record), RUN)
    assert registry.reap() == [record.id]
    assert names(registry.paths.runtime) == []
    assert only(registry).record == record


@pytest.mark.parametrize(("committed", "discard"), [(True, True), (False, False), (True, False)])
def test_what_somebody_holds_is_never_touched(
    registry: Registry, committed: bool, discard: bool
) -> None:
    record = make(registry, committed=committed, discard=discard)
    publish_state(machine_of(registry, record), RUN)
    age(runtime_of(registry, record).root)
    with locked_elsewhere(place_of(registry, record).lock):
        assert registry.reap() == []
        make(registry, "another")
        assert names(runtime_of(registry, record).root) == [".quicksand", "1", "current"]
        assert names(place_of(registry, record).root) == [".quicksand", "lock", "sandbox.json"]
        assert registry.inspect(record.id) is not None
    assert record.id in registry.reap()


def test_one_that_is_just_being_made_is_left_alone(registry: Registry) -> None:
    registry.paths.sandboxes.mkdir()
    young = sandbox_dir(registry.paths, new_id()).root
    young.mkdir()
    assert registry.reap() == []
    assert names(registry.paths.sandboxes) == [young.name]


def test_a_runtime_directory_without_a_sandbox_is_removed_when_nothing_of_it_runs(
    registry: Registry,
) -> None:
    runtime = runtime_of(registry, RECORD)
    age(runtime.root)
    with fake_qemu(runtime.of):
        assert registry.reap() == []
        assert runtime.root.exists()
    assert registry.reap() == [RECORD.id]
    assert names(registry.paths.runtime) == []


def test_what_another_data_directory_has_in_the_same_runtime_directory_is_left_to_it(
    registry: Registry, tmp_path: Path
) -> None:
    other = Registry(replace(registry.paths, data=tmp_path / "other"))
    record = make(other)
    runtime = runtime_of(other, record)
    age(runtime.root)
    with locked_elsewhere(place_of(other, record).lock):
        assert registry.reap() == []
        assert runtime.root.exists()
    assert registry.reap() == [], "it is the other's to clear up, dead or alive"
    assert other.reap() == [record.id]
    assert not runtime.root.exists()


def test_a_copy_of_a_data_directory_cannot_take_the_runtime_files_of_the_first(
    registry: Registry, tmp_path: Path
) -> None:
    record = make(registry)
    runtime = runtime_of(registry, record)
    shutil.copytree(registry.paths.data, tmp_path / "copy")
    copy = Registry(replace(registry.paths, data=tmp_path / "copy"))
    with pytest.raises(PathError, match="in use for the sandbox in") as caught:
        copy.clear_runtime(record.id)
    assert "QUICKSAND_RUNTIME_DIR" in caught.value.hint
    assert runtime.root.exists()
    runtime_dir(copy.paths, record.id).check_length()
    registry.clear_runtime(record.id)


def test_runtime_files_that_were_just_being_made_are_no_obstacle(registry: Registry) -> None:
    """Their maker was killed before it could mark them."""
    record = make(registry)
    half_made = runtime_dir(registry.paths, record.id).root
    half_made.mkdir(parents=True)
    registry.clear_runtime(record.id)
    assert not half_made.exists()
    half_made.mkdir()
    assert registry.reap() == [record.id]
    assert not half_made.exists()
    assert only(registry).record == record


def test_a_data_directory_may_be_reached_through_a_link(registry: Registry, tmp_path: Path) -> None:
    record = make(registry)
    runtime = runtime_of(registry, record)
    (tmp_path / "alias").symlink_to(registry.paths.data)
    alias = Registry(replace(registry.paths, data=tmp_path / "alias"))
    with fake_qemu(place_of(registry, record).root):
        assert processes_of(place_of(alias, record).root)
    age(runtime.root)
    assert alias.reap() == [record.id]
    runtime_of(registry, record)
    alias.clear_runtime(record.id)
    assert not runtime.root.exists()


def test_a_young_runtime_directory_without_a_sandbox_is_left_alone(registry: Registry) -> None:
    runtime = runtime_of(registry, RECORD)
    assert registry.reap() == []
    age(runtime.root)
    assert registry.reap() == [RECORD.id]


def test_one_leftover_that_cannot_be_removed_stops_nobody(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        write_record(registry, replace(RECORD, id=new_id(), name=f"n{number}", discard=True))
    stuck = replace(RECORD, id=new_id(), name="stuck", discard=True)
    write_record(registry, stuck)
    (place_of(registry, stuck).root / "immutable").touch()
    unlink = os.unlink

    def refuse(path: Any, *, dir_fd: int | None = None) -> None:
        if path == "immutable":
            raise PermissionError(1, "Operation not permitted")
        unlink(path, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        assert len(registry.reap()) == 5
        new = make(registry, "new")
        assert only(registry).record == new, "what is left of it is out of sight"
    registry.reap()
    assert names(registry.paths.sandboxes) == sorted([".names.lock", new.id])


def test_many_can_reap_at_once(registry: Registry) -> None:
    good = make(registry, "good")
    for number in range(10):
        record = replace(RECORD, id=new_id(), name=f"n{number}", discard=True)
        write_record(registry, record)
        runtime_of(registry, record)
    assert at_once(reap_in_process, registry.paths, "") == ["reaped"] * PROCESSES
    registry.reap()
    assert names(registry.paths.sandboxes) == sorted([".names.lock", good.id])
    assert names(registry.paths.runtime) == []


def write_record(registry: Registry, record: Record) -> None:
    """As `make`, without reaping those made before."""
    place = place_of(registry, record)
    place.root.mkdir(parents=True)
    place.lock.touch()
    write_json(place.record, record.to_json())
