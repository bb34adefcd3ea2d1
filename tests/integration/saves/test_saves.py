"""Saves on real VMs: what was saved comes back, and nothing changes it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import shutil
from pathlib import Path

import pytest
from quicksand import Sandbox
from quicksand.base.errors import SaveError, SaveNotFoundError
from quicksand.base.paths import Paths, paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.saves.ownership import is_own
from quicksand.saves.save_places import HOUSE

from quicksand_tui.model.remedy_words import hint_of
from tests.integration.disks import file_of_save, file_of_stopped
from tests.integration.saves.conftest import digests

MIB = 1024 * 1024


async def say(sandbox: Sandbox, command: str) -> str:
    result = await sandbox.execute(command, timeout=120)
    assert result.exit_code == 0, result.stderr
    return result.stdout.strip()


async def write_random(sandbox: Sandbox, path: str, mib: int) -> str:
    """A file of random bytes; its digest."""
    await say(sandbox, f"head -c {mib}M /dev/urandom > {path}")
    return await say(sandbox, f"sha256sum < {path}")


async def test_progressive_saves_of_a_running_sandbox(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The specification's examples: saves in the current directory, by the names given."""
    monkeypatch.chdir(tmp_path)
    async with Sandbox(image="debian") as sb:
        await say(sb, "echo 1 > /root/base-tools")
        await sb.save("base-tools")
        await say(sb, "echo 2 > /root/python-env")
        manifest = await sb.save("python-env", note="with Python")
        assert await say(sb, "ls /root") == "base-tools\npython-env"
    assert (tmp_path / ".quicksand/sandboxes/base-tools/manifest.json").is_file()
    found = Sandbox.validate_save(".quicksand/sandboxes/python-env")
    assert (found.version, found.config.image, found.note) == (6, "debian", "with Python")
    assert found == manifest
    root = tmp_path / ".quicksand/sandboxes"
    assert file_of_save(root / "base-tools", "/root/base-tools") == b"1\n"
    assert file_of_save(root / "base-tools", "/root/python-env") is None
    assert file_of_save(root / "python-env", "/root/python-env") == b"2\n"


async def test_a_save_of_a_paused_sandbox_says_what_it_may_lack(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its guest cannot write out what it has in memory."""
    monkeypatch.chdir(tmp_path)
    async with Sandbox(image="debian", name="still") as sb:
        await sb.pause()
        assert (await sb.save("paused")).unsynced
        snapshot = await sb.snapshot(tmp_path / "disk.qcow2")
        assert snapshot.manifest.unsynced
        await sb.resume()
        assert not (await sb.save("running")).unsynced
    assert Sandbox.validate_save(".quicksand/sandboxes/paused").unsynced


async def test_a_save_on_stop_also_after_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError, match="boom"):
        async with Sandbox(image="debian", save="my-env") as sb:
            await say(sb, "echo kept > /root/file")
            raise RuntimeError("boom")
    async with Sandbox(image="my-env", save="my-env") as sb:
        assert await say(sb, "cat /root/file") == "kept"
        await say(sb, "echo again > /root/file")
    assert file_of_save(tmp_path / ".quicksand/sandboxes/my-env", "/root/file") == b"again\n"


@pytest.mark.parametrize(
    ("names", "mib"),
    [(["one", "two"], 2), pytest.param(["one", "two", "three"], 64, marks=pytest.mark.soak)],
    ids=["two", "three"],
)
async def test_generations_have_all_their_bytes(
    workspace: Path, names: list[str], mib: int
) -> None:
    sums: dict[str, str] = {}
    first: dict[str, str] = {}
    image = "debian"
    for generation in names:
        async with Sandbox(image=image, workspace=workspace) as sb:
            for name, known in sums.items():
                assert await say(sb, f"sha256sum < /root/{name}") == known
            sums[generation] = await write_random(sb, f"/root/{generation}", mib)
            manifest = await sb.save(generation)
        image = generation
        first = first or digests(workspace / "one")
    assert manifest.parent is not None
    assert manifest.parent.name == names[-2]
    assert digests(workspace / "one") == first
    for name, known in sums.items():
        data = file_of_save(workspace / names[-1], f"/root/{name}")
        assert data is not None and hashlib.sha256(data).hexdigest() == known.split()[0]
    oldest, newest = (
        {path.stat().st_ino for path in (workspace / name / "overlays").iterdir()}
        for name in (names[0], names[-1])
    )
    assert oldest < newest, "layers are shared, not copied"


async def test_saves_are_read_by_many_and_changed_by_nobody(places: Paths, workspace: Path) -> None:
    async with Sandbox(image="debian") as sb:
        secret = secrets.token_hex(8)
        await say(sb, f"echo {secret} > /root/file")
        await sb.save("env", workspace=workspace)
    store = workspace
    before = digests(store / "env")
    moved = shutil.copytree(store / "env", workspace / "elsewhere" / "other name")
    (store / "env").rename(store / "renamed")
    for path in (moved, *moved.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    async with (
        Sandbox(image="renamed", workspace=workspace, name="a") as a,
        Sandbox(image=str(moved), name="b", memory="384M") as b,
    ):
        for sandbox in (a, b):
            assert await say(sandbox, "cat /root/file") == secret
            await say(sandbox, "echo gone > /root/file; sync")
        names = [await say(x, "cat /etc/machine-id /etc/hostname") for x in (a, b)]
        assert names[0] != names[1]
        assert b.config.memory == "384M"
    assert digests(store / "renamed") == before
    assert digests(moved) == before
    for path in (moved, *moved.rglob("*")):
        path.chmod(0o755)  # from a directory that may not be written to only root can remove
    shutil.rmtree(workspace)
    # What began from a save needs it no more.
    assert file_of_stopped(places, Sandbox.open("a"), "/root/file") == b"gone\n"
    for name in ("a", "b"):
        Sandbox.open(name)._parts.life.registry.remove(Sandbox.open(name).id)


async def test_a_stopped_sandbox_is_saved_as_it_was_left(workspace: Path) -> None:
    sb = Sandbox(image="debian", name="box")
    await sb.start()
    await say(sb, "echo left > /root/file")
    await sb.stop()
    manifest = await sb.save("left", workspace=workspace)
    assert not manifest.frozen
    assert file_of_save(workspace / "left", "/root/file") == b"left\n"
    await sb.start()
    assert await say(sb, "cat /root/file") == "left"
    await sb.kill()


async def test_what_was_deleted_is_not_in_the_save(workspace: Path) -> None:
    """Of a cluster of the disk (64 KiB) that has something else as well, all is."""
    mark = secrets.token_hex(16)
    async with Sandbox(image="debian") as sb:
        await say(sb, f"yes {mark} | head -c 8M > /root/secret; sync")
        await say(sb, "head -c 24M /dev/urandom > /root/big; sync; rm /root/big /root/secret")
        manifest = await sb.save("clean", workspace=workspace)
    root = workspace / "clean"
    allocated = sum(path.stat().st_blocks * 512 for path in root.rglob("*.qcow2"))
    assert allocated < 12 * MIB
    left = sum(path.read_bytes().count(mark.encode()) for path in root.rglob("*.qcow2"))
    assert left * len(mark) < 2 * 64 * 1024
    assert manifest.layers is not None


async def test_checkpoints_stay_unless_told_otherwise(workspace: Path) -> None:
    async with Sandbox(image="debian", name="box") as sb:
        await say(sb, "echo 1 > /dev/shm/n; echo 1 > /root/n")
        await sb.checkpoint("one")
        await say(sb, "echo 2 > /dev/shm/n; echo 2 > /root/n")
        await sb.save("two", workspace=workspace)
        await sb.revert("one")
        assert await say(sb, "cat /dev/shm/n /root/n") == "1\n1"
        await sb.undo()
        assert await say(sb, "cat /dev/shm/n /root/n") == "2\n2"
        await sb.save("two", workspace=workspace, delete_checkpoints=True)
        assert sb.checkpoints() == []
        await sb.checkpoint("three")
        await say(sb, "echo 4 > /root/n")
        await sb.revert("three")
        assert await say(sb, "cat /dev/shm/n /root/n") == "2\n2"
    # A checkpoint seals layers, and has some in common with the save.
    assert is_own(workspace / "two", paths())


async def test_another_base_is_refused_by_name(places: Paths, workspace: Path) -> None:
    async with Sandbox(image="debian") as sb:
        await sb.save("env", workspace=workspace)
    path = workspace / "env" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["base"]["digest"] = "0" * 64
    path.write_text(json.dumps(manifest))
    have = ImageStore(places.images).get("debian")
    assert have is not None
    with pytest.raises(SaveError) as caught:
        await Sandbox(image="env", workspace=workspace).start()
    assert "000000000000" in str(caught.value)
    assert have.digest[:12] in str(caught.value)
    assert "--full" in hint_of(caught.value)
    manifest["base"]["name"] = "trixie"
    path.write_text(json.dumps(manifest))
    with pytest.raises(SaveError, match="trixie"):
        await Sandbox(image="env", workspace=workspace).start()
    assert Sandbox.list() == []


async def test_saves_of_the_published_packages(workspace: Path) -> None:
    """No list of layers, more than ten of them, options that we do not know."""
    async with Sandbox(image="debian") as sb:
        for number in range(12):
            await say(sb, f"echo {number} > /root/{number}")
            await sb.save("ours", workspace=workspace)
    root = workspace / "ours"
    manifest = json.loads((root / "manifest.json").read_text())
    plain = {name: manifest[name] for name in ("version", "config", "arch")}
    plain["config"]["mounts"] = []
    (root / "manifest.json").write_text(json.dumps(plain))
    assert len(list((root / "overlays").iterdir())) > 10
    before = digests(root)
    async with Sandbox(image="ours", workspace=workspace) as sb:
        assert await say(sb, "cat $(seq -f /root/%g 0 11) | tr '\\n' ' '") == " ".join(
            map(str, range(12))
        )
        await say(sb, "echo x > /root/0; sync")
    assert digests(root) == before
    plain["version"] = 7
    (root / "manifest.json").write_text(json.dumps(plain))
    with pytest.raises(ValueError, match="newer"):
        Sandbox(image="ours", workspace=workspace)
    with pytest.raises(FileNotFoundError):
        Sandbox.validate_save(workspace)


async def test_two_sandboxes_save_to_one_name(workspace: Path) -> None:
    async with Sandbox(image="debian") as a, Sandbox(image="debian") as b:
        for name, sandbox in (("a", a), ("b", b)):
            await say(sandbox, f"echo {name} > /root/name")
        await asyncio.gather(*(x.save("same", workspace=workspace) for x in (a, b) for _ in "12"))
        with pytest.raises(SaveError, match="already"):
            await a.save("same", workspace=workspace, replace=False)
    assert file_of_save(workspace / "same", "/root/name") in (b"a\n", b"b\n")
    assert {path.name for path in workspace.iterdir()} == {"same", HOUSE}
    assert {path.name for path in (workspace / HOUSE).iterdir()} == {".lock", ".trash"}
    assert len(list((workspace / HOUSE / ".trash").iterdir())) == 3


async def test_an_unknown_save_is_no_image(workspace: Path) -> None:
    with pytest.raises(RuntimeError, match=r"^Image not found"):
        await Sandbox(image="nothing-of-the-kind", workspace=workspace).start()
    with pytest.raises(SaveNotFoundError):
        Sandbox.validate_save(workspace / "nothing")
