"""The records of an image in a real ext4 file system, read back with debugfs."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from quicksand.base.errors import DiskSpaceError, HostError, ImageError
from quicksand.base.threads import Stopped
from quicksand.base.tools import run_tool
from quicksand_images import disk
from quicksand_images.disk import require_filesystem_tools
from quicksand_images.oci import broken_names, writing
from quicksand_images.oci.ext4 import command_line, quoted
from quicksand_images.oci.layers import LayerWriter
from quicksand_images.oci.readback import require_written
from quicksand_images.oci.tar import Kind
from quicksand_images.oci.tree import Node, Tree
from quicksand_images.oci.writing import planned_size, write_ext4
from quicksand_images.toolbox import Tool

from tests.container_images import Entry, directory, file, hardlink, sha256, symlink, tar
from tests.debugfs import list_tree
from tests.each import each

Tools = tuple[Tool, Tool]
UUID_7 = UUID(int=7)


@pytest.fixture
async def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    monkeypatch.setattr(writing, "SIZE_MIN", 1024**2 * 64)
    monkeypatch.setattr(writing, "_STEP", 1024**2 * 64)
    place = tmp_path / "tools"
    place.mkdir()
    return await require_filesystem_tools(place)


async def write(tmp_path: Path, tools: Tools, data: bytes, number: int = 0) -> tuple[Tree, Path]:
    from quicksand_images.oci.layers import Blob

    place = tmp_path / f"content{number}"
    place.mkdir()
    layer = tmp_path / f"layer{number}"
    layer.write_bytes(data)
    writer = LayerWriter(place)
    writer.apply(Blob(path=layer, offset=0, size=len(data)), sha256(data), "the layer")
    target = tmp_path / f"disk{number}.raw"
    await write_ext4(
        writer.tree, tmp_path / f"tree{number}", target, makers=tools, uuid=UUID_7, epoch=1000
    )
    return writer.tree, target


def ask(tools: Tools, disk: Path, command: str) -> str:
    argv = [*tools[1].command, "-R", command, str(disk)]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


WEIRD = 'a "quoted" \\ name $(x) \t é'

LAYER = tar(
    directory("etc", 0o750, uid=5, gid=70_000),
    file("etc/secret", b"x" * 10_000, mode=0o4000, uid=4_000_000_000, gid=7, mtime=77),
    file("none", mode=0),
    directory("locked", 0),
    file("locked/in", b"y"),
    hardlink("again", "etc/secret"),
    symlink("l", "/outside/" + "x" * 200),
    symlink("short", "b"),
    Entry(name="d/char", type=b"3", device=(1, 3), mode=0o666, uid=9),
    Entry(name="d/block", type=b"4", device=(259, 7_000), mode=0o600),
    Entry(name="fifo", type=b"6", mode=0o622),
    file(WEIRD + "/" + WEIRD, b"z"),
    Entry(name=f"d/{WEIRD}", type=b"3", device=(1, 5)),
    file(
        "ping",
        b"p",
        pax={"SCHILY.xattr.security.capability": "\1\0\0\2\0\x20", "SCHILY.xattr.user.a": "b c"},
    ),
)


async def test_files_have_all_that_their_layers_say(tmp_path: Path, tools: Tools) -> None:
    tree, raw = await write(tmp_path, tools, LAYER)
    found = await list_tree(raw, tools[1])
    assert found["/etc/secret"].mode == 0o104000
    assert (found["/etc/secret"].uid, found["/etc/secret"].gid) == (4_000_000_000, 7)
    assert (found["/etc"].mode, found["/etc"].gid) == (0o040750, 70_000)
    assert (found["/none"].mode, found["/locked"].mode) == (0o100000, 0o040000)
    assert (found["/d/char"].mode, found["/d/char"].uid) == (0o020666, 9)
    assert (found["/d/block"].mode, found["/fifo"].mode) == (0o060600, 0o010622)
    assert found[f"/{WEIRD}/{WEIRD}"].size == 1
    assert f"/d/{WEIRD}" in found
    assert "Links: 2" in ask(tools, raw, "stat /again")
    assert "x" * 200 in ask(tools, raw, "cat /l")
    assert "0x0000004d" in ask(tools, raw, "stat /etc/secret")  # mtime=77
    assert "259:7000" in ask(tools, raw, "stat /d/block").replace("(New-style) ", "")
    listed = ask(tools, raw, "ea_list /ping")
    assert "security.capability (6) = 01 00 00 02 00 20" in listed
    assert 'user.a (3) = "b c"' in listed
    assert planned_size(tree) == raw.stat().st_size


async def test_the_file_system_is_sound_and_the_same_each_time(
    tmp_path: Path, tools: Tools
) -> None:
    _, first = await write(tmp_path, tools, LAYER, 1)
    _, second = await write(tmp_path, tools, LAYER, 2)
    assert first.read_bytes() == second.read_bytes()
    checker = Path(tools[0].command[0]).with_name("e2fsck")
    done = subprocess.run([checker, "-fn", str(first)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


async def test_names_may_have_line_breaks(tmp_path: Path, tools: Tools) -> None:
    """None of them becomes a command of debugfs, which takes those as lines."""
    names = ["a\nb", "a_b", "\n", "d\n/\ndump /secret /tmp/x\n", "d\n/c/\n\n", "d\n/plain"]
    layer = tar(
        *(file(name, b"x", mode=0o640, uid=7) for name in names),
        *(file(f"many/{number}\n", mode=0o600) for number in range(300)),
        Entry(name="d\n/null\n", type=b"3", device=(1, 3)),
        directory("d\n", 0o700, uid=9),
        symlink("l\n", "d\n/c"),
        hardlink("h\n", "a\nb"),
    )
    tree, raw = await write(tmp_path, tools, layer)  # which compares what is there
    assert {"a\nb", "a_b", "\n", "d\n", "l\n", "h\n"} <= set(tree.root.children)
    checker = Path(tools[0].command[0]).with_name("e2fsck")
    done = subprocess.run([checker, "-fn", str(raw)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


async def test_what_did_not_get_into_the_file_system_is_an_error(
    tmp_path: Path, tools: Tools
) -> None:
    tree, raw = await write(tmp_path, tools, LAYER)
    require_written(tree, raw)
    none = tree.find("/none")
    assert none is not None
    none.mode = 0o644
    with pytest.raises(HostError, match="'/none' did not get"):
        require_written(tree, raw)
    none.mode = 0
    tree.root.children["more"] = Node(Kind.FILE)
    with pytest.raises(HostError, match="'/more' did not get"):
        require_written(tree, raw)
    del tree.root.children["more"], tree.root.children["none"]
    with pytest.raises(HostError, match="1 files too many, such as '/none'"):
        require_written(tree, raw)


async def test_names_of_any_length_get_into_the_file_system(tmp_path: Path, tools: Tools) -> None:
    quotes, deep = '"' * 255, "/".join("d" * 250 for _ in range(11))
    layer = tar(
        Entry(name=f"{quotes}/{quotes}/{quotes}", type=b"3", device=(1, 3), uid=7),
        file(f"{deep}/f", mode=0o4711, uid=9, pax={"SCHILY.xattr.user." + "n" * 200: "x"}),
        Entry(name=f"{deep}/null", type=b"3", device=(1, 3)),
    )
    _, raw = await write(tmp_path, tools, layer)
    found = await list_tree(raw, tools[1])
    assert (found[f"/{deep}/f"].mode, found[f"/{deep}/f"].uid) == (0o104711, 9)


async def test_a_hard_link_that_became_a_file_of_its_own_is_an_error(
    tmp_path: Path, tools: Tools
) -> None:
    tree, raw = await write(tmp_path, tools, tar(file("one", b"x"), file("two", b"x")))
    tree.root.children["two"] = tree.root.children["one"]
    with pytest.raises(HostError, match="hard link '/two' did not get"):
        require_written(tree, raw)


@pytest.mark.parametrize(
    ("path", "field", "other"),
    [
        ("/l", "target", "/outside/" + "y" * 200),
        ("/short", "target", "c"),
        ("/d/char", "device", (1, 4)),
        ("/d/block", "device", (259, 7_001)),
        ("/ping", "xattrs", {"security.capability": b"\1", "user.a": b"b c"}),
        ("/ping", "xattrs", {"user.a": b"b c"}),
        ("/none", "xattrs", {"user.a": b"b c"}),
        ("/etc", "xattrs", {"user.a": b"b c"}),
    ],
)
async def test_a_link_a_device_or_an_xattr_that_is_another_one_is_an_error(
    tmp_path: Path, tools: Tools, path: str, field: str, other: Any
) -> None:
    tree, raw = await write(tmp_path, tools, LAYER)
    node = tree.find(path, last=False)
    assert node is not None
    before = getattr(node, field)
    setattr(node, field, other)
    with pytest.raises(HostError, match=f"'{path}' did not get into the file system: it has "):
        require_written(tree, raw)
    setattr(node, field, before)
    require_written(tree, raw)


async def test_a_link_cannot_give_a_command_to_the_program_that_writes_the_file_system(
    tmp_path: Path, tools: Tools
) -> None:
    secret = tmp_path / "written"
    layer = tar(file("p", b"x"), symlink("l", f"a\ndump /p {secret}\nb"), directory("l/x"))
    tree, _ = await write(tmp_path, tools, layer)
    assert tree.find("/l/x") is not None
    assert not secret.exists()


async def test_too_many_names_with_line_breaks_are_refused(tmp_path: Path, tools: Tools) -> None:
    layer = tar(*(file(f"{number}\n") for number in range(broken_names.NAMES_MAX + 1)))
    with pytest.raises(ImageError, match="line breaks"):
        await write(tmp_path, tools, layer)


@each("name", ["a\ndump /p /x\nb", "a\0b"])
def test_a_record_whose_name_would_be_a_command_is_an_error(tmp_path: Path, name: str) -> None:
    tree = Tree()
    tree.root.children[name] = Node(Kind.DIRECTORY)
    with pytest.raises(HostError, match="debugfs"):
        list(map(command_line, writing.plan_commands(tree, 0)))


async def test_writing_ends_soon_after_a_cancellation(
    tmp_path: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, goes_on, laid_out = threading.Event(), threading.Event(), writing.lay_out

    def slowly(tree: Tree, place: Path, stop: Callable[[], None]) -> None:
        def wait() -> None:
            began.set()
            goes_on.wait(60)
            stop()

        laid_out(tree, place, wait)

    monkeypatch.setattr(writing, "lay_out", slowly)
    tree = Tree()
    for number in range(100):
        tree.root.children[str(number)] = Node(Kind.DIRECTORY)
    target = tmp_path / "disk.raw"
    writes = asyncio.create_task(
        write_ext4(tree, tmp_path / "tree", target, makers=tools, uuid=UUID_7, epoch=1)
    )
    assert await asyncio.to_thread(began.wait, 60)
    writes.cancel()
    await asyncio.sleep(0)  # it hears of it
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await writes
    assert not list((tmp_path / "tree").glob("*"))
    with pytest.raises(Stopped):
        disk._write_lines(tmp_path / "c", [b"quit"], stopped)


def stopped() -> None:
    raise Stopped


def test_a_command_that_would_be_read_as_two_is_an_error() -> None:
    assert command_line(f"ls {quoted('a' * 900)}").endswith(b"\n")
    for bad in ("ls " + quoted('"' * 500), "ls a\nquit"):
        with pytest.raises(HostError, match="debugfs"):
            command_line(bad)


def test_a_file_system_has_room_for_many_small_files(tmp_path: Path) -> None:
    tree = Tree()
    assert planned_size(tree) == writing.SIZE_MIN
    tree.root.children = {str(number): Node(Kind.FILE, size=1) for number in range(400_000)}
    assert planned_size(tree) == 13 * 1024**3
    tree.root.children = {"large": Node(Kind.FILE, size=10 * 1024**3)}
    assert planned_size(tree) == 21 * 1024**3


def test_a_file_with_many_names_takes_its_room_once() -> None:
    tree, node = Tree(), Node(Kind.FILE, size=10 * 1024**3)
    tree.root.children = {str(number): node for number in range(50_000)}
    assert planned_size(tree) == 21 * 1024**3


async def test_a_host_without_room_for_the_file_system_is_said_so_before_it_is_made(
    tmp_path: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(root: Path, need: int = 0) -> None:
        if need > 50_000:
            raise DiskSpaceError(f"no room for {need}")

    monkeypatch.setattr(writing, "check_space", full)
    await write(tmp_path, tools, tar(file("a", b"x" * 8192)), 1)
    with pytest.raises(DiskSpaceError, match="no room for"):
        await write(tmp_path, tools, tar(file("a", b"x" * 30_000)), 2)
    assert not (tmp_path / "disk2.raw").exists()


async def test_the_program_that_writes_the_file_system_is_heard_only_with_its_errors(
    tmp_path: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    async def heard(argv: list[str], **more: Any) -> str:
        said.append(await run_tool(argv, **more))
        return said[-1]

    monkeypatch.setattr(disk, "run_tool", heard)
    layer = tar(*(file(f"a{number}") for number in range(100)))
    await write(tmp_path, tools, layer, 1)
    assert "set_inode_field" not in said[-1]

    def bad(*_: object) -> list[str]:
        return [f"set_inode_field /no{number} mode 0" for number in range(1000)]

    monkeypatch.setattr(writing, "plan_commands", bad)
    with pytest.raises(HostError, match=r"did not get into(.|\n)*debugfs says:(.|\n)*not found"):
        await write(tmp_path, tools, layer, 2)
    assert len(said[-1].split("\n")) < 100
