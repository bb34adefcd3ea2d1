"""What real guests boot from: at a start, when they boot again, and in images of other versions."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Callable
from pathlib import Path, PurePath

import pytest
from quicksand import Sandbox
from quicksand.base.errors import AgentUnreachableError, GuestPanicError
from quicksand.base.paths import Paths, paths
from quicksand.base.sharing import share_file
from quicksand.disks.images.boot_files import (
    CpioEntry,
    build_cpio,
    list_boot_files,
    start_file_of,
    start_kernel,
)
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import StoredImage
from quicksand_disks.ext4 import read_from_disk
from quicksand_images import build_image

from tests.conftest import share_findings
from tests.integration.guests import say
from tests.unit.disks.kernels import pack_zstd

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


@pytest.mark.parametrize("display", [False, pytest.param(True, marks=pytest.mark.soak)])
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
        assert kernel_of(vm).samefile(image.kernel)
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


def with_initrd(image: StoredImage, place: Path, initrd: bytes) -> str:
    """The path of an image like ``image`` with another initramfs."""
    (place / "other.qcow2").symlink_to(image.disk)
    (place / "other.kernel").symlink_to(image.kernel)
    (place / "other.initrd").write_bytes(initrd)
    return str(place / "other.qcow2")


def modules_of(image: StoredImage, place: Path) -> tuple[str, dict[str, bytes]]:
    """The release of the default image's kernel, and the modules in its initramfs by their file
    names."""
    place.mkdir()
    with image.initrd.open("rb") as archive:
        subprocess.run(
            ["cpio", "-idm", "--quiet"], stdin=archive, cwd=place, check=False, timeout=60
        )  # fails at the device nodes, for those who are not root
    paths = sorted((place / "quicksand" / "ko").glob("*.ko"))
    modules = {path.name: path.read_bytes() for path in paths}
    found = re.search(rb"vermagic=(\S+)", next(iter(modules.values())))
    assert found is not None
    return found[1].decode(), modules


def usual(release: str, modules: dict[str, bytes]) -> bytes:
    """An initramfs with modules where the kernel's usually lie."""
    place = f"lib/modules/{release}/kernel"
    return archive_of({f"{place}/{name}": data for name, data in modules.items()})


def booster(release: str, modules: dict[str, bytes]) -> bytes:
    """What booster makes (its generator/image.go and kmod.go): an init that is a program of its
    own, the modules unpacked and all in one directory, their aliases in a file, Zstandard."""
    place = "usr/lib/modules"
    aliases = b"virtio:d00000002v* virtio_blk\n"
    files = {f"{place}/{name.replace('-', '_')}": data for name, data in modules.items()}
    config = b"kernel: " + release.encode() + b"\n"
    files |= {"etc/booster.init.yaml": config, f"{place}/booster.alias": aliases, "init": b""}
    return pack_zstd(archive_of(files))[:-4]  # the size at its end is for kernels only


def archive_of(files: dict[str, bytes]) -> bytes:
    """An archive of files, with the directories that they lie in."""
    above = {str(parent) for name in files for parent in PurePath(name).parents} - {"."}
    return build_cpio(
        [
            *(CpioEntry(name=name, mode=0o040755) for name in sorted(above)),
            *(CpioEntry(name=name, mode=0o100644, data=data) for name, data in files.items()),
        ]
    )


@pytest.mark.parametrize("make", [pytest.param(usual, marks=pytest.mark.soak), booster])
async def test_modules_are_found_in_an_initramfs_that_has_no_modprobe(
    image: StoredImage, tmp_path: Path, make: Callable[[str, dict[str, bytes]], bytes]
) -> None:
    """The default image's lists its modules for the agent; these do not."""
    initrd = make(*modules_of(image, tmp_path / "unpacked"))
    async with Sandbox(image=with_initrd(image, tmp_path, initrd), warm=False) as vm:
        assert "virtio_net" in await say(vm, "cut -d' ' -f1 /proc/modules")
        assert "10.0.2.15" in await say(vm, "ip address")


MAKERS = """\
base = "debian"
packages = ["initramfs-tools", "dracut-core"]
steps = [
    "mkinitramfs -o /srv/initramfs-tools $(ls /lib/modules)",
    "dracut --no-hostonly --modules 'base kernel-modules' --kver $(ls /lib/modules) /srv/dracut",
]
"""


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_a_guest_boots_from_what_initramfs_tools_and_dracut_make(
    image: StoredImage, tmp_path: Path
) -> None:
    """They have kmod's modprobe, with modules and tables where the kernel's usually lie."""
    store = ImageStore(tmp_path / "images")
    place = store.root / "debian" / image.root.name
    place.mkdir(parents=True, mode=0o700)
    for path in image.root.iterdir():
        share_file(path, place / path.name)
    (place.parent / "current").write_text(f"{place.name}\n")
    (tmp_path / "made.toml").write_text(MAKERS)
    made = await build_image(tmp_path / "made.toml", store=store)
    for name in ("initramfs-tools", "dracut"):
        initrd = read_from_disk(made.chain, f"/srv/{name}", most=256 * 1024**2)
        assert initrd is not None
        (tmp_path / name).mkdir()
        async with Sandbox(image=with_initrd(image, tmp_path / name, initrd), warm=False) as vm:
            assert "virtio_net" in await say(vm, "cut -d' ' -f1 /proc/modules")
            assert "10.0.2.15" in await say(vm, "ip address")


@pytest.mark.timeout(180)
async def test_a_guest_that_panics_before_anything_is_loaded_is_told_at_once(
    image: StoredImage, tmp_path: Path
) -> None:
    """Nothing in it tells QEMU of the panic, and it boots again and again."""
    initrd = build_cpio([CpioEntry(name="empty", mode=0o040755)])
    vm = Sandbox(image=with_initrd(image, tmp_path, initrd), warm=False, boot_timeout=150)
    with pytest.raises(GuestPanicError, match="panicked while the guest booted") as error:
        await vm.start()
    assert "root device /dev/vda did not appear in 10 s" in str(error.value.log)
