"""Layers: made in a real VM on the default image, of packages from mirrors that the tests make."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from quicksand import Sandbox
from quicksand.base.errors import DiskSpaceError, HostError
from quicksand.base.paths import Paths
from quicksand.base.sharing import share_file
from quicksand.disks.images.bill import bill_of
from quicksand.disks.images.image_store import MANIFEST, ImageStore
from quicksand.disks.images.stored_image import StoredImage
from quicksand.qemu import debs
from quicksand_images import build_image, ensure_image, toolbox
from quicksand_images.bases import system_facts
from quicksand_images.log import log_path
from quicksand_images.recipe import find_recipe, load_recipe

from tests.conftest import our_processes, share_findings, wait_for
from tests.integration.small_disks import MIB, small_file_system
from tests.integration.test_fresh_machine import files_of
from tests.unit.images.mirrors import (
    Signer,
    make_deb,
    make_index,
    make_repository,
    make_wheel,
    serve,
)

BUILD_S = 240.0
SCRIPT = 'test "$(id -u)" = 0; mkdir -p /srv/probe; chown 1:12 /srv/probe'
RECIPE = """\
base = "base"
packages = ["probe"]
python = ["sandprobe==1.0"]
steps = ["sandprobe >/srv/probe/said", "echo the last step"]

[machine]
memory = "300M"
"""

PLAIN = """\
base = "base"
packages = ["probe"]
steps = [
    "echo plain >/srv/probe/said",
    "mkdir -p /usr/local/lib/python3/dist-packages/sandprobe-1.0.dist-info",
    "echo the last step",
]

[machine]
memory = "300M"
"""
"""The same without pip, which takes half a minute in an emulated guest."""


@pytest.fixture(scope="module")
def mirrors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, str]]:
    """The addresses of an apt repository and of a package index, and the repository's keys."""
    place = tmp_path_factory.mktemp("mirrors")
    signer = Signer(place / "gpg")
    try:
        debs = [make_deb(place, "probe", depends="below", script=SCRIPT), make_deb(place, "below")]
        debs.append(make_deb(place, "broken", script="echo oh no >&2; exit 7"))
        make_repository(place / "served" / "apt", signer, debs)
        make_index(place / "served" / "simple", [make_wheel(place / "built", "sandprobe", "1.0")])
        with serve(place / "served") as served:
            yield f"{served.url}/apt", f"{served.url}/simple/", signer.keys
    finally:
        signer.close()


@pytest.fixture
def store(
    prepared: Paths,
    places: Paths,
    mirrors: tuple[str, str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> ImageStore:
    """A store with the default image as "base", whose packages come from the test's mirror."""
    repository, index, keys = mirrors
    monkeypatch.setenv("PIP_INDEX_URL", index)
    share_findings(prepared, tmp_path / "cache")
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("QUICKSAND_DATA_DIR", str(tmp_path / "data"))
    found = ImageStore(tmp_path / "data" / "images")
    debian = ImageStore(prepared.images).get("debian")
    assert debian is not None
    staging = found.root / "staging"
    staging.mkdir(parents=True)
    files = {part: str(facts["name"]) for part, facts in debian.files.items()}
    for file in files.values():
        share_file(debian.root / file, staging / file)
    system = system_facts(load_recipe("debian").system)
    system |= {"mirror": repository, "security_mirror": repository, "keyring": "", "keys": keys}
    manifest = json.loads((debian.root / MANIFEST).read_text())
    for key in ("digest", "schema_version"):
        del manifest[key]
    parts = {part: {"name": file} for part, file in files.items()}
    found.publish(staging, {**manifest, "name": "base", "system": system, "files": parts})
    (tmp_path / "mine.toml").write_text(RECIPE)
    return found


async def output(image: StoredImage, command: str) -> str:
    async with Sandbox(image=str(image.root), warm=False) as sandbox:
        result = await sandbox.execute(command)
        assert result.exit_code == 0, result.stderr
        return result.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("recipe", "said"),
    [(PLAIN, "plain"), pytest.param(RECIPE, "py3-none-any", marks=pytest.mark.soak)],
    ids=["plain", "with pip"],
)
async def test_a_recipe_of_ones_own_that_is_built_twice_at_once_becomes_one_image_on_its_base(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str, said: str
) -> None:
    (tmp_path / "mine.toml").write_text(recipe)
    for module in ("quicksand.disks.images.recipes", "quicksand_images.recipe"):
        monkeypatch.setattr(f"{module}.recipe_places", lambda: (tmp_path,))
    stages: list[str] = []
    logs: list[str] = []

    def note(stage: str, *_: object) -> None:
        stages.append(stage)
        if stage == "compressing the layer":  # the other build writes a log of its own later
            logs.append(log_path("mine").read_text())

    async def build() -> StoredImage:
        return await ensure_image("mine", note, store=store)

    first, second = await asyncio.gather(build(), build())
    assert first == second
    assert len(store.versions("mine")) == 1
    assert log_path("mine").read_text().endswith("== done\n")
    assert any("the last step" in text for text in logs)
    # Neither its recipe nor its base has changed.
    assert (await build()).root == first.root
    base = store.get("base")
    assert base is not None
    assert [path.name for path in first.chain] == ["disk.qcow2", "layer1.qcow2"]
    assert first.chain[0].samefile(base.chain[0])
    assert first.chain[1].stat().st_size < 8 * 1024 * 1024, "only what was installed"
    assert first.machine["memory"] == "300M"
    assert not store.verify(first) and not store.verify(base)
    names = {found["name"]: found["version"] for found in bill_of(first)["components"]}
    assert (names["probe"], names["below"], names["sandprobe"]) == ("1.0", "1.0", "1.0")
    seen = await output(
        first,
        "cat /srv/probe/said; stat -c %u:%g /srv/probe; apt-mark showauto below;"
        "ls /run/quicksand-handed /run/quicksand-layer 2>&1 | wc -l; lsblk -dno NAME | wc -l",
    )
    assert seen.split() == [said, "1:12", "below", "2", "1"]
    assert {"downloading packages", "installing packages"} <= set(stages)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("recipe", "match"),
    [
        ('packages = ["broken"]\npython = ["sandprobe==1.0"]\n', r"exit code \d+[^$]*oh no"),
        pytest.param(
            'steps = ["echo oh no >&2; exit 7"]\n',
            r"exit code 7[^$]*oh no",
            marks=pytest.mark.soak,
        ),
    ],
    ids=["package", "step"],
)
async def test_a_package_or_a_step_that_fails_is_told_and_changes_nothing(
    store: ImageStore, tmp_path: Path, recipe: str, match: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'base = "base"\n{recipe}')
    with pytest.raises(HostError, match=match) as caught:
        await build_image(path, store=store)
    assert str(log_path("mine")) in caught.value.hint
    assert store.get("mine") is None
    assert sorted(found.name for found in store.root.iterdir()) == ["base"]


@pytest.mark.timeout(300)
@pytest.mark.soak
async def test_a_disk_that_fills_up_while_a_layer_is_made_is_called_that(
    store: ImageStore, tmp_path: Path
) -> None:
    recipe = tmp_path / "mine.toml"
    step = "head -c 500M /dev/urandom >/srv/much; sync"
    recipe.write_text(f'base = "base"\nsteps = ["{step}"]\nbuild_space = "1M"\n')
    with small_file_system(tmp_path / "small", 450 * MIB) as small:
        shutil.copytree(store.root, small / "images", symlinks=True)
        crowded = ImageStore(small / "images")
        with pytest.raises(DiskSpaceError, match="no space left"):
            await build_image(recipe, store=crowded)
        assert crowded.get("mine") is None
        left = sorted(path.name for path in crowded.root.iterdir())
        assert left == ["base"]


async def kill_at(stage: str, recipe: Path, *options: str) -> None:
    """Build in another process, and kill it as it comes to a stage."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "quicksand_images", "build", *options, str(recipe)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    said: list[str] = []
    async with asyncio.timeout(BUILD_S):
        async for line in process.stderr:
            said.append(line.decode().strip())
            if said[-1] == stage:
                os.kill(process.pid, signal.SIGKILL)
                await process.wait()
                return
        await process.wait()
    raise AssertionError(f"it never came to {stage!r}: {said}")


STAGES = (
    "fetching the lists of packages",
    "downloading packages",
    "downloading Python packages",
    "making a disk to hand over",
    "booting the base",
    "installing packages",
    "running the steps of the recipe",
    "cleaning up",
    "ending the machine",
    "compressing the layer",
)


@pytest.mark.soak
@pytest.mark.timeout(1200)
async def test_a_build_can_be_killed_at_every_step(store: ImageStore, tmp_path: Path) -> None:
    await check_kills(store, tmp_path / "mine.toml", STAGES)


async def check_kills(store: ImageStore, recipe: Path, stages: Sequence[str]) -> None:
    for stage in stages:
        await kill_at(stage, recipe)
        assert store.get("mine") is None
    before = time.time()

    def remove_base(stage: str, *_: object) -> None:
        if stage == "booting the base" and store.get("base") is not None:
            store.remove("base")

    image = await build_image(recipe, store=store, progress=remove_base)
    assert image.built is not None and image.built >= before - 1
    # Its base was removed meanwhile, and it needs it no more.
    assert not store.verify(image)
    assert sorted(found.name for found in store.root.iterdir()) == ["mine"]
    assert await output(image, "cat /srv/probe/said") == "py3-none-any\n"


# Where the host lacks apt and e2fsprogs


HERE = ("apt-get", "apt-cache", "apt-config", "dpkg-deb", "mke2fs", "debugfs")


@pytest.fixture
def shop(store: ImageStore, prepared: Paths) -> ImageStore:
    """The store with the default image as well, which has apt and nothing of e2fsprogs."""
    debian = ImageStore(prepared.images).get("debian")
    assert debian is not None
    place = store.root / "debian" / debian.root.name
    place.mkdir(parents=True, mode=0o700)
    for path in debian.root.iterdir():
        share_file(path, place / path.name)
    (place.parent / "current").write_text(f"{place.name}\n")
    if (prepared.data / "qemu").is_dir():  # such a host cannot get one from packages
        (store.root.parent / "qemu").symlink_to(prepared.data / "qemu")
    return store


@pytest.mark.soak
@pytest.mark.timeout(400)
async def test_a_host_without_apt_and_e2fsprogs_builds_in_a_sandbox(
    shop: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    which = toolbox._which
    monkeypatch.setattr(toolbox, "_which", lambda name: None if name in HERE else which(name))
    monkeypatch.setattr(debs, "is_apt_host", lambda: False)
    stages: list[str] = []
    image = await build_image(
        tmp_path / "mine.toml", store=shop, progress=lambda stage, *_: stages.append(stage)
    )
    assert "starting a sandbox of 'debian' to build in" in stages
    assert stages.index("getting e2fsprogs in the sandbox") < stages.index("downloading packages")
    names = {found["name"]: found["version"] for found in bill_of(image)["components"]}
    assert (names["probe"], names["below"], names["sandprobe"]) == ("1.0", "1.0", "1.0")
    said = await output(image, "cat /srv/probe/said; stat -c %u:%g /srv/probe")
    assert said.split() == ["py3-none-any", "1:12"]
    assert sorted(found.name for found in shop.root.iterdir()) == ["base", "debian", "mine"]


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_a_build_in_a_sandbox_that_is_killed_leaves_no_machine_and_the_next_goes_on(
    shop: ImageStore, tmp_path: Path
) -> None:
    recipe = tmp_path / "mine.toml"
    await kill_at("getting e2fsprogs in the sandbox", recipe, "--in-sandbox")
    await asyncio.to_thread(
        wait_for, lambda: not our_processes(str(shop.root)), what="its machine to end"
    )
    assert shop.get("mine") is None
    await kill_at("downloading packages", recipe, "--in-sandbox")
    image = await build_image(recipe, store=shop, in_sandbox=True)
    assert not shop.verify(image)
    assert sorted(found.name for found in shop.root.iterdir()) == ["base", "debian", "mine"]


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_a_system_made_in_a_sandbox_is_that_which_the_host_makes(
    shop: ImageStore, tmp_path: Path
) -> None:
    """A small Debian, with a kernel, of the real mirrors."""
    text = find_recipe("debian").read_text()
    packages = '["iproute2", "kmod", "mount", "passwd", "procps", "sudo"]'
    text = re.sub(r"packages = \[.*?\]", f"packages = {packages}", text, count=1, flags=re.DOTALL)
    recipe = tmp_path / "small.toml"
    recipe.write_text(text.replace('name = "debian"', 'name = "small"'))
    inside = await build_image(recipe, store=shop, in_sandbox=True)
    here = await build_image(recipe, store=shop)
    trees = [files_of(image, tmp_path / image.root.name) for image in (inside, here)]
    for tree in trees:
        for name in PARTIAL:  # apt's own user has them where apt has run as root
            del tree[name]
    assert trees[0] == trees[1]
    assert [inside.files[part]["sha256"] for part in ("kernel", "initrd")] == [
        here.files[part]["sha256"] for part in ("kernel", "initrd")
    ]


PARTIAL = ("var/lib/apt/lists/partial", "var/cache/apt/archives/partial")
