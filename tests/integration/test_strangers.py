"""What lies where sandboxes are and is not ours: every command leaves it as it is."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import time
from pathlib import Path

import pytest
from quicksand.base.paths import Paths

from tests.conftest import wait_for

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("template")]

OLD = 60.0
"""Seconds: what is younger might be in the making."""


async def quicksand(*words: str) -> tuple[int, str]:
    """A command as its user calls it: exit code, all that it says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "quicksand_tui", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


def plant(root: Path) -> dict[str, str]:
    """A person's own directories, one of them with a name like ours; what is in them."""
    for name in ("thesis", "deadbeef0123", ".hidden"):
        (root / name).mkdir(parents=True)
        (root / name / "chapter").write_text(name)
        os.utime(root / name, (time.time() - OLD,) * 2)
    return contents(root)


def contents(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("chapter")}


async def test_strangers_beside_sandboxes_and_their_sockets_stay(places: Paths) -> None:
    places.runtime.mkdir(mode=0o755)
    planted = {root: plant(root) for root in (places.runtime, places.sandboxes)}
    places.sandboxes.chmod(0o755)
    code, said = await quicksand("doctor")
    assert code == 0
    for root in planted:
        for name in ("thesis", "deadbeef0123"):
            assert f"{root / name} is left alone: " in said
    assert (await quicksand("run", "debian", "--", "true"))[0] == 0
    assert (await quicksand("run", "debian", "--name", "a", "--detach"))[0] == 0
    assert (await quicksand("rm", "-f", "a"))[0] == 0
    assert (await quicksand("clean", "--dry-run"))[0] == 0
    for root, before in planted.items():
        assert contents(root) == before
        assert stat.S_IMODE(root.stat().st_mode) == 0o755
    for name in ("thesis", "deadbeef0123", ".hidden"):
        (places.runtime / name / "chapter").unlink()
        (places.runtime / name).rmdir()


async def test_a_link_that_somebody_planted_is_refused_by_name(
    places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another user of the host can, where the runtime directory is below /tmp."""
    before = plant(tmp_path / "victim")
    planted = tmp_path / "quicksand-0"
    planted.symlink_to(tmp_path / "victim")
    monkeypatch.setenv("QUICKSAND_RUNTIME_DIR", str(planted))
    code, said = await quicksand("run", "debian", "--", "true")
    assert code != 0
    assert f"{planted} cannot be used: it is a link" in said
    code, said = await quicksand("doctor")
    assert code == 1
    assert str(planted) in said
    await quicksand("clean", "--dry-run")
    assert contents(tmp_path / "victim") == before
    wait_for(lambda: not list(places.sandboxes.glob("[0-9a-f]*")), what="nothing to be left")


async def test_a_place_that_everybody_can_write_to_is_refused_and_not_changed(
    places: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("QUICKSAND_RUNTIME_DIR", str(shared))
    code, said = await quicksand("run", "debian", "--", "true")
    assert code != 0
    assert "can be written to by others (mode 777)" in said
    assert stat.S_IMODE(shared.stat().st_mode) == 0o777
