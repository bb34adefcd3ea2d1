"""Compares how QEMU reads and writes a disk: with threads, and with io_uring. Prints JSON.

python bench/disk_aio.py [ROUNDS]

Two sandboxes that differ in this only do the same by turns. Each number is the median over the
rounds: MiB/s of requests of 1 MiB, and requests/s of 4 KiB at random places, by one thread and by
eight; all past the guest's cache (O_DIRECT). `read` reads what the guest wrote, `base` the image.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from dataclasses import replace
from typing import Any

from quicksand import Sandbox
from quicksand.qemu import planning
from quicksand.qemu.command import MachinePlan
from quicksand.warm import starting

WAYS = ("threads", "io_uring")

IN_GUEST = r"""
import json, mmap, os, random, threading, time
SIZE, BIG, SMALL, COUNT = 192 << 20, 1 << 20, 4096, 1500
found = {}

def buffer(size):
    made = mmap.mmap(-1, size)
    made.write(os.urandom(size))
    return made

def sequential(name, fd, call, size):
    block, since = buffer(BIG), time.monotonic()
    for at in range(0, size, BIG):
        call(fd, [block], at)
    if call is os.pwritev:
        os.fsync(fd)
    found[name] = size / BIG / (time.monotonic() - since)

def scattered(name, fd, call, threads):
    def work(seed):
        block, draw = buffer(SMALL), random.Random(seed)
        for _ in range(COUNT // threads):
            call(fd, [block], draw.randrange(SIZE // SMALL) * SMALL)
    all_of_them = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    since = time.monotonic()
    for one in all_of_them:
        one.start()
    for one in all_of_them:
        one.join()
    found[name] = COUNT / (time.monotonic() - since)

fd = os.open("/root/bench", os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
sequential("write, MiB/s", fd, os.pwritev, SIZE)
sequential("read, MiB/s", fd, os.preadv, SIZE)
for threads in (1, 8):
    scattered(f"random write x{threads}, /s", fd, os.pwritev, threads)
    scattered(f"random read x{threads}, /s", fd, os.preadv, threads)
os.close(fd)
disk = os.open("/dev/vda", os.O_RDONLY | os.O_DIRECT)
sequential("base, MiB/s", disk, os.preadv, 96 << 20)
print(json.dumps(found))
"""


def start_with(way: str) -> None:
    """Make all machines that are planned later use ``way`` for the I/O of their disks."""
    plan = planning.plan_machine

    def planned(*args: Any, **options: Any) -> MachinePlan:
        return replace(plan(*args, **options), aio=way)

    setattr(starting, "plan_machine", planned)  # noqa: B010 - it is imported there


async def main(rounds: int) -> None:
    figures: dict[str, dict[str, list[float]]] = {way: {} for way in WAYS}
    boxes = {}
    try:
        for way in WAYS:
            start_with(way)
            boxes[way] = Sandbox(image="debian", cpus=2, warm=False)
            await boxes[way].start()
        for turn in range(rounds):
            for way in WAYS if turn % 2 else reversed(WAYS):
                done = await boxes[way].execute(["python3", "-c", IN_GUEST], timeout=600)
                for name, value in json.loads(done.stdout).items():
                    figures[way].setdefault(name, []).append(value)
    finally:
        for box in boxes.values():
            await box.stop()
    found = {
        name: {way: round(statistics.median(figures[way][name])) for way in WAYS}
        for name in figures[WAYS[0]]
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 7))
