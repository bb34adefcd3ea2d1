"""What a build does where the host lacks programs, as far as it needs no VM."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import HostError, UnreachableError
from quicksand.base.progress import Progress
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import StoredImage
from quicksand.qemu import debs
from quicksand.qemu.binaries import find_binaries
from quicksand_images import disk, fetching, toolbox, workshop
from quicksand_images.benches import HostBench
from quicksand_images.log import BuildLog
from quicksand_images.sources import from_inside
from quicksand_images.workshop import WorkshopBench, find_bench
from quicksand_images.workshop_image import find_image, look_into

from quicksand_tui.model.remedy_words import hint_of
from tests.each import each

APT, APK = "usr/bin/apt-get", "lib/apk/db/installed"
TOOLS = ("sbin/mke2fs", "sbin/debugfs")
LACKING = ("apt-get", "mke2fs")


def say(*_: object) -> None:
    pass


def add(store: ImageStore, name: str, *files: str) -> StoredImage:
    """An image whose disk has these files."""
    place = store.root.parent / f"of-{name}"
    for file in files:
        (place / "tree" / file).parent.mkdir(parents=True, exist_ok=True)
        (place / "tree" / file).write_text(file)
    (place / "tree").mkdir(parents=True, exist_ok=True)
    tools = asyncio.run(disk.require_filesystem_tools(place))
    asyncio.run(disk.make_handed(place / "tree", place / "raw", tools))
    staging = store.root / f".staging-{name}"
    staging.mkdir(parents=True, mode=0o700)
    img = find_binaries().img
    assert img is not None
    argv = [str(img), "convert", "-f", "raw", "-O", "qcow2"]
    argv += [str(place / "raw"), str(staging / "disk.qcow2")]
    subprocess.run(argv, check=True)
    for part in ("kernel", "initrd"):
        (staging / part).write_text(name)
    parts = {"disk": "disk.qcow2", "kernel": "kernel", "initrd": "initrd"}
    about = {"name": name, "version": "1", "arch": Architecture.host().value, "created": 1}
    named = {part: {"name": file} for part, file in parts.items()}
    return store.publish(staging, {**about, "files": named})


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


@pytest.fixture
def installs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is installed; nothing can be got."""
    asked: list[str] = []

    async def install(name: str, *_: object, **__: object) -> object:
        asked.append(name)
        raise UnreachableError("the index cannot be reached")

    monkeypatch.setattr(fetching, "install_package", install)
    return asked


def chosen(store: ImageStore, *, apt: bool) -> str:
    found = asyncio.run(find_image("mine", store, apt=apt, lacking=LACKING, progress=say))
    return found.image.name


def test_an_image_is_chosen_by_what_is_on_its_disk(store: ImageStore, installs: list[str]) -> None:
    add(store, "box")
    add(store, "alpine", APK)
    assert chosen(store, apt=False) == "alpine"
    add(store, "tux", APT)
    add(store, "debian", APT)
    assert chosen(store, apt=True) == "debian"
    add(store, "zed", APT, *TOOLS)
    assert chosen(store, apt=True) == "zed", "there e2fsprogs need not be fetched"
    assert installs == []


def test_an_unreadable_image_has_no_tools(store: ImageStore) -> None:
    image = add(store, "odd", APT)
    found = look_into(image)
    assert found is not None and found.has_apt and not found.has_filesystem_tools
    data = bytearray(image.disk.read_bytes())
    data[:4] = b"none"
    image.disk.write_bytes(data)
    assert look_into(image) is None


@pytest.mark.parametrize(("apt", "published"), [(True, "ubuntu"), (False, "alpine")])
def test_without_an_image_the_missing_programs_and_what_helps_are_named(
    store: ImageStore, installs: list[str], apt: bool, published: str
) -> None:
    add(store, "box")
    with pytest.raises(HostError) as caught:
        chosen(store, apt=apt)
    assert "a build of 'mine' needs apt-get, mke2fs, which this host lacks" in str(caught.value)
    assert f"{published!r} cannot be installed: the index cannot be reached" in str(caught.value)
    assert f"`quicksand-tui install {published}` gets one" in hint_of(caught.value)
    assert f"quicksand.install({published!r})" in caught.value.hint
    assert installs == [published]


def test_a_published_image_is_installed_for_it(
    store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def install(name: str, *_: object, progress: Progress, **__: object) -> None:
        progress("downloading", 0, 0)
        await asyncio.to_thread(add_in_thread, name)

    def add_in_thread(name: str) -> None:
        add(store, name, APT)

    monkeypatch.setattr(fetching, "install_package", install)
    assert chosen(store, apt=True) == "ubuntu"


def test_the_disk_of_the_sandbox_has_room_whatever_that_of_its_image_has(
    store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The published Alpine has a disk of 1 GiB."""
    image = add(store, "alpine", APK)
    assert workshop._config(image).disk_size_bytes == workshop.DISK_BYTES
    monkeypatch.setattr(workshop, "DISK_BYTES", 4096)
    assert workshop._config(image).disk_size_bytes is None, "no disk is made smaller"


def bench(store: ImageStore, place: Path, *, apt: bool, in_sandbox: bool = False) -> object:
    log = BuildLog(place / "log", None, None)
    return asyncio.run(find_bench("mine", place, store, log, apt=apt, in_sandbox=in_sandbox))


@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_what_is_missing_decides_and_not_the_systems_name(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    missing: set[str] = set()
    which = toolbox._which
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr(toolbox, "_which", lambda name: None if name in missing else which(name))
    monkeypatch.setattr(debs, "is_apt_host", lambda: not missing & {*workshop.APT_PROGRAMS})
    assert isinstance(bench(store, tmp_path, apt=True), HostBench)
    missing.add("apt-get")
    assert isinstance(bench(store, tmp_path, apt=False), HostBench), "no apt is needed"
    found = bench(store, tmp_path, apt=True)
    assert isinstance(found, WorkshopBench)
    assert found.lacking == ["apt-get"] and found.tools is not None
    missing.add("debugfs")
    found = bench(store, tmp_path, apt=False)
    assert isinstance(found, WorkshopBench)
    assert found.lacking == ["debugfs"] and found.tools is None
    missing.clear()
    found = bench(store, tmp_path, apt=True, in_sandbox=True)
    assert isinstance(found, WorkshopBench) and found.tools is None and not found.has_apt


@each(
    ("address", "inside"),
    [
        ("http://127.0.0.1:3142/debian", "http://10.0.2.2:3142/debian"),
        ("http://localhost/x", "http://10.0.2.2/x"),
        ("http://[::1]:80/", "http://10.0.2.2:80/"),
        ('Acquire::http::Proxy "http://localhost:8000";', None),
        ("http://localhost.example.org/", "http://localhost.example.org/"),
        ("https://deb.debian.org/127.0.0.1/", "https://deb.debian.org/127.0.0.1/"),
    ],
)
def test_a_sandbox_reaches_a_mirror_on_this_host(address: str, inside: str | None) -> None:
    wanted = 'Acquire::http::Proxy "http://10.0.2.2:8000";' if inside is None else inside
    assert from_inside(address) == wanted


async def test_a_tar_other_than_gnus_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tar = tmp_path / "tar"
    tar.write_text("#!/bin/sh\necho bsdtar 3.5.3\n")
    tar.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(HostError, match="GNU tar"):
        await toolbox.require_gnu_tar()
    (tmp_path / "gtar").symlink_to("/bin/tar")
    await toolbox.require_gnu_tar()
