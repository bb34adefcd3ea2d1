"""Bundles on real VMs: what was packed in one home runs in another one."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from quicksand import Sandbox, saves
from quicksand.base.errors import BundleError
from quicksand.base.paths import Paths, paths
from quicksand.disks.images.image_store import ImageStore

from tests.conftest import PREFIX, link_images
from tests.integration.disks import file_of_stopped
from tests.integration.saves.test_saves import say, write_random

Move = Callable[..., Paths]


@pytest.fixture
def move(prepared: Paths, monkeypatch: pytest.MonkeyPatch) -> Iterator[Move]:
    """Goes to an empty home: no saves, no sandboxes and, unless it is to have them, no images."""
    with ExitStack() as stack:

        def to_an_empty_home(*, images: bool = False) -> Paths:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=PREFIX)))
            (root / "data").mkdir(mode=0o700)
            (root / "data" / "qemu").symlink_to(prepared.data / "qemu")
            if images:
                link_images(prepared.images, root / "data" / "images")
            (root / "cwd").mkdir()
            monkeypatch.chdir(root / "cwd")
            monkeypatch.setenv("QUICKSAND_RUNTIME_DIR", str(root / "run"))
            monkeypatch.setenv("QUICKSAND_DATA_DIR", str(root / "data"))
            monkeypatch.setenv("QUICKSAND_TEMPLATES", "off")
            return paths()

        yield to_an_empty_home
        monkeypatch.undo()


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("compress", [False, True])
async def test_a_full_bundle_boots_where_nothing_else_is_and_a_save_of_that_moves_on(
    move: Move, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compress: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    async with Sandbox(image="debian") as sb:
        digest = await write_random(sb, "/root/data", 8)
        await sb.save("env", note="for the road")
    file = tmp_path / "env.quicksand"
    done = await saves.export("env", file, full=True, compress=compress)
    assert done.full
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    home = move()
    imported = await saves.import_(file)
    assert imported.image_added
    assert ImageStore(home.images).get("debian") is not None
    async with Sandbox(image="env") as sb:
        assert await say(sb, "sha256sum < /root/data") == digest
        await say(sb, "echo more > /root/more")
        await sb.save("env2")
    # On from there: a save of a save moves like any other one, and its image is there already.
    await saves.export("env2", tmp_path / "env2.quicksand", full=True)
    move()
    assert (await saves.import_(tmp_path / "env2.quicksand")).image_added
    async with Sandbox(image="env2") as sb:
        assert await say(sb, "sha256sum < /root/data; cat /root/more") == f"{digest}\nmore"
    assert hashlib.sha256(file.read_bytes()).hexdigest() == before


async def test_a_thin_bundle_runs_where_its_image_is(
    move: Move, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with Sandbox(image="debian") as sb:
        await say(sb, "echo here > /root/file")
        await sb.save("env")
    file = tmp_path / "env.quicksand"
    await saves.export("env", file)
    assert file.stat().st_size < 20 << 20
    move()
    with pytest.raises(BundleError, match="is not here"):
        await saves.import_(file)
    move(images=True)
    imported = await saves.import_(file, name="other")
    assert not imported.image_added
    async with Sandbox(image="other") as sb:
        assert await say(sb, "cat /root/file") == "here"


COUNTER = "sh -c 'while :; do echo >> /run/count; sleep 0.05; done'"
"""Counts in lines: there is no instant at which the file is empty."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "full", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["thin", "full"]
)
async def test_checkpoints_move_and_go_on_where_they_were(
    move: Move, tmp_path: Path, full: bool
) -> None:
    """Memory, processes and disk; the running source goes on meanwhile."""
    async with Sandbox(image="debian", name="box") as sb:
        digest = await write_random(sb, "/root/data", 1)
        await say(sb, f"setsid {COUNTER} >/dev/null 2>&1 & sleep 1; echo secret > /run/memory")
        await sb.checkpoint("first")
        await say(sb, "rm /root/data; sync")
        await sb.checkpoint("second")
        told = await saves.export("box", tmp_path / "box", tree=True, full=full, compress=True)
        machine_id = await say(sb, "cat /etc/machine-id")
        assert told.checkpoints == 2
        assert await say(sb, "cat /run/memory") == "secret"
    move(images=not full)
    imported = await saves.import_(tmp_path / "box", name="moved")
    assert imported.notes == (), "it can be gone on from here"
    sandbox = Sandbox.open("moved")
    try:
        await sandbox.start(at="first")
        assert await say(sandbox, "sha256sum < /root/data") == digest
        assert await say(sandbox, "cat /run/memory") == "secret"
        count = int(await say(sandbox, "wc -l < /run/count"))
        assert int(await say(sandbox, "sleep 1; wc -l < /run/count")) > count
        assert await say(sandbox, "cat /etc/machine-id") != machine_id
        tags = [checkpoint.tag for checkpoint in sandbox.checkpoints()]
        assert tags[:2] == ["first", "second"]
        await sandbox.revert("second")
        assert await say(sandbox, "ls /root/data 2>/dev/null || echo gone") == "gone"
        await sandbox.checkpoint("third")
        await say(sandbox, "echo left > /root/left; sync")
    finally:
        await sandbox.kill()
        sandbox.close()
    # And on to the next home, stopped this time: the disk as it is goes along.
    await saves.export("moved", tmp_path / "again", tree=True)
    home = move(images=True)
    await saves.import_(tmp_path / "again")
    assert file_of_stopped(home, Sandbox.open("moved"), "/root/left") == b"left\n"


@pytest.mark.soak
async def test_a_checkpoint_of_qemus_own_kind_moves_too(move: Move, tmp_path: Path) -> None:
    async with Sandbox(image="debian", name="box") as sb:
        await say(sb, "echo secret > /run/memory")
        await sb.checkpoint("one", tier="internal")
        await saves.export("box", tmp_path / "box", tree=True)
    move(images=True)
    await saves.import_(tmp_path / "box")
    sandbox = Sandbox.open("box")
    try:
        await sandbox.start(at="one")
        assert await say(sandbox, "cat /run/memory") == "secret"
    finally:
        await sandbox.kill()
        sandbox.close()


async def test_a_sandbox_starts_from_a_save_in_a_bundle_and_the_bundle_can_be_imported(
    move: Move, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with Sandbox(image="debian") as sb:
        await say(sb, "echo here > /root/file")
        await sb.save("env")
    await saves.export("env", tmp_path / "env.quicksand", full=True)
    home = move()
    stages: list[str] = []
    async with Sandbox(
        image=str(tmp_path / "env.quicksand"),
        progress_callback=lambda stage, *_: stages.append(stage),
    ) as sb:
        assert await say(sb, "cat /root/file") == "here"
    assert {stage for stage in stages if "unpacking" in stage} == {"unpacking env.quicksand"}
    assert ImageStore(home.images).get("debian") is None
    imported = await saves.import_(tmp_path / "env.quicksand")
    assert not imported.image_added, "the start has unpacked it"
    assert (await saves.verify("env", deep=True)).problems == {}


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_a_sandbox_starts_from_an_image_in_a_bundle(
    move: Move, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "base.quicksand"
    await saves.export("debian", file, image=True)
    home = move()
    async with Sandbox(image=str(file), name="box") as sb:
        (image,) = ImageStore(home.images).unpacked()
        assert sb.config.image == image.versioned
        await say(sb, "echo here > /root/file")
        await sb.save("mine")
        (clone,) = await sb.clone()
        await clone.kill()
    async with Sandbox(image="mine") as sb:
        assert await say(sb, "cat /root/file") == "here"
    assert ImageStore(home.images).get("debian") is None
