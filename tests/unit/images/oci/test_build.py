"""Building an image of a container image, with the kernel of a small image of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError, ImageError, ImageNotFound, QuicksandError
from quicksand.base.paths import Paths, make_private_dir
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import StoredImage
from quicksand.qemu.binaries import QemuBinaries, find_binaries
from quicksand_images.build import building
from quicksand_images.disk import require_filesystem_tools
from quicksand_images.oci import writing
from quicksand_images.oci.build import DEFAULTS_FILE, Order, build_from_oci

from tests.container_images import (
    TIME,
    Image,
    directory,
    docker_files,
    file,
    layout_files,
    symlink,
    tar,
    write_archive,
    write_directory,
)
from tests.debugfs import copy_out, list_tree
from tests.unit.disks.kernels import write_bzimage

RELEASE = "6.1.0-1-test"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "SIZE_MIN", 64 * 1024**2)
    monkeypatch.setattr(writing, "_STEP", 64 * 1024**2)


def publish(
    store: ImageStore,
    name: str,
    tree: Path,
    tmp_path: Path,
    arch: Architecture | None = None,
) -> StoredImage:
    """An image whose disk has the files of ``tree``."""
    make_private_dir(store.root)
    staging = store.root / f".building-{name}-{os.urandom(4).hex()}"
    staging.mkdir()
    raw = tmp_path / f"{name}.raw"
    mke2fs = shutil.which("mke2fs", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert mke2fs is not None
    subprocess.run([mke2fs, "-q", "-F", "-t", "ext4", "-d", tree, raw, "16M"], check=True)
    disk = str(staging / "disk.qcow2")
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", raw, disk], check=True)
    if arch is Architecture.ARM64:  # (Linux, Documentation/arch/arm64/booting.rst)
        (staging / "kernel").write_bytes(bytes(56) + b"ARM\x64" + bytes(4096))
    else:
        write_bzimage(staging / "kernel")
    (staging / "initrd").write_bytes(b"initrd")
    files = {"disk": "disk.qcow2", "kernel": "kernel", "initrd": "initrd"}
    manifest = {
        "name": name,
        "version": "1",
        "arch": (arch or Architecture.host()).value,
        "created": 1.0,
        "cmdline": "rootfstype=ext4",
        "files": {part: {"name": file} for part, file in files.items()},
    }
    return store.publish(staging, manifest, current=arch in (None, Architecture.host()))


@pytest.fixture
def store(places: Paths, tmp_path: Path) -> ImageStore:
    """A store with the image "base", which has a kernel with one module."""
    (places.data / "images").unlink()
    found = ImageStore(places.images)
    modules = tmp_path / "base" / "usr" / "lib" / "modules" / RELEASE
    modules.mkdir(parents=True)
    (tmp_path / "base" / "lib").symlink_to("usr/lib")
    (modules / "virtio.ko").write_bytes(b"module")
    (modules / "build").symlink_to("/usr/src")
    publish(found, "base", tmp_path / "base", tmp_path)
    return found


LAYERS = [
    tar(
        directory("usr/lib"),
        symlink("lib", "usr/lib"),
        file("etc/gone"),
        file("bin/sh", mode=0o755),
    ),
    tar(file("etc/.wh.gone"), file("srv/x", b"hello", uid=7)),
]


def image(**config: Any) -> Image:
    return Image(LAYERS, **{"Cmd": ["sh"], "WorkingDir": "/srv/../work", **config})


def archive(tmp_path: Path, one: Image | None = None) -> Path:
    return write_archive(tmp_path / "app.tar", docker_files(("me/app:1", one or image())))


async def build(source: Path | str, name: str = "", **more: Any) -> StoredImage:
    return await build_from_oci(Order(source=str(source), name=name, kernel_from="base", **more))


async def files_of(image: StoredImage, tmp_path: Path) -> dict[str, Any]:
    raw = tmp_path / "out.raw"
    argv = ["qemu-img", "convert", "-O", "raw", str(image.disk), str(raw)]
    subprocess.run(argv, check=True)
    tools = await require_filesystem_tools(tmp_path)
    found: dict[str, Any] = dict(await list_tree(raw, tools[1]))
    target = tmp_path / "defaults.json"
    target.unlink(missing_ok=True)
    await copy_out(raw, tools[1], DEFAULTS_FILE, target)
    return {**found, "defaults": json.loads(target.read_text())}


async def test_an_image_has_its_layers_the_kernels_modules_and_its_defaults(
    store: ImageStore, tmp_path: Path
) -> None:
    made = await build(archive(tmp_path, image(Env=["A=b"], User="7")))
    assert (made.name, made.cmdline) == ("app", "rootfstype=ext4 quicksand.init=none")
    assert not made.errors
    assert made.container["name"] == "me/app:1"
    assert str(tmp_path) not in (made.root / "manifest.json").read_text()
    found = await files_of(made, tmp_path)
    assert {"/srv/x", "/work", "/proc", "/dev", "/sys", "/run", "/tmp", "/etc"} <= set(found)
    assert "/etc/gone" not in found
    assert found[f"/usr/lib/modules/{RELEASE}/virtio.ko"].size == len("module")
    assert (found["/tmp"].mode, found["/srv/x"].uid) == (0o041777, 7)
    expected = {"entrypoint": [], "cmd": ["sh"], "env": ["A=b"], "user": "7"}
    assert found["defaults"] == {**expected, "cwd": "/srv/../work"}


async def test_the_same_container_image_gives_the_same_image(
    store: ImageStore, tmp_path: Path
) -> None:
    first = await build(archive(tmp_path))
    one = image()
    second = await build(write_directory(tmp_path / "l", layout_files((one, one.entry()))), "app")
    assert first.digest == second.digest
    other = await build(archive(tmp_path), init=True)
    assert other.digest != first.digest
    assert other.cmdline == "rootfstype=ext4"


async def test_the_image_with_the_kernel_may_go_while_another_is_built_on_it(
    store: ImageStore, tmp_path: Path
) -> None:
    gone: list[bool] = []

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "unpacking layers" and not gone:
            store.remove("base")
            gone.append(True)

    order = Order(source=str(archive(tmp_path)), kernel_from="base")
    made = await build_from_oci(order, progress=progress)
    assert gone
    assert store.verify(made) == []


async def test_one_file_of_a_time_to_come_dates_nothing_else(
    store: ImageStore, tmp_path: Path
) -> None:
    """Neither of a time that is too late for a file system, nor of one after the image's own."""
    layer = tar(file("late", mtime=2**33), file("soon", mtime=2_100_000_000), file("x", mtime=TIME))
    assert (await build(archive(tmp_path, Image([layer])))).created == 2_100_000_000
    one = Image([layer])
    one.config["created"] = "2024-01-02T03:04:05.123456789Z"
    assert (await build(archive(tmp_path, one))).created == TIME


async def test_what_a_layer_has_in_place_of_our_files_is_replaced_within_the_image(
    store: ImageStore, tmp_path: Path
) -> None:
    layer = tar(
        symlink("usr/lib/quicksand", "/elsewhere"),
        symlink("lib/modules", "../../../etc"),
        symlink("elsewhere/defaults.json", "/etc/passwd"),
        file("dev/null", b"not a device"),
    )
    found = await files_of(await build(archive(tmp_path, Image([layer]))), tmp_path)
    assert found["/elsewhere/defaults.json"].mode == 0o100644
    assert f"/etc/{RELEASE}/virtio.ko" in found
    assert "/dev/null" not in found


@pytest.mark.parametrize("name", ["dev", "proc", "etc", "usr"])
async def test_a_file_where_a_directory_has_to_be_is_refused(
    store: ImageStore, tmp_path: Path, name: str
) -> None:
    with pytest.raises(ImageError, match="no directory"):
        await build(archive(tmp_path, Image([tar(file(name))])))


async def test_a_failure_or_a_cancellation_leaves_the_store_as_it_was(
    store: ImageStore, tmp_path: Path
) -> None:
    first = await build(archive(tmp_path))
    bad = image()
    bad.config["rootfs"]["diff_ids"].reverse()
    with pytest.raises(ImageError, match="the image's config says"):
        await build(archive(tmp_path, bad))
    for stage in ("unpacking layers", "taking the kernel", "making the file system"):
        one = image(Env=["NEW=1"])
        with pytest.raises(asyncio.CancelledError):
            await cancelled_at(stage, archive(tmp_path, one))
    now = store.get("app")
    assert now is not None
    assert now.digest == first.digest
    assert not [path.name for path in store.root.iterdir() if path.name.startswith(".building")]


async def cancelled_at(stage: str, source: Path) -> None:
    def progress(name: str, done: int, total: int) -> None:
        if name == stage:
            loop.call_soon_threadsafe(task.cancel)

    loop = asyncio.get_running_loop()
    order = Order(source=str(source), kernel_from="base")
    task = asyncio.create_task(build_from_oci(order, progress=progress))
    await task


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("debian", "name of an image with a recipe"),
        ("alpine", "name of an image with a recipe or a package"),
        ("quicksand-ubuntu", "name of an image with a recipe or a package"),
        ("base", "made of something else"),
        ("../x", "cannot be the name"),
        (".x", "cannot be the name"),
        ("x" * 80, "cannot be the name"),
    ],
)
async def test_a_name_that_means_another_image_is_refused(
    store: ImageStore, tmp_path: Path, name: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        await build(archive(tmp_path), name)
    assert "--name" in str(caught.value.hint)


async def test_a_name_that_is_taken_while_a_build_waits_is_refused(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.asynccontextmanager
    async def taken(name: str, *more: Any) -> AsyncIterator[Any]:
        async with building(name, *more) as found:
            publish(store, name, tmp_path / "base", tmp_path)  # by the build that had the lock
            yield found

    monkeypatch.setattr("quicksand_images.oci.build.building", taken)
    with pytest.raises(ConfigError, match="made of something else"):
        await build(archive(tmp_path))
    now = store.get("app")
    assert now is not None
    assert not now.container


async def test_a_container_image_that_is_called_like_ours_does_not_take_its_place(
    store: ImageStore, tmp_path: Path
) -> None:
    source = write_archive(tmp_path / "debian.tar", docker_files(("debian:11", image())))
    with pytest.raises(ConfigError, match="'debian' is the name"):
        await build(source)
    assert (await build(source, pick="debian:11")).name == "debian-11"


# --- the kernel


def two_kernels(tree: Path) -> None:
    for release in ("6.1.0", "6.2.0"):
        (tree / "lib" / "modules" / release).mkdir(parents=True)


def odd_names(tree: Path) -> None:
    modules = tree / "lib" / "modules" / "6.1.0"
    modules.mkdir(parents=True)
    (modules / 'a "b".ko').touch()


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (lambda tree: (tree / "lib" / "modules").mkdir(parents=True), "of no kernels"),
        (two_kernels, "of 2 kernels|not of one"),
        (odd_names, "a module with the name"),
        (lambda tree: (tree / "lib").touch(), "of no kernels"),
        (lambda tree: (tree / "lib" / "modules" / "6.1.0").mkdir(parents=True), "no modules"),
    ],
)
async def test_an_image_without_a_kernels_modules_gives_no_kernel(
    store: ImageStore, tmp_path: Path, prepare: Callable[[Path], None], why: str
) -> None:
    (tmp_path / "odd").mkdir()
    prepare(tmp_path / "odd")
    publish(store, "odd", tmp_path / "odd", tmp_path)
    with pytest.raises(QuicksandError, match=why):
        await build_from_oci(Order(source=str(archive(tmp_path)), kernel_from="odd"))


async def test_a_missing_image_with_the_kernel_is_said_to_be_missing(
    store: ImageStore, tmp_path: Path
) -> None:
    with pytest.raises(ImageNotFound, match="'none'"):
        await build_from_oci(Order(source=str(archive(tmp_path)), kernel_from="none"))
    with pytest.raises(ImageNotFound, match="'debian' is not built yet"):
        await build_from_oci(Order(source=str(archive(tmp_path))), build=False)


OTHER = next(arch for arch in Architecture if arch is not Architecture.host())


async def test_an_image_for_another_architecture_gets_the_kernel_of_ours_for_that(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def ensure_qemu(say: object, *, arch: str) -> QemuBinaries:
        asked.append(arch)
        return find_binaries()

    monkeypatch.setattr("quicksand_images.oci.build.ensure_qemu", ensure_qemu)
    ours = publish(store, "base", tmp_path / "base", tmp_path, OTHER)
    path = archive(tmp_path, Image(LAYERS, arch=OTHER.debian, Cmd=["sh"]))
    found = await build(path, arch=OTHER)
    assert found.arch == OTHER.value
    assert json.loads((found.root / "manifest.json").read_text())["kernel_from"] == {
        "name": "base",
        "digest": ours.digest,
    }
    # One for this host is another version of the same name, and what is started unasked.
    usual = await build(archive(tmp_path))
    assert asked == [OTHER.value, Architecture.host().value]
    assert store.get("app") == usual
    assert store.get("app", OTHER) == found


async def test_an_image_for_another_architecture_is_refused_with_what_builds_it(
    store: ImageStore, tmp_path: Path
) -> None:
    one = Image(LAYERS, arch=OTHER.debian, Cmd=["sh"])
    write_directory(tmp_path / "layout", layout_files((one, one.entry())))
    for path in (archive(tmp_path, one), tmp_path / "layout"):
        with pytest.raises(ImageError, match=f"linux/{OTHER.debian}") as caught:
            await build(path, "app")
        assert caught.value.hint.startswith(f"--arch {OTHER.debian} ")
    # There is no kernel for that.
    with pytest.raises(ImageError, match=f"'base' is for .*, not for {OTHER.value}"):
        await build(archive(tmp_path, one), "app", arch=OTHER)
    assert store.get("app") is None
