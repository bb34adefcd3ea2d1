"""The package is upgraded, or removed, under a script and an app that use it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

from quicksand import Mount, Sandbox

from tests.unit.test_house import ROOT

PARTS = ("engine/quicksand", "quicksand_tui", "smb3", "terminal", "images", "guest-agent/prebuilt")

SCRIPT = """
import asyncio, shutil, sys
import quicksand
from quicksand import Sandbox
from quicksand.base.errors import MountError
from quicksand.life import whole

async def use(sandbox):
    await sandbox.execute("echo one > /root/file; sync")
    await sandbox.checkpoint("one")
    await sandbox.execute("echo two > /root/file; sync")
    await sandbox.revert("one")
    assert (await sandbox.execute("cat /root/file")).stdout == "one\\n"
    await sandbox.pause()
    await sandbox.resume()
    await sandbox.diff("one")
    for wrong in (sandbox.revert("none"), sandbox.execute("x", user="nobody-here")):
        try:
            await wrong
        except (ValueError, RuntimeError) as error:
            assert "import" not in str(error), error

async def lose_the_package(tree):
    await asyncio.to_thread(whole.make_whole_soon().join)
    shutil.rmtree(tree)

async def make_one(tree, saves):
    async with Sandbox(image="debian", name="upgraded", save="kept", workspace=saves) as sandbox:
        await lose_the_package(tree)
        await use(sandbox)

async def attach_to_one(tree, saves):
    sandbox = Sandbox.attach("upgraded")
    await sandbox.checkpoint("mounted")
    await lose_the_package(tree)
    try:
        await sandbox.revert("mounted")
    except MountError as error:
        assert "the program that serves mounts is gone" in str(error), error
    else:
        raise AssertionError("it has lost its mount")
    (mount,) = sandbox.active_mounts
    await sandbox.execute(f"echo still > {mount.guest}/file")
    await sandbox.unmount(mount.guest)
    await use(sandbox)
    await sandbox.save("kept", workspace=saves)
    await sandbox.stop()

assert quicksand.__file__.startswith(sys.argv[2]), quicksand.__file__
asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))
"""


SHORT_SCRIPT = """
import asyncio, sys
from quicksand import Sandbox

async def main(saves):
    async with Sandbox(image="debian", name="short", save="kept", workspace=saves):
        pass

asyncio.run(main(sys.argv[1]))
"""


def copy_of_the_package(place: Path) -> Path:
    for part in PARTS:
        # What is compiled comes along; another test may be writing more of it just now.
        ignore = shutil.ignore_patterns("*.pyc.*")
        shutil.copytree(ROOT / part, place / part, ignore=ignore)
    return place


def search_path(tree: Path) -> str:
    return ":".join(str(tree / part) for part in ("engine", ".", "smb3", "terminal", "images"))


def run_as_the_package_goes(what: str, place: Path) -> None:
    tree, saves = copy_of_the_package(place / "tree"), place / "saves"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, what, str(tree), str(saves)],
        env={**os.environ, "PYTHONPATH": search_path(tree)},
        cwd=place,
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert not tree.exists()
    assert (saves / "kept" / "manifest.json").exists()


def test_a_script_ends_well_when_its_package_is_gone(tmp_path: Path) -> None:
    run_as_the_package_goes("make_one", tmp_path)


async def test_so_does_one_that_uses_the_sandbox_of_another_process(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    mounts = [Mount(str(tmp_path / "host"), "/mnt/host")]
    async with Sandbox(image="debian", name="upgraded", mounts=mounts):
        await asyncio.to_thread(run_as_the_package_goes, "attach_to_one", tmp_path)
    assert (tmp_path / "host" / "file").read_text() == "still\n"


def test_a_script_that_ends_at_once_ends_well(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHORT_SCRIPT, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert not done.stderr
    assert (tmp_path / "kept" / "manifest.json").exists()
