"""Files of this host into a guest."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import AgentRefusedError
from quicksand.guest.agent.extents import Extent
from quicksand.guest.guest_files import GuestFile

from quicksand_tui.cli.guests import transfer as outgoing
from quicksand_tui.cli.guests.transfer import Tally, TransferError
from tests.unit.cli.test_incoming import entry

MIB = 1024 * 1024


GuestFiles: Any = object
"""Takes its place: what stands for it here has only what is used."""


class FakeFiles(GuestFiles):  # type: ignore[misc]
    """A guest's files in memory: path -> (kind, mode, content)."""

    can_link = True

    def __init__(self, *directories: str) -> None:
        self.made: dict[str, tuple[str, int, bytes]] = dict.fromkeys(directories, ("dir", 493, b""))
        self.times: dict[str, int] = {}
        self.links: dict[str, str] = {}
        self.data_bytes = 0

    async def write(self, path: str, content: AsyncIterable[bytes]) -> int:
        raise NotImplementedError

    async def write_extents(
        self, path: str, content: AsyncIterable[Extent], *, mode: int, mtime_ns: int
    ) -> int:
        data = bytearray()
        async for extent in content:
            data += bytes(extent.offset - len(data)) + extent.data
            self.data_bytes += len(extent.data)
        self.made[path] = ("file", mode, bytes(data))
        self.times[path] = mtime_ns
        return len(data)

    async def link(self, path: str, existing: str, *, follow: bool) -> None:
        if not self.can_link:
            raise AgentRefusedError("no such method", code="no_such_method")
        self.made[path] = self.made[existing]
        self.links[path] = existing

    async def set_mtime(self, path: str, mtime_ns: int) -> None:
        self.times[path] = mtime_ns

    async def stat(self, path: str, *, follow: bool = True) -> GuestFile:
        if path.rstrip("/") not in self.made:
            raise AgentRefusedError(f"{path}: not there", code="not_found")
        return entry(path, self.made[path.rstrip("/")][0])

    async def mkdir(self, path: str, *, mode: int = 0o755, exist_ok: bool = False) -> None:
        if path in self.made and not (exist_ok and self.made[path][0] == "dir"):
            raise AgentRefusedError(f"{path} exists", code="exists")
        self.made.setdefault(path, ("dir", mode, b""))

    async def symlink(self, path: str, target: str, *, mtime_ns: int) -> None:
        if path in self.made:
            raise AgentRefusedError(f"{path} exists", code="exists")
        self.times[path] = mtime_ns
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


async def test_times_arrive_and_a_directory_that_was_there_keeps_its_own(tree: Path) -> None:
    times = {
        tree: 3,
        tree / "file": 1_234_567_890_123_456_789,
        tree / "inner": -1,
        tree / "link": 5,
    }
    for path, time_ns in times.items():
        os.utime(path, ns=(0, time_ns), follow_symlinks=False)
    files = FakeFiles("/root", "/root/tree/inner")
    await send(files, str(tree), "/root")
    expected = {
        f"/root/{path.relative_to(tree.parent)}": time_ns for path, time_ns in times.items()
    }
    del expected["/root/tree/inner"]
    assert {path: files.times.get(path) for path in expected} == expected
    assert "/root/tree/inner" not in files.times
    # The last one: what is made in a directory changes it.
    assert list(files.times)[-1] == "/root/tree"


@pytest.mark.parametrize("can_link", [True, False])
async def test_hard_links_stay_so_where_the_guest_can_make_them(can_link: bool, tree: Path) -> None:
    os.link(tree / "file", tree / "inner" / "again")
    os.link(tree / "link", tree / "z", follow_symlinks=False)
    files = FakeFiles("/root")
    files.can_link = can_link
    tally = await send(files, str(tree), "/root")
    links = {"/root/tree/inner/again": "/root/tree/file", "/root/tree/z": "/root/tree/link"}
    assert files.links == (links if can_link else {})
    assert tally.files == 5
    for path, existing in links.items():
        assert files.made[path] == files.made[existing]


async def test_holes_are_not_sent(tmp_path: Path) -> None:
    source = tmp_path / "sparse"
    with source.open("wb") as file:
        file.seek(5 * MIB)
        file.write(b"middle")
        file.truncate(50 * MIB)
    files = FakeFiles("/root")
    tally = await send(files, str(source), "/root")
    assert files.made["/root/sparse"][2] == source.read_bytes()
    assert files.data_bytes == tally.bytes <= MIB
    (tmp_path / "hole").touch()
    os.truncate(tmp_path / "hole", MIB)
    await send(files, str(tmp_path / "hole"), "/root")
    assert files.made["/root/hole"][2] == bytes(MIB)
    await send(files, "/proc/self/status", "/root")
    assert files.made["/root/status"][2].startswith(b"Name:")


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
