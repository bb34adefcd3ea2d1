"""Starting, stopping, owning and losing real VMs. Whatever happens, nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from quicksand import PortForward, Sandbox, Status
from quicksand.base.errors import (
    AgentUnreachableError,
    BootTimeoutError,
    GuestPanicError,
    ImageError,
    ImageNotFound,
    MachineError,
    MemoryBudgetError,
    NameTakenError,
    PathError,
    PortInUseError,
    QemuDiedError,
    QemuNotFound,
    QemuTooOld,
    SandboxNotFoundError,
    StateError,
    UnknownOptionError,
)
from quicksand.base.paths import Paths, paths
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.records.registry import Registry

from tests.conftest import (
    everything_below,
    in_time,
    left_when_reaped,
    link_images,
    our_processes,
    wait_for,
)

pytestmark = pytest.mark.vm


def assert_nothing_is_left(places: Paths) -> None:
    """No process, no sandbox, no runtime directory."""
    wait_for(lambda: not our_processes(str(places.data)), what="processes to end")
    wait_for(lambda: left_when_reaped(places) == set(), what="nothing to be left")
    assert Sandbox.list() == []


def ended_as(status: Status) -> bool:
    """Whether the one sandbox that exists has ended, with that status.

    A process that is being torn down has lost its command line and still holds the lock, so the
    status is what to wait for, not the list of processes.
    """
    return [entry.status for entry in Sandbox.list()] == [status]


async def test_an_unnamed_sandbox_is_gone_after_its_block(places: Paths) -> None:
    async with Sandbox(image="debian") as sandbox:
        assert sandbox.is_running
        assert (await sandbox.execute("hostname")).stdout.strip() == sandbox.id
        assert (runtime_dir(places, sandbox.id).root).stat().st_mode & 0o077 == 0
        for socket in runtime_dir(places, sandbox.id).root.rglob("*.sock"):
            assert stat.S_IMODE(socket.stat().st_mode) == 0o600
    assert not sandbox.is_running
    assert_nothing_is_left(places)
    await sandbox.stop()


async def test_detached_it_lives_on_and_can_be_attached(places: Paths) -> None:
    sandbox = Sandbox(image="debian", name="free")
    await sandbox.start()
    sandbox.detach()
    sandbox.close()
    first, second = Sandbox.attach("free"), Sandbox.attach(sandbox.id[:6])
    assert (await first.execute("echo 1")).stdout == "1\n"
    assert (await second.execute("echo 2")).stdout == "2\n"
    await first.pause()
    assert Sandbox.list()[0].status is Status.PAUSED
    await second.resume()
    assert (await second.execute("echo 3")).stdout == "3\n"
    await first.stop()
    with pytest.raises((StateError, MachineError, AgentUnreachableError)):
        await second.execute("true")
    with pytest.raises(StateError, match="not running"):
        Sandbox.attach("free")
    second.close()
    Registry(places).remove(sandbox.id)
    with pytest.raises(SandboxNotFoundError):
        Sandbox.attach("free")


OWNER = """
import asyncio, sys
from quicksand import Sandbox
async def main():
    sandbox = Sandbox(image="debian", name=sys.argv[1])
    await sandbox.start()
    if sys.argv[2] == "detach":
        sandbox.detach()
    print("up", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def kill_owner(mode: str) -> float:
    """Kill -9 a script whose sandbox "mine" runs; when that was (`time.monotonic`)."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, "mine", mode], stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"up\n"
        killed = time.monotonic()
        owner.kill()
    return killed


async def test_kill_9_of_the_owner_ends_what_it_owns(places: Paths) -> None:
    async def end() -> float:
        killed = kill_owner("owned")
        wait_for(lambda: ended_as(Status.STOPPED), what="the VM to end")
        taken = time.monotonic() - killed
        assert not list(places.runtime.glob("*"))
        Registry(places).remove(Sandbox.list()[0].id)
        return taken

    assert await in_time(end, 2)


FORKS = """
import asyncio, multiprocessing, os, signal, sys
from quicksand import Sandbox

async def main():
    sandbox = Sandbox(image="debian", name="mine")
    await sandbox.start()
    child = multiprocessing.get_context("fork").Process(target=signal.pause)
    child.start()
    print("up", child.pid, sandbox._parts.life.run.keeper_pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("has_keeper", [True, False])
async def test_children_that_were_forked_do_not_keep_what_their_parent_owned(
    has_keeper: bool,
) -> None:
    with subprocess.Popen([sys.executable, "-c", FORKS], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        _, child, keeper = owner.stdout.readline().split()
        try:
            if not has_keeper:
                os.kill(int(keeper), signal.SIGKILL)
            owner.kill()
            is_live = Registry(paths()).is_live
            (entry,) = Sandbox.list()
            wait_for(lambda: not is_live(entry.id), what="the VM to end")
            os.kill(int(child), 0)  # it lives
        finally:
            os.kill(int(child), signal.SIGKILL)
    Registry(paths()).remove(entry.id)


async def test_kill_9_of_the_owner_leaves_what_is_detached() -> None:
    kill_owner("detach")
    assert Sandbox.list()[0].status is Status.RUNNING
    sandbox = Sandbox.attach("mine")
    assert (await sandbox.execute("echo alive")).stdout == "alive\n"
    await sandbox.kill()


async def test_qemu_killed_is_noticed_and_told(places: Paths) -> None:
    sandbox = Sandbox(image="debian", name="killed")
    await sandbox.start()
    run = Sandbox.list()[0].run
    assert run is not None
    call = asyncio.create_task(sandbox.execute("sleep 100", timeout=60))
    await asyncio.sleep(0.2)
    os.kill(run.qemu_pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        with pytest.raises((MachineError, AgentUnreachableError)):
            await call
    wait_for(lambda: Sandbox.list()[0].status is Status.CRASHED, what="the state")
    assert "SIGKILL" in Sandbox.list()[0].error
    with pytest.raises(QemuDiedError):
        await sandbox.execute("true")
    await sandbox.stop()


async def test_a_keeper_killed_with_9_leaves_the_sandbox_stoppable(places: Paths) -> None:
    sandbox = Sandbox(image="debian", name="orphan")
    await sandbox.start()
    sandbox.detach()
    run = Sandbox.list()[0].run
    assert run is not None
    os.kill(run.keeper_pid, signal.SIGKILL)
    other = Sandbox.attach("orphan")
    assert (await other.execute("echo alive")).stdout == "alive\n"
    await other.kill()
    wait_for(lambda: not our_processes(str(places.data)), what="QEMU to end")
    wait_for(
        lambda: left_when_reaped(places) == {other.id} and not list(places.runtime.glob("*")),
        what="nothing of what ran to be left",
    )
    sandbox.close()


async def test_a_panic_is_told_as_one(places: Paths) -> None:
    sandbox = Sandbox(image="debian", name="panics")
    await sandbox.start()
    with pytest.raises((MachineError, AgentUnreachableError)):
        await sandbox.execute("echo c > /proc/sysrq-trigger; sleep 20", timeout=25)
    wait_for(lambda: ended_as(Status.CRASHED), what="the VM to end")
    assert "Kernel panic" in Sandbox.list()[0].error
    with pytest.raises(GuestPanicError, match="panic"):
        await sandbox.execute("true")
    await sandbox.stop()


async def test_events_tell_pause_and_end(places: Paths) -> None:
    sandbox = Sandbox(image="debian")
    await sandbox.start()
    seen: list[str] = []
    watching = asyncio.Event()

    async def watch() -> None:
        async for event in sandbox.events():
            seen.append(event.kind.value)
            watching.set()

    task = asyncio.create_task(watch())
    async with asyncio.timeout(60):
        while not watching.is_set():
            await sandbox.pause()
            await sandbox.resume()
            await asyncio.sleep(0.05)
    await sandbox.stop()
    async with asyncio.timeout(60):
        await task
    assert "paused" in seen or "resumed" in seen
    assert seen[-1] == "stopped"


@pytest.mark.parametrize("templates", ["use", "off"])
@pytest.mark.parametrize(
    ("stage", "delay"),
    [
        *(("image", delay) for delay in (0.0, 0.01)),
        *(("disk", delay) for delay in (0.0, 0.02)),
        *(("qemu", delay) for delay in (0.0, 0.03)),
        *(("guest", delay) for delay in (0.0, 0.05)),
    ],
)
async def test_a_cancelled_start_leaves_nothing(
    places: Paths, monkeypatch: pytest.MonkeyPatch, templates: str, stage: str, delay: float
) -> None:
    monkeypatch.setenv("QUICKSAND_TEMPLATES", templates)
    begun = asyncio.Event()

    def progress(now: str, step: int, steps: int) -> None:
        if now == stage:
            begun.set()

    sandbox = Sandbox(image="debian", name="never", progress_callback=progress)
    task = asyncio.create_task(sandbox.start())
    async with asyncio.timeout(60):
        await begun.wait()
    await asyncio.sleep(delay)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert_nothing_is_left(places)
    await sandbox.stop()


async def test_a_start_that_was_cancelled_can_be_repeated(places: Paths) -> None:
    sandbox = Sandbox(image="debian", name="again")
    for _ in range(2):
        task = asyncio.create_task(sandbox.start())
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait((task,))
    async with sandbox:
        assert (await sandbox.execute("echo x")).stdout == "x\n"


async def test_two_at_once_with_one_name_one_wins(places: Paths) -> None:
    pair = [Sandbox(image="debian", name="twin") for _ in range(2)]
    results = await asyncio.gather(*(s.start() for s in pair), return_exceptions=True)
    assert [type(result) for result in results if result] == [NameTakenError]
    await asyncio.gather(*(s.stop() for s in pair))


async def test_the_guest_can_power_itself_off(places: Paths) -> None:
    sandbox = Sandbox(image="debian", name="off")
    await sandbox.start()
    await sandbox.request("shutdown", {"mode": "poweroff", "grace": 1})
    wait_for(lambda: ended_as(Status.STOPPED), what="power-off")
    await sandbox.stop()


async def test_the_machine_is_as_large_as_was_asked_for_and_tells_how_long_it_has_booted(
    places: Paths,
) -> None:
    async with Sandbox(image="debian", cpus=2, memory="300M", disk_size="12G") as sandbox:
        timing = sandbox.boot_timing
        assert timing is not None
        assert timing.kernel_boot_s is not None
        assert 0 < timing.kernel_boot_s < timing.connect_agent_s
        assert sum((timing.launch_process_s, timing.connect_agent_s)) <= timing.total_s
        assert (await sandbox.execute("nproc")).stdout == "2\n"
        stats = await sandbox.stats()
        assert 200 * 2**20 < stats.guest_memory_total < 300 * 2**20
        assert stats.guest_disk_total > 11 * 2**30


async def test_qemu_is_confined(places: Paths) -> None:
    async with Sandbox(image="debian"):
        run = Sandbox.list()[0].run
        assert run is not None
        status = dict(
            line.split(":\t", 1)
            for line in Path(f"/proc/{run.qemu_pid}/status").read_text().splitlines()
            if ":\t" in line
        )
        assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
        limits = Path(f"/proc/{run.qemu_pid}/limits").read_text()
        core = next(line for line in limits.splitlines() if "core file" in line)
        assert set(core.split()[4:6]) <= {"0", "1"}, "neither a file nor a pipe"


async def test_no_secret_is_on_a_command_line_or_in_a_log(places: Paths) -> None:
    async with Sandbox(image="debian") as sandbox:
        run = Sandbox.list()[0].run
        assert run is not None
        for pid in (run.qemu_pid, run.keeper_pid):
            for name in ("cmdline", "environ"):
                assert run.token.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
        for path in everything_below(sandbox_dir(places, sandbox.id).root):
            # The layers hold what the guest has written; it never writes its token.
            if path.is_file():
                found = run.token.encode() in path.read_bytes()
                assert not found, path


# Bad input and a bad host


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"image": "debain"}, ImageNotFound, "^Image not found.*'debian'"),
        ({"image": "/no/such.qcow2"}, ImageNotFound, "^Image not found.*/no/such"),
        ({"memory": "900G"}, MemoryBudgetError, "900.0 GiB"),
        ({"arch": "arm64"}, (ImageError, QemuNotFound), "arm64|aarch64"),
    ],
    ids=["image", "path", "memory", "arch"],
)
async def test_what_cannot_be_had_is_refused_at_once(
    places: Paths, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    sandbox = Sandbox(**{"image": "debian", **options})
    with pytest.raises(error, match=words):
        await sandbox.start()
    assert_nothing_is_left(places)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"memroy": "2G"}, "did you mean 'memory'"),
        ({"memory": "banana"}, "banana"),
        ({"memory": "1M"}, "too little"),
        ({"cpus": 0}, "cpus"),
        ({"network_mode": "lots"}, "none, mounts_only or full"),
        ({"name": "../x"}, "name"),
        ({"accel": "warp"}, "warp"),
        ({"port_forwards": [PortForward(1, 2), PortForward(1, 3)]}, "twice"),
        ({"mounts": ["x"]}, "HOST:GUEST"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_nonsense_is_refused_when_it_is_said(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        Sandbox(image="debian", **options)
    assert words in f"{caught.value} {getattr(caught.value, 'hint', '')}"
    assert isinstance(caught.value, TypeError) is ("memroy" in options)
    if "memroy" in options:
        assert isinstance(caught.value, UnknownOptionError)


async def test_a_taken_port_is_named(places: Paths) -> None:
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(PortInUseError, match=str(port)) as caught:
        await Sandbox(image="debian", port_forwards=[PortForward(port, 80)]).start()
    assert "another host port, or 0" in caught.value.hint
    server.close()
    await server.wait_closed()
    assert_nothing_is_left(places)


async def test_qemu_dying_at_start_says_its_last_words(places: Paths) -> None:
    sandbox = Sandbox(image="debian", extra_qemu_args=["-device", "no-such-device"])
    with pytest.raises(QemuDiedError, match="no-such-device"):
        await sandbox.start()
    assert_nothing_is_left(places)


async def test_a_boot_that_never_ends_is_ended_with_the_console(places: Paths) -> None:
    sandbox = Sandbox(image="debian", boot_timeout=0.8, warm=False)
    with pytest.raises(BootTimeoutError, match=r"0\.8 s") as caught:
        await sandbox.start()
    assert isinstance(caught.value, TimeoutError)
    assert_nothing_is_left(places)


def fake_qemu(directory: Path, script: str) -> Path:
    program = directory / "qemu-system-x86_64"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return directory


async def test_no_qemu_and_an_old_one(
    places: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("QUICKSAND_QEMU_DIR", str(tmp_path))
    with pytest.raises(QemuNotFound, match="qemu-system-x86_64"):
        await Sandbox(image="debian").start()
    fake_qemu(tmp_path, 'echo "QEMU emulator version 6.2.0"')
    with pytest.raises(QemuTooOld, match=r"6\.2\.0"):
        await Sandbox(image="debian").start()
    assert_nothing_is_left(places)


async def test_an_unwritable_runtime_directory_is_named(
    places: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("QUICKSAND_RUNTIME_DIR", "/proc/nowhere")
    with pytest.raises(PathError, match="/proc/nowhere"):
        await Sandbox(image="debian").start()
    monkeypatch.setenv("QUICKSAND_RUNTIME_DIR", str(tmp_path / ("x" * 100)))
    with pytest.raises(PathError, match="longer than"):
        await Sandbox(image="debian").start()
    assert our_processes(str(places.data)) == []


async def test_places_with_spaces_commas_and_quotes(
    prepared: Paths, places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = places.data.parent / "a b,c=d'e\"f"
    odd.mkdir()
    link_images(prepared.images, odd / "images")
    (odd / "qemu").symlink_to(prepared.data / "qemu")
    monkeypatch.setenv("QUICKSAND_DATA_DIR", str(odd))
    monkeypatch.setenv("QUICKSAND_RUNTIME_DIR", str(odd / "run"))
    async with Sandbox(image="debian", name="odd") as sandbox:
        assert (await sandbox.execute("echo x")).stdout == "x\n"
    wait_for(lambda: not our_processes(str(odd)), what="the VM to end")


async def test_a_truncated_image_is_refused_by_name(places: Paths, prepared: Paths) -> None:
    images = places.data / "images"
    current = (prepared.images / "debian" / "current").read_text().strip()
    images.unlink()
    copy = images / "debian" / current
    copy.mkdir(parents=True)
    for path in (prepared.images / "debian" / current).iterdir():
        (copy / path.name).symlink_to(path)
    (images / "debian" / "current").write_text(current)
    (copy / "disk.qcow2").unlink()
    (copy / "disk.qcow2").write_bytes(
        (prepared.images / "debian" / current / "disk.qcow2").read_bytes()[:100_000]
    )
    with pytest.raises(ImageError, match=r"disk\.qcow2"):
        await Sandbox(image="debian").start()
    assert_nothing_is_left(places)


async def test_a_foreign_pid_in_a_stale_record_is_never_touched(places: Paths) -> None:
    sandbox = Sandbox(image="debian", name="stale")
    await sandbox.start()
    runtime = runtime_dir(places, sandbox.id)
    state = json.loads(runtime.current().state.read_text())
    await sandbox.stop()
    stranger = subprocess.Popen(["sleep", "600"])
    state |= {"keeper_pid": stranger.pid, "qemu_pid": stranger.pid}
    runtime.make("1").state.write_text(json.dumps(state))
    runtime.current_link.symlink_to("1")
    assert Sandbox.list()[0].status is Status.STOPPED
    await Sandbox.open("stale").stop()
    again = Sandbox.open("stale")
    await again.start()
    assert (await again.execute("echo clean")).stdout == "clean\n"
    await again.stop()
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()
