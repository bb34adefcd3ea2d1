"""Programs of the guest that watch a mounted directory (inotify) are told what the host changes."""

from __future__ import annotations

import asyncio
import os
import shlex
import struct
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from quicksand.guest.execution import Command
from quicksand_smb import kernel

from tests.conftest import wait_for
from tests.integration.mounts.shared.conftest import ROOT, WORK, Both

pytestmark = pytest.mark.vm

SOON_S = 60.0
IDLE_S = 1.5
ASKING = 500
"""Bytes that a client receives in that time if its agent asks; those of one that only asks whether
the server is there are a quarter of it."""
EVERYTHING = 0xFFF & ~0x31
"""Of inotify(7), but who opens, reads and closes."""


class Watcher:
    """A program in the guest that prints its events."""

    def __init__(self, process: Command) -> None:
        self._process = process
        self.lines: list[str] = []
        self._came = asyncio.Event()

    async def read(self) -> None:
        rest = b""
        async for _, data in self._process.output():
            *lines, rest = (rest + data).split(b"\n")
            self.lines += [line.decode() for line in lines]
            self._came.set()

    async def hears(self, line: str) -> None:
        """Wait until it has printed a line that ends so."""
        async with asyncio.timeout(SOON_S):
            while not any(one.endswith(line) for one in self.lines):
                self._came.clear()
                await self._came.wait()

    async def is_told_of(self, host: Path) -> None:
        """Wait until its watch is known on the host, which a change there proves, and until what
        was changed so is told."""
        async with asyncio.timeout(SOON_S):
            for number in range(10**6):
                (host / "probe").write_text(str(number))
                self._came.clear()
                if any("/probe " in line for line in self.lines):
                    break
                await asyncio.wait([asyncio.ensure_future(self._came.wait())], timeout=0.5)
        await self.is_told_once_more(host)

    async def is_told_once_more(self, host: Path) -> None:
        """By then all that was changed before has been told."""
        name = f"once-more-{len(self.lines)}"
        (host / name).touch()
        await self.hears(f"/{name} MODIFY")


@asynccontextmanager
async def watcher(both: Both, *paths: str, at: str = "") -> AsyncIterator[Watcher]:
    python = [sys._base_executable, "-I", "-S", "/tmp/watcher.py", *paths]  # type: ignore[attr-defined]
    script = f"cd {at or f'{WORK}/{both.name}'} && exec {shlex.join(python)}"
    process = await both.vm.spawn(["/usr/sbin/chroot", ROOT, "/bin/sh", "-c", script])
    async with process:
        found = Watcher(process)
        reading = asyncio.create_task(found.read())
        try:
            await found.hears("watching")
            yield found
        finally:
            reading.cancel()


class HostWatcher:
    """What the host's own programs are told of a directory."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = kernel.inotify()
        kernel.inotify_add(self._descriptor, os.fsencode(directory), EVERYTHING)

    def names(self) -> list[str]:
        """A name for each event since the last call."""
        found = []
        try:
            data = os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            return []
        while data:
            (length,) = struct.unpack_from("=12xI", data)
            found.append(data[16 : 16 + length].rstrip(b"\0").decode())
            data = data[16 + length :]
        return found


async def test_what_is_edited_as_soon_as_a_program_watches_is_told(both: Both) -> None:
    """The agent has not found the watch by then."""
    (both.host / "file").write_text("before")
    async with watcher(both, ".", "file") as program:
        (both.host / "file").write_text("at once")
        await program.hears("./file MODIFY")
        assert await both.run("cat file") == "at once"


async def test_the_agent_does_not_show_in_what_a_program_hears(both: Both) -> None:
    """It asks each second, and opens the root of the mount for that once."""
    async with watcher(both, "--opens", ".", at=WORK) as program:
        shared = both.host.parent
        await program.is_told_of(shared)
        program.lines.clear()
        for _ in range(3):
            await program.is_told_once_more(shared)
        opens = [line for line in program.lines if line.endswith(("./ OPEN", "./ CLOSE_NOWRITE"))]
        assert not opens


async def test_a_directory_that_the_host_has_moved_is_watched_where_it_is(both: Both) -> None:
    """The guest knows it by another number by then."""
    (both.host / "old").mkdir()
    await both.run("ls -lR . > /dev/null")
    (both.host / "old").rename(both.host / "new")
    await both.run("ls -lR . > /dev/null")
    async with watcher(both, "new") as program:
        await program.is_told_of(both.host / "new")


async def test_a_mount_is_asked_only_while_something_is_watched(both: Both) -> None:
    await is_left_alone(both)
    async with watcher(both, ".") as heard:
        await heard.is_told_of(both.host)
        async with asyncio.timeout(SOON_S):  # a busy host may hold the guest up that long
            while await received(both, IDLE_S) <= ASKING:
                pass
    await is_left_alone(both)


async def is_left_alone(both: Both) -> None:
    async with asyncio.timeout(SOON_S):
        while await received(both, IDLE_S) > ASKING // 3:
            pass


async def received(both: Both, seconds: float) -> int:
    """Bytes that the guest receives by its mount meanwhile."""

    def count() -> int:
        (found,) = [one for one in both.vm.active_mounts if one.guest == f"{ROOT}{WORK}"]
        assert found.traffic is not None
        return found.traffic.received

    before, since = count(), time.monotonic()
    passed = lambda: time.monotonic() - since > seconds  # noqa: E731
    await asyncio.to_thread(wait_for, passed, what="time to pass", timeout=seconds + 5)
    return count() - before


async def test_a_watcher_is_told_what_the_host_edits_makes_renames_and_removes(both: Both) -> None:
    for name in ("edited", "moved", "removed", "settings"):
        (both.host / name).write_text("before")
    deep = both.host / "a/b/c"
    deep.mkdir(parents=True)
    async with watcher(both, ".", "settings", "a/b/c") as heard:
        await heard.is_told_of(both.host)
        heard.lines.clear()
        (both.host / "edited").write_text("afterwards")
        (both.host / "settings").write_text("afterwards")
        (both.host / "made").write_text("x")
        (both.host / "directory").mkdir()
        (deep / "file").write_text("x")
        for line in ("./edited", "settings/", "./made", "./directory", "a/b/c/file"):
            await heard.hears(f"{line} MODIFY")
        assert await both.run("cat edited") == "afterwards", "what is told of is there"
        (both.host / "moved").rename(both.host / "elsewhere")
        (both.host / "saved").write_text("as editors do it")
        (both.host / "saved").rename(both.host / "edited")
        heard.lines.clear()
        await heard.hears("./elsewhere MODIFY")
        await heard.hears("./edited MODIFY")
        assert await both.run("cat edited") == "as editors do it"
        await heard.is_told_once_more(both.host)
        await heard.hears("./ MODIFY")
        heard.lines.clear()
        (both.host / "removed").unlink()
        await heard.hears("./ MODIFY")


async def test_what_is_told_changes_nothing_on_the_host_and_nothing_goes_round(both: Both) -> None:
    file = both.host / "file"
    file.write_text("before")
    async with watcher(both, ".") as heard:
        await heard.is_told_of(both.host)
        heard.lines.clear()
        host = HostWatcher(both.host)
        with file.open("r+b", buffering=0) as opened:  # not truncated: that is a change, too
            opened.write(b"after!")
        edited = file.stat()
        assert set(host.names()) == {"file"}
        await both.run("echo x > own; mv own mine; ln mine second; mkdir d; rm second; rmdir d")
        for _ in range(2):
            await heard.is_told_once_more(both.host)
        now = file.stat()
        assert (now.st_mtime_ns, now.st_ctime_ns) == (edited.st_mtime_ns, edited.st_ctime_ns)
        assert "file" not in host.names()
        assert heard.lines.count("./file MODIFY") == 1
        assert not [line for line in heard.lines if line.startswith("./file ATTRIB")]
        # What the guest has done itself it is not told.
        assert "./mine MOVED_TO" in heard.lines
        assert not {"./mine MODIFY", "./second MODIFY", "./d MODIFY"} & set(heard.lines)


async def test_a_read_only_mount_is_told_of_too_and_can_be_unmounted_meanwhile(
    both: Both, tmp_path: Path
) -> None:
    mount = await both.vm.mount(tmp_path, f"{ROOT}/mnt-only", readonly=True)
    async with watcher(both, "mnt-only", at="/") as heard:
        await heard.is_told_of(tmp_path)
        result = await both.vm.execute(f"touch {ROOT}/mnt-only/probe")
        assert result.exit_code != 0, "it is read-only still"
        await both.vm.unmount(mount)
