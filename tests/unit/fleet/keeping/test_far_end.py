"""The machine's end of leases: what it tells, and what it does with what it is told."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import StateError
from quicksand.base.files import read_json, write_json
from quicksand.base.paths import Paths
from quicksand.base.processes import boot_id
from quicksand.hosted.codec import ForeignValueError, encode
from quicksand.life.sandbox_removal import SandboxTrash
from quicksand.qemu.keeper_parts.owner import now
from quicksand.records.config import SandboxConfig
from quicksand.records.fleet_files import (
    LeaseRecord,
    lease_file,
    read_lease,
    use_permission,
    write_lease,
)
from quicksand.records.layout import SandboxDir, sandbox_dir
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand_fleet.keeping.far_end import MachineOfLeases
from quicksand_fleet.keeping.wire import (
    KEPT_SAVE,
    Grant,
    Held,
    Line,
    State,
    Superseded,
    Told,
    decode_line,
    decode_told,
    encode_line,
)

from tests.conftest import blank_record
from tests.each import each
from tests.unit.remote.far import links, until

ID, OTHER = "0123456789ab", "ba9876543210"


def stopped(places: Paths, id_: str, name: str, epoch: int, **how: object) -> SandboxDir:
    """A sandbox that has a lease and does not run."""
    registry = Registry(places)
    blank = blank_record(SandboxConfig.parse({"image": "debian"}))
    record = replace(blank, id=id_, name=name, committed=True, discard=False)
    os.close(registry.create(record))
    place = sandbox_dir(places, id_)
    write_json(place.exit, {"code": 0, "asked": True, "fenced": False, **how})
    write_lease(place, LeaseRecord(name=name, epoch=epoch, boot=boot_id()))
    return place


def record_of(places: Paths, id_: str) -> Record:
    return Record.from_json(read_json(sandbox_dir(places, id_).record))


async def test_it_tells_how_each_has_ended(places: Paths) -> None:
    stopped(places, ID, "fenced", 1, fenced=True)
    stopped(places, OTHER, "asked", 2)
    down = stopped(places, "00000000000a", "down", 3)
    down.exit.unlink()
    rebooted = stopped(places, "00000000000b", "rebooted", 4)
    write_lease(rebooted, LeaseRecord(name="rebooted", epoch=4, boot="another"))
    held = {one.name: one for one in MachineOfLeases(places).look().held}
    states = {name: one.state for name, one in held.items()}
    assert states == {
        "fenced": State.FENCED,
        "asked": State.STOPPED,
        "down": State.DOWN,
        "rebooted": State.DOWN,
    }
    assert not any(one.is_fenced or one.is_let_go or one.is_superseded for one in held.values())


async def test_an_older_epoch_keeps_its_disk_under_a_name_that_says_so(places: Paths) -> None:
    stopped(places, ID, "web", 1, fenced=True)
    stopped(places, OTHER, "web-epoch-1", 1)
    machine = MachineOfLeases(places)
    gone = Superseded(id=ID, name="web", epoch=1, by="node-2")
    for _ in range(2):
        await machine.obey(Told(asked=now(), superseded=(gone,)))
    assert record_of(places, ID).name == "web-epoch-1-2"
    place = sandbox_dir(places, ID)
    with pytest.raises(StateError, match="which runs on node-2"):
        use_permission(place, "web-epoch-1-2", now())
    # It stays so, whatever else is said of it.
    permit = Grant(id=ID, name="web", epoch=2, seconds=60)
    await machine.obey(Told(asked=now(), permits=(permit,), released=(ID,)))
    lease = read_lease(place)
    assert lease is not None and lease.superseded_by == "node-2"


async def test_only_the_fleet_starts_it_and_a_permission_is_for_one_start(places: Paths) -> None:
    place = stopped(places, ID, "web", 1, fenced=True)
    with pytest.raises(StateError, match="only the fleet starts it"):
        use_permission(place, "web", now())
    machine = MachineOfLeases(places)
    permit = Grant(id=ID, name="web", epoch=2, seconds=60)
    await machine.obey(Told(asked=now() - 61, permits=(permit,)))
    with pytest.raises(StateError):
        use_permission(place, "web", now())  # it has run out
    await machine.obey(Told(asked=now(), permits=(permit,)))
    use_permission(place, "web", now())
    with pytest.raises(StateError):
        use_permission(place, "web", now())
    lease_file(place).write_text("{}")
    with pytest.raises(StateError, match="cannot be read"):
        use_permission(place, "web", now())
    await machine.obey(Told(asked=now(), released=(OTHER,)))
    write_lease(place, LeaseRecord(name="web", epoch=2, boot=boot_id()))
    await machine.obey(Told(asked=now(), released=(ID,)))
    use_permission(place, "web", now())  # an ordinary sandbox again


async def test_one_in_the_trash_is_let_go_of_and_can_be_started_once_it_is_restored(
    places: Paths,
) -> None:
    place, machine = stopped(places, ID, "web", 1, fenced=True), MachineOfLeases(places)
    trash = SandboxTrash(Registry(places))
    trash.put(ID)
    (held,) = machine.look().held
    assert (held.id, held.name, held.state) == (ID, "web", State.STOPPED)  # and not fenced
    await machine.obey(Told(asked=now(), released=(ID,)))
    assert machine.look().held == []
    trash.restore(ID)
    assert not lease_file(place).exists()
    use_permission(place, "web", now())


async def test_an_older_epoch_in_the_trash_is_not_started_once_it_is_restored(
    places: Paths,
) -> None:
    place, machine = stopped(places, ID, "web", 1, fenced=True), MachineOfLeases(places)
    trash = SandboxTrash(Registry(places))
    trash.put(ID)
    gone = Superseded(id=ID, name="web", epoch=1, by="node-2")
    await machine.obey(Told(asked=now(), superseded=(gone,)))
    trash.restore(ID)
    with pytest.raises(StateError, match="which runs on node-2"):
        use_permission(place, "web", now())


@pytest.fixture
async def telling(places: Paths) -> AsyncIterator[MachineOfLeases]:
    yield MachineOfLeases(places)


async def test_answers_to_an_earlier_request_count_nothing(
    telling: MachineOfLeases, places: Paths
) -> None:
    stopped(places, ID, "web", 1)

    async def nothing() -> None: ...

    async with links(lambda request: telling.answer(request, nothing)) as (near, _):
        channel = near.open("leases")
        await channel.reply
        first = decode_line((await channel.piece()).data)
        released = Told(asked=first.asked - 1, released=(ID,))
        channel.tell("tell", told=encode(released))
        second = decode_line((await channel.piece()).data)
        assert second.asked > first.asked and [one.id for one in second.held] == [ID]
        channel.tell("tell", told=encode(replace(released, asked=second.asked)))
        await until(lambda: not lease_file(sandbox_dir(places, ID)).exists(), "its release")
        channel.tell("enough")
        channel.close()
        await asyncio.sleep(0)


HELD = st.builds(
    Held,
    id=st.from_regex(r"[0-9a-f]{12}", fullmatch=True),
    name=st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True),
    epoch=st.integers(1, 2**31 - 1),
    state=st.sampled_from(State),
    is_fenced=st.booleans(),
    is_let_go=st.booleans(),
    is_superseded=st.booleans(),
)


@given(
    st.builds(
        Line,
        asked=st.floats(0, 1e9),
        saves=st.just("/saves"),
        held=st.lists(HELD),
        left=st.lists(st.from_regex(KEPT_SAVE, fullmatch=True), max_size=3),
    )
)
def test_lines_come_as_they_were_sent(line: Line) -> None:
    assert decode_line(encode_line(line)) == line


@given(st.binary() | st.text().map(str.encode))
def test_lines_that_make_no_sense_are_refused(data: bytes) -> None:
    with pytest.raises(ForeignValueError):
        decode_line(data)


@each(
    "told",
    [
        Told(asked=1.0, grants=(Grant(id="../../x", name="web", epoch=1, seconds=60),)),
        Told(asked=1.0, grants=(Grant(id=ID, name="../web", epoch=1, seconds=60),)),
        Told(asked=1.0, grants=(Grant(id=ID, name="web", epoch=0, seconds=60),)),
        Told(asked=1.0, permits=(Grant(id=ID, name="web", epoch=1, seconds=float("nan")),)),
        Told(asked=1.0, grants=(Grant(id=ID, name="web", epoch=1, seconds=1e9),)),
        Told(asked=1.0, superseded=(Superseded(id=ID, name="web", epoch=1, by="\x1b[31m"),)),
        Told(asked=1.0, released=("../x",)),
        Told(asked=1.0, unneeded=("mine",)),
        Told(asked=1.0, unneeded=("../x.kept-0123456789ab",)),
    ],
)
def test_what_a_coordinator_may_not_say_is_refused(told: Told) -> None:
    with pytest.raises(ForeignValueError):
        decode_told(encode(told))
