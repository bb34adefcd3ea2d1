"""Sandboxes on disk: whatever lies there is listed, as what it is."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import PathError, SandboxNotFoundError, StateError
from quicksand.base.files import read_json, write_json
from quicksand.base.paths import Paths
from quicksand.life.sandbox_life import refuse_unusable
from quicksand.records import inspection
from quicksand.records.inspection import Held, find_panic, say_held
from quicksand.records.layout import sandbox_dir
from quicksand.records.registry import Registry, publish_state
from quicksand.records.sandboxes import Entry, Record, RunState, new_id
from quicksand.things.status import Status

from quicksand_tui.model.remedy_words import hint_of
from tests.each import each
from tests.unit.base.test_files import locked_elsewhere
from tests.unit.records.making import (
    RECORD,
    RUN,
    machine_of,
    make,
    names,
    only,
    place_of,
    runtime_of,
)

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


@each("field", sorted(RECORD.to_json()))
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
    place_of(registry, record).record.write_text(json.dumps({**record.to_json(), **changes}))
    found = {entry.id: entry for entry in registry.list()}
    assert found[good.id].status is Status.STOPPED
    assert found[record.id].status is Status.BROKEN
    assert found[record.id].error.startswith(("bad record: ", "schema_version "))
    assert "Error(" not in found[record.id].error, "no exception, but what is wrong"
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


def test_a_stopped_sandbox_that_somebody_works_on_is_stopped(registry: Registry) -> None:
    """Its disk is saved or exported, or it is just brought back from the trash."""
    record = make(registry)
    lock = registry.lock(record.id)
    try:
        assert only(registry).status is Status.STOPPED
        assert not only(registry).is_live
        say_held(lock, Held.START)
        assert only(registry).status is Status.STARTING
    finally:
        os.close(lock)
    assert only(registry).status is Status.STOPPED


def test_a_run_that_has_ended_is_stopping_while_its_keeper_cleans_up(registry: Registry) -> None:
    record = make(registry)
    lock = registry.lock(record.id)
    say_held(lock, Held.START)
    publish_state(machine_of(registry, record), RUN)
    say_held(lock, Held.RUN)
    try:
        assert only(registry).status is Status.RUNNING
        shutil.rmtree(runtime_of(registry, record).root)
        entry = only(registry)
        assert (entry.status, entry.is_live) == (Status.STOPPING, True)
        with pytest.raises(StateError, match="just stopping"):
            refuse_unusable(entry)
    finally:
        os.close(lock)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff" * 100])
def test_a_lock_that_does_not_say_what_for_counts_as_a_start(
    registry: Registry, content: bytes
) -> None:
    """An older version holds it."""
    record = make(registry)
    lock = registry.lock(record.id)
    try:
        place_of(registry, record).lock.write_bytes(content)
        assert only(registry).status is Status.STARTING
    finally:
        os.close(lock)


def test_a_revert_while_it_is_looked_at_does_not_make_it_starting(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = make(registry)
    before = machine_of(registry, record)
    publish_state(before, RUN)
    reverted = replace(RUN, run="r2", origin="one")

    def read_after_a_revert(path: Path) -> Any:
        if path == before.state and path.exists():
            runtime = runtime_of(registry, record)
            runtime.machine("2").root.mkdir()
            publish_state(runtime.machine("2"), reverted)
            runtime.current_link.unlink()
            runtime.current_link.symlink_to("2")
            shutil.rmtree(before.root)
        return read_json(path)

    monkeypatch.setattr(inspection, "read_json", read_after_a_revert)
    with locked_elsewhere(place_of(registry, record).lock):
        entry = only(registry)
        assert (entry.status, entry.run) == (Status.RUNNING, reverted)
    registry.reap()


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
    for one in (record, other):
        os.close(registry.create(one))
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


def test_the_start_of_two_ids_finds_neither(registry: Registry) -> None:
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
