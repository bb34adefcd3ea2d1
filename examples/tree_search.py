"""Searches a tree of attempts in a sandbox: checkpoint, try, go back, try something else.

python examples/tree_search.py [--nodes 250] [--mib 4] [--memory 512M] [--image debian] [--json]

The sandbox holds a sliding puzzle (the 8-puzzle) that only its own program can move: a machine to
be tried out, as agents do with larger ones. A move changes files in the guest and writes some MiB,
as a build or a test run would. What the search knows is what the program prints: the board, and how
far it is from being solved. It always goes on from the most promising state that it has seen (A*),
which may be many steps back in another branch; every state is a checkpoint, so going there is one
call.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import statistics
import time
from collections.abc import Awaitable
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

WORK = "dd if=/dev/urandom of=/dev/shm/work bs=1M count={mib} conv=notrunc status=none"
"""What a real attempt would do: it fills memory with something that was never there."""


@dataclass(frozen=True, slots=True, order=True)
class State:
    """A state of the machine that can be returned to. Those with the least estimate come first."""

    estimate: int
    """The moves from the start to here, and at least as many as are left."""
    left: int
    path: tuple[str, ...] = field(compare=False)
    checkpoint: str = field(compare=False)


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
    """A* over the states of one sandbox."""

    def __init__(self, sandbox: Sandbox, mib: int) -> None:
        self.costs = Costs()
        self.tried = 0
        """The attempts so far: nodes of the tree, among them those that led nowhere."""
        self.solution: tuple[str, ...] | None = None
        self._sandbox = sandbox
        self._mib = mib
        self._seen = {START}
        self._open: list[State] = []
        self._here: str | None = None
        """The checkpoint at which the machine stands right now."""

    async def run(self, nodes: int) -> None:
        """Search until the puzzle is solved or ``nodes`` attempts are made."""
        await self._keep(State(estimate=0, left=0, path=(), checkpoint="start"))
        while self._open and self.tried < nodes and self.solution is None:
            best = heapq.heappop(self._open)
            for way in MOVES:
                if self.tried < nodes and self.solution is None:
                    await self._try(best, way)

    async def _try(self, state: State, way: str) -> None:
        """Make one move from a state, and keep where that leads if it is new."""
        if self._here != state.checkpoint:
            await self.costs.of(self.costs.go_back, self._go_back(state))
        command = f"awk -v way={way} -f move.awk && {WORK.format(mib=self._mib)}"
        work = self._sandbox.execute(command, cwd="/root")
        result = await self.costs.of(self.costs.attempt, work)
        if result.exit_code == 1:
            return  # there is no way in that direction, and nothing was changed
        if result.exit_code != 0:
            raise RuntimeError(result.stderr)
        self.tried += 1
        self._here = None
        board, left = result.stdout.split()
        if board in self._seen:
            return
        self._seen.add(board)
        path = (*state.path, way)
        if int(left) == 0:
            self.solution = path
            return
        estimate = len(path) + int(left)
        tag = f"node-{self.tried}"
        await self._keep(State(estimate=estimate, left=int(left), path=path, checkpoint=tag))

    async def _keep(self, state: State) -> None:
        """Take a checkpoint of the machine as it is, to go on from it later."""
        work = self._sandbox.checkpoint(state.checkpoint, note=" ".join(state.path)[-200:])
        made = await self.costs.of(self.costs.keep, work)
        self.costs.pauses.append(made.pause_s)
        self._here = state.checkpoint
        heapq.heappush(self._open, state)

    async def _go_back(self, state: State) -> None:
        """Go back to a state. What is there now is kept already, or was worth nothing."""
        await self._sandbox.revert(state.checkpoint, keep_now=False)
        self._here = state.checkpoint


async def prepare(sandbox: Sandbox, mib: int) -> None:
    """Put the puzzle into the machine."""
    await sandbox.files.write("/root/move.awk", PROGRAM)
    await sandbox.files.write("/root/board", START + "\n")
    await sandbox.execute(WORK.format(mib=mib))


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=250, help="attempts to make; 250")
    parser.add_argument("--mib", type=int, default=4, help="MiB that each attempt writes; 4")
    parser.add_argument("--memory", default="512M")
    parser.add_argument("--image", default="debian")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    async with Sandbox(image=given.image, memory=given.memory) as sandbox:
        await prepare(sandbox, given.mib)
        search = Search(sandbox, given.mib)
        started = time.perf_counter()
        await search.run(given.nodes)
        seconds = time.perf_counter() - started
    report(search, seconds, as_json=given.json)


def report(search: Search, seconds: float, *, as_json: bool) -> None:
    """Print how many nodes a second were tried, and what each kind of step took."""
    costs = search.costs
    steps = {
        "go back to a state": costs.go_back,
        "try a move": costs.attempt,
        "keep the new state": costs.keep,
        "  of that the machine stood still": costs.pauses,
    }
    rate = search.tried / seconds
    if as_json:
        print(json.dumps({"nodes": search.tried, "nodes_a_second": rate, "steps_s": steps}))
        return
    if search.solution is not None:
        print(f"solved in {len(search.solution)} moves: {' '.join(search.solution)}")
    print(f"{search.tried} nodes in {seconds:.1f} s: {rate:.1f} nodes a second")
    print(f"{'step':<36} {'times':>6} {'median ms':>10} {'longest':>8} {'in all':>8}")
    for name, taken in steps.items():
        if taken:
            middle, longest = statistics.median(taken) * 1000, max(taken) * 1000
            print(f"{name:<36} {len(taken):>6} {middle:>10.0f} {longest:>8.0f} {sum(taken):>7.1f}s")


if __name__ == "__main__":
    asyncio.run(main())
