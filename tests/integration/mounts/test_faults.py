"""What goes wrong on the host's side of a mount, and what the guest then sees."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from quicksand import Mount, Sandbox
from quicksand.base.errors import ConfigError, StateError
from quicksand.base.paths import Paths
from quicksand.mounts.shares import Share, list_shares
from quicksand.qemu.disconnecting import end_streams
from quicksand.qemu.qmp import Monitor
from quicksand.records.layout import runtime_dir
from quicksand.records.registry import Registry

from tests.conftest import our_processes, wait_for
from tests.integration.guests import say
from tests.integration.small_disks import require_root

pytestmark = pytest.mark.vm

AT = "/mnt/data"
BACK_S = 60.0
GONE_S = 180.0
"""For an error from a mount that nobody serves: Linux's client tries to reach the server anew three
times for each access, which takes it 50 s on a quiet host."""

WRITER = """
import os, sys
told, number = open("/root/told", "w"), 0
while number < int(sys.argv[1]):
    try:
        file = os.open("/mnt/data/lines", os.O_CREAT | os.O_WRONLY)
        while number < int(sys.argv[1]):
            os.pwrite(file, b"%06d\\n" % number, 7 * number)
            os.fsync(file)
            print(number, file=told, flush=True)
            number += 1
    except OSError as error:
        print(error, file=sys.stderr, flush=True)
"""
"""Notes on the guest's own disk each line that the mount has said to have. An fsync that waits for
an answer when the server ends has none, and says so; then it writes that line again."""


@pytest.fixture
async def vm(tmp_path: Path) -> AsyncIterator[Sandbox]:
    """With `tmp_path` / "data" at AT."""
    (tmp_path / "data").mkdir()
    async with Sandbox(image="debian", mounts=[Mount(str(tmp_path / "data"), AT)]) as found:
        yield found


def shares_of(vm: Sandbox, places: Paths) -> list[Share]:
    return list_shares(runtime_dir(places, vm.id).current())


def server_of(share: Share) -> int:
    """The process that serves, which the supervisor begins anew when it ends."""
    children = Path(f"/proc/{share.pid}/task/{share.pid}/children")
    found: list[str] = []

    def look() -> list[str]:
        found[:] = children.read_text().split()
        return found

    wait_for(look, what="a server")
    return int(found[0])


def was_killed(share: Share) -> bool:
    try:
        os.kill(server_of(share), signal.SIGKILL)
    except ProcessLookupError:
        return False  # the one before, which was just being reaped
    return True


@pytest.mark.soak
async def test_a_server_that_was_held_up_is_reached_again(
    vm: Sandbox, places: Paths, tmp_path: Path
) -> None:
    """The client gives a connection up after six seconds, and makes others. What was on its way for
    those must not be taken for the answers to the last."""
    (tmp_path / "data" / "big").write_bytes(os.urandom(30_000_000))
    (share,) = shares_of(vm, places)
    read = f"echo 1 > /proc/sys/vm/drop_caches; cp {AT}/big /dev/null"
    reading = await vm.spawn(f"while :; do {read}; done 2>> /root/errors", detach=True)
    server = server_of(share)
    os.kill(server, signal.SIGSTOP)
    try:
        seen: set[str] = set()
        async with asyncio.timeout(GONE_S):
            while len(seen) < 3:
                # The guest's own ports of connections to port 445
                ports = await vm.execute("awk '$3 ~ /:01BD$/ {print $2}' /proc/net/tcp")
                seen.update(ports.stdout.split())
                await asyncio.sleep(0.2)
    finally:
        os.kill(server, signal.SIGCONT)
    async with asyncio.timeout(BACK_S):
        while (await vm.execute(f"cp {AT}/big /dev/null", timeout=BACK_S)).exit_code:
            await asyncio.sleep(0.2)
    await reading.cancel()
    errors = (await vm.execute("cat /root/errors")).stdout
    assert "Permission denied" not in errors


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux can do that")
async def test_a_file_in_use_goes_on_when_its_stream_is_ended_from_outside(
    vm: Sandbox, places: Paths, tmp_path: Path
) -> None:
    (share,) = shares_of(vm, places)
    server, runtime = server_of(share), runtime_dir(places, vm.id)
    entry = Registry(places).find(vm.id)
    assert entry.run is not None
    program = f"exec 3> {AT}/f; echo one >&3; read go < /root/go; echo two >&3; exec 3>&-"
    await say(vm, "mkfifo /root/go")
    async with await vm.spawn(program) as command:
        line = tmp_path / "data" / "f"
        await asyncio.to_thread(wait_for, lambda: line.is_file() and line.read_text(), what="one")
        name = runtime.current().share_socket(share.number).name
        assert end_streams(entry.run.qemu_pid, runtime.root, [name]) == [name]
        await asyncio.to_thread(wait_for, lambda: server_of(share) != server, what="a new server")
        await say(vm, "echo > /root/go")
        assert (await command.wait()).exit_code == 0
    assert line.read_text() == "one\ntwo\n"


async def test_a_killed_server_loses_nothing_that_was_synced(
    vm: Sandbox, places: Paths, tmp_path: Path
) -> None:
    await vm.files.write("/root/writer.py", WRITER)
    (share,) = shares_of(vm, places)
    writing = asyncio.create_task(vm.execute("python3 /root/writer.py 300", timeout=120))
    lines = tmp_path / "data" / "lines"
    for count in (30, 100, 200):
        if writing.done():
            break
        await asyncio.to_thread(
            wait_for,
            lambda: lines.exists() and len(lines.read_bytes()) > count * 7,  # noqa: B023
            what=f"{count} lines",
            timeout=60,
        )
        await asyncio.to_thread(wait_for, lambda: was_killed(share), what="a server to kill")
    result = await writing
    assert result.exit_code == 0, result.stderr
    told = (await say(vm, "cat /root/told")).split()
    found = lines.read_text().split()
    assert [int(line) for line in found] == list(range(300))
    assert len(told) == 300


async def kill_attendant(vm: Sandbox, places: Paths) -> None:
    (share,) = shares_of(vm, places)
    os.kill(share.pid, signal.SIGKILL)
    wait_for(lambda: not shares_of(vm, places), what="the share to end")


async def replace_mount(vm: Sandbox, directory: Path) -> None:
    """In place of one without a server; in ``directory``'s file ``f`` there is an ``x``."""
    assert [one.is_served for one in vm.active_mounts] == [False]
    await vm.unmount(AT, force=True)
    await vm.mount(directory, AT)
    assert await say(vm, f"cat {AT}/f") == "x"


async def test_a_mount_whose_attendant_is_killed_can_be_replaced(
    vm: Sandbox, places: Paths, tmp_path: Path
) -> None:
    (tmp_path / "data" / "f").write_text("x")
    await kill_attendant(vm, places)
    await replace_mount(vm, tmp_path / "data")


@pytest.mark.soak
async def test_a_mount_whose_attendant_is_killed_fails_and_can_be_replaced(
    vm: Sandbox, places: Paths, tmp_path: Path
) -> None:
    """It fails when the guest's kernel has given up, which takes half a minute."""
    (tmp_path / "data" / "f").write_text("x")
    await kill_attendant(vm, places)
    assert (await vm.execute(f"cat {AT}/f", timeout=GONE_S)).exit_code != 0
    await replace_mount(vm, tmp_path / "data")


async def test_a_directory_that_is_deleted_or_replaced_is_not_followed(
    vm: Sandbox, tmp_path: Path
) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    (data / "f").write_text("first")
    other.mkdir()
    (other / "secret").write_text("not shared")
    data.rename(tmp_path / "moved")
    data.symlink_to(other)
    assert await say(vm, f"cat {AT}/f; ls {AT}") == "firstf"
    assert (await vm.execute(f"cat {AT}/secret")).exit_code != 0
    await say(vm, f"echo written > {AT}/g")
    assert sorted(os.listdir(other)) == ["secret"]
    assert (tmp_path / "moved" / "g").read_text() == "written\n"
    shutil.rmtree(tmp_path / "moved")
    assert (await vm.execute(f"echo x > {AT}/new", timeout=60)).exit_code != 0
    async with asyncio.timeout(BACK_S):
        while (await vm.execute(f"cat {AT}/f", timeout=60)).exit_code == 0:
            await asyncio.sleep(0.1)
    await vm.unmount(AT)
    data.unlink()
    data.mkdir()
    await vm.mount(data, AT)
    await say(vm, f"echo again > {AT}/f")
    assert (data / "f").read_text() == "again\n"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    require_root()
    at = tmp_path / "small"
    at.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", at], check=True)
    yield at
    subprocess.run(["umount", "-l", at], check=True)


async def test_a_full_disk_is_told_and_is_no_end(vm: Sandbox, small_disk: Path) -> None:
    await vm.mount(small_disk, "/mnt/small")
    (small_disk / "kept").write_text("kept")
    result = await vm.execute("dd if=/dev/zero of=/mnt/small/big bs=1M count=16 conv=fsync")
    assert result.exit_code != 0
    assert "No space left" in result.stderr
    assert await say(vm, "cat /mnt/small/kept") == "kept"
    await say(vm, "rm /mnt/small/big && echo more > /mnt/small/kept && sync /mnt/small/kept")
    assert (small_disk / "kept").read_text() == "more\n"


def traces(vm: Sandbox, places: Paths) -> dict[str, int]:
    """What a mount has of the host while it lives."""
    entry = Registry(places).inspect(vm.id)
    assert entry is not None
    assert entry.run is not None
    return {
        "servers": sum("quicksand_smb" in line for line in our_processes(str(places.runtime))),
        "qemu descriptors": len(os.listdir(f"/proc/{entry.run.qemu_pid}/fd")),
        "our descriptors": len(os.listdir("/proc/self/fd")),
    }


async def connections(vm: Sandbox, places: Paths) -> int:
    """Those that the network of its QEMU has, ended ones included."""
    monitor = await Monitor.connect(runtime_dir(places, vm.id).current())
    try:
        told = await monitor.execute("human-monitor-command", **{"command-line": "info usernet"})
    finally:
        await monitor.close()
    return str(told).count("TCP[")


@pytest.mark.parametrize(
    "count", [20, pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])]
)
async def test_mounts_and_unmounts_leave_nothing(
    vm: Sandbox, places: Paths, tmp_path: Path, count: int
) -> None:
    async def once(number: int) -> None:
        handle = await vm.mount(tmp_path / "data", "/mnt/again")
        await say(vm, f"echo {number} > /mnt/again/n")
        await vm.unmount(handle, force=number % 3 == 0)
        assert (tmp_path / "data" / "n").read_text() == f"{number}\n"

    for number in range(3):
        await once(number)
    before, open_before = traces(vm, places), await connections(vm, places)
    for number in range(3, count):
        await once(number)
    for name, now in traces(vm, places).items():
        assert now <= before[name] + 2, f"{name}: {now}, not {before[name]}"
    assert await connections(vm, places) <= open_before + 2, "QEMU forgets those that have ended"
    assert await say(vm, "grep -c /mnt/again /proc/mounts || true") == "0"


@pytest.mark.usefixtures("warm_without_network")
async def test_without_a_network_card_there_are_no_mounts(tmp_path: Path) -> None:
    with pytest.raises((ConfigError, StateError), match="mount"):
        async with Sandbox(image="debian", network_mode="none", mounts=[Mount(str(tmp_path), AT)]):
            pass
    async with Sandbox(image="debian", network_mode="none") as vm:
        with pytest.raises(StateError, match="network"):
            await vm.mount(tmp_path, AT)
