"""Hosts that are set up oddly: a home with a line feed in its path, a umask that takes nothing
away, few descriptors."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand.base.paths import Paths, paths
from quicksand.records.registry import Registry

from tests.conftest import (
    PREFIX,
    everything_below,
    link_images,
    our_processes,
    share_findings,
    wait_for,
)

pytestmark = pytest.mark.vm

FEW = 256
"""Descriptors that a process may have open: what macOS gives."""


async def quicksand(*words: str, cwd: Path) -> str:
    """A command as its user calls it; all that it says."""
    odd = f'umask 000; ulimit -n {FEW}; exec "$@"'
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", odd, "sh", sys.executable, "-m", "quicksand_tui", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=cwd,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, (words, output.decode())
    return output.decode()


@pytest.fixture
def odd(prepared: Paths, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory whose path has a line feed, in which all places are."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as directory:
        root = Path(directory) / "o\nd"
        (root / "data").mkdir(parents=True, mode=0o700)
        (root / "data" / "qemu").symlink_to(prepared.data / "qemu")
        link_images(prepared.images, root / "data" / "images")
        (root / "cache").mkdir(mode=0o700)
        share_findings(prepared, root / "cache")
        for name in ("data", "run", "cache", "state", "memory"):
            monkeypatch.setenv(f"QUICKSAND_{name.upper()}_DIR", str(root / name))
        monkeypatch.setenv("QUICKSAND_RUNTIME_DIR", str(root / "run"))
        monkeypatch.setenv("QUICKSAND_TEMPLATES", "off")
        yield root
        wait_for(lambda: not our_processes(str(root)), what="its processes to end")


def open_to_others(root: Path) -> list[str]:
    """What other users may write to below a directory."""
    found = []
    for path in everything_below(root):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue  # a keeper is removing what has ended
        if not stat.S_ISLNK(mode) and mode & 0o022:
            found.append(f"{path.relative_to(root)} {stat.S_IMODE(mode):o}")
    return found


async def test_a_line_feed_no_umask_and_few_descriptors_are_in_nobodys_way(odd: Path) -> None:
    work = odd / "work"
    work.mkdir(mode=0o755)
    await quicksand("run", "debian", "-d", "--name", "a", cwd=work)
    await quicksand("exec", "a", "--", "sh", "-c", "echo before > /root/file", cwd=work)
    await quicksand("checkpoint", "a", "one", cwd=work)
    await quicksand("exec", "a", "--", "sh", "-c", "echo after > /root/file", cwd=work)
    await quicksand("revert", "a", "one", cwd=work)
    await quicksand("revert", "a", "one", cwd=work)
    assert await quicksand("exec", "a", "--", "cat", "/root/file", cwd=work) == "before\n"
    await quicksand("save", "a", "kept", cwd=work)
    await quicksand("save", "a", "small", "--compress", cwd=work)
    await quicksand("clone", "a", "--name", "b", cwd=work)
    told = json.loads(await quicksand("doctor", "--json", cwd=work))
    # Of all processes of this user: other tests may have some whose sandbox is gone.
    assert not [one for one in told if "gone" in one["found"] and odd.parent.name in one["found"]]
    registry = Registry(paths())
    assert registry.reap() == []
    assert {entry.status.value for entry in registry.list()} == {"running"}
    assert open_to_others(odd) == []
    await quicksand("rm", "-f", "a", "b", cwd=work)
    await quicksand("run", "kept", "--", "cat", "/root/file", cwd=work)
    assert open_to_others(odd) == []
