"""Guests of arm64 on a host that is not: the published Alpine image and, in the soak, an image of
Debian that is built here. They are emulated, and do what guests of the host's architecture do."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand import Sandbox
from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError
from quicksand.base.paths import Paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.snapshots.reverting import Form
from quicksand_images import build_image

from tests.conftest import fresh_places, share_findings
from tests.container_images import Image, docker_files, file, tar, write_archive
from tests.integration.guests import say
from tests.integration.published_alpine import published_mirror
from tests.integration.test_kernels import boot_again

pytestmark = [
    pytest.mark.vm,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        Architecture.host() is Architecture.ARM64, reason="here arm64 guests are the usual ones"
    ),
]

BOOT_S = 40.0
"""Seconds that an emulated guest may take to its first answer."""

UUID = "cat /proc/sys/kernel/random/uuid"


def command(*words: str, timeout: float = 300) -> str:
    argv = [sys.executable, "-m", "quicksand_tui", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def empty(prepared: Paths, tmp_path: Path) -> Iterator[Paths]:
    """An image store and a cache of their own, without an image."""
    share_findings(prepared, tmp_path / "cache")
    with fresh_places(prepared) as found, pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUICKSAND_CACHE_DIR", str(tmp_path / "cache"))
        (found.data / "images").unlink()
        (found.data / "images").mkdir()
        yield found


async def try_everything(vm: Sandbox, directory: Path) -> None:
    """What anybody does with a sandbox, once; it has the arch of its config and is started."""
    assert vm.boot_timing is not None
    assert vm.boot_timing.total_s < BOOT_S
    assert await say(vm, "uname -m") == "aarch64"
    failed = await vm.execute("echo out; echo err >&2; exit 3")
    assert (failed.stdout, failed.stderr, failed.exit_code) == ("out\n", "err\n", 3)
    data = bytes(range(256)) * 512
    await vm.files.write("/root/data", data)
    assert await vm.files.read("/root/data") == data
    await try_a_shell(vm)
    await try_a_mount(vm, directory)
    await try_checkpoints(vm)


async def try_a_shell(vm: Sandbox) -> None:
    shell = await vm.shell()
    await shell.write(b"echo $((6 * 7)); exit\n")
    seen = b""
    async for data in shell.output():
        seen += data
    assert b"42" in seen


async def try_a_mount(vm: Sandbox, directory: Path) -> None:
    directory.mkdir()
    (directory / "host").write_text("of the host")
    handle = await vm.mount(directory, "/mnt/data")
    assert await say(vm, "cat /mnt/data/host") == "of the host"
    await say(vm, "echo of the guest > /mnt/data/guest; sync")
    assert (directory / "guest").read_text() == "of the guest\n"
    await vm.unmount(handle)


async def try_checkpoints(vm: Sandbox) -> None:
    """A revert takes a new QEMU, whose guest can boot again; a clone is another machine."""
    await say(vm, "echo one > /root/f; echo one > /dev/shm/f; sync")
    await vm.checkpoint("one")
    await say(vm, "echo two > /root/f; echo two > /dev/shm/f; sync")
    done = await vm.revert("one")
    assert done.revert_form == Form.NEW_QEMU
    assert await say(vm, "cat /root/f /dev/shm/f") == "one\none"
    before = time.time()
    assert before - 1 <= float(await say(vm, "date +%s")) <= time.time()
    (clone,) = await vm.clone(at="one")
    try:
        assert await say(clone, "cat /root/f /dev/shm/f; uname -m") == "one\none\naarch64"
        for different in ("hostname", UUID, "cat /sys/class/net/eth0/address"):
            assert await say(clone, different) != await say(vm, different)
    finally:
        await clone.kill()
    await boot_again(vm)
    assert await say(vm, "cat /root/f; uname -m") == "one\naarch64"


@pytest.mark.soak
async def test_the_published_alpine_runs_on_another_processor(
    empty: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernel is packed for EFI, which no machine here has."""
    assert "alpine" in command("install", "alpine", "--arch", "arm64")
    with pytest.raises(ImageError, match="is not built yet"):
        await Sandbox(image="alpine").start()
    monkeypatch.chdir(tmp_path)
    async with Sandbox(image="alpine", arch="arm64", name="arm") as vm:
        await try_everything(vm, tmp_path / "mounted")
        await vm.save("kept")
    # A save knows for which processor it is.
    async with Sandbox(image="kept") as again:
        assert await say(again, "cat /root/f; uname -m") == "one\naarch64"


HELLO = b"".join(
    word.to_bytes(4, "little")
    for word in (
        *(0xD2800020, 0x100000E1, 0xD28000C2, 0xD2800808, 0xD4000001),  # write(1, text, 6)
        *(0xD2800000, 0xD2800BA8, 0xD4000001),  # exit(0)
    )
)
"""A program in arm64's machine code, which writes what stands behind it."""


def elf(code: bytes) -> bytes:
    """A static program (elf(5))."""
    base, heads = 0x400000, 64 + 56
    size = heads + len(code)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head = struct.pack("<HHIQQQIHHHHHH", 2, 183, 1, base + heads, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 0x10000)
    return ident + head + segment + code


async def test_a_container_image_for_arm64_runs_with_a_kernel_for_that(
    empty: Paths, tmp_path: Path
) -> None:
    command("install", "alpine", "--arch", "arm64")
    layer = tar(file("hello", elf(HELLO + b"hello\n"), mode=0o755))
    image = Image([layer], arch="arm64", Entrypoint=["/hello"])
    path = write_archive(tmp_path / "app.tar", docker_files(("me/app:1", image)))
    options = ("--from-oci", str(path), "--kernel-from", "alpine", "--arch", "arm64")
    command("images", "build", *options)
    async with Sandbox(image="app", arch="arm64", warm=False) as vm:
        done = await vm.execute(["/hello"])
        assert (done.stdout, done.exit_code) == ("hello\n", 0)


@pytest.mark.soak
async def test_an_alpine_is_built_for_another_processor_and_runs(
    empty: Paths, tmp_path: Path
) -> None:
    """From a mirror of what the published image is made of; `test_alpine.py` has the whole."""
    command("install", "alpine", "--arch", "arm64")
    store = ImageStore(empty.images)
    published = store.get("alpine", Architecture.ARM64)
    assert published is not None
    with published_mirror(published.disk, tmp_path / "mirror", "aarch64") as text:
        (tmp_path / "mine.toml").write_text(text.replace('name = "alpine"', 'name = "mine"'))
        await build_image(tmp_path / "mine.toml", arch="arm64", store=store)
    async with Sandbox(image="mine", arch="arm64", warm=False) as vm:
        assert await say(vm, "uname -m; apk audit --system") == "aarch64"
        assert await say(vm, "apk info --installed musl") == "musl"


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_debian_is_built_for_another_processor_and_runs(
    empty: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it runs on the host: an emulated machine configures its packages."""
    command("images", "build", "debian", "--arch", "arm64", timeout=3000)
    listed = command("images").split()
    assert "aarch64" in listed
    assert "x86_64" not in listed
    monkeypatch.chdir(tmp_path)
    async with Sandbox(image="debian", arch="arm64", name="arm", network_mode="full") as vm:
        await try_everything(vm, tmp_path / "mounted")
        assert await say(vm, "python3 -c 'import platform; print(platform.machine())'") == "aarch64"
        assert await say(vm, "dpkg --audit; dpkg --print-architecture") == "arm64"
    again = Sandbox.open("arm")
    await again.start()
    try:
        assert await say(again, "cat /root/f") == "one"
    finally:
        await again.stop()
