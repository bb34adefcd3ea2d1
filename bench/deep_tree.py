"""Measures what checkpoints and reverts cost at the end of a long line of checkpoints.

python bench/deep_tree.py [--depths 3,30,100,300] [--mib 1] [-n RUNS] [--image debian]

One sandbox gets a checkpoint after each MiB that is written. At each depth the last checkpoints and
reverts to them are timed, with this process's own processor time, since on a busy machine that
varies less.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from quicksand import Sandbox
from quicksand.base.processes import process_usage
from quicksand_benchmark.measured import qemu_pid, warm_sandbox, write_memory

from quicksand_tui.cli.output import print_table

HEADS = (
    "DEPTH",
    "CHECKPOINT s",
    "OF IT CPU",
    "PAUSE ms",
    "REVERT s",
    "OF IT CPU",
    "QEMU CPU",
    "TREE ms",
)


async def costs(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """The seconds that ``work`` takes, and those of this process's processor time."""
    wall, cpu = time.perf_counter(), time.process_time()
    await work()
    return time.perf_counter() - wall, time.process_time() - cpu


async def deepen(sandbox: Sandbox, depth: int, mib: int) -> tuple[float, float, float]:
    """Take one more checkpoint; returns its seconds, the client's processor time and the pause."""
    await write_memory(sandbox, mib)
    pause = 0.0

    async def take() -> None:
        nonlocal pause
        pause = (await sandbox.checkpoint(str(depth))).pause_s

    return (*await costs(take), pause)


async def go_back(sandbox: Sandbox, depth: int) -> tuple[float, float, float]:
    """Revert to a checkpoint, until the next answer; returns the seconds, the client's processor
    time and QEMU's."""

    async def revert() -> None:
        await sandbox.revert(str(depth), keep_now=False)
        await sandbox.execute("true")

    taken = await costs(revert)
    return (*taken, process_usage(qemu_pid(sandbox))[0])


async def measure(given: argparse.Namespace) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    depth = 0
    async with warm_sandbox(given.image) as sandbox:
        for goal in (int(word) for word in given.depths.split(",")):
            taken = []
            while depth < goal:
                depth += 1
                taken.append(await deepen(sandbox, depth, given.mib))
            last = taken[-given.runs :]
            reverts = [await go_back(sandbox, depth) for _ in range(given.runs)]
            tree, _ = await costs(lambda: asyncio.to_thread(sandbox.checkpoints))
            made = [statistics.median(values) for values in zip(*last, strict=True)]
            back = [statistics.median(values) for values in zip(*reverts, strict=True)]
            rows.append(
                (
                    depth,
                    *_cells(made[0], made[1]),
                    f"{made[2] * 1000:.1f}",
                    *_cells(*back),
                    f"{tree * 1000:.0f}",
                )
            )
            print(*rows[-1], flush=True)
    return rows


def _cells(*seconds: float) -> tuple[str, ...]:
    return tuple(f"{value:.3f}" for value in seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--depths", default="3,30,100,300")
    parser.add_argument("--mib", type=int, default=1)
    parser.add_argument("-n", "--runs", type=int, default=3)
    parser.add_argument("--image", default="debian")
    given = parser.parse_args()
    print_table(HEADS, asyncio.run(measure(given)))


if __name__ == "__main__":
    main()
