"""What one side does is seen on the other."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from quicksand import Sandbox
from quicksand.base.errors import ConfigError, MountError

from tests.conftest import Patience, wait_for
from tests.integration.mounts.shared.conftest import ROOT, WORK, Both

pytestmark = pytest.mark.vm

SOON_S = 3.0
"""The guest may go by what it has for a second; the rest is for a busy host."""


async def until(find: Callable[[], Awaitable[str]], wanted: str) -> None:
    """Wait until the guest sees something."""
    patience = Patience(SOON_S)
    while True:
        is_late = patience.is_over()
        if (found := await find()) == wanted:
            return
        assert not is_late, f"{found!r} instead of {wanted!r}"
        await asyncio.sleep(0.05)


async def test_bytes_are_the_same_on_both_sides(both: Both) -> None:
    data = os.urandom(3_000_001)
    (both.host / "from-host").write_bytes(data)
    assert await both.vm.files.read(f"{both.guest}/from-host") == data
    await both.vm.files.write(f"{both.guest}/from-guest", data, mode=0o640)
    assert (both.host / "from-guest").read_bytes() == data
    assert (both.host / "from-guest").stat().st_mode & 0o7777 == 0o640


async def test_what_the_host_changes_the_guest_sees_soon(both: Both) -> None:
    file = both.host / "f"
    file.write_text("first\n")

    def see(command: str) -> Callable[[], Awaitable[str]]:
        async def ask() -> str:
            return await both.run(f"({command}) 2>&1 || true")

        return ask

    await until(see("cat f"), "first")
    file.write_text("other\n")  # of the same size
    await until(see("cat f"), "other")
    file.chmod(0o600)
    await until(see("stat -c %a f"), "600")
    (both.host / "g").write_text("new file\n")
    os.replace(both.host / "g", file)
    await until(see("cat f"), "new file")
    with file.open("a") as appended:
        appended.write("more\n")
    await until(see("cat f"), "new file\nmore")
    file.rename(both.host / "h")
    await until(see("ls"), "h")
    (both.host / "h").unlink()
    (both.host / "sub").mkdir()
    (both.host / "sub" / "x").touch()
    await until(see("ls; ls sub"), "sub\nx")
    (both.host / "sub" / "x").unlink()
    await until(see("ls sub"), "")


async def test_a_second_look_at_a_tree_asks_nothing_until_something_changes(both: Both) -> None:
    for number in range(300):
        file = both.host / f"d{number // 50}" / f"f{number}"
        file.parent.mkdir(exist_ok=True)
        file.touch()

    async def sent() -> int:
        stats = (await both.vm.execute("cat /proc/fs/cifs/Stats")).stdout
        return sum(map(int, re.findall(r"^SMBs: (\d+)", stats, re.MULTILINE)))

    async def look() -> str:
        # What the client knows of a file by itself it believes for a second.
        command = f"sleep 1.5; find {both.guest} -type f -newermt 2001-01-01 | wc -l"
        return (await both.vm.execute(command)).stdout.strip()

    assert await look() == "300"
    # What the client has read within the same tick of its clock as it has opened the directory, it
    # asks for once more (`cifs_inode_needs_reval` in fs/smb/client/inode.c).
    assert await look() == "300"
    before = await sent()
    assert await look() == "300"
    assert await sent() - before < 30
    os.utime(both.host / "d3" / "f170", (1, 1))
    (both.host / "d4" / "new").touch()
    (both.host / "d5" / "f299").unlink()
    (both.host / "d1").rename(both.host / "was")
    (both.host / "d1").mkdir()
    assert await look() == "299"
    listed = await both.vm.execute(f"ls {both.guest}/d1; ls {both.guest}/was | wc -l")
    assert listed.stdout.split() == ["50"]


async def test_directories_that_the_host_moves_cost_no_file_its_number(both: Both) -> None:
    """Linux gives up all numbers of a mount when one directory seems to be at two places
    (`cifs_iget` in fs/smb/client/inode.c): then names of one file are several."""

    async def numbers(where: str) -> list[int]:
        return [int(one) for one in (await both.run(f"stat -c %i {where}/f {where}/g")).split()]

    (both.host / "a" / "below").mkdir(parents=True)
    (both.host / "a" / "f").touch()
    (both.host / "a" / "g").hardlink_to(both.host / "a" / "f")
    inode = (both.host / "a" / "f").stat().st_ino
    assert await numbers("a") == [inode, inode]
    (both.host / "a").rename(both.host / "looked-up")
    assert await numbers("looked-up") == [inode, inode]
    (both.host / "looked-up").rename(both.host / "listed")
    await both.run("ls -lR . > /dev/null")
    assert await numbers("listed") == [inode, inode]
    await both.run("mv listed own && ls -lR . > /dev/null")
    (both.host / "own").rename(both.host / "listed")
    await both.run("ls -lR . > /dev/null")
    assert await numbers("listed") == [inode, inode]
    for number in range(5):  # most file systems give one inode again and again
        (both.host / f"new-{number}" / "below").mkdir(parents=True)
        await both.run("ls -lR . > /dev/null")
        (both.host / f"new-{number}" / "below").rmdir()
        (both.host / f"new-{number}").rmdir()
    await both.run("mkdir of-guest")
    assert int(await both.run("stat -c %i of-guest")) == (both.host / "of-guest").stat().st_ino
    mounts = (await both.vm.execute("cat /proc/mounts")).stdout.splitlines()
    (options,) = [one.split()[3] for one in mounts if one.split()[1] == f"{ROOT}{WORK}"]
    assert "serverino" in options.split(",")


async def test_the_guest_sees_at_once_what_it_has_changed_itself(both: Both) -> None:
    steps = (
        "mkdir o; touch o/a; ls o",
        "ls o; touch o/b; ls o",
        "rm o/a; ls o",
        "mv o/b o/c; ls o",
        "mv o p; mkdir o; ls o; ls p",
        "touch p/z; ls p",
        "rm -r p; ls",
    )
    seen = [(await both.run(step)).split() for step in steps]
    assert seen == [["a"], ["a", "a", "b"], ["b"], ["c"], ["c"], ["c", "z"], ["o"]]


async def test_times_are_the_same_on_both_sides(both: Both) -> None:
    await both.run("touch -d '2001-02-03 04:05:06.789012300' f && touch now")
    wanted = int(await both.run("date -d '2001-02-03 04:05:06' +%s")) * 10**9 + 789012300
    assert (both.host / "f").stat().st_mtime_ns == wanted
    assert abs((both.host / "now").stat().st_mtime - time.time()) < 60
    os.utime(both.host / "f", ns=(10**18, 10**18 + 123_456_700))
    await until(lambda: both.run("stat -c %.9Y f"), "1000000000.123456700")


async def test_a_time_of_change_is_the_same_whether_a_file_was_listed_or_asked_for(
    both: Both,
) -> None:
    """Git reads each file anew whose time of change is another than it was."""
    file = both.host / "f"
    file.touch()
    born = file.stat().st_ctime

    def is_changed_later() -> bool:
        file.chmod(0o600)
        return file.stat().st_ctime > born

    wait_for(is_changed_later, what="a later time of change")
    seconds, nanoseconds = divmod(file.stat().st_ctime_ns // 100 * 100, 10**9)
    seen = await both.run(f"ls -U > /dev/null; stat -c %.9Z f; sleep {SOON_S}; stat -c %.9Z f")
    assert seen.split() == [f"{seconds}.{nanoseconds:09}"] * 2


async def test_names_that_only_the_host_can_make_are_of_use(both: Both) -> None:
    for number, name in enumerate((b"\xff\xfe", b"caf\xe9", b"a\xc3", b"\xef\x80\xba")):
        (both.host / os.fsdecode(name)).write_text(f"{number}")
    assert len((await both.run("ls -U")).splitlines()) == 4
    texts = await both.run('for f in *; do cat "$f"; echo; done')
    assert sorted(texts.split()) == ["0", "1", "2", "3"]
    await both.run('for f in *; do mv "$f" "$f-moved"; done')
    moved = {os.fsencode(name) for name in os.listdir(both.host)}
    assert b"caf\xe9-moved" in moved
    await both.run("rm ./*")
    assert os.listdir(both.host) == []


async def test_what_is_special_on_the_host_harms_nobody(both: Both) -> None:
    os.mkfifo(both.host / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(both.host / "socket"))
    (both.host / "out").symlink_to("/etc/hostname")
    (both.host / "up").symlink_to("../..")
    kinds = (await both.run("stat -c '%n %F' *")).splitlines()
    assert kinds == ["fifo fifo", "out symbolic link", "socket socket", "up symbolic link"]
    # Followed by the guest, in the guest.
    assert await both.run("readlink out; test -e up/etc || echo no") == "/etc/hostname\nno"
    await both.run("rm fifo out socket up")
    assert Path("/etc/hostname").exists()
    assert os.listdir(both.host) == []


@pytest.fixture
async def read_only(both: Both, tmp_path: Path) -> AsyncIterator[Path]:
    """A directory that the guest has at /mnt/ro, read-only."""
    (tmp_path / "f").write_text("kept")
    (tmp_path / "d").mkdir()
    handle = await both.vm.mount(tmp_path, "/mnt/ro", readonly=True)
    yield tmp_path
    await both.vm.unmount(handle, force=True)


WRITES = (
    "echo x > f", "echo x >> f", "echo x > new", "rm f", "mkdir new", "rmdir d", "mv f g",
    "ln f g", "ln -s f g", "chmod 777 f", "touch f", "truncate -s 0 f", "mkfifo p",
    "python3 -c \"import os; os.setxattr('f', 'user.a', b'b')\"",
)  # fmt: skip


async def test_read_only_is_so_for_root_who_remounts_it_too(both: Both, read_only: Path) -> None:
    tried = "\n".join(f"({command}) && echo {shlex.quote(command)}" for command in WRITES)
    for remount in ("", "mount -o remount,rw /mnt/ro"):
        result = await both.vm.execute(f"{remount}\ncd /mnt/ro || echo none\n{tried}")
        assert result.stdout == "", "was done"
    assert sorted(os.listdir(read_only)) == ["d", "f"]
    assert (read_only / "f").read_text() == "kept"
    assert (read_only / "f").stat().st_mode & 0o777 == 0o644
    assert (await both.vm.execute("cat /mnt/ro/f")).stdout == "kept"


async def test_what_is_in_use_stays_unless_by_force(both: Both, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    handle = await both.vm.mount(tmp_path, "/mnt/used")
    process = await both.vm.spawn("cd /mnt/used && exec sleep 1000")
    async with asyncio.timeout(60):
        while (await both.vm.execute("ls -l /proc/*/cwd | grep -q /mnt/used")).exit_code:
            await asyncio.sleep(0.05)
    with pytest.raises(MountError, match="in use"):
        await both.vm.unmount(handle)
    assert (await both.vm.execute("cat /mnt/used/f")).stdout == "x"
    await both.vm.unmount(handle, force=True)
    assert not any(one.guest == "/mnt/used" for one in both.vm.active_mounts)
    assert (await both.vm.execute("cat /mnt/used/f")).exit_code != 0
    await process.cancel()
    again = await both.vm.mount(tmp_path, "/mnt/used")
    with pytest.raises(ConfigError, match="already"):
        await both.vm.mount(tmp_path, "/mnt/used")
    await both.vm.unmount(again)


async def test_what_cannot_be_mounted_says_so(both: Both, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for wrong in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(MountError, match=wrong.name):
            await both.vm.mount(wrong, "/mnt/wrong")
    for guest in ("/proc/x", "relative", "/", "/mnt/../etc"):
        with pytest.raises(ConfigError):
            await both.vm.mount(tmp_path, guest)
    await both.run("touch /tmp/file")
    with pytest.raises(MountError):
        await both.vm.mount(tmp_path, f"{ROOT}/tmp/file")
    assert Sandbox.attach(both.vm.name).active_mounts == both.vm.active_mounts
