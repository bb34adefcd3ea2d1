"""Keepers that are killed, sockets that are gone: nothing is wedged, nothing outlives its owner."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quicksand import NetworkMode, PortForward, Sandbox, Status
from quicksand.base.errors import StateError
from quicksand.base.files import is_locked
from quicksand.base.paths import Paths
from quicksand.base.paths import paths as find_paths
from quicksand.base.processes import Process, ProcessKind, processes_of
from quicksand.qemu.stopping import end_orphans, find_orphans, find_unkept
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.records.registry import Registry

from quicksand_tui.model.remedy_words import hint_of
from tests.conftest import wait_for

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("template")]

OWNER = """
import asyncio, ctypes, sys
from quicksand import Sandbox

async def main():
    async with Sandbox(image="debian", name="owned") as sandbox:
        if sys.argv[1:] == ["fork"]:
            # Python is not told of the child, which keeps all of its parent's descriptors.
            ctypes.PyDLL(None).fork() or ctypes.CDLL(None).sleep(10000)
        print("up", flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""


Start = Callable[..., Awaitable[Sandbox]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts a sandbox that is detached; our connection to it is closed afterwards."""
    started: list[Sandbox] = []

    async def run(name: str = "box", **options: Any) -> Sandbox:
        started.append(Sandbox(image="debian", name=name, **options))
        await started[-1].start()
        started[-1].detach()
        return started[-1]

    yield run
    for sandbox in started:
        sandbox.close()


def root_of(places: Paths, sandbox: Sandbox) -> Path:
    return sandbox_dir(places, sandbox.id).root


def has_ended(root: Path) -> bool:
    """Whether nothing of a sandbox runs, and nobody is about to write how it ended."""
    return not processes_of(root) and Sandbox.list()[0].status is not Status.STOPPING


def pids(root: Path, kind: ProcessKind) -> list[int]:
    return [process.pid for process in processes_of(root) if process.kind is kind]


def orphans_of(root: Path) -> list[Process]:
    """Those of this sandbox: other tests may have some."""
    return [orphan for orphan in find_orphans() if orphan.of == str(root)]


def kill_keeper(root: Path) -> int:
    (pid,) = pids(root, ProcessKind.KEEPER)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: pid not in pids(root, ProcessKind.KEEPER), what="the keeper's death")
    # The kernel closes its files later: until then it counts as alive, and gets no successor.
    lock = runtime_dir(find_paths(), root.name).keeper_lock
    wait_for(lambda: not is_locked(lock), what="the lock of the dead keeper")
    return pid


async def test_the_next_command_gives_a_sandbox_a_new_keeper(places: Paths, start: Start) -> None:
    """And the sandbox is in its hands: checkpoints, log, what it ended with."""
    sandbox = await start(network_mode=NetworkMode.MOUNTS_ONLY, port_forwards=[PortForward(0, 80)])
    root = root_of(places, sandbox)
    (qemu,) = pids(root, ProcessKind.QEMU)
    killed = kill_keeper(root)
    assert [process.pid for process in find_unkept() if process.of == str(root)] == [qemu]
    assert not orphans_of(root)
    other = Sandbox.attach("box")
    assert (await other.execute("echo alive")).stdout == "alive\n"
    # Several may have been started; all but the first end.
    wait_for(lambda: len(pids(root, ProcessKind.KEEPER)) == 1, what="one keeper")
    (adopted,) = pids(root, ProcessKind.KEEPER)
    assert adopted != killed
    assert pids(root, ProcessKind.QEMU) == [qemu], "it was not restarted"
    await other.checkpoint("one")
    await other.execute("echo changed > /root/file; echo to the console > /dev/console")
    wait_for(lambda: "to the console" in other.logs(), what="the console's text")
    await other.revert("one")
    assert (await other.execute("cat /root/file")).exit_code != 0
    assert (await other.undo()).auto
    assert (await other.execute("cat /root/file")).stdout == "changed\n"
    kill_keeper(root)
    await other.stop()
    assert Sandbox.list()[0].status is Status.STOPPED
    wait_for(lambda: not list(places.runtime.glob("*")), what="the removal of its runtime files")
    other.close()


async def test_several_commands_at_once_make_one_keeper(places: Paths, start: Start) -> None:
    sandbox = await start()
    root = root_of(places, sandbox)
    kill_keeper(root)
    clients = [Sandbox.attach("box") for _ in range(4)]
    results = await asyncio.gather(*(client.execute("echo x") for client in clients))
    assert [result.stdout for result in results] == ["x\n"] * 4
    for client in clients:
        client.close()
    # Several may have been started; all but the first end.
    wait_for(lambda: len(pids(root, ProcessKind.KEEPER)) == 1, what="one keeper")
    await sandbox.kill()


@pytest.mark.parametrize("graceful", [True, False])
async def test_what_ends_under_an_adopted_keeper_is_told(
    places: Paths, start: Start, graceful: bool
) -> None:
    sandbox = await start()
    root = root_of(places, sandbox)
    kill_keeper(root)
    assert (await sandbox.execute("true")).exit_code == 0
    (qemu,) = pids(root, ProcessKind.QEMU)
    if graceful:
        await sandbox.request("shutdown", {"mode": "poweroff", "grace": 0})
    else:
        os.kill(qemu, signal.SIGKILL)
    wait_for(lambda: not is_locked(root / "lock"), what="the end")
    entry = Sandbox.list()[0]
    assert entry.status is (Status.STOPPED if graceful else Status.CRASHED)
    assert graceful or "killed" in entry.error
    # QEMU alone held the lock: the keeper tidies up after it.
    wait_for(lambda: not list(places.runtime.glob("*")), what="its files to go")
    sandbox.close()


async def test_a_child_of_its_owner_keeps_nothing_alive_under_an_adopted_keeper(
    places: Paths,
) -> None:
    """It holds the owner's end of the leash, and the new keeper has no lifeline."""
    # asyncio's own would wait for the end of its output, which the child has as well.
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, "fork"], stdout=subprocess.PIPE, start_new_session=True
    )
    assert owner.stdout is not None
    try:
        assert await asyncio.to_thread(owner.stdout.readline) == b"up\n"
        root = places.sandboxes / Sandbox.list()[0].id
        kill_keeper(root)
        client = Sandbox.attach("owned")
        await client.execute("true")
        client.close()
        assert pids(root, ProcessKind.QEMU), "its owner lives"
        owner.kill()
        await asyncio.to_thread(owner.wait)
        await asyncio.to_thread(wait_for, lambda: has_ended(root), what="the end of all")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(owner.pid, signal.SIGKILL)
        owner.stdout.close()
    await Sandbox.open("owned").stop()


@pytest.mark.parametrize("order", ["keeper first", "owner first", "adopted"])
async def test_killing_owner_and_keeper_leaves_nothing_that_runs(places: Paths, order: str) -> None:
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, stdout=asyncio.subprocess.PIPE
    )
    assert owner.stdout is not None
    assert await owner.stdout.readline() == b"up\n"
    root = places.sandboxes / Sandbox.list()[0].id
    if order == "owner first":
        owner.kill()
    elif order == "adopted":
        kill_keeper(root)
        client = Sandbox.attach("owned")
        await client.execute("true")
        client.close()
    for pid in pids(root, ProcessKind.KEEPER):
        with contextlib.suppress(ProcessLookupError):  # it ends with its owner
            os.kill(pid, signal.SIGKILL)
    if order != "owner first":
        assert pids(root, ProcessKind.QEMU), "its owner lives"
        owner.kill()
    await owner.wait()
    wait_for(lambda: has_ended(root), what="the end of all")
    wait_for(lambda: not is_locked(root / "lock"), what="the lock")
    await Sandbox.open("owned").stop()
    wait_for(lambda: not list(places.runtime.glob("*")), what="its files to go")


async def test_one_that_is_detached_without_its_keeper_lives_on(places: Paths) -> None:
    sandbox = Sandbox(image="debian", name="box")
    await sandbox.start()
    root = root_of(places, sandbox)
    kill_keeper(root)
    sandbox.detach()
    assert (await sandbox.execute("echo on")).stdout == "on\n"
    await sandbox.checkpoint("one")
    await sandbox.revert("one")
    assert (await sandbox.execute("echo on")).stdout == "on\n"
    await sandbox.kill()
    # Several keepers may have been started: those that were one too many have no part in its end.
    wait_for(lambda: not processes_of(root), what="the end of all")


@pytest.mark.parametrize(
    ("lost", "keeper"),
    [("sockets", "lives"), ("state", "stopped"), ("all", "lives"), ("all", "killed")],
)
async def test_a_sandbox_without_its_runtime_files_can_be_ended(
    places: Paths, start: Start, lost: str, keeper: str
) -> None:
    sandbox = await start()
    root, runtime = root_of(places, sandbox), runtime_dir(places, sandbox.id)
    if keeper == "killed":
        kill_keeper(root)
    elif keeper == "stopped":
        os.kill(pids(root, ProcessKind.KEEPER)[0], signal.SIGSTOP)
    if lost == "all":
        shutil.rmtree(runtime.root)
    elif lost == "state":
        runtime.current().state.unlink()
    else:
        for path in runtime.root.rglob("*.sock"):
            path.unlink()
        # Who is connected goes on.
        assert (await sandbox.execute("echo still")).stdout == "still\n"
    if lost != "all":
        os.utime(runtime.root, (0, 0))
    (entry,) = Sandbox.list()
    assert entry.status is Status.UNREACHABLE
    assert "`kill` ends it" in entry.error
    with pytest.raises(StateError, match="cannot be reached") as caught:
        Sandbox.attach("box")
    assert "kill box" in hint_of(caught.value)
    await Sandbox.open("box", to_end_it=True).kill()
    assert Sandbox.list()[0].status is Status.STOPPED
    wait_for(lambda: has_ended(root), what="the end of all")
    if keeper == "killed":
        again = Sandbox.open("box")
        await again.start()
        assert (await again.execute("echo again")).stdout == "again\n"
        await again.kill()
        again.close()
    wait_for(lambda: not list(places.runtime.glob("*")), what="its files to go")


async def test_two_data_directories_share_one_runtime_directory(
    places: Paths, start: Start, tmp_path: Path
) -> None:
    """Clearing up for the one is nothing to the other, whether its keeper lives or not."""
    sandbox = await start()
    other = Registry(replace(places, data=tmp_path / "other"))
    for path in places.runtime.iterdir():
        os.utime(path, (0, 0))
    assert other.reap() == []
    kill_keeper(root_of(places, sandbox))
    assert other.reap() == []
    assert other.strangers() == {}
    assert (await sandbox.execute("echo alive")).stdout == "alive\n"
    await sandbox.kill()


async def test_an_orphan_is_found_and_ended(places: Paths, start: Start) -> None:
    """Its directory was deleted by hand, keeper and QEMU run on."""
    sandbox = await start()
    root = root_of(places, sandbox)
    shutil.rmtree(root)
    orphans = orphans_of(root)
    assert {orphan.kind for orphan in orphans} == {*ProcessKind}
    assert end_orphans(orphans) == 2
    wait_for(lambda: not processes_of(root), what="their end")
    registry = Registry(places)
    for path in places.runtime.iterdir():
        os.utime(path, (0, 0))
    assert registry.reap() == [sandbox.id]
    sandbox.close()


async def test_a_start_that_hangs_can_be_removed(places: Paths) -> None:
    """Whoever starts it is stopped by ctrl+z, say; it holds the lock for ever."""
    script = (
        "import asyncio, os, signal\n"
        "from quicksand import Sandbox\nfrom quicksand.warm import starting\n"
        "real = starting.publish_state\n"
        "def hang(*args):\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    real(*args)\n"
        "starting.publish_state = hang\n"
        "asyncio.run(Sandbox(image='debian', name='hangs').start())\n"
    )
    starter = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stderr=asyncio.subprocess.DEVNULL
    )
    wait_for(lambda: [e for e in Sandbox.list() if e.status is Status.STARTING], what="the start")
    (entry,) = Sandbox.list()
    root = places.sandboxes / entry.id
    wait_for(lambda: pids(root, ProcessKind.QEMU), what="its QEMU")
    stat = Path(f"/proc/{starter.pid}/stat")
    wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", what="it to hang")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "quicksand_tui", "rm", "-f", "hangs"),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert (process.returncode, output) == (0, b"hangs\n")
    assert Sandbox.list() == []
    wait_for(lambda: not processes_of(root), what="the end of all")
    starter.send_signal(signal.SIGCONT)
    assert await starter.wait() != 0
    assert Sandbox.list() == []
    wait_for(lambda: not Registry(places).reap() and not root.exists(), what="nothing to be left")
