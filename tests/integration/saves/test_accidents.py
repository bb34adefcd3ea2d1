"""Saves and accidents: the old save or the new one, never neither, never half of one."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand import Sandbox, Status
from quicksand.base import capacity
from quicksand.base.errors import DiskSpaceError, QuicksandError
from quicksand.base.paths import Paths
from quicksand.saves.finding import workspace_store
from quicksand.saves.save_manifest import check_save
from quicksand.saves.save_places import HOUSE

from tests.conftest import our_processes, wait_for
from tests.integration.disks import file_of_save, file_of_stopped
from tests.integration.saves.test_saves import say

CLIENT = Path(__file__).with_name("accidents_client.py")
STEPS_MAX = 130
"""Above what a save does to files."""

WHILE_UP = """
import asyncio, os
from quicksand import Sandbox
async def main():
    async with Sandbox(image="debian", save="term") as sb:
        await sb.execute("echo term > /root/file")
        print("up", flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


def check_whole(root: Path) -> str:
    """Every byte is as the manifest says; the note."""
    manifest = check_save(root)
    assert manifest.layers is not None
    for number, layer in enumerate(manifest.layers):
        data = (root / "overlays" / f"{number}.qcow2").read_bytes()
        assert hashlib.sha256(data).hexdigest() == layer.sha256
    return manifest.note


async def run_client(*arguments: object) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(CLIENT),
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode() + err.decode()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("points", [7, pytest.param(100, marks=pytest.mark.soak)])
async def test_kill_9_of_the_client_at_any_step(workspace: Path, points: int) -> None:
    dice = random.Random(4)
    hits = 0
    async with Sandbox(image="debian", name="box") as sb:
        await sb.save("env", workspace=workspace, note="0")
        notes = {"0"}
        for number in range(points):
            step = 1 + (number * 37 + dice.randrange(7)) % STEPS_MAX
            await say(sb, f"echo {number} > /root/n")
            code, said = await run_client("box", workspace, "client", step)
            assert code in (0, -signal.SIGKILL), said
            hits += code != 0
            notes.add(str(step))
            save = workspace_store(workspace).find("env")
            assert check_whole(save.root) in notes
            if code == 0:
                assert "saved" in said
        assert hits > points / 3
        assert await say(sb, "cat /root/n") == str(points - 1)
        await sb.save("env", workspace=workspace, note="last")
    assert check_whole(workspace / "env") == "last"
    left = {path.name for path in (*workspace.iterdir(), *(workspace / HOUSE).iterdir())}
    assert left == {"env", HOUSE, ".lock", ".trash"}
    assert file_of_save(workspace / "env", "/root/n") == f"{points - 1}\n".encode()


@pytest.mark.parametrize("step", [5, pytest.param(30, marks=pytest.mark.soak)])
async def test_kill_9_of_qemu(workspace: Path, step: int) -> None:
    sb = Sandbox(image="debian", name="box")
    await sb.start()
    await say(sb, "echo first > /root/n; sync")
    await sb.save("env", workspace=workspace, note="first")
    await say(sb, "echo second > /root/n; sync")
    code, said = await run_client("box", workspace, "qemu", step)
    assert check_whole(workspace / "env") in ("first", str(step)), said
    assert code == 0 or "Error" in said
    with contextlib.suppress(QuicksandError):
        await sb.stop()
    sb.close()
    again = Sandbox.open("box")
    await again.start()
    assert await say(again, "cat /root/n") == "second"
    await again.kill()


async def test_sigterm_saves_first(places: Paths, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WHILE_UP, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 60) == b"up\n"
    process.terminate()
    assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGTERM
    assert file_of_save(tmp_path / ".quicksand/sandboxes/term", "/root/file") == b"term\n"
    wait_for(lambda: not our_processes(str(places.data)), what="all to end")


async def test_what_cannot_be_saved_on_stop_is_kept(
    places: Paths, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise DiskSpaceError("no space left")

    sb = Sandbox(image="debian", save="env", workspace=workspace)
    await sb.start()
    await say(sb, "echo kept > /root/file; sync")
    with monkeypatch.context() as patch:
        patch.setattr("quicksand.saves.saving._publish", full)
        with pytest.raises(DiskSpaceError) as caught:
            await sb.stop()
    assert "is kept" in str(caught.value.__notes__)
    assert not sb.is_running
    (entry,) = Sandbox.list()
    assert file_of_stopped(places, Sandbox.open(entry.name), "/root/file") == b"kept\n"
    assert [p.name for p in (workspace / HOUSE).iterdir()] == [".lock"]


@pytest.mark.parametrize("failure", ["OSError", "cancelled"])
async def test_whatever_ends_a_save_on_stop_its_sandbox_is_kept(
    places: Paths, workspace: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    sb = Sandbox(image="debian", save="env", workspace=workspace)
    await sb.start()
    await say(sb, "echo kept > /root/file")
    begun, cancelled = threading.Event(), threading.Event()

    def trouble(*_: object) -> None:
        begun.set()
        if failure == "OSError":
            raise OSError(errno.EIO, "Input/output error")
        assert cancelled.wait(60)

    monkeypatch.setattr("quicksand.saves.saving._publish", trouble)
    stopping = asyncio.create_task(sb.stop())
    assert await asyncio.to_thread(begun.wait, 60)
    if failure == "cancelled":
        stopping.cancel()
        cancelled.set()
    with pytest.raises((OSError, asyncio.CancelledError)) as caught:
        await stopping
    assert "is kept" in str(caught.value.__notes__)
    (entry,) = Sandbox.list()
    assert (entry.id, entry.status) == (sb.id, Status.STOPPED)
    assert file_of_stopped(places, Sandbox.open(entry.name), "/root/file") == b"kept\n"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    at = tmp_path / "small"
    at.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", at], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", at], check=True)


async def test_a_full_disk_elsewhere(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layers must be copied there. It is noticed before that, and while they are copied."""
    root, house = elsewhere, elsewhere / HOUSE
    async with Sandbox(image="debian") as sb:
        await sb.save("env", workspace=elsewhere)
        assert check_whole(root / "env") == ""
        assert (root / "env" / "overlays" / "0.qcow2").stat().st_nlink == 1
        hog = elsewhere / "hog"
        found = os.statvfs(elsewhere)
        with hog.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - 2**20)
        for reserve in (capacity.DISK_RESERVE, -(2**40)):
            monkeypatch.setattr(capacity, "DISK_RESERVE", reserve)
            with pytest.raises(DiskSpaceError):
                await sb.save("env", workspace=elsewhere)
            assert check_whole(root / "env") == ""
            assert {path.name for path in root.iterdir()} == {"env", "hog", HOUSE}
            assert {path.name for path in house.iterdir()} == {".lock"}
        hog.unlink()
        await say(sb, "echo on > /root/on")
        await sb.save("env", workspace=elsewhere, note="again")
        assert check_whole(root / "env") == "again"
        assert {path.name for path in house.iterdir()} == {".lock", ".trash"}
