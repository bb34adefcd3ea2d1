"""What the host writes is not undone by a guest that has the file open, mapped or cached."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import mmap
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from quicksand import Mount, Sandbox
from quicksand.guest.execution import Command

from tests.conftest import wait_for
from tests.integration.mounts.shared.conftest import ROOT, WORK, Both

pytestmark = pytest.mark.vm

STEPS = """
import mmap, os, sys, time
for line in sys.stdin:
    said = None
    try:
        exec(line)
    except OSError as error:
        said = repr(error)
    print(repr(said), flush=True)
"""
"""Does what each line says, in one process, and answers with what the line left in `said`."""
PASSED_S = 1.0
"""So old is what the host wrote that must never be undone."""
SOON_S = 60.0
LINES = 200


class Program:
    """A program in the guest, with its files open between the steps it is told to take."""

    def __init__(self, process: Command) -> None:
        self._process = process
        self._said = self._lines()

    async def _lines(self) -> AsyncIterator[str]:
        rest = b""
        async for _, data in self._process.output():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield line.decode()

    async def do(self, step: str) -> Any:
        await self._process.write(step.encode() + b"\n")
        async with asyncio.timeout(SOON_S):
            return ast.literal_eval(await anext(self._said))


@asynccontextmanager
async def program(both: Both) -> AsyncIterator[Program]:
    """Its directory is the mounted one, and its Python the host's, which has mmap and sqlite."""
    python = [sys._base_executable, "-I", "-S", "-u", "-c"]  # type: ignore[attr-defined]
    begin = f"import os; os.chdir('{WORK}/{both.name}')\n{STEPS}"
    process = await both.vm.spawn(["/usr/sbin/chroot", ROOT, *python, begin], stdin=True)
    async with process:
        yield Program(process)


def wait_a_second() -> None:
    """As long as a guest may go by what it has."""
    since = time.monotonic()
    wait_for(lambda: time.monotonic() - since > PASSED_S, what="a second")


async def append(told: Program, count: int, mark: str, *, pause_s: float = 0) -> None:
    """By one descriptor, `f`, a line at a time."""
    line = f"os.write(f, b'{mark}%04d\\n' % n)"
    await told.do(f"for n in range({count}): {line}; time.sleep({pause_s})")


OPEN = "f = os.open('log', os.O_WRONLY | os.O_APPEND | os.O_CREAT)"


@pytest.mark.parametrize("looks", [False, True])
async def test_lines_that_both_sides_append_are_all_there(both: Both, looks: bool) -> None:
    """Also if a program of the guest looks at the file meanwhile, by which its kernel learns how
    large it is."""
    log = both.host / "log"
    log.write_text("")
    async with program(both) as told, contextlib.AsyncExitStack() as others:
        await told.do(OPEN)
        guest = [asyncio.create_task(append(told, LINES, "g", pause_s=0.005))]
        if looks:
            other = await others.enter_async_context(program(both))
            looking = other.do(f"for n in range({LINES}): os.stat('log'); time.sleep(0.005)")
            guest.append(asyncio.create_task(looking))
        with log.open("a", buffering=1) as file:
            for number in range(LINES):
                file.write(f"h{number:04}\n")
                await asyncio.sleep(0.005)
        await asyncio.gather(*guest)
        await told.do("os.fsync(f)")
    wanted = [f"{mark}{number:04}" for mark in "gh" for number in range(LINES)]
    found = log.read_text().splitlines()
    assert sorted(found) == wanted
    for mark in "gh":
        own = [one for one in found if one[0] == mark]
        assert own == sorted(own)


@pytest.mark.parametrize("read_before", [False, True])
async def test_a_log_that_the_host_has_cut_stays_so(both: Both, read_before: bool) -> None:
    log = both.host / "log"
    log.write_text("".join(f"old{n:06}\n" for n in range(1000)))
    async with program(both) as told:
        await told.do(OPEN)
        await append(told, 10, "g")
        if read_before:
            await told.do("said = len(open('log').read())")
        await told.do("os.fsync(f)")
        log.write_text("new\n")
        wait_a_second()
        await append(told, 3, "x")
        await told.do("os.fsync(f)")
        assert log.read_text() == "new\nx0000\nx0001\nx0002\n"
        wait_a_second()
        await append(told, 3, "y")
        await told.do("os.fsync(f)")
        assert log.read_text() == "new\nx0000\nx0001\nx0002\ny0000\ny0001\ny0002\n"


@pytest.mark.parametrize("how", ["write", "mmap"])
async def test_a_page_that_the_guest_keeps_does_not_undo(both: Both, how: str) -> None:
    """It writes one end of a page of which the host has written the other."""
    file = both.host / "page"
    file.write_bytes(b"." * 8192)
    async with program(both) as told:
        await told.do("f = os.open('page', os.O_RDWR); m = mmap.mmap(f, 8192); said = m[:10]")
        await told.do("m[5000] = 65; m.flush()")
        await told.do("said = os.pread(f, 8192, 0)[:10]")
        with file.open("r+b") as host:
            host.write(b"host")
        wait_a_second()
        change = "os.pwrite(f, b'guest', 100)" if how == "write" else "m[100:105] = b'guest'"
        await told.do(f"{change}; m.flush(); os.fsync(f)")
        assert file.read_bytes()[:4] == b"host"
        assert file.read_bytes()[100:105] == b"guest"
        assert await told.do("said = m[:4] + os.pread(f, 4, 0)") == b"hosthost"


async def test_the_guest_s_next_line_does_not_blank_what_the_host_has_appended(both: Both) -> None:
    """Across the end of a page; who looks for the end and appends there reads nothing."""
    log = both.host / "log"
    log.write_bytes(b"a" * 4090)
    async with program(both) as told:
        await told.do("f = os.open('log', os.O_WRONLY | os.O_APPEND); os.write(f, b'bb')")
        await told.do("os.fsync(f)")
        with log.open("ab") as file:
            file.write(b"h" * 300)
        wait_a_second()
        assert await told.do("said = os.lseek(f, 0, os.SEEK_END)") == 4392
        await told.do("os.write(f, b'cc'); os.fsync(f)")
    assert log.read_bytes() == b"a" * 4090 + b"bb" + b"h" * 300 + b"cc"


@pytest.mark.parametrize("how", ["in place", "renamed"])
async def test_an_editor_of_the_host_s_is_not_undone(both: Both, how: str) -> None:
    file = both.host / "text"
    file.write_text("one\ntwo\nthree\n" * 50)
    async with program(both) as told:
        await told.do("f = os.open('text', os.O_RDWR); said = os.read(f, 9)")
        await told.do("os.pwrite(f, b'ONE', 0); os.fsync(f)")
        written = file.read_text().replace("two", "TWO!!")
        if how == "in place":
            file.write_text(written)
        else:
            new = both.host / "new"
            new.write_text(written)
            new.rename(file)
        wait_a_second()
        await told.do("os.pwrite(f, b'1', 0); os.fsync(f)")
        wanted = "1" + written[1:] if how == "in place" else written
        assert file.read_text() == wanted


async def test_a_database_that_both_sides_use_by_turns_is_whole(both: Both) -> None:
    """Each keeps it open. Their locks do not hold against each other, so they take turns."""
    path = both.host / "db"
    async with program(both) as told:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as host:
            host.execute("create table t (side text, number integer)")
            await told.do("import sqlite3; db = sqlite3.connect('db', isolation_level=None)")
            for turn in range(3):
                for number in range(30):
                    host.execute("insert into t values ('h', ?)", (turn * 100 + number,))
                wait_a_second()
                insert = f"db.execute('insert into t values (?, ?)', ('g', {turn} * 100 + n))"
                await told.do(f"for n in range(30): {insert}")
                wait_a_second()
            assert host.execute("pragma integrity_check").fetchall() == [("ok",)]
            count = "select side, count(*) from t group by side order by side"
            assert host.execute(count).fetchall() == [("g", 90), ("h", 90)]
            assert await told.do(f"said = db.execute('{count}').fetchall()") == [
                ("g", 90),
                ("h", 90),
            ]


async def test_two_sandboxes_and_the_host_append_to_one_file(both: Both) -> None:
    log = both.host / "log"
    log.write_text("")
    count = 60
    async with Sandbox(image="debian", mounts=[Mount(str(both.host), "/mnt/data")]) as second:
        line = "os.write(f, b'i%04d\\n' % n); time.sleep(0.01)"
        begin = "import os, time; f = os.open('/mnt/data/log', os.O_WRONLY | os.O_APPEND)"
        await second.files.write("/root/a.py", f"{begin}\nfor n in range({count}): {line}\n")
        async with program(both) as told:
            await told.do(OPEN)
            guests = [
                asyncio.create_task(append(told, count, "g", pause_s=0.01)),
                asyncio.create_task(second.execute("python3 /root/a.py; sync")),
            ]
            with log.open("a", buffering=1) as file:
                for number in range(count):
                    file.write(f"h{number:04}\n")
                    await asyncio.sleep(0.01)
            await asyncio.gather(*guests)
            await told.do("os.fsync(f)")
    wanted = [f"{mark}{number:04}" for mark in "ghi" for number in range(count)]
    assert sorted(log.read_text().splitlines()) == wanted


async def test_a_mapping_of_the_host_s_is_not_undone(both: Both) -> None:
    """Nothing tells of it before it is closed."""
    file = both.host / "page"
    file.write_bytes(b"." * 4096)
    async with program(both) as told:
        await told.do("f = os.open('page', os.O_RDWR); said = os.read(f, 10)")
        with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 4096) as mapped:
            mapped[:4] = b"host"
        wait_a_second()
        await told.do("os.pwrite(f, b'guest', 100); os.fsync(f)")
        assert file.read_bytes()[:4] == b"host"
