"""Runs in a guest whose kernel tracks written pages in both ways: checkpoints of a process's
memory, compared with the process's own account of it. `test_tracked_memory.py` brings it there with
what it imports.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from quicksand.snapshots import memory_copying
from quicksand.snapshots.guest_ram import PAGE, GuestRam, Runs, count_pages
from quicksand.snapshots.image import PageSource
from quicksand.snapshots.memory_copying import Copier, Fate
from quicksand.snapshots.tracking import SOFT_DIRTY, VARIABLE, WRITE_PROTECT

PAGES = 1024
SIZE = PAGES * PAGE

CHILD = """
import ctypes, json, mmap, random, sys, threading
P, SIZE = mmap.PAGESIZE, int(sys.argv[1])
memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
print(ctypes.addressof(ctypes.c_char.from_buffer(memory)), flush=True)
busy = threading.Event()
def write(pages, count, seed):
    dice = random.Random(seed)
    for _ in range(count):
        page = dice.randrange(pages)
        memory[page * P : page * P + 8] = dice.randbytes(8)
def storm(pages):
    seed = 0
    while busy.is_set():
        seed += 1
        write(pages, 50, seed)
for line in sys.stdin:
    what, *values = json.loads(line)
    if what == "write":
        write(*values)
    elif what == "storm":
        busy.set()
        thread = threading.Thread(target=storm, args=values)
        thread.start()
    elif what == "calm":
        busy.clear()
        thread.join()
    print("done", flush=True)
"""


class Process:
    """Plays the VM: its memory is the guest's."""

    def __init__(self) -> None:
        self.child = subprocess.Popen(
            [*sys.argv[1:], "-c", CHILD, str(SIZE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.child.stdout is not None
        self.ram = GuestRam(self.child.pid, int(self.child.stdout.readline()), SIZE)

    def ask(self, *request: Any) -> None:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        print(json.dumps(request), file=self.child.stdin, flush=True)
        assert self.child.stdout.readline() == "done\n"

    @contextlib.asynccontextmanager
    async def pause(self) -> AsyncIterator[None]:
        os.kill(self.child.pid, signal.SIGSTOP)
        while any(state not in "Tt" for state in self._states()):
            await asyncio.sleep(0)
        yield
        os.kill(self.child.pid, signal.SIGCONT)

    def _states(self) -> list[str]:
        tasks = Path(f"/proc/{self.child.pid}/task").iterdir()
        return [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks]

    def memory(self) -> bytes:
        data = bytearray(SIZE)
        self.ram.read([(0, PAGES)], memoryview(data))
        return bytes(data)


class Image:
    """What checkpoints have stored of the memory, each over the last; in place of a `Storage`."""

    def __init__(self) -> None:
        self.data = bytearray(SIZE)
        self.known: str | None = None
        self.pages = 0
        """Pages that were added."""

    def open(self) -> str | None:
        return self.known

    def expect_new_pages(self) -> None:
        pass

    def add(
        self,
        runs: Runs,
        source: PageSource,
        check: Callable[[], None] = lambda: None,
        *,
        is_paused: bool = False,
    ) -> None:
        self.pages += count_pages(runs)
        for first, count in runs:
            part = memoryview(self.data)[first * PAGE : (first + count) * PAGE]
            source.read([(first, count)], part)


async def cycle(process: Process, image: Image, mark: Path) -> Copier:
    storage: Any = image
    fate, held = Fate.RUNS_ON, mark.with_name("held")
    copier = Copier(process.ram, mark, "run", storage, fate=fate, held_at=held)
    copier.prepare()
    await copier.copy_before(process.pause)
    copier.reserve()
    async with process.pause():
        copier.copy_rest()
        now = process.memory()
    copier.store()
    assert image.data == now, f"after {image.known}: the copy is not the memory"
    return copier


async def main() -> None:
    for level in (WRITE_PROTECT, SOFT_DIRTY):
        os.environ[VARIABLE] = level
        await try_level(level)


async def try_level(level: str) -> None:
    memory_copying.ROUND_MIN = 512 * 1024
    dice = random.Random(1)
    process, image, mark = Process(), Image(), Path("tracked")
    for number in range(8):
        process.ask("write", PAGES, dice.choice([0, 10, 1000]), number)
        if number % 3 == 2:
            process.ask("storm", PAGES // 2)
        copier = await cycle(process, image, mark)
        if number % 3 == 2:
            process.ask("calm")
        assert (f"({level})" in copier.note) is (image.known is not None), copier.note
        if number == 6:
            image.known = None  # the client died before it committed
            assert not mark.exists()
        else:
            image.known = f"node-{number}"
            copier.commit(image.known)
    # Little is copied when little was written: not all that ever was.
    process.ask("write", PAGES, 5, 99)
    image.pages = 0
    await cycle(process, image, mark)
    every = count_pages(process.ram.written())
    assert image.pages <= every
    process.child.kill()
    print(f"{level}: {image.pages} of {every} pages")


if __name__ == "__main__":
    asyncio.run(main())
