"""Mounts of a guest that is reverted while it uses them: they are mounted anew, and what is on the
host stays as whoever wrote last left it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from quicksand import Sandbox

from tests.integration.guests import say

pytestmark = pytest.mark.vm

SIZE = 512 * 1024
"""Bytes of a file."""


@pytest.fixture
async def kept(vm: Sandbox, tmp_path: Path) -> AsyncIterator[Path]:
    """A directory that is mounted; in the end nothing is."""
    host = tmp_path / "kept"
    host.mkdir()
    await vm.mount(host, "/mnt/kept")
    yield host
    for handle in vm.active_mounts:
        await vm.unmount(handle, force=True)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def write(vm: Sandbox, path: str) -> str:
    """Write a file that has no pattern, and tell nobody to write it to the host."""
    await say(vm, f"head -c {SIZE} /dev/urandom > /dev/shm/source && cp /dev/shm/source {path}")
    return (await say(vm, "sha256sum < /dev/shm/source")).split()[0]


def ways(vm: Sandbox) -> list[Callable[[], Awaitable[object]]]:
    """There and back."""
    return [lambda: vm.revert("one"), vm.undo]


async def mounted(vm: Sandbox) -> list[str]:
    return sorted((await say(vm, "grep cifs /proc/mounts | cut -d' ' -f2")).split())


async def test_what_is_on_the_host_is_neither_undone_nor_torn(vm: Sandbox, kept: Path) -> None:
    sums = {"before": await write(vm, "/mnt/kept/before")}
    (kept / "gone").write_text("soon")
    assert await say(vm, "cat /mnt/kept/gone") == "soon"
    await vm.checkpoint("one")
    sums["after"] = await write(vm, "/mnt/kept/after")
    await say(vm, "rm /mnt/kept/gone; mkdir /mnt/kept/made; mv /mnt/kept/before /mnt/kept/made/")
    (kept / "of the host").write_text("mine")
    for back in ways(vm):
        last = f"last-{len(sums)}"
        sums[last] = await write(vm, f"/mnt/kept/{last}")
        await back()
        sums[f"new-{len(sums)}"] = await write(vm, f"/mnt/kept/new-{len(sums)}")
        await say(vm, f"sync /mnt/kept/new-{len(sums) - 1}")
        seen = (await say(vm, "cd /mnt/kept; find . -type f | sort")).split("\n")
        there = {path.relative_to(kept) for path in kept.rglob("*") if path.is_file()}
        assert {Path(line) for line in seen} == there
        assert await say(vm, "cat '/mnt/kept/of the host'") == "mine"
        for name, expected in sums.items():
            path = kept / ("made/before" if name == "before" else name)
            assert digest(path) == expected, name
            inside = f"/mnt/kept/{path.relative_to(kept)}"
            assert (await say(vm, f"sha256sum {inside}")).split()[0] == expected
        assert not (kept / "gone").exists()


async def test_programs_that_have_files_open_there_go_on_or_are_told(
    vm: Sandbox, kept: Path
) -> None:
    """One writes to a file there all the time, one has a file open that it read before."""
    (kept / "read").write_text("of the host")
    await say(
        vm,
        "exec 9< /mnt/kept/read; head -c 2 <&9 > /dev/null;"
        "(while echo x; do sleep 0.02; done >> /mnt/kept/log 2> /dev/null) < /dev/null &"
        " (sleep 1000 <&9) > /dev/null 2>&1 & true",
    )
    await vm.checkpoint("one")
    for back in ways(vm):
        await back()
        # Nothing of the guest hangs in the file system that is gone. Its client notices by itself
        # after six seconds that its server is.
        assert await say(vm, "timeout 4 sync; echo $?") == "0"
        await say(vm, "echo after > /mnt/kept/after; sync /mnt/kept/after")
        assert (kept / "after").read_text() == "after\n"
        assert (kept / "read").read_text() == "of the host"
        assert set((kept / "log").read_bytes()) <= set(b"x\n")
    await say(vm, "pkill -x sleep || true")


async def test_the_mounts_are_those_of_the_present_and_each_is_there_once(
    vm: Sandbox, kept: Path, tmp_path: Path
) -> None:
    """Not those that the checkpoint has."""
    for name in ("past", "new"):
        (tmp_path / name).mkdir()
    past = await vm.mount(tmp_path / "past", "/mnt/past")
    await vm.checkpoint("one")
    await vm.unmount(past)
    await vm.mount(tmp_path / "new", "/mnt/new", readonly=True)
    for back in ways(vm):
        await back()
        assert await mounted(vm) == ["/mnt/kept", "/mnt/new"]
        assert sorted(one.guest for one in vm.active_mounts) == ["/mnt/kept", "/mnt/new"]
        (tmp_path / "new" / "f").write_text("seen")
        assert await say(vm, "cat /mnt/new/f; touch /mnt/new/g || true") == "seen"
        assert not (tmp_path / "new" / "g").exists()
        await say(vm, "echo written > /mnt/kept/f; sync /mnt/kept/f")
        assert (kept / "f").read_text() == "written\n"
        (kept / "f").unlink()
