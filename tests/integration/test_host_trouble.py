"""Full disks, frozen processes, greedy guests (scoreboard R13, R16, S12)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from quicksand import EventKind, Sandbox, Status
from quicksand.base.errors import AgentRefusedError, DiskSpaceError
from quicksand.base.paths import Paths
from quicksand.base.processes import ProcessKind, processes_of
from quicksand.records.layout import sandbox_dir

from tests.conftest import PATIENCE_S, Patience, our_processes
from tests.integration.guests import watch
from tests.integration.small_disks import MIB, small_disk

pytestmark = pytest.mark.vm


async def until(condition: Callable[[], object], *, what: str) -> None:
    """Wait until ``condition()`` is true, serving the event loop meanwhile."""
    patience = Patience(PATIENCE_S)
    while not condition():
        assert not patience.is_over(), f"waited {PATIENCE_S} s for {what}"
        await asyncio.sleep(0.02)


async def test_a_full_host_disk_is_told_before_the_start(places: Paths, prepared: Paths) -> None:
    with small_disk(prepared, places.data.parent / "disk", 32 * MIB) as small:
        with pytest.raises(DiskSpaceError, match="free space") as caught:
            await Sandbox(image="debian", name="none").start()
        assert caught.value.hint
        assert Sandbox.list() == []
        assert [p.name for p in small.sandboxes.iterdir() if not p.name.startswith(".")] == []


async def test_a_host_disk_that_fills_up_pauses_the_guest_and_loses_nothing(
    places: Paths, prepared: Paths
) -> None:
    """Nobody looks on: the keeper resumes it when there is space."""
    with small_disk(prepared, places.data.parent / "disk", 160 * MIB) as small:
        sandbox = Sandbox(image="debian", name="full")
        await sandbox.start()
        seen: list[EventKind] = []
        watching = asyncio.create_task(watch(sandbox, seen))
        ballast = small.data / "ballast"
        ballast.write_bytes(bytes(110 * MIB))
        script = "head -c 60M /dev/urandom > /root/f && sync && sha256sum /root/f"
        writing = asyncio.create_task(sandbox.execute(script, timeout=120))
        await until(lambda: Sandbox.list()[0].status is Status.PAUSED, what="the pause")
        assert "disk is full" in Sandbox.list()[0].error
        assert not writing.done()
        ballast.unlink()
        subprocess.run(["mount", "-o", "remount,size=600m", small.data], check=True)
        await until(lambda: Sandbox.list()[0].status is Status.RUNNING, what="going on")
        result = await writing
        assert result.exit_code == 0
        await sandbox.execute("echo 3 > /proc/sys/vm/drop_caches")
        again = await sandbox.execute("sha256sum /root/f", timeout=60)
        assert again.stdout == result.stdout
        errors = "dmesg | grep -i -E 'I/O error|EXT4-fs error'"
        assert (await sandbox.execute(errors)).stdout == ""
        await sandbox.stop()
        await watching
        assert EventKind.DISK_FULL in seen
        assert seen[-1] is EventKind.STOPPED


@pytest.mark.parametrize("killed", [False, True])
async def test_a_stop_on_a_full_disk_is_known_to_have_been_one(
    places: Paths, prepared: Paths, killed: bool
) -> None:
    with small_disk(prepared, places.data.parent / "disk", 160 * MIB) as small:
        sandbox = Sandbox(image="debian", name="full")
        await sandbox.start()
        with contextlib.suppress(OSError), (small.data / "ballast").open("wb", 0) as file:
            while True:
                file.write(bytes(4096))
        if killed:
            found = processes_of(sandbox_dir(small, sandbox.id).root)
            (keeper,) = [process for process in found if process.kind is ProcessKind.KEEPER]
            keeper.send(signal.SIGKILL)
        await sandbox.stop(grace=0)
        (entry,) = Sandbox.list()
        assert (entry.status, entry.error) == (Status.STOPPED, "")
        (small.data / "ballast").unlink()
        if killed:
            await sandbox.start()
            await sandbox.stop()


@pytest.fixture
async def vm(places: Paths) -> AsyncIterator[Sandbox]:
    async with Sandbox(image="debian") as sandbox:
        yield sandbox


async def test_a_full_guest_disk_is_an_error_and_not_the_end(vm: Sandbox) -> None:
    # Sparse blocks cost the host nothing, so the disk may be as large as it is.
    fill = "fallocate -l $(($(df --output=avail -B1 / | tail -1) - 1000000)) /var/fill; df / >&2"
    assert (await vm.execute(fill)).exit_code == 0
    result = await vm.execute("head -c 20M /dev/zero > /var/more")
    assert result.exit_code != 0
    assert "No space left on device" in result.stderr
    with pytest.raises(AgentRefusedError) as caught:
        await vm.files.write("/var/other", os.urandom(20 * MIB))
    assert caught.value.code == "no_space"
    assert (await vm.execute("ls /var/other")).exit_code != 0
    await vm.execute("rm /var/fill /var/more")
    await vm.files.write("/var/other", b"works")
    assert await vm.files.read("/var/other") == b"works"


async def test_a_frozen_qemu_is_waited_for_and_goes_on(vm: Sandbox) -> None:
    """As after the host was suspended: no call fails, and the guest's clock is right again."""
    run = Sandbox.list()[0].run
    assert run is not None
    calls = [asyncio.create_task(vm.execute(f"sleep 1; echo {n}", timeout=60)) for n in range(3)]
    os.kill(run.qemu_pid, signal.SIGSTOP)
    try:
        done, _ = await asyncio.wait(calls, timeout=4)
        assert not done
    finally:
        os.kill(run.qemu_pid, signal.SIGCONT)
    async with asyncio.timeout(60):
        assert [(await call).stdout for call in calls] == ["0\n", "1\n", "2\n"]
    # Whoever comes anew sets the clock.
    again = Sandbox.attach(vm.id)
    asked = time.time()
    guest = float((await again.execute("date +%s.%N")).stdout)
    assert asked - 1 < guest < time.time() + 1
    again.close()


async def test_a_paused_vm_fires_no_timeouts(vm: Sandbox) -> None:
    """A command's seconds are the guest's: those of a pause do not count."""
    command = "echo begun; until [ -e /dev/shm/go ]; do sleep 0.1; done; echo done"
    begun = asyncio.Event()
    call = asyncio.create_task(vm.execute(command, timeout=8, on_stdout=lambda _: begun.set()))
    await asyncio.wait_for(begun.wait(), 60)
    await vm.pause()
    done, _ = await asyncio.wait((call,), timeout=9)
    assert not done
    await vm.resume()
    await vm.files.write("/dev/shm/go", b"")
    result = await call
    assert (result.stdout, result.timed_out) == ("begun\ndone\n", False)


async def test_a_frozen_qemu_can_be_stopped(places: Paths) -> None:
    sandbox = Sandbox(image="debian", name="frozen")
    await sandbox.start()
    run = Sandbox.list()[0].run
    assert run is not None
    os.kill(run.qemu_pid, signal.SIGSTOP)
    async with asyncio.timeout(60):
        await sandbox.stop(grace=1)
    assert not our_processes(str(places.data))


async def test_a_greedy_guest_gets_its_share_and_no_more(places: Paths) -> None:
    """Eight spinning processes and one that takes all memory: one CPU and the guest's memory."""
    async with Sandbox(image="debian", memory="192M") as vm:
        await be_greedy(vm)


async def be_greedy(vm: Sandbox) -> None:
    run = Sandbox.list()[0].run
    assert run is not None
    spin = "for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait"
    # Before the others: it is its memory that counts here.
    hog = ["nice", "-n", "-19", "python3", "-c", "x = []\nwhile True: x.append(bytearray(1 << 22))"]
    async with await vm.spawn(spin):
        before, started = cpu_seconds(run.qemu_pid), time.monotonic()
        result = await vm.execute(hog, timeout=200)
        assert result.exit_code in (1, 137)
        used = cpu_seconds(run.qemu_pid) - before
        # One for the CPU, the rest for QEMU's own threads.
        assert used / (time.monotonic() - started) < 1.5
        assert (await vm.execute("echo alive", timeout=60)).stdout == "alive\n"
    assert resident(run.qemu_pid) < vm.config.memory_bytes + 400 * MIB


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
