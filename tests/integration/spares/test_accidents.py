"""What can happen to a spare, and to the start that takes it: a normal start follows, and nothing
is left behind."""

from __future__ import annotations

import asyncio
import os
import pkgutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from quicksand import Sandbox, SandboxConfig, Status
from quicksand.base.errors import MemoryBudgetError
from quicksand.base.files import read_json, write_json
from quicksand.base.paths import Paths
from quicksand.base.processes import ProcessKind, processes_of
from quicksand.life.cleaning import Cleaner
from quicksand.qemu.keeper_link import KeeperLink
from quicksand.records.layout import sandbox_dir
from quicksand.records.registry import Registry
from quicksand.warm.spares import claiming, handover
from quicksand.warm.spares.claiming import end_useless
from quicksand.warm.spares.spare import Spare, list_spares
from quicksand.warm.spares.spare_making import make_spare
from quicksand.warm.spares.stock import record_for

from tests.conftest import in_time, left_when_reaped, our_processes, wait_for
from tests.integration.spares.conftest import PATIENT, Make, mode_of, started, until_nothing_is_left

pytestmark = pytest.mark.vm

OWNER = """
import asyncio, sys
from quicksand import Sandbox

async def main():
    sandbox = Sandbox(image="debian", name="mine")
    await sandbox.start()
    if sys.argv[1] == "detached":
        sandbox.detach()
    print(sandbox.boot_timing.mode, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


def pid_of(places: Paths, spare: Spare, kind: ProcessKind) -> int:
    (pid,) = [p.pid for p in processes_of(sandbox_dir(places, spare.id).root) if p.kind is kind]
    return pid


@pytest.mark.parametrize("whose", [ProcessKind.KEEPER, ProcessKind.QEMU])
async def test_what_is_killed_while_it_waits_leaves_nothing(
    places: Paths, make: Make, whose: ProcessKind
) -> None:
    spare = await make()
    os.kill(pid_of(places, spare, whose), signal.SIGKILL)
    async with Sandbox(image="debian") as sandbox:
        assert mode_of(sandbox) == "template"
        assert (await sandbox.execute("echo ok")).stdout == "ok\n"
    wait_for(lambda: not our_processes(str(places.data)), what="its processes to end")
    for root in (places.sandboxes / spare.id, places.runtime / spare.id):
        if root.exists():  # the keeper was killed: the next reaping takes them once they are old
            os.utime(root, (0, 0))
    wait_for(lambda: not left_when_reaped(places), what="the rest to be reaped")


@pytest.mark.parametrize("whose", [ProcessKind.KEEPER, ProcessKind.QEMU])
async def test_what_hangs_is_given_up(
    places: Paths, make: Make, whose: ProcessKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((claiming, "ANSWER_S"), (handover, "CONNECT_S")):
        monkeypatch.setattr(module, name, 1.0)
    spare = await make()
    pid = pid_of(places, spare, whose)
    os.kill(pid, signal.SIGSTOP)
    async with Sandbox(image="debian", name="box") as sandbox:
        assert mode_of(sandbox) == "template"
        assert sandbox.id != spare.id
        assert [entry.name for entry in Sandbox.list()] == ["box"]
        wait_for(lambda: spare.id not in left_when_reaped(places), what="the spare to go")
    Registry(places).remove(sandbox.id)


Accident = Callable[[Paths, Spare], None]


def kill_keeper(places: Paths, spare: Spare) -> None:
    os.kill(pid_of(places, spare, ProcessKind.KEEPER), signal.SIGKILL)


def kill_qemu(places: Paths, spare: Spare) -> None:
    os.kill(pid_of(places, spare, ProcessKind.QEMU), signal.SIGKILL)


@pytest.mark.parametrize(
    ("accident", "mode"), [(kill_keeper, "spare"), (kill_qemu, "template")], ids=["keeper", "QEMU"]
)
@pytest.mark.parametrize("moment", ["claimed", "awake", "renewed"])
async def test_what_is_killed_while_it_is_taken(
    places: Paths,
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    accident: Accident,
    mode: str,
    moment: str,
) -> None:
    """Without its keeper the sandbox goes on, as one whose keeper is killed later; without its QEMU
    it starts anew."""
    spare = await make()
    place = {
        "claimed": "quicksand.qemu.qmp.Monitor.connect",
        "awake": "quicksand.warm.spares.handover.renew",
        "renewed": "quicksand.warm.spares.handover.publish_state",
    }[moment]
    real: Any = pkgutil.resolve_name(place)
    once = iter([True])

    def strike(*args: Any, **options: Any) -> Any:
        if next(once, False):
            accident(places, spare)
        return real(*args, **options)

    monkeypatch.setattr(place, strike)
    sandbox = await started(name="box")
    if moment == "renewed" and mode == "template" and mode_of(sandbox) == "spare":
        # It was taken when its QEMU died (unless the keeper was quicker, and has removed the files
        # that a start writes to): that is a crash like any other.
        await asyncio.to_thread(
            wait_for, lambda: Sandbox.list()[0].status is Status.CRASHED, what="the crash"
        )
    else:
        assert mode_of(sandbox) == mode
        assert (await sandbox.execute("hostname")).stdout == "box\n"
        assert [entry.name for entry in Sandbox.list()] == ["box"]
    await sandbox.kill()
    wait_for(lambda: left_when_reaped(places) == {sandbox.id}, what="the rest to be reaped")


async def kill_owner(places: Paths, make: Make, mode: str, *, keeper_lives: bool) -> float:
    """Kill -9 a script whose sandbox "mine" was a spare; when that was (`time.monotonic`)."""
    spare = await make()
    argv = [sys.executable, "-c", PATIENT + OWNER, mode]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert await asyncio.to_thread(owner.stdout.readline) == "spare\n"
        if not keeper_lives:
            kill_keeper(places, spare)
        killed = time.monotonic()
        owner.kill()
    return killed


@pytest.mark.parametrize("keeper_lives", [True, False])
async def test_kill_9_of_the_owner_ends_what_it_owns(
    places: Paths, make: Make, keeper_lives: bool
) -> None:
    """As for a fresh start."""

    async def end() -> float:
        killed = await kill_owner(places, make, "owned", keeper_lives=keeper_lives)
        (mine,) = Sandbox.list()
        await asyncio.to_thread(
            wait_for, lambda: not Sandbox.list()[0].is_live, what="the VM's end"
        )
        taken = time.monotonic() - killed
        Registry(places).clear_runtime(mine.id)  # a killed keeper leaves it
        Registry(places).remove(mine.id)
        return taken

    assert await in_time(end, 2)


@pytest.mark.parametrize("keeper_lives", [True, False])
async def test_kill_9_of_the_owner_leaves_what_is_detached(
    places: Paths, make: Make, keeper_lives: bool
) -> None:
    """As for a fresh start."""
    await kill_owner(places, make, "detached", keeper_lives=keeper_lives)
    sandbox = Sandbox.attach("mine")
    assert (await sandbox.execute("echo alive")).stdout == "alive\n"
    await sandbox.kill()


@pytest.mark.parametrize(
    "after_ms", [2, 10, 20, *(pytest.param(ms, marks=pytest.mark.soak) for ms in range(0, 60, 4))]
)
async def test_a_cancelled_start_leaves_nothing(places: Paths, make: Make, after_ms: int) -> None:
    await make()
    sandbox = Sandbox(image="debian", name="box")
    task = asyncio.create_task(sandbox.start())
    await asyncio.sleep(after_ms / 1000)
    task.cancel()
    await asyncio.wait((task,))
    if task.cancelled():
        assert Sandbox.list() == []
    else:
        await sandbox.kill()
        Registry(places).remove(sandbox.id)
    for spare in list_spares(places):
        claiming.end(Registry(places), spare)
    await until_nothing_is_left(places)


async def test_it_ends_when_its_time_is_over(places: Paths, make: Make) -> None:
    await make(0.5)
    await until_nothing_is_left(places)


async def test_a_spare_past_its_time_is_swept_though_its_keeper_hangs(
    places: Paths, make: Make
) -> None:
    spare = await make()
    place = sandbox_dir(places, spare.id)
    write_json(place.spare, {**read_json(place.spare), "until": time.time() - 3600})
    os.kill(pid_of(places, spare, ProcessKind.KEEPER), signal.SIGSTOP)
    assert await asyncio.to_thread(end_useless, Registry(places)) == 1
    await until_nothing_is_left(places)


async def test_a_spare_of_an_image_that_is_gone_is_ended(places: Paths, make: Make) -> None:
    spare = await make()
    place = sandbox_dir(places, spare.id)
    value = read_json(place.spare)
    value["record"]["chain"] = [str(places.data / "gone" / "disk.qcow2")]
    write_json(place.spare, value)
    assert await asyncio.to_thread(end_useless, Registry(places)) == 1
    await until_nothing_is_left(places)


async def test_clean_ends_it(places: Paths, make: Make) -> None:
    await make()
    cleaner = Cleaner(places)
    heaps = [heap for heap in cleaner.look() if heap.kind == "spares"]
    assert len(heaps) == 1
    await asyncio.to_thread(cleaner.clean, heaps)
    await until_nothing_is_left(places)


async def test_a_start_that_lacks_memory_gets_that_of_spares(
    places: Paths, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make()

    def check(wanted: int) -> None:
        if list_spares(places):
            raise MemoryBudgetError(f"{wanted} is too much")

    monkeypatch.setattr("quicksand.qemu.planning.check_memory", check)
    async with Sandbox(image="debian") as sandbox:
        assert mode_of(sandbox) == "template"
        assert list_spares(places) == []


async def test_none_is_made_where_memory_is_short(
    places: Paths, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One machine would fit, but not a start beside it."""
    monkeypatch.setattr(
        "quicksand.warm.spares.spare_making.available_memory", lambda: 2 * 512 * 1024**2
    )
    with pytest.raises(MemoryBudgetError, match="twice its own"):
        await make()
    assert not [path for path in places.sandboxes.glob("*") if not path.name.startswith(".")]


async def test_a_maker_that_is_cancelled_as_its_keeper_answers_leaves_a_good_spare(
    places: Paths, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUICKSAND_SPARES", "use")
    ask = KeeperLink.ask

    async def cancelled(self: KeeperLink, op: str, **values: Any) -> Any:
        reply = await ask(self, op, **values)
        if op == "wait":
            making.cancel()
            await asyncio.sleep(0)
        return reply

    monkeypatch.setattr(KeeperLink, "ask", cancelled)
    record = record_for(SandboxConfig(image="debian"))
    making = asyncio.create_task(make_spare(Registry(places), record, seconds=600.0))
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await making
    async with Sandbox(image="debian") as sandbox:
        assert mode_of(sandbox) == "spare"
        assert (await sandbox.execute("echo ok")).stdout == "ok\n"


@pytest.mark.parametrize(
    "after_ms", [150, 350, *(pytest.param(ms, marks=pytest.mark.soak) for ms in range(0, 600, 50))]
)
async def test_a_maker_that_is_killed_leaves_nothing(places: Paths, after_ms: int) -> None:
    script = (
        "import asyncio\n"
        "from quicksand.records.config import SandboxConfig\n"
        "from quicksand.base.paths import paths\n"
        "from quicksand.records.registry import Registry\n"
        "from quicksand.warm.spares.spare_making import make_spare\n"
        "from quicksand.warm.spares.stock import record_for\n"
        "record = record_for(SandboxConfig(image='debian'))\n"
        "print('begins', flush=True)\n"
        "asyncio.run(make_spare(Registry(paths()), record, seconds=600))\n"
    )
    env = {**os.environ, "QUICKSAND_SPARES": "use"}
    argv = [sys.executable, "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=env) as maker:
        assert maker.stdout is not None
        await asyncio.to_thread(maker.stdout.readline)
        await asyncio.sleep(after_ms / 1000)
        maker.kill()
        # A child that it has just forked has this pipe, too, until it is a keeper.
        await asyncio.to_thread(maker.stdout.read)
    for spare in list_spares(places):  # it was quicker
        claiming.end(Registry(places), spare)
    await asyncio.to_thread(
        wait_for, lambda: not our_processes(str(places.data)), what="its processes to end"
    )
    for root in [*Path(places.sandboxes).glob("[0-9a-f]*"), *places.runtime.glob("[0-9a-f]*")]:
        os.utime(root, (0, 0))
    wait_for(lambda: not left_when_reaped(places), what="the rest to be reaped")
