"""Keeping house while sandboxes run: nothing that is in use goes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from quicksand import Sandbox, saves
from quicksand.base.paths import Paths, paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import StoredImage
from quicksand.life import image_users

from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from tests.conftest import share_findings
from tests.integration.guests import say
from tests.unit.saves.making import publish_image

Output = pytest.CaptureFixture[str]


@pytest.fixture
def image(prepared: Paths, places: Paths, monkeypatch: pytest.MonkeyPatch) -> StoredImage:
    """The default image, in a store of the test's own; its templates go with it, so the user's are
    out of reach."""
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(places.data.parent / "cache"))
    share_findings(prepared, paths().cache)
    theirs = ImageStore(places.images).get("debian")
    assert theirs is not None
    root = theirs.root.resolve()
    (places.data / "images").unlink()
    (places.images / "debian").mkdir(parents=True)
    shutil.copytree(root, places.images / "debian" / root.name, copy_function=os.link)
    (places.images / "debian" / "current").write_text(f"{root.name}\n")
    found = ImageStore(places.images).get("debian")
    assert found is not None and found.digest == theirs.digest
    return found


async def test_a_sandbox_runs_on_after_clean(
    places: Paths, own_orphans: None, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(places.data.parent / "cache"))
    # What is known of accelerators goes, too; only a verdict on KVM takes long.
    async with Sandbox(image="debian", accel="tcg") as vm:
        await say(vm, "echo kept > /root/file")
        await vm.checkpoint("here")
        assert run(["clean", "--yes", "--json"]) == Exit.OK
        kinds = {heap["kind"] for heap in json.loads(capsys.readouterr().out)["heaps"]}
        assert "verdicts" in kinds
        # What it runs with is left alone: going back starts another QEMU with it.
        kept = sorted(path.suffix for path in (paths().cache / "initrd").iterdir())
        assert kept == [".cpio", ".elf"]
        await say(vm, "rm /root/file")
        await vm.revert("here")
        assert await say(vm, "cat /root/file") == "kept"
    assert run(["clean", "--yes"]) == Exit.OK
    assert list((paths().cache / "initrd").iterdir()) == []


async def remove_save(name: str) -> str:
    """In a program of its own, since the command has a loop of its own; what it says."""
    argv = [sys.executable, "-m", "quicksand_tui", "saves", "rm", name, "--now"]
    process = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.PIPE)
    _, said = await process.communicate()
    assert process.returncode == Exit.OK
    return said.decode()


async def test_an_old_image_stays_for_a_save_and_the_save_goes_without_its_sandbox(
    places: Paths,
    image: StoredImage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Output,
) -> None:
    monkeypatch.setattr(image_users, "FRESH_S", -1.0)
    monkeypatch.chdir(tmp_path)
    async with Sandbox(image="debian") as vm:
        await say(vm, "echo kept > /root/file")
        await vm.save("env")
    new = publish_image(places, "another version")
    assert new.digest != image.digest
    assert run(["images", "rm", "debian"]) == Exit.FAILURE
    assert "the base of the saves env" in capsys.readouterr().err
    assert run(["images", "prune"]) == Exit.OK
    async with Sandbox(image="env") as vm:
        (info,) = saves.list()
        assert (info.base_state, len(info.sandboxes)) == ("here", 1)
        assert "came from it" in await remove_save("env")
        # It lies on the old version still.
        assert run(["images", "prune"]) == Exit.OK
        assert await say(vm, "cat /root/file; head -c 1M /dev/vda | wc -c") == "kept\n1048576"
        await vm.save("again")
    assert (await saves.verify("again", deep=True)).problems == {}
    await remove_save("again")
    assert run(["images", "prune"]) == Exit.OK
    assert [version.digest for version in ImageStore(places.images).versions("debian")] == [
        new.digest
    ]
