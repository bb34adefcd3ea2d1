"""The Alpine image that is published on the package index runs as it is: installed by the command,
with its own kernel and initramfs (mkinitfs, busybox, OpenRC, musl), with all that Debian's can."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from quicksand import PortForward, Sandbox
from quicksand.base.arch import Architecture
from quicksand.base.errors import HostError, ImageError
from quicksand.base.paths import Paths
from quicksand.base.tools import run_tool
from quicksand.disks.images.bill import bill_of
from quicksand.disks.images.boot_files import find_agent
from quicksand.disks.images.resolve import ImageResolver
from quicksand.qemu import debs
from quicksand.snapshots.reverting import Form
from quicksand_images import build_image, toolbox
from quicksand_images.disk import require_filesystem_tools
from quicksand_images.log import log_path
from quicksand_images.oci.build import Order, build_from_oci

from tests.conftest import fresh_places, share_findings
from tests.container_images import Image, docker_files, file, tar, write_archive
from tests.debugfs import list_tree
from tests.integration.guests import say
from tests.integration.published_alpine import published_mirror
from tests.unit.images.alpine_mirror import KEY_NAME, AlpineSigner, make_alpine_mirror, make_apk
from tests.unit.images.mirrors import serve
from tests.unit.images.oci.test_writing import LAYER

pytestmark = [
    pytest.mark.vm,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        Architecture.host() is not Architecture.X86_64, reason="here it is tested for x86_64"
    ),
]

PORT = 8000


def command(*words: str) -> str:
    argv = [sys.executable, "-m", "quicksand_tui", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def places(prepared: Paths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Paths]:
    """An image store and a cache of their own, with the image in it."""
    cache = tmp_path_factory.mktemp("cache")
    share_findings(prepared, cache)
    with fresh_places(prepared) as found, pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUICKSAND_CACHE_DIR", str(cache))
        (found.data / "images").unlink()
        (found.data / "images").mkdir()
        assert "alpine" in command("install", "alpine")
        assert "made in" in command("images", "warm", "alpine")
        yield found


@pytest.fixture(scope="module")
def vm_name(places: Paths) -> Iterator[str]:
    """A running, detached sandbox that has started from a template."""

    async def start() -> None:
        forwards = [PortForward(host=0, guest=PORT)]
        sandbox = Sandbox(image="alpine", name="box", port_forwards=forwards)
        await sandbox.start()
        assert sandbox.boot_timing is not None
        assert sandbox.boot_timing.mode == "template"
        sandbox.detach()
        sandbox.close()

    async def stop() -> None:
        await Sandbox.attach("box").kill()

    asyncio.run(start())
    yield "box"
    asyncio.run(stop())


@pytest.fixture
async def vm(vm_name: str) -> AsyncIterator[Sandbox]:
    sandbox = Sandbox.attach(vm_name)
    yield sandbox
    sandbox.close()


async def test_it_is_alpine_with_our_agent(vm: Sandbox) -> None:
    assert "ID=alpine" in await say(vm, "cat /etc/os-release")
    assert "quicksand-agent" in await say(vm, "ps")
    assert await say(vm, "cat /proc/1/comm") == "init"
    assert (await say(vm, "grep -c vda /proc/mounts")) == "1"
    assert "10.0.2.15" in await say(vm, "ip address show eth0")
    # Busybox's date knows no fractions of a second.
    before = time.time()
    assert before - 2 < int(await say(vm, "date +%s")) < time.time() + 1


async def test_commands_users_and_files(vm: Sandbox) -> None:
    failed = await vm.execute("echo out; echo err >&2; exit 3")
    assert (failed.stdout, failed.stderr, failed.exit_code) == ("out\n", "err\n", 3)
    joe = await vm.create_user("joe")
    as_joe = await joe.execute("id -un; id -u; id -g; pwd")
    assert as_joe.stdout == f"joe\n{joe.uid}\n{joe.gid}\n{joe.home}\n"
    data = bytes(range(256)) * 4096
    await vm.files.write("/root/data", data)
    assert await vm.files.read("/root/data") == data
    shell = await vm.shell()
    await shell.write(b"echo $((6 * 7)); exit\n")
    seen = b""
    async with asyncio.timeout(60):
        async for data in shell.output():
            seen += data
    assert b"42" in seen


async def test_checkpoints_and_clones(vm: Sandbox, patient: None) -> None:
    await say(vm, "echo one > /root/f; echo one > /dev/shm/f; sync")
    await vm.checkpoint("one")
    await vm.revert("one", keep_now=False)
    await say(vm, "echo two > /root/f; echo two > /dev/shm/f; sync")
    done = await vm.revert("one")
    assert done.revert_form in (Form.WARM, Form.FLUSHED)
    assert await say(vm, "cat /root/f /dev/shm/f") == "one\none"
    await vm.undo()
    assert await say(vm, "cat /root/f /dev/shm/f") == "two\ntwo"
    (clone,) = await vm.clone(at="one")
    try:
        assert await say(clone, "cat /root/f /dev/shm/f") == "one\none"
        assert await say(clone, "hostname") != await say(vm, "hostname")
    finally:
        await clone.kill()


async def test_directories_of_the_host(vm: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "host").write_text("of the host")
    handle = await vm.mount(tmp_path, "/mnt/data")
    assert await say(vm, "cat /mnt/data/host") == "of the host"
    await say(vm, "echo of the guest > /mnt/data/guest; sync")
    assert (tmp_path / "guest").read_text() == "of the guest\n"
    await vm.unmount(handle)


async def test_a_port(vm: Sandbox) -> None:
    await say(vm, f"(echo hello | nc -l -p {PORT} > /dev/null 2>&1 &) ; sleep 0.2")
    reader, writer = await asyncio.open_connection("127.0.0.1", vm.port_forwards[PORT])
    async with asyncio.timeout(60):
        assert await reader.read(6) == b"hello\n"
    writer.close()
    await writer.wait_closed()


@pytest.mark.soak
async def test_a_save_begins_another(
    vm: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    await say(vm, "echo kept > /root/kept; sync")
    await vm.save("kept")
    async with Sandbox(image="kept") as other:
        assert await say(other, "cat /root/kept") == "kept"


async def test_it_is_not_uninstalled_below_a_sandbox(places: Paths, vm: Sandbox) -> None:
    argv = [sys.executable, "-m", "quicksand_tui", "uninstall", "alpine"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "the image 'alpine' is the base of the disks of box" in done.stderr
    assert "alpine" in command("images")


@pytest.mark.soak
async def test_a_layer_gets_packages_from_the_mirrors_that_its_base_trusts(
    places: Paths, tmp_path: Path
) -> None:
    store = ImageResolver(places).store
    signer, served = AlpineSigner(tmp_path), tmp_path / "served"
    script = "mkdir -p /srv && id -u >/srv/probe"
    apks = [make_apk("probe", depends="below", script=script), make_apk("below")]
    make_alpine_mirror(served, signer, apks)
    with serve(served) as mirror:
        trusting = tmp_path / "trusting.toml"
        trusting.write_text(
            f"""base = "alpine"
steps = [
    '''printf %s {shlex.quote(signer.public)} >/etc/apk/keys/{KEY_NAME}''',
    "echo {mirror.url} >/etc/apk/repositories",
]
"""
        )
        await build_image(trusting, store=store)
        recipe = tmp_path / "layer.toml"
        recipe.write_text('base = "trusting"\npackages = ["probe"]\n')
        image = await build_image(recipe, store=store)
        assert len(image.chain) == 3
        packages = {found["name"] for found in bill_of(image)["components"]}
        assert {"probe", "below", "musl"} <= packages
        async with Sandbox(image="layer", warm=False) as sandbox:
            result = await sandbox.execute("cat /srv/probe /usr/share/below.txt /etc/apk/world")
            assert result.stdout.splitlines()[:2] == ["0", "below 1.0-r0"]
            assert "probe" in result.stdout.splitlines()
        # The same, signed by a key that the base does not have.
        (tmp_path / "other").mkdir()
        make_alpine_mirror(served, AlpineSigner(tmp_path / "other"), apks)
        recipe.write_text('version = "2"\nbase = "trusting"\npackages = ["probe"]\n')
        with pytest.raises(HostError, match="the layer could not be made"):
            await build_image(recipe, store=store)
        assert store.get("layer") == image
        said = log_path("layer").read_text()
        assert "UNTRUSTED" in said or "BAD signature" in said


@pytest.mark.soak
async def test_an_alpine_of_ones_own_is_built_from_a_mirror(places: Paths, tmp_path: Path) -> None:
    """By our recipe, but for the mirror, which has what the published image is made of."""
    store = ImageResolver(places).store
    published = store.get("alpine")
    assert published is not None
    with published_mirror(published.disk, tmp_path / "mirror") as text:
        recipe = tmp_path / "mine.toml"
        recipe.write_text(text.replace('name = "alpine"', 'name = "mine"'))
        image = await build_image(recipe, store=store)
        assert image.disk.stat().st_size < 64 * 1024 * 1024
        bill = bill_of(image)["components"]
        assert any(one["purl"].startswith("pkg:apk/alpine/musl@") for one in bill), bill
        layer = tmp_path / "layer.toml"
        layer.write_text('base = "mine"\npackages = ["probe"]\n')
        await build_image(layer, store=store)
        # By a key that is not the recipe's nothing is taken, and nothing changes.
        (tmp_path / "other").mkdir()
        other = AlpineSigner(tmp_path / "other").public
        keys = re.compile(r'^keys = """.*?"""$', re.MULTILINE | re.DOTALL)
        recipe.write_text(keys.sub(f'keys = """\n{other}"""', recipe.read_text()))
        with pytest.raises(ImageError, match="by another key"):
            await build_image(recipe, store=store)
        assert store.get("mine") == image
    async with Sandbox(image="layer", warm=False) as vm:
        assert await say(vm, "cat /usr/share/below.txt") == "below 1.0-r0"
        assert await say(vm, "cat /proc/1/comm") == "agent"
        assert await say(vm, "stat -c %U:%G:%a /etc/shadow /usr/bin/sudo") == (
            "root:shadow:640\nroot:root:4755"
        )
        assert await say(vm, "su quicksand -c 'sudo id -u'") == "0"
        # apk knows all that is there, as it would of a system that it has made itself.
        assert await say(vm, "apk info --installed musl probe") == "musl\nprobe"
        assert await say(vm, "apk audit --system | grep -v ^A || :") == ""
        assert "10.0.2.15" in await say(vm, "ip address show eth0")
        await say(vm, "modprobe cifs && grep -q cifs /proc/filesystems")
        await say(vm, "echo kept >/root/f; sync")
        await vm.checkpoint("here")
        await say(vm, "rm /root/f")
        await vm.revert("here")
        assert await say(vm, "cat /root/f") == "kept"
        (tmp_path / "shared").mkdir()
        (tmp_path / "shared" / "host").write_text("of the host")
        await vm.mount(tmp_path / "shared", "/mnt/data")
        assert await say(vm, "cat /mnt/data/host") == "of the host"


@pytest.mark.soak
async def test_a_container_image_is_made_in_it_where_the_host_has_no_e2fsprogs(
    places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system of the sandbox has what that of this host has."""
    program = find_agent(Architecture.host()).read_bytes()
    one = Image([LAYER, tar(file("program", program, mode=0o755, uid=9))], Cmd=["/program"])
    path = write_archive(tmp_path / "app.tar", docker_files(("app:1", one)))
    order = Order(source=str(path), name="app", kernel_from="alpine")
    tools = await require_filesystem_tools(tmp_path)
    here = await build_from_oci(order)
    missing = {"mke2fs", "debugfs"}
    which = toolbox._which
    stages: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(toolbox, "_which", lambda name: None if name in missing else which(name))
        patch.setattr(debs, "is_apt_host", lambda: False)
        there = await build_from_oci(order, progress=lambda stage, *_: stages.append(stage))
    assert "starting a sandbox of 'alpine' to build in" in stages
    trees = []
    for image in (here, there):
        raw = tmp_path / f"{image.root.name}.raw"
        await run_tool(["qemu-img", "convert", "-O", "raw", image.disk, raw])
        trees.append(await list_tree(raw, tools[1]))
    assert trees[0] == trees[1]
    assert not list((places.data / "images").glob(".building*"))
    assert command("run", "app", "--", "/program", "--version").startswith("quicksand-agent")
