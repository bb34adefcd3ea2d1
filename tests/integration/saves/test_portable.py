"""A disk as one file, and saves in one compressed layer, on real VMs."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from quicksand import Sandbox, Snapshot
from quicksand.base.errors import SaveError, SaveNotFoundError
from quicksand.base.paths import Paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.qemu.binaries import find_binaries
from quicksand.saves.portable import sidecar

from tests.integration.saves.conftest import digests
from tests.integration.saves.test_saves import say, write_random


async def test_a_disk_as_one_file(tmp_path: Path) -> None:
    path = tmp_path / "my snapshot.qcow2"
    async with Sandbox(image="debian", boot_timeout=100.0) as sb:
        known = await write_random(sb, "/root/big", 1)
        await say(sb, "rm -r /etc/apt; echo one > /root/n")
        await sb.checkpoint("below")
        await say(sb, "echo two > /root/n")
        made = await sb.snapshot(path, note="a note")
        await say(sb, "echo three > /root/n")
        assert sorted(p.name for p in tmp_path.iterdir()) == [path.name, sidecar(path).name]
    assert made.manifest.note == "a note"
    before = digests(tmp_path)
    found = Snapshot.load(path)
    sandbox = await found.resume(memory="384M")
    try:
        assert await say(sandbox, "cat /root/n; ls -d /etc/apt || true") == "two"
        await say(sandbox, "echo x > /root/n; sync")
        assert (sandbox.config.memory, sandbox.config.boot_timeout) == ("384M", 100.0)
        assert digests(tmp_path) == before
        found.delete()
        assert list(tmp_path.iterdir()) == []
        assert await say(sandbox, "sha256sum < /root/big") == known
    finally:
        await sandbox.stop()
    with pytest.raises(SaveNotFoundError):
        Snapshot.load(path)


async def test_a_file_that_was_converted_is_still_one(tmp_path: Path) -> None:
    """`qemu-img convert` drops what is behind the disk; what lies beside it says the same."""
    path = tmp_path / "a.qcow2"
    async with Sandbox(image="debian") as sb:
        await say(sb, "echo kept > /root/n")
        await sb.snapshot(path, compress=True)
    binaries = find_binaries("x86_64")
    assert binaries.img is not None
    base = ImageStore(Path(sb._parts.life.registry.paths.images)).get("debian")
    assert base is not None
    converted = tmp_path / "b.qcow2"
    source = json.dumps(
        {
            "driver": "qcow2",
            "file": {"driver": "file", "filename": str(path)},
            "backing": {"driver": "qcow2", "file": {"driver": "file", "filename": str(base.disk)}},
        }
    )
    argv = [str(binaries.img), "convert", "-O", "qcow2", "-B", str(base.disk), "-F", "qcow2"]
    argv += [f"json:{source}", str(converted)]
    subprocess.run(argv, check=True, env=dict(binaries.env))
    sidecar(path).rename(sidecar(converted))
    path.unlink()
    async with Sandbox(image=str(converted)) as sb:
        assert await say(sb, "cat /root/n") == "kept"
    sidecar(converted).unlink()
    with pytest.raises(SaveError, match=r"b\.qcow2"):
        Snapshot.load(converted)


async def test_the_image_is_found_by_what_it_is(
    places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.qcow2"
    async with Sandbox(image="debian") as sb:
        await say(sb, "echo kept > /root/n")
        await sb.snapshot(path)
    stored = ImageStore(places.images).get("debian")
    assert stored is not None
    elsewhere = tmp_path / "deep" / "below" / "an image"
    elsewhere.parent.mkdir(parents=True)
    shutil.copytree(stored.root, elsewhere, copy_function=_link)
    images = places.data / "images"
    target = images.readlink()
    images.unlink()
    try:
        monkeypatch.setenv("QUICKSAND_BASE_DIR", str(tmp_path / "nothing"))
        shutil.move(elsewhere.parent.parent, places.data / "moved")
        with pytest.raises(SaveError, match=stored.digest[:12]):
            await Snapshot.load(path).resume()
        sandbox = await Snapshot.load(path, base_dir=places.data / "moved").resume()
        assert await say(sandbox, "cat /root/n") == "kept"
        await sandbox.stop()
        image = places.data / "moved" / "below" / "an image"
        monkeypatch.setenv("QUICKSAND_BASE_DIR", str(image))
        record = Sandbox(image=str(path))._parts.life.new_record()
        assert [Path(layer).parent for layer in record.chain] == [image]
    finally:
        images.symlink_to(target)


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


@pytest.mark.soak
async def test_a_compressed_save_is_smaller_and_whole(workspace: Path) -> None:
    async with Sandbox(image="debian") as sb:
        await say(sb, "for i in $(seq 200000); do echo line $i; done > /root/text")
        known = await say(sb, "sha256sum < /root/text")
        await say(sb, "rm -r /usr/share/doc")
        await sb.save("plain", workspace=workspace)
        small = await sb.save("small", workspace=workspace, compress=True)
    assert small.layers is not None
    assert len(small.layers) == 1
    sizes = [
        sum(p.stat().st_blocks for p in (workspace / name / "overlays").iterdir())
        for name in ("plain", "small")
    ]
    assert sizes[1] < sizes[0] / 1.5
    async with Sandbox(image="small", workspace=workspace) as sb:
        assert await say(sb, "sha256sum < /root/text; ls -d /usr/share/doc || true") == known
        await sb.save("again", workspace=workspace)
    async with Sandbox(image="again", workspace=workspace) as sb:
        assert await say(sb, "sha256sum < /root/text") == known
