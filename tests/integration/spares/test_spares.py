"""A spare is taken over by the next start: what that sandbox is then, and what it is not."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand import NetworkMode, PortForward, Sandbox, Status
from quicksand.base.files import is_locked
from quicksand.base.paths import Paths, paths
from quicksand.base.settings import SPARES, TEMPLATES
from quicksand.qemu.planning import gather_parts
from quicksand.records.config import SandboxConfig
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.warm.spares import orders
from quicksand.warm.spares.orders import Orders
from quicksand.warm.spares.spare import Fit, list_fitting, list_spares
from quicksand.warm.spares.spare_making import make_spare
from quicksand.warm.spares.stock import (
    Ended,
    as_next,
    end_order,
    expect,
    look,
    record_for,
    set_order,
)
from quicksand.warm.template_maker import make_template
from quicksand.warm.templates import list_templates

from quicksand_tui.door.service import EngineService
from quicksand_tui.model.specs import NewSpec
from quicksand_tui.verbs import launching, trashing
from quicksand_tui.verbs.call import Progress
from tests.conftest import share_findings, wait_for
from tests.integration.disks import file_of_stopped
from tests.integration.spares.conftest import PATIENT, Make, mode_of, started
from tests.unit.app.carrying import carry_out

pytestmark = pytest.mark.vm


async def test_the_second_start_takes_what_the_first_had_made(
    places: Paths, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way: a process in the background makes it, no list shows it."""
    monkeypatch.delenv(SPARES.variable)
    monkeypatch.setattr(orders, "AFTER_S", 0)
    async with Sandbox(image="debian") as first:
        assert mode_of(first) == "template"
        making = places.sandboxes / ".spares.lock"
        await asyncio.to_thread(
            wait_for, lambda: list_spares(places) and not is_locked(making), what="it", timeout=60
        )
        monkeypatch.setenv(SPARES.variable, "use")
        assert [entry.id for entry in Sandbox.list()] == [first.id]
        async with Sandbox(image="debian", name="second") as second:
            assert mode_of(second) == "spare"
            assert list_spares(places) == []
            assert (await second.execute("echo ready | tee /root/file")).stdout == "ready\n"
        assert [entry.status for entry in Sandbox.list()] == [Status.RUNNING, Status.STOPPED]
        assert file_of_stopped(places, second, "/root/file") == b"ready\n"


SERVER = """
import socket
server = socket.create_server(("", 8000))
print("listens")
while True:
    server.accept()[0].sendall(b"here")
"""


async def test_what_is_given_when_it_is_taken(places: Paths, make: Make, tmp_path: Path) -> None:
    """Name, ports, mounts, a larger disk; clock, random numbers and identity are its own."""
    spare = await make()
    (tmp_path / "file").write_text("from the host")
    sandbox = await started(
        name="named",
        port_forwards=[PortForward(0, 8000)],
        mounts=[{"host": str(tmp_path), "guest": "/mnt/host", "readonly": False}],
        disk_size="12G",
    )
    try:
        assert mode_of(sandbox) == "spare"
        assert sandbox.id == spare.id
        script = "hostname; cat /etc/machine-id; date +%s; df -k --output=size / | tail -1"
        asked = time.time()
        name, machine_id, date, size = (await sandbox.execute(script)).stdout.split()
        answered = time.time()
        assert name == "named"
        assert len(machine_id) == 32
        assert asked - 1 <= int(date) <= answered + 1
        assert int(size) > 11 * 1024**2, "KiB"
        assert (await sandbox.execute("cat /mnt/host/file")).stdout == "from the host"
        async with await sandbox.spawn(["python3", "-uc", SERVER]) as server:
            await anext(server.output())  # it listens
            (port,) = sandbox.port_forwards.values()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.readexactly(4) == b"here"
            writer.close()
        record = json.loads((places.sandboxes / spare.id / "sandbox.json").read_text())
        assert record["committed"] and record["name"] == "named"
        assert not (places.sandboxes / spare.id / "spare.json").exists()
        await sandbox.checkpoint("one")
        await sandbox.execute("touch /root/later")
        await sandbox.revert("one")
        assert (await sandbox.execute("ls /root/later")).exit_code != 0
    finally:
        await sandbox.kill()


async def test_a_host_whose_clock_has_jumped(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was suspended while the spare waited: the guest's clock is right before anything runs."""
    await make()
    real, day = time.time_ns, 86400
    monkeypatch.setattr("time.time_ns", lambda: real() + day * 10**9)
    async with Sandbox(image="debian") as sandbox:
        assert mode_of(sandbox) == "spare"
        asked = time.time_ns()
        guest_ns = int((await sandbox.execute("date +%s%N")).stdout)
        assert asked - 10**9 < guest_ns < time.time_ns() + 10**9


async def test_two_spares_have_nothing_of_their_own_in_common(make: Make) -> None:
    script = (
        "cat /etc/machine-id /proc/sys/kernel/random/boot_id /sys/class/net/*/address | sort -u;"
        "cat /proc/sys/kernel/random/uuid; head -c 16 /dev/urandom | od -An -tx1 | tr -d ' '"
    )
    await make()
    await make()
    pair = [await started(), await started()]
    try:
        assert [mode_of(sandbox) for sandbox in pair] == ["spare", "spare"]
        one, other = [(await sandbox.execute(script)).stdout.split() for sandbox in pair]
        assert len(one) == len(other) > 4
        assert set(one) & set(other) <= {"00:00:00:00:00:00"}
        tokens = {entry.run.token for entry in Sandbox.list() if entry.run is not None}
        assert len(tokens) == 2
    finally:
        for sandbox in pair:
            await sandbox.kill()


async def test_of_two_starts_one_takes_it(places: Paths, make: Make) -> None:
    await make()
    pair = await asyncio.gather(started(), started())
    try:
        assert sorted(map(mode_of, pair)) == ["spare", "template"]
        for sandbox in pair:
            assert (await sandbox.execute("echo ok")).stdout == "ok\n"
    finally:
        for sandbox in pair:
            await sandbox.kill()


async def test_what_it_fits(places: Paths, make: Make) -> None:
    """Whatever a machine consists of must be equal; the rest is given when it is taken."""
    await make()
    registry = Registry(places)

    async def fits(**options: object) -> bool:
        record = record_for(SandboxConfig.parse({"image": "debian", **options}))
        parts = await gather_parts(registry, record)
        return bool(list_fitting(places, record, parts))

    assert await fits()
    assert await fits(port_forwards=[{"host": 0, "guest": 80}], boot_timeout=10)
    assert await fits(disk_size="12G")
    assert not await fits(disk_size="1G"), "smaller than the image's: a start says so"
    for other in (
        {"memory": "256M"},
        {"cpus": 2},
        {"network_mode": NetworkMode.NONE},
        {"network_mode": NetworkMode.FULL},
        {"enable_display": True},
        {"agent_http": True},
        {"enable_display": True, "vnc_port": 0},
        {"extra_qemu_args": ["-device", "virtio-rng-pci"]},
    ):
        assert not await fits(**other), other
    listens = record_for(SandboxConfig(image="debian", enable_display=True, vnc_port=0))
    assert "port" in Fit.of(places, listens, await gather_parts(registry, listens)).refusal
    record = record_for(SandboxConfig(image="debian"))
    parts = await gather_parts(registry, record)
    rebuilt = replace(parts, image=replace(parts.image, digest="0" * 64))
    assert list_fitting(places, record, rebuilt) == []
    elsewhere = replace(places, memory=Path("/dev/shm/other"))
    assert list_fitting(elsewhere, record, parts) == []


async def save_kept() -> Record:
    """Make the save "kept"; the record of a sandbox that would start with it."""
    async with Sandbox(image="debian") as sandbox:
        await sandbox.execute("echo saved > /root/file")
        await sandbox.save("kept")
    return Sandbox(image="kept")._parts.life.new_record()


async def test_a_start_with_a_save_takes_no_spare_of_its_image(
    places: Paths, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk is another one, so its spares are, too."""
    monkeypatch.chdir(tmp_path)  # where saves go
    record = await save_kept()
    spare = await make()
    assert list_fitting(places, record, await gather_parts(Registry(places), record)) == []
    assert as_next(replace(record, committed=True)) == record
    shown = await asyncio.to_thread(command, "ps", "--all-processes")
    assert f"{spare.id} (debian)" in shown


@pytest.mark.soak
async def test_a_start_with_a_save_takes_a_spare_of_that_save(
    places: Paths, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    registry, record = Registry(places), await save_kept()
    await make_template(registry, replace(record, committed=True))
    spare = await make_spare(registry, as_next(record), seconds=600)
    shown = await asyncio.to_thread(command, "ps", "--all-processes")
    assert f"{spare.id} (save kept)" in shown
    async with Sandbox(image="kept") as taken:
        assert mode_of(taken) == "spare"
        assert taken.id == spare.id
        assert (await taken.execute("cat /root/file")).stdout == "saved\n"


async def test_clones_of_what_was_a_spare_while_another_waits(places: Paths, make: Make) -> None:
    """They are copies of their source; the other spare is none of theirs, and is still taken by the
    next start."""
    script = "cat /etc/machine-id /sys/class/net/*/address /dev/shm/here | grep -v 00:00:00"
    await make()
    async with Sandbox(image="debian", name="source") as source:
        assert mode_of(source) == "spare"
        await source.execute("echo here > /dev/shm/here")
        waiting = await make()
        clones = await source.clone(2)
        try:
            assert [spare.id for spare in list_spares(places)] == [waiting.id]
            texts = [(await one.execute(script)).stdout.split() for one in (source, *clones)]
            assert [text[-1] for text in texts] == ["here"] * 3
            for own in zip(*(text[:-1] for text in texts), strict=True):
                assert len(set(own)) == 3, own
        finally:
            for clone in clones:
                await clone.kill()
        async with Sandbox(image="debian") as next_one:
            assert (mode_of(next_one), next_one.id) == ("spare", waiting.id)
            assert (await next_one.execute("ls /dev/shm/here")).exit_code != 0


async def test_the_template_of_an_ordered_machine_is_made_anew(
    places: Paths, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`clean` has removed it, or the image was built anew. A start has this program run."""
    config = SandboxConfig(image="debian", memory="256M")
    cache = places.data.parent / "cache"
    share_findings(places, cache)
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(cache))
    monkeypatch.delenv(TEMPLATES.variable)
    registry = Registry(paths())
    Orders(places).set(config, 1)
    argv = [sys.executable, "-P", "-m", orders.MAKER]
    await asyncio.to_thread(subprocess.run, argv, input=b"null", check=True)
    assert [(one.ready, one.why) for one in await look(registry)] == [(1, "")]
    (template,) = list_templates(paths())
    assert template.memory == "256M"
    async with Sandbox(image="debian", memory="256M") as sandbox:
        assert mode_of(sandbox) == "spare"


async def test_it_can_be_turned_off(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    await make()
    monkeypatch.setenv(SPARES.variable, "off")
    async with Sandbox(image="debian") as sandbox:
        assert mode_of(sandbox) == "template"


async def test_the_name_must_be_free(places: Paths, make: Make) -> None:
    from quicksand.base.errors import NameTakenError

    async with Sandbox(image="debian", name="taken"):
        await make()
        with pytest.raises(NameTakenError):
            await started(name="taken")
        assert len(list_spares(places)) == 1, "it waits for somebody else"


def command(*words: str) -> str:
    program = f"{PATIENT}from quicksand_tui.__main__ import main\nmain()\n"
    argv = [sys.executable, "-c", program, *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


async def test_commands_use_show_and_end_them(places: Paths, make: Make) -> None:
    spare = await make()
    facts = json.loads(await asyncio.to_thread(command, "run", "debian", "--json", "--", "true"))
    assert (facts["boot_mode"], facts["id"]) == ("spare", spare.id)
    spare = await make()
    shown = json.loads(await asyncio.to_thread(command, "ps", "--all-processes", "--json"))
    ours = {(one["kind"], one["role"]) for one in shown if one["name"] == spare.id}
    assert ours == {("QEMU", "spare"), ("keeper", "spare")}
    assert all(one["memory"] > 1 << 20 for one in shown if one["name"] == spare.id)
    assert {one["machine"] for one in shown if one["name"] == spare.id} == {"debian"}
    used = json.loads(await asyncio.to_thread(command, "du", "--json"))
    assert ("spares", 1) in [(kind["kind"], kind["number"]) for kind in used["kinds"]]
    assert f"{spare.id} (debian)" in [item["name"] for item in used["items"]]
    warmed = await asyncio.to_thread(command, "images", "warm", "debian", "--spares", "1", "--json")
    assert json.loads(warmed)["spares"] == 1
    found = json.loads(await asyncio.to_thread(command, "doctor", "--json"))
    told = next(check for check in found if check["name"] == "spares")["found"]
    assert told.startswith("2, ") and told.endswith("ordered: 1 of 1 for debian")


async def test_what_was_made_for_another_machine_is_replaced(places: Paths, make: Make) -> None:
    """The image was built anew, say, since its key was computed."""
    old = await make()
    path = places.sandboxes / old.id / "spare.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "key": "0" * 32}))
    async with Sandbox(image="debian") as sandbox:
        assert mode_of(sandbox) == "template"
        await expect(Registry(places), sandbox._parts.life.require_record())
    (new,) = list_spares(places)
    assert (new.id, new.key) != (old.id, old.key)
    assert os.listdir(places.runtime) == [new.id]


async def test_a_template_that_is_removed_leaves_its_spares_whole(
    places: Paths, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make()
    # What is known of the host stays: measured anew, its tick rate may differ by a hair.
    share_findings(places, tmp_path)
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(tmp_path))  # without any template
    async with Sandbox(image="debian") as sandbox:
        assert mode_of(sandbox) == "spare", sandbox.boot_timing
        await sandbox.checkpoint("one")
        await sandbox.revert("one")
        assert (await sandbox.execute("echo ok")).stdout == "ok\n"


async def test_so_many_as_are_ordered_are_ready(places: Paths, make: Make) -> None:
    registry, config = Registry(places), SandboxConfig(image="debian")
    await make()
    assert await set_order(registry, config, 2) == 2
    assert sorted(spare.until is None for spare in list_spares(places)) == [False, True, True]
    async with Sandbox(image="debian"), Sandbox(image="debian"):
        assert len(list_spares(places)) == 1
        await expect(registry, record_for(config))
        assert [one.ready for one in await look(registry)] == [2]
    assert await set_order(registry, config, 1) == 1
    assert await end_order(registry, config) == Ended(1, 1)
    assert all(spare.until is not None for spare in list_spares(places))
    assert await look(registry) == []
    assert {*os.listdir(places.runtime)} == {spare.id for spare in list_spares(places)}


async def test_the_app_takes_one(places: Paths, make: Make) -> None:
    """And its progress is that of the sandbox with the spare's id."""
    spare = await make()
    service, seen = EngineService(), list[Progress]()
    try:
        spec = NewSpec(image="debian", name="one", machine={})
        await carry_out(service, launching.create(spec), report=seen.append)
        (view,) = service.read(fresh=True).sandboxes
        assert view.id == spare.id == seen[-1].sandbox_id
        await carry_out(service, trashing.remove(stop=True), view.id)
    finally:
        await asyncio.to_thread(service.close)
