"""Searches a tree of attempts in sandboxes: checkpoint, try, go back, try something else.

python examples/tree_search.py [--nodes 250] [--mib 4] [--sandboxes N] [--memory 512M]
                               [--image debian] [--json]

The sandbox holds a sliding puzzle (the 8-puzzle) that only its own program can move: a machine to
be tried out, as agents do with larger ones. A move changes files in the guest and writes some MiB,
as a build or a test run would. What the search knows is what the program prints: the board, and how
far it is from being solved. It always goes on from a promising state that it has seen (A*), which
may be many steps back in another branch; every state is a checkpoint, so going there is one call.

Several sandboxes, clones of the first, try moves at the same time. A sandbox goes on from another
one's checkpoint as from one of its own (NAME:TAG), only its identity has to be renewed then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TypeVar

from quicksand import Sandbox

T = TypeVar("T")

MOVES = ("up", "down", "left", "right")

START = "074521863"
"""The board at first, row by row; 0 is the gap. The search solves it in 18 moves, after 212
attempts."""

PROGRAM = r"""
# Moves the gap. Prints the board, and how many moves it is from the solution at least.
function distance(a, b) { return a < b ? b - a : a - b }
BEGIN {
    getline board < "board"
    close("board")
    gap = index(board, "0") - 1
    row = int(gap / 3) + (way == "down") - (way == "up")
    column = gap % 3 + (way == "right") - (way == "left")
    if (row < 0 || row > 2 || column < 0 || column > 2) exit 1
    tile = substr(board, row * 3 + column + 1, 1)
    sub(tile, "x", board); sub("0", tile, board); sub("x", "0", board)
    for (at = 0; at < 9; at++) {
        tile = substr(board, at + 1, 1) - 1
        if (tile >= 0) left += distance(int(at / 3), int(tile / 3)) + distance(at % 3, tile % 3)
    }
    print board > "board"
    print board, left
}
"""

SEED = "head -c {size}M /dev/urandom > /dev/shm/seed"
WORK = (
    "dd if=/dev/shm/seed of=/dev/shm/work bs=1M count={mib} skip={skip} "
    "iflag=skip_bytes,fullblock conv=notrunc status=none"
)
"""What a real attempt would do: it fills memory with something that was not there before. Cut from
random bytes at another place each time, since to make new ones takes an emulated processor longer
than all the rest."""

STRIDE = 4104
"""Bytes from one cut to the next: no page is the same again."""

FOREIGN = 2
"""By how many moves a state of another sandbox must be better: going there takes longer."""


@dataclass(frozen=True, slots=True)
class State:
    """A state of a machine that can be returned to."""

    estimate: int
    """The moves from the start to here, and at least as many as are left."""
    path: tuple[str, ...]
    sandbox: Sandbox
    """Where its checkpoint is."""
    checkpoint: str


@dataclass(slots=True)
class Costs:
    """How long each kind of step took, in seconds."""

    go_back: list[float] = field(default_factory=list)
    attempt: list[float] = field(default_factory=list)
    keep: list[float] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    """How long the machine stood still for a checkpoint; a part of `keep`."""

    async def of(self, kind: list[float], work: Awaitable[T]) -> T:
        """Await ``work`` and note how long it took."""
        started = time.perf_counter()
        try:
            return await work
        finally:
            kind.append(time.perf_counter() - started)


class Search:
    """A* over the states of some sandboxes."""

    def __init__(self, nodes: int, mib: int) -> None:
        """``nodes``: how many attempts to make at most."""
        self.costs = Costs()
        self.tried = 0
        """The attempts so far: nodes of the tree, among them those that led nowhere."""
        self.solution: tuple[str, ...] | None = None
        self._nodes = nodes
        self._mib = mib
        self._seen = {START}
        self._open: list[State] = []
        self._changed = asyncio.Condition()
        """Notified when there are new states, and when all is over."""
        self._busy = 0
        """Sandboxes that are at work."""

    async def run(self, sandboxes: Sequence[Sandbox]) -> None:
        """Search until the puzzle is solved or all attempts are made. The first sandbox is at the
        start."""
        first = await self._keep(sandboxes[0], 0, ())
        self._open.append(first)
        async with asyncio.TaskGroup() as tasks:
            for sandbox in sandboxes:
                tasks.create_task(self._work(sandbox, first if sandbox is first.sandbox else None))

    @property
    def _is_over(self) -> bool:
        return self.solution is not None or self.tried >= self._nodes

    async def _work(self, sandbox: Sandbox, here: State | None) -> None:
        """Try all moves from the best state again and again. ``here``: where the machine stands."""
        while (state := await self._choose(sandbox)) is not None:
            for way in MOVES:
                if self._is_over:
                    break
                self.tried += 1
                if here is not state:
                    await self.costs.of(self.costs.go_back, self._go_back(sandbox, state))
                here = await self._try(sandbox, state, way)
            async with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    async def _choose(self, sandbox: Sandbox) -> State | None:
        """The best state for this sandbox, waiting for one if others may still find some."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._open or self._is_over or not self._busy)
            if self._is_over or not self._open:
                return None

            def cost(state: State) -> int:
                return state.estimate + (0 if state.sandbox is sandbox else FOREIGN)

            best = min(self._open, key=cost)
            self._open.remove(best)
            self._busy += 1
            return best

    async def _try(self, sandbox: Sandbox, state: State, way: str) -> State | None:
        """Make one move from a state, and keep where that leads if it is new. Returns where the
        machine is, if there is a checkpoint of that."""
        work = WORK.format(mib=self._mib, skip=self.tried * STRIDE)
        command = f"awk -v way={way} -f move.awk && {work}"
        attempt = sandbox.execute(command, cwd="/root")
        result = await self.costs.of(self.costs.attempt, attempt)
        if result.exit_code == 1:
            self.tried -= 1
            return state  # there is no way in that direction, and nothing was changed
        if result.exit_code != 0:
            raise RuntimeError(result.stderr)
        board, left = result.stdout.split()
        if board in self._seen:
            return None
        self._seen.add(board)
        path = (*state.path, way)
        if int(left) == 0:
            self.solution = path
            return None
        found = await self._keep(sandbox, len(path) + int(left), path)
        async with self._changed:
            self._open.append(found)
            self._changed.notify_all()
        return found

    async def _keep(self, sandbox: Sandbox, estimate: int, path: tuple[str, ...]) -> State:
        """Take a checkpoint of the machine as it is, to go on from it later."""
        tag = f"node-{len(self._seen)}"
        work = sandbox.checkpoint(tag, note=" ".join(path)[-200:])
        made = await self.costs.of(self.costs.keep, work)
        self.costs.pauses.append(made.pause_s)
        return State(estimate=estimate, path=path, sandbox=sandbox, checkpoint=tag)

    async def _go_back(self, sandbox: Sandbox, state: State) -> None:
        """Go back to a state. What is there now is kept already, or was worth nothing."""
        own = state.sandbox is sandbox
        tag = state.checkpoint if own else f"{state.sandbox.name}:{state.checkpoint}"
        await sandbox.revert(tag, keep_now=False)


async def prepare(sandbox: Sandbox, nodes: int, mib: int) -> None:
    """Put the puzzle into the machine."""
    await sandbox.files.write("/root/move.awk", PROGRAM)
    await sandbox.files.write("/root/board", START + "\n")
    size = mib + nodes * STRIDE // 2**20 + 1
    await sandbox.execute(SEED.format(size=size), timeout=60)
    await sandbox.execute(WORK.format(mib=mib, skip=0))


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=250, help="attempts to make; 250")
    parser.add_argument("--mib", type=int, default=4, help="MiB that each attempt writes; 4")
    parser.add_argument("--sandboxes", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--memory", default="512M")
    parser.add_argument("--image", default="debian")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if min(given.nodes, given.mib, given.sandboxes) < 1:
        parser.error("--nodes, --mib and --sandboxes must be at least 1")
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(Sandbox(image=given.image, memory=given.memory))
        await prepare(first, given.nodes, given.mib)
        clones = await first.clone(given.sandboxes - 1) if given.sandboxes > 1 else []
        for clone in clones:
            stack.push_async_callback(clone.kill)
        search = Search(given.nodes, given.mib)
        started = time.perf_counter()
        await search.run([first, *clones])
        seconds = time.perf_counter() - started
    report(search, seconds, given)


def report(search: Search, seconds: float, given: argparse.Namespace) -> None:
    """Print how many nodes a second were tried, and what each kind of step took."""
    costs = search.costs
    steps = {
        "go back to a state": costs.go_back,
        "try a move": costs.attempt,
        "keep the new state": costs.keep,
        "  of that the machine stood still": costs.pauses,
    }
    rate = search.tried / seconds
    if given.json:
        print(json.dumps({"nodes": search.tried, "nodes_a_second": rate, "steps_s": steps}))
        return
    if search.solution is not None:
        print(f"solved in {len(search.solution)} moves: {' '.join(search.solution)}")
    print(
        f"{search.tried} nodes in {seconds:.1f} s in {given.sandboxes} sandboxes: "
        f"{rate:.1f} nodes a second"
    )
    print(f"{'step':<36} {'times':>6} {'median ms':>10} {'longest':>8} {'in all':>8}")
    for name, taken in steps.items():
        if taken:
            middle, longest = statistics.median(taken) * 1000, max(taken) * 1000
            print(f"{name:<36} {len(taken):>6} {middle:>10.0f} {longest:>8.0f} {sum(taken):>7.1f}s")


if __name__ == "__main__":
    asyncio.run(main())
