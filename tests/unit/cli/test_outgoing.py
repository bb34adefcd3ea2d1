"""Files of this host into a guest."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable
from pathlib import Path

import pytest
from quicksand.errors import AgentRefusedError
from quicksand.guest_files import GuestFile

from quicksand_tui.cli import transfer as outgoing
from quicksand_tui.cli.transfer import Tally, TransferError
from tests.unit.cli.test_incoming import entry


class FakeFiles:
    """A guest's files in memory: path -> (kind, mode, content)."""

    def __init__(self, *directories: str) -> None:
        self.made: dict[str, tuple[str, int, bytes]] = dict.fromkeys(directories, ("dir", 493, b""))

    async def write(
        self, path: str, content: AsyncIterable[bytes], *, mode: int | None = None
    ) -> int:
        data = b"".join([chunk async for chunk in content])
        self.made[path] = ("file", mode or 0, data)
        return len(data)

    async def stat(self, path: str, *, follow: bool = True) -> GuestFile:
        if path.rstrip("/") not in self.made:
            raise AgentRefusedError(f"{path}: not there", code="not_found")
        return entry(path, self.made[path.rstrip("/")][0])

    async def mkdir(self, path: str, *, mode: int = 0o755, exist_ok: bool = False) -> None:
        self.made.setdefault(path, ("dir", mode, b""))

    async def symlink(self, path: str, target: str) -> None:
        if path in self.made:
            raise AgentRefusedError(f"{path} exists", code="exists")
        self.made[path] = ("symlink", 0, os.fsencode(target))

    async def remove(self, path: str) -> None:
        del self.made[path]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory with one of each kind."""
    root = tmp_path / "tree"
    (root / "inner").mkdir(parents=True)
    (root / "inner").chmod(0o750)
    (root / "file").write_bytes(b"data")
    (root / "file").chmod(0o4755)
    (root / "link").symlink_to("./file//x/..")
    (root / "inner" / "loop").symlink_to("..")
    os.mkfifo(root / "pipe")
    return root


async def send(files: FakeFiles, source: str, target: str, *, follow: bool = False) -> Tally:
    tally = Tally()
    await outgoing.send(files, source, target, tally, follow=follow)
    return tally


async def test_a_tree_arrives_with_modes_and_links(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = FakeFiles("/root")
    tally = await send(files, str(tree), "/root")
    assert tally.failed == 1
    assert "pipe" in capsys.readouterr().err
    assert files.made == {
        "/root": ("dir", 0o755, b""),
        "/root/tree": ("dir", 0o755, b""),
        "/root/tree/file": ("file", 0o4755, b"data"),
        "/root/tree/inner": ("dir", 0o750, b""),
        "/root/tree/inner/loop": ("symlink", 0, b".."),
        "/root/tree/link": ("symlink", 0, b"./file//x/.."),
    }


@pytest.mark.parametrize(
    ("source", "target", "made"),
    [
        ("file", "/root", "/root/file"),
        ("file", "/root/", "/root/file"),
        ("file", "/root/other", "/root/other"),
        ("inner", "/root/new", "/root/new"),
        ("inner/..", "/root", "/root/tree/file"),
        (".", "/root/new", "/root/new/file"),
    ],
)
async def test_things_go_where_cp_would_put_them(
    source: str, target: str, made: str, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree)
    files = FakeFiles("/root")
    await send(files, source, target)
    assert made in files.made


async def test_a_link_is_replaced_a_directory_is_not(tree: Path) -> None:
    files = FakeFiles("/root")
    files.made["/root/l"] = ("symlink", 0, b"old")
    await send(files, str(tree / "link"), "/root/l")
    assert files.made["/root/l"][2] == b"./file//x/.."
    files.made["/root/d"] = ("dir", 0, b"")
    files.made["/root/d/link"] = ("dir", 0, b"")
    with pytest.raises(AgentRefusedError):
        await send(files, str(tree / "link"), "/root/d")


async def test_a_named_link_can_be_followed(tree: Path) -> None:
    (tree / "good").symlink_to("file")
    files = FakeFiles("/root")
    await send(files, str(tree / "good"), "/root", follow=True)
    assert files.made["/root/good"] == ("file", 0o4755, b"data")


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("nothing", "/root", "nothing: No such file"),
        ("file", "/nowhere/", "not a directory of the sandbox"),
        ("file/.", "/root", "file"),
    ],
)
async def test_what_cannot_be_copied_is_named(
    source: str, target: str, said: str, tree: Path
) -> None:
    with pytest.raises(TransferError, match=said):
        await send(FakeFiles("/root"), f"{tree}/{source}", target)
