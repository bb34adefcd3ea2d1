"""What real guests boot from: at a start, when they boot again, and in images of other versions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from quicksand import Sandbox
from quicksand.base.errors import AgentUnreachableError
from quicksand.base.paths import Paths, paths
from quicksand.disks.images.boot_files import list_boot_files
from quicksand.disks.images.start_kernel import start_file_of, start_kernel
from quicksand.disks.images.store import ImageStore, StoredImage

from tests.conftest import share_findings
from tests.integration.guests import say

pytestmark = pytest.mark.vm


@pytest.fixture
def image(places: Paths) -> StoredImage:
    found = ImageStore(places.images).get("debian")
    assert found is not None
    return found


def kernel_of(vm: Sandbox) -> Path:
    """The kernel of the QEMU that runs."""
    (entry,) = (entry for entry in Sandbox.list() if entry.name == vm.name)
    assert entry.run is not None
    words = entry.run.qemu_command
    return Path(words[words.index("-kernel") + 1])


async def boot_again(vm: Sandbox) -> None:
    before = (await vm.request("info"))["boot_id"]
    await vm.request("shutdown", {"mode": "reboot", "grace": 1})
    async with asyncio.timeout(60):
        while True:
            try:
                if (await vm.request("info"))["boot_id"] != before:
                    return
            except AgentUnreachableError:
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("display", [False, True])
async def test_a_guest_boots_from_the_elf_file_and_after_a_revert_from_the_bzimage(
    image: StoredImage, display: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUICKSAND_TEMPLATES", "off")
    async with Sandbox(image="debian", name="again", enable_display=display) as vm:
        assert kernel_of(vm) == start_file_of(image.kernel, paths().cache)
        await say(vm, "echo kept > /root/f; sync")
        await vm.checkpoint("here")
        await say(vm, "rm /root/f")
        await vm.revert("here")
        assert kernel_of(vm) == image.kernel
        await boot_again(vm)
        assert await say(vm, "cat /root/f") == "kept"
        await vm.revert("here")
        assert await say(vm, "cat /root/f") == "kept"


async def test_an_image_of_an_earlier_version_whose_kernel_is_the_elf_file_runs_as_before(
    prepared: Paths,
    places: Paths,
    image: StoredImage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elf = start_kernel(image.kernel, paths().cache)
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(places.data.parent / "cache"))
    share_findings(prepared, paths().cache)
    for part, source in (("qcow2", image.disk), ("kernel", elf), ("initrd", image.initrd)):
        (tmp_path / f"old.{part}").symlink_to(source)
    async with Sandbox(image=str(tmp_path / "old.qcow2"), accel="tcg") as vm:
        await vm.checkpoint("here")
        await vm.revert("here")
        assert kernel_of(vm) == tmp_path / "old.kernel"
        await boot_again(vm)
        assert await say(vm, "echo up") == "up"
    assert [path.suffix for path in list_boot_files(paths().cache)] == [".cpio"]
