"""A host's disk that fills up in the middle of a revert, of a clone, of making a template. (Of a
checkpoint: test_checkpoint_accidents.py. Each write: tests/unit/snapshots/test_faults.py.)"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand import Sandbox
from quicksand.base.errors import DiskSpaceError, HistoryError
from quicksand.base.paths import Paths
from quicksand.guest.agent.link import AgentLink
from quicksand.records.config import SandboxConfig
from quicksand.records.layout import SandboxDir, sandbox_dir
from quicksand.saves import boot_disk
from quicksand.snapshots import paged, reverting, storing, taking
from quicksand.snapshots.history import History
from quicksand.snapshots.present import Present
from quicksand.snapshots.successor import Successor
from quicksand.warm.templates import templates_dir

from tests.conftest import make_template
from tests.integration.guests import say
from tests.integration.small_disks import MIB, small_disk, small_ext4
from tests.integration.snapshots.files import check_files, check_litter

pytestmark = pytest.mark.vm


@pytest.fixture
def unforeseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks first whether there is space: somebody else takes it in the meantime."""
    for module in (boot_disk, paged, reverting, storing, taking):
        monkeypatch.setattr(module, "check_space", lambda *_: None)


def fill(directory: Path, *, left: int) -> Path:
    """Have ``left`` bytes of free space; returns what takes the rest."""
    found = os.statvfs(directory)
    ballast = directory / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - left)
    return ballast


@contextlib.contextmanager
def full_when_taken_over(directory: Path) -> Iterator[None]:
    """There is not a byte left from when another machine takes over."""
    take_over = Successor.take_over
    rest = directory / "rest"

    async def fill_and_take_over(self: Successor, link: AgentLink | None, present: Present) -> None:
        with pytest.raises(OSError, match="No space left"), rest.open("wb", buffering=0) as file:
            while file.write(bytes(64 * 1024)):
                pass
        await take_over(self, link, present)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Successor, "take_over", fill_and_take_over)
        yield
    rest.unlink()


async def test_a_disk_that_fills_up_during_a_clone_or_a_revert(
    places: Paths, prepared: Paths, unforeseen: None
) -> None:
    with small_ext4(prepared, places.data.parent / "disk", 500 * MIB) as small:
        async with Sandbox(image="debian", name="box") as vm:
            place = sandbox_dir(small, vm.id)
            await say(vm, "echo one > /dev/shm/f")
            await vm.checkpoint("one")
            sums = await say(vm, "head -c 24M /dev/urandom > /dev/shm/r; sha256sum /dev/shm/r")
            ballast = fill(small.data, left=16 * MIB)
            with pytest.raises(DiskSpaceError):
                await vm.clone(2)
            assert [entry.name for entry in Sandbox.list()] == ["box"]
            assert await say(vm, "sha256sum /dev/shm/r") == sums
            await check(place, ["one"])
            with full_when_taken_over(small.data), pytest.raises(HistoryError, match="no space"):
                await vm.revert("one")
            assert await say(vm, "sha256sum /dev/shm/r") == sums
            await check(place, ["one"])
            ballast.unlink()
            await say(vm, "rm /dev/shm/r; echo two > /dev/shm/f")
            clones = await vm.clone(1)
            assert await say(clones[0], "cat /dev/shm/*") == "two"
            await clones[0].kill()
            await vm.revert("one")
            await vm.undo()
            assert await say(vm, "cat /dev/shm/*") == "two"
            await vm.kill()


async def check(place: SandboxDir, tags: list[str]) -> None:
    """The checkpoints are whole, and nothing else is there."""
    history = History(place)
    async with history.locked():
        history.sweep()
    check_litter(place)
    assert [node.tag for node in history.nodes()] == tags
    for node in history.all_nodes():
        check_files(place, node)


@pytest.mark.soak
def test_a_disk_that_fills_up_while_a_template_is_made(
    places: Paths, prepared: Paths, unforeseen: None
) -> None:
    """Nothing of it is left, and with more space it is made."""
    config = SandboxConfig.parse({"image": "debian"})
    with small_disk(prepared, places.data.parent / "disk", 40 * MIB) as small:
        with pytest.raises(DiskSpaceError):
            make_template(config, small)
        root = templates_dir(small)
        assert [path.name for path in root.iterdir() if path.suffix != ".lock"] == []
        subprocess.run(["mount", "-o", "remount,size=600m", small.data], check=True)
        origin = make_template(config, small)
        check_files(origin.place, origin.node)
