"""Building images: recipes, command lines, kernel and initrd. No package is fetched."""

from __future__ import annotations

import asyncio
import json
import lzma
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID
from xml.etree import ElementTree

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import DiskSpaceError, ImageError, ImageNotFound
from quicksand.base.files import try_lock
from quicksand.base.paths import Paths, make_private_dir, paths
from quicksand.base.removal import make_marked
from quicksand.base.tools import ToolError
from quicksand.disks.images.boot_files import start_file_of
from quicksand.disks.images.image_store import BUNDLE, ImageStore
from quicksand.disks.images.stored_image import StoredImage
from quicksand.disks.images.vmlinux import shrink_elf
from quicksand_images import build, disk, kernel
from quicksand_images.fitting import find_stored
from quicksand_images.mmdebstrap import Builder, plan_mmdebstrap
from quicksand_images.recipe import Recipe, find_recipe, load_recipe
from quicksand_images.rootfs import (
    WORK,
    RootTree,
    configuring_script,
    hook_environment,
    read_owners,
)
from quicksand_images.sources import Mirrors, parse_sources

from tests.each import each
from tests.unit.disks.kernels import make_elf, write_bzimage


def make_modules(root: Path) -> Path:
    def module(path: str, depends: str) -> None:
        file = root / "kernel" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        data = b"\x7fELF\0license=GPL\0depends=" + depends.encode() + b"\0name=x\0"
        file.write_bytes(lzma.compress(data) if path.endswith(".xz") else data)

    module("net/virtio_net.ko.xz", "net_failover")
    module("net/net_failover.ko.xz", "failover")
    module("net/failover.ko", "")
    module("char/virtio-rng.ko.xz", "")
    (root / "modules.builtin").write_text("kernel/drivers/virtio/virtio_pci.ko\n")
    return root


def test_modules_come_after_what_they_need_and_built_in_ones_not_at_all(tmp_path: Path) -> None:
    wanted = ["virtio_pci", "virtio_net", "virtio_rng", "virtio-net"]
    entries = {e.name: e for e in kernel.initrd_entries(make_modules(tmp_path), wanted)}
    listed = entries["quicksand/modules"].data.decode().split()
    names = ["failover", "net_failover", "virtio_net", "virtio_rng"]
    assert listed == [f"/quicksand/ko/{name}.ko" for name in names]
    assert all(entries[path.lstrip("/")].data.startswith(b"\x7fELF") for path in listed)
    assert entries["dev/console"].device == (5, 1)


def test_a_module_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="'absent'"):
        kernel.initrd_entries(make_modules(tmp_path), ["absent"])


# --- recipes


def test_our_own_recipe_is_right() -> None:
    recipe = load_recipe("debian")
    assert recipe.arch is Architecture.X86_64
    assert recipe.disk.size_bytes == 8 * 1024**3
    assert "sudo" in recipe.system.packages


def test_the_desktop_differs_in_kernel_machine_and_script() -> None:
    usual, desktop = load_recipe("debian"), load_recipe("debian-desktop")
    assert "cloud" in usual.kernel.package
    assert "cloud" not in desktop.kernel.package
    assert "virtio-gpu" in desktop.kernel.plain_modules
    assert set(usual.system.packages) < set(desktop.system.packages)
    assert desktop.machine == {"memory": "2G", "cpus": 2, "enable_display": True}
    assert (usual.machine, usual.script) == ({}, "")
    script = configuring_script(desktop)
    assert desktop.script in script
    # What the recipe adds is cleaned up with the rest.
    assert script.endswith((Path(build.__file__).parent / "clean.sh").read_text())
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)


@each("name", ["debian-desktop", "ubuntu-desktop", "alpine-desktop"])
def test_the_files_that_a_desktop_writes_are_well_formed(name: str) -> None:
    script = load_recipe(name).script
    subprocess.run(["sh", "-n"], input=configuring_script(load_recipe(name)), text=True, check=True)
    channels = re.findall(r"^channel \S+ <<'?END'?\n(.*?)^END$", script, re.DOTALL | re.MULTILINE)
    assert len(channels) == 5
    for text in channels:
        ElementTree.fromstring(f"<channel>{text}</channel>")
    policies = re.findall(r"policies\.json <<'END'\n(.*?)^END$", script, re.DOTALL | re.MULTILINE)
    assert len(policies) == ("Firefox" in script)
    for text in policies:
        assert json.loads(text)["policies"]["DisableTelemetry"] is True
    # Programs of the script itself, as the guest's shell will read them.
    inner = re.findall(r"^(#!/bin/sh\n.*?)^END$", script, re.DOTALL | re.MULTILINE)
    assert len(inner) == 3 + len(policies)
    for text in inner:
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)


def test_desktops_have_what_their_scripts_start() -> None:
    desktops = {
        name: load_recipe(name) for name in ("debian-desktop", "ubuntu-desktop", "alpine-desktop")
    }
    for name, recipe in desktops.items():
        packages = set(recipe.system.packages)
        assert {"lightdm", "xfwm4", "xfce4-panel", "xdotool", "xclip"} <= packages, name
        assert packages & {"firefox-esr", "epiphany-browser"}, name
        assert recipe.machine == {"memory": "2G", "cpus": 2, "enable_display": True}
        assert "drivers/gpu" not in recipe.kernel.dropped_modules
        assert set(load_recipe(name.partition("-")[0]).system.packages) <= packages
    assert desktops["ubuntu-desktop"].system.keys == load_recipe("ubuntu").system.keys
    assert desktops["alpine-desktop"].system.keys == load_recipe("alpine").system.keys
    # OpenRC is its init.
    assert "init=none" not in desktops["alpine-desktop"].kernel.cmdline
    assert "openrc" in desktops["alpine-desktop"].system.packages


def test_a_changed_script_is_another_recipe(tmp_path: Path) -> None:
    place = find_recipe("debian-desktop").parent
    for path in (place / "debian-desktop.toml", *place.glob("desktop*.sh")):
        shutil.copy(path, tmp_path / path.name)
    path = tmp_path / "debian-desktop.toml"
    first = build.recipe_digest(load_recipe(path))
    assert first == build.recipe_digest(load_recipe("debian-desktop"))
    with (tmp_path / "desktop-systemd.sh").open("a") as file:
        file.write("true\n")
    assert build.recipe_digest(load_recipe(path)) != first


@each(
    ("line", "why"),
    [
        ('customize = "../x.sh"', "beside the recipe"),
        ('customize = "/etc/passwd"', "beside the recipe"),
        ('customize = "absent.sh"', "No such file"),
        ('customize = "long.sh"', "more than"),
        ("machine = 1", "machine is not a table"),
        ("machine = { memory = 2 }", "machine.memory"),
        ('machine = { memory = "2X" }', "'2X'"),
        ("machine = { cpus = 0 }", "cpus must be"),
        ('machine = { network_mode = "full" }', "machine.network_mode is unknown"),
    ],
)
def test_what_a_recipe_adds_is_checked(tmp_path: Path, line: str, why: str) -> None:
    (tmp_path / "long.sh").write_bytes(b"#" * (64 * 1024 + 1))
    path = tmp_path / "debian.toml"
    path.write_text(f"{line}\n{find_recipe('debian').read_text()}")
    with pytest.raises(ImageError, match=re.escape(why)):
        load_recipe(path)


def test_an_unknown_recipe_says_which_there_are() -> None:
    with pytest.raises(ImageNotFound, match=r"^Image not found") as caught:
        find_recipe("debain")
    assert "debian" in caught.value.hint


@each(
    ("old", "new", "why"),
    [
        ('name = "debian"', 'name = "../x"', "'../x'"),
        ('user = "quicksand"', 'user = "a b"', "'a b'"),
        ('"sudo",', '"sudo; reboot",', "sudo; reboot"),
        ('"cifs"', '"$(reboot)"', "module"),
        ('size = "8G"', 'size = "8"', "less than 1G"),
        ('size = "8G"', "", "line 55: disk.size is missing"),
        ("[disk]", "surprise = 1\n[disk]", "kernel.surprise is unknown"),
        ('suite = "trixie"', "suite = 13", "not a line of text"),
        ("[system]", "[system", "wrong"),
    ],
)
def test_a_wrong_recipe_says_what_is_wrong(tmp_path: Path, old: str, new: str, why: str) -> None:
    text = find_recipe("debian").read_text()
    assert old in text
    path = tmp_path / "wrong.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(ImageError) as caught:
        load_recipe(path)
    assert why in str(caught.value)
    assert str(path) in str(caught.value)


# --- command lines


def test_mmdebstrap_gets_mirrors_with_their_key_and_the_packages() -> None:
    recipe = load_recipe("debian")
    builder = Builder(command=("mmdebstrap",), env={}, mode="unshare", makes_directory=False)
    mirrors = Mirrors(main="http://mirror/debian", security="http://mirror/security")
    words = plan_mmdebstrap(
        recipe,
        builder,
        Path("/out.tar"),
        keyring=Path("/keys.gpg"),
        mirrors=mirrors,
        reaching=Path("/acquire.conf"),
    )
    assert "--aptopt=/acquire.conf" in words
    assert "--mode=unshare" in words
    assert "--format=tar" in words
    assert f"--include={','.join(recipe.system.packages)}" in words
    assert words[-3:] == [
        "deb [signed-by=/keys.gpg] http://mirror/debian trixie main",
        "deb [signed-by=/keys.gpg] http://mirror/debian trixie-updates main",
        "deb [signed-by=/keys.gpg] http://mirror/security trixie-security main",
    ]
    # The image keeps the recipe's mirrors, not this host's.
    environment = hook_environment(recipe)
    assert environment["MIRROR"] == recipe.system.mirror
    assert "mirror/" not in " ".join(environment.values())


def test_mirrors_are_read_from_both_forms_of_sources() -> None:
    old = "# deb http://no x main\ndeb [arch=amd64 signed-by=/k] http://a/debian bookworm main\n"
    old += "deb http://a/security/ bookworm-security main\ndeb file:/cdrom bookworm-cd main\n"
    assert parse_sources(old) == {
        "bookworm": "http://a/debian",
        "bookworm-security": "http://a/security",
    }
    new = (
        "Types: deb deb-src\n# comment: x\nURIs: https://b/debian\nSuites: trixie trixie-updates\n"
    )
    assert parse_sources(new + "\nTypes: deb-src\nURIs: http://no\nSuites: sid\n") == {
        "trixie": "https://b/debian",
        "trixie-updates": "https://b/debian",
    }


def test_owners_are_learnt_from_the_archive(tmp_path: Path) -> None:
    archive = tmp_path / "tree.tar"
    with tarfile.open(archive, "w") as file:
        for name, uid, gid in (("./", 0, 0), ("./etc/shadow", 0, 42), ("./home/q/", 1000, 1000)):
            member = tarfile.TarInfo(name)
            member.uid, member.gid = uid, gid
            file.addfile(member)
    assert read_owners(archive) == {"/etc/shadow": (0, 42), "/home/q": (1000, 1000)}


def test_inodes_get_owners_only_where_the_files_do_not_have_them(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "shadow").touch()
    owned = "\n".join(disk.plan_inodes(RootTree(path=tmp_path, owners=None), 7))
    assert 'set_inode_field "/etc/shadow" ctime @7' in owned
    assert " uid " not in owned
    tree = RootTree(path=tmp_path, owners={"/etc/shadow": (0, 42)})
    lines = list(disk.plan_inodes(tree, 7))
    assert 'set_inode_field "/etc/shadow" gid 42' in lines
    assert 'set_inode_field "/" uid 0' in lines


def test_times_after_the_newest_package_are_clamped(tmp_path: Path) -> None:
    (tmp_path / "usr").mkdir()
    for name, time in (("old", 100), ("newest", 200), ("built", 900)):
        path = tmp_path / "usr" / name
        path.touch()
        os.utime(path, (time, time))
    epoch = disk.newest_time(tmp_path, before=500.0)
    assert epoch == 200
    disk.clamp_times(tmp_path, epoch)
    times = {path.name: path.stat().st_mtime for path in (tmp_path / "usr").iterdir()}
    assert times == {"old": 100, "newest": 200, "built": 200}


def test_the_file_system_does_not_depend_on_the_hosts_defaults(tmp_path: Path) -> None:
    recipe = load_recipe("debian")
    words = disk.plan_mke2fs(["mke2fs"], tmp_path, tmp_path / "raw", recipe.disk, UUID(int=7))
    assert words[words.index("-O") + 1].startswith("none,")
    assert words[-1] == f"{8 * 1024 * 1024}k"


def test_equal_contents_give_equal_identities() -> None:
    recipe = load_recipe("debian")
    first = build.content_uuid(recipe, {"a": "1", "b": "2"}, 5)
    assert build.content_uuid(recipe, {"b": "2", "a": "1"}, 5) == first
    assert build.content_uuid(recipe, {"a": "1", "b": "3"}, 5) != first


# --- the build as a whole


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made ahead of a new image's kernel goes there."""
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(tmp_path / "cache"))


async def fake_build(recipe: Recipe, store: ImageStore, place: Path, *_: object) -> StoredImage:
    staging = place / "staging"
    staging.mkdir()
    for name in ("disk.qcow2", "initrd"):
        (staging / name).write_text(name)
    write_bzimage(staging / "kernel")
    await asyncio.sleep(0.01)
    files = {"disk": "disk.qcow2", "kernel": "kernel", "initrd": "initrd"}
    return build.publish(
        recipe,
        store,
        staging,
        {
            "name": "debian",
            "version": "13",
            "arch": recipe.arch.value,
            "recipe": build.recipe_digest(recipe),
            "created": 1,
            "files": {part: {"name": name} for part, name in files.items()},
        },
    )


async def test_two_at_once_build_one_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[Path] = []

    async def counted(*arguments: object) -> StoredImage:
        builds.append(arguments[2])  # type: ignore[arg-type]
        return await fake_build(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(build, "_build", counted)
    store = ImageStore(tmp_path / "images")
    first, second = await asyncio.gather(
        build.ensure_image("debian", store=store), build.ensure_image("debian", store=store)
    )
    assert first == second
    assert len(builds) == 1
    assert sorted(path.name for path in store.root.iterdir()) == ["debian"]


async def test_an_image_of_an_earlier_form_is_built_anew_by_setup_and_stays_for_its_sandboxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_build", fake_build)
    store = ImageStore(tmp_path / "images")
    with monkeypatch.context() as before:
        before.setattr(build, "FORM", build.FORM - 1)
        old = await build.ensure_image("debian", store=store)
    # A start takes what is there, as with a recipe that has changed.
    assert await build.ensure_image("debian", store=store, any_recipe=True) == old
    new = await build.ensure_image("debian", store=store)
    assert new.root != old.root
    assert store.get("debian") == new
    assert {image.root for image in store.versions("debian")} == {old.root, new.root}
    assert old.kernel.is_file()


@each("way", [build.build_image, build.ensure_image])
async def test_no_start_waits_for_what_is_made_of_a_new_images_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Callable[..., Awaitable[StoredImage]]
) -> None:
    monkeypatch.setattr(build, "_build", fake_build)
    image = await way("debian", store=ImageStore(tmp_path / "images"))
    made = start_file_of(image.kernel, paths().cache)
    assert made.read_bytes() == shrink_elf(make_elf())


async def test_an_image_is_built_though_nothing_can_be_kept_of_its_kernel(
    places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_build", fake_build)
    (tmp_path / "cache").write_text("no directory")
    image = await build.build_image("debian", store=ImageStore(tmp_path / "images"))
    assert image.kernel.is_file()
    assert "make the kernel for starts" in places.engine_log.read_text()


@each("is_whole", [True, False])
def test_the_kernel_of_a_package_gets_into_the_image_as_it_is_if_it_is_whole(
    tmp_path: Path, is_whole: bool
) -> None:
    recipe, work, staging = load_recipe("debian"), tmp_path / "tree" / WORK, tmp_path / "staging"
    work.mkdir(parents=True)
    staging.mkdir()
    modules = tmp_path / "tree" / "usr" / "lib" / "modules" / "6.12"
    modules.mkdir(parents=True)
    built_in = [f"kernel/{name}.ko" for name in recipe.kernel.boot_modules]
    (modules / "modules.builtin").write_text("\n".join(built_in).replace("-", "_"))
    (work / "release").write_text("6.12\n")
    (work / "kernel-package").write_text("Package: linux-image\nVersion: 6.12-1\n")
    (work / "packages").write_text("base-files\t13\n")
    bzimage = write_bzimage(work / "bzimage").read_bytes()
    if is_whole:
        build._make_boot_files(recipe, tmp_path / "tree", staging)
        assert (staging / "kernel").read_bytes() == bzimage
        return
    (work / "bzimage").write_bytes(bzimage[:-20])
    with pytest.raises(ImageError, match="kernel is damaged"):
        build._make_boot_files(recipe, tmp_path / "tree", staging)


@each("failure", [ToolError("no"), asyncio.CancelledError()])
async def test_a_build_that_ends_early_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    async def failing(_: object, __: object, place: Path, *___: object) -> StoredImage:
        (place / "tree").mkdir(mode=0o500)
        raise failure

    monkeypatch.setattr(build, "_build", failing)
    store = ImageStore(tmp_path / "images")
    with pytest.raises(type(failure)):
        await build.build_image("debian", store=store)
    assert [path.name for path in store.root.iterdir()] == []
    lock = try_lock(store.root / ".debian.lock")
    assert lock is not None
    os.close(lock)


async def test_a_build_that_is_ended_says_so_while_it_removes_what_it_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancelled(*_: object) -> StoredImage:
        raise asyncio.CancelledError

    monkeypatch.setattr(build, "_build", cancelled)
    told: list[str] = []
    store = ImageStore(tmp_path / "images")
    with pytest.raises(asyncio.CancelledError):
        await build.build_image(
            "debian", store=store, progress=lambda stage, *_: told.append(stage)
        )
    assert told[-1] == "ending, and removing what was begun"


async def test_who_can_make_no_namespaces_is_told_what_that_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def find_builder(*_: object, **__: object) -> None:
        return None

    async def make_tree(*_: object, **__: object) -> None:
        assert "takes 3 to 15 minutes" in caplog.text
        raise ToolError("far enough")

    monkeypatch.setattr("quicksand_images.mmdebstrap.find_builder", find_builder)
    monkeypatch.setattr("quicksand_images.in_vm.make_tree", make_tree)
    monkeypatch.setattr(build, "ensure_qemu", find_builder)
    with pytest.raises(ToolError, match="far enough"):
        await build.build_image("debian", store=ImageStore(tmp_path / "images"))


async def test_a_full_disk_is_called_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(*_: object) -> StoredImage:
        raise ToolError("tar failed", output="write error: No space left on device")

    store = ImageStore(tmp_path / "images")
    monkeypatch.setattr(build, "_build", failing)
    with pytest.raises(DiskSpaceError):
        await build.build_image("debian", store=store)
    recipe = tmp_path / "debian.toml"
    text = find_recipe("debian").read_text()
    recipe.write_text(text.replace("[disk]", '[disk]\nbuild_space = "1000000G"'))
    with pytest.raises(DiskSpaceError, match=r"1024000000 MiB .* MiB are free"):
        await build.build_image(recipe, store=store)
    assert [path.name for path in store.root.iterdir()] == []


async def test_what_a_killed_build_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_build", fake_build)
    store = ImageStore(tmp_path / "images")
    stale = make_marked(make_private_dir(store.root) / ".building-debian-0123abcd")
    (stale / "tree" / "etc").mkdir(parents=True)
    (stale / "tree" / "etc").chmod(0o500)
    other = make_marked(store.root / ".building-debian-desktop-0123abcd")
    await build.build_image("debian", store=store)
    assert not stale.exists()
    assert other.exists(), "that image is just being built"


def test_an_image_unpacked_from_a_bundle_is_not_taken_for_the_one_of_that_name(
    tmp_path: Path,
) -> None:
    """A start from a foreign file must not decide on what a layer is made."""
    store = ImageStore(tmp_path / "images")
    host = Architecture.host()
    other = next(arch for arch in Architecture if arch is not host)
    for arch, bundle in ((host, ""), (other, "theirs.quicksand")):
        staging = make_private_dir(tmp_path / f"staging-{arch.value}")
        for name in ("disk.qcow2", "kernel", "initrd"):
            (staging / name).write_text(f"{name} {arch.value}")
        files = {"disk": "disk.qcow2", "kernel": "kernel", "initrd": "initrd"}
        manifest = {
            "name": "debian",
            "version": "13",
            "arch": arch.value,
            "created": 1,
            "files": {part: {"name": name} for part, name in files.items()},
            **({BUNDLE: bundle} if bundle else {}),
        }
        store.publish(staging, manifest, current=not bundle)
    found = find_stored(store, "debian", host)
    assert found is not None and found.arch == host.value
    assert find_stored(store, "debian", other) is None
