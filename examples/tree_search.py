"""Searches a tree of attempts in sandboxes: checkpoint, try, go back, try something else.

python examples/tree_search.py [--nodes 600] [--mib 4] [--sandboxes N] [--memory 512M]
                               [--image debian] [--json]

The sandbox holds a sliding puzzle (the 8-puzzle) that only its own program can move: a machine to
be tried out, as agents do with larger ones. A move changes files in the guest and writes some MiB,
as a build or a test run would. What the search knows is what the program prints: the board, and how
far it is from being solved. It always goes on from a promising state that it has seen (A*), which
may be many steps back in another branch; every state is a checkpoint, so going there is one call.

Several sandboxes, clones of the first, try moves at the same time. A sandbox goes on from another
one's checkpoint as from one of its own (NAME:TAG), only its identity has to be renewed then.

Ctrl-C breaks the search off: it reports what was done until then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TypeVar

from quicksand import ExecuteResult, QuicksandError, Sandbox
from quicksand.records.machine_options import parse_memory

T = TypeVar("T")

MOVES = ("up", "down", "left", "right")

START = "074521863"
"""The board at first, row by row; 0 is the gap. It takes 18 moves to solve it."""

NODES = 600
"""Attempts to make at most. One sandbox solves the puzzle with 217. Several also try what one alone
would not have come to; how much differs from run to run, and four have taken up to 450."""

NO_WAY = 3
"""The exit code for a move out of the board. Whatever else fails in the guest exits with another:
awk with 1 or 2, dd with 1, and a program that is killed with 128 and more."""

PROGRAM = r"""
# Moves the gap. Prints the board, and how many moves it is from the solution at least.
function distance(a, b) { return a < b ? b - a : a - b }
BEGIN {
    getline board < "board"
    close("board")
    gap = index(board, "0") - 1
    row = int(gap / 3) + (way == "down") - (way == "up")
    column = gap % 3 + (way == "right") - (way == "left")
    if (row < 0 || row > 2 || column < 0 || column > 2) exit no_way
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

ROOM = """
mount -o remount,size=$(awk '/^MemAvailable/ { print int($2 * SHARE) }' /proc/meminfo)k /dev/shm
"""
"""The guest's kernel lets a file system in memory have half of the memory."""
SEED = "head -c {size}M /dev/urandom > /dev/shm/seed"
SEED_S = 600
WORK = (
    "dd if=/dev/shm/seed of=/dev/shm/work bs=1M count={mib} skip={skip} "
    "iflag=skip_bytes,fullblock conv=notrunc status=none"
)
"""What a real attempt would do: it fills memory with something that was not there before. Cut from
random bytes at another place each time, since to make new ones takes an emulated processor longer
than all the rest."""

STRIDE = 4104
"""Bytes from one cut to the next: no page is the same again."""

MIB = 2**20
SYSTEM_MIB = 96
"""A guest's kernel and programs take at least as much, whatever the guest's size."""
FREE = 0.9
"""Of what is more than that, they leave this share free. Measured with guests of 128M to 4096M."""
SHARE = 0.9
"""The share of the free memory that the files in memory may take. That cannot be got back by
killing programs, so the kernel would panic without the rest."""
KILLED = 128 + 9
"""The shell's exit code for a program that was killed, as the kernel does when memory runs out."""

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
        """Await ``work`` and note how long it took, unless it fails or is broken off."""
        started = time.perf_counter()
        done = await work
        kind.append(time.perf_counter() - started)
        return done


class Search:
    """A* over the states of some sandboxes."""

    def __init__(self, nodes: int, mib: int) -> None:
        """``nodes``: how many attempts to make at most."""
        self.costs = Costs()
        self.tried = 0
        """The attempts so far: nodes of the tree, among them those that led nowhere."""
        self.solution: tuple[str, ...] | None = None
        self.seconds = 0.0
        """How long the search took, also if it was broken off."""
        self._nodes = nodes
        self._mib = mib
        self._begun = 0
        """The attempts that were made or are being made."""
        self._seen = {START}
        self._open: list[State] = []
        self._changed = asyncio.Condition()
        """Notified when there are new states, and when all is over."""
        self._busy = 0
        """Sandboxes that are at work."""

    async def run(self, sandboxes: Sequence[Sandbox]) -> None:
        """Search until the puzzle is solved or all attempts are made. The first sandbox is at the
        start. Raises QuicksandError."""
        started = time.perf_counter()
        try:
            first = await self._keep(sandboxes[0], 0, ())
            self._open.append(first)
            async with asyncio.TaskGroup() as tasks:
                for sandbox in sandboxes:
                    here = first if sandbox is first.sandbox else None
                    tasks.create_task(self._work(sandbox, here))
        except ExceptionGroup as group:
            # One error is what the caller can report; the rest stay with it as its cause.
            raise group.exceptions[0] from group
        finally:
            self.seconds = time.perf_counter() - started

    @property
    def _is_over(self) -> bool:
        return self.solution is not None or self._begun >= self._nodes

    async def _work(self, sandbox: Sandbox, here: State | None) -> None:
        """Try all moves from the best state again and again. ``here``: where the machine stands."""
        while (state := await self._choose(sandbox)) is not None:
            for way in MOVES:
                if self._is_over:
                    break
                self._begun += 1
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
        work = WORK.format(mib=self._mib, skip=self._begun * STRIDE)
        command = f"awk -v way={way} -v no_way={NO_WAY} -f move.awk && {work}"
        attempt = sandbox.execute(command, cwd="/root")
        result = await self.costs.of(self.costs.attempt, attempt)
        if result.exit_code == NO_WAY:
            self._begun -= 1
            return state  # nothing was changed
        require(result, "an attempt")
        self.tried += 1
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


class GuestError(QuicksandError):
    """What the search does in a guest does not work there, most often for want of memory."""


def require(result: ExecuteResult, what: str) -> None:
    """Raises GuestError unless a command in the guest has worked."""
    if result.exit_code == 0:
        return
    said = result.stderr.strip() or f"exit code {result.exit_code}"
    if result.exit_code == KILLED or "No space left" in said:
        raise GuestError(
            f"the guest's memory is too small for {what}: {said}",
            hint="give it more with --memory, or write less with --mib or --nodes",
        )
    raise GuestError(f"{what} has failed in the guest: {said}")


def seed_mib(nodes: int, mib: int) -> int:
    """The MiB of random bytes from which all attempts can be cut."""
    return mib + nodes * STRIDE // MIB + 1


def check_memory(nodes: int, mib: int, memory: str) -> None:
    """Raises GuestError if a guest of that size has no room for what the attempts write, and
    ConfigError if it is no size."""
    need = seed_mib(nodes, mib) + mib
    least = math.ceil(need / FREE / SHARE) + SYSTEM_MIB
    if parse_memory(memory) < least * MIB:
        raise GuestError(
            f"a guest of {memory} has too little memory: {nodes} attempts that write {mib} MiB "
            f"each need {need} MiB in it",
            hint=f"use --memory {-(-least // 64) * 64}M, or less with --mib or --nodes",
        )


async def prepare(sandbox: Sandbox, nodes: int, mib: int) -> None:
    """Put the puzzle into the machine. Raises QuicksandError."""
    await sandbox.files.write("/root/move.awk", PROGRAM)
    await sandbox.files.write("/root/board", START + "\n")
    require(await sandbox.execute(ROOM.replace("SHARE", f"{SHARE}")), "enlarging /dev/shm")
    seed = SEED.format(size=seed_mib(nodes, mib))
    require(await sandbox.execute(seed, timeout=SEED_S), "the random bytes for all attempts")
    require(await sandbox.execute(WORK.format(mib=mib, skip=0)), "what an attempt writes")


async def run(search: Search, given: argparse.Namespace) -> None:
    """Search in new sandboxes, of which none is left in the end. Raises QuicksandError."""
    check_memory(given.nodes, given.mib, given.memory)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(Sandbox(image=given.image, memory=given.memory))
        await prepare(first, given.nodes, given.mib)
        clones = await first.clone(given.sandboxes - 1) if given.sandboxes > 1 else []
        for clone in clones:
            stack.push_async_callback(clone.kill)
        await search.run([first, *clones])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=NODES, help=f"attempts at most; {NODES}")
    parser.add_argument("--mib", type=int, default=4, help="MiB that each attempt writes; 4")
    parser.add_argument("--sandboxes", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--memory", default="512M")
    parser.add_argument("--image", default="debian")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if min(given.nodes, given.mib, given.sandboxes) < 1:
        parser.error("--nodes, --mib and --sandboxes must be at least 1")
    return given


def main() -> int:
    """Returns the exit code: 1 for an error, and 130 as of any program that Ctrl-C ends."""
    given = parse()
    search = Search(given.nodes, given.mib)
    is_broken_off = False
    try:
        asyncio.run(run(search, given))
    except KeyboardInterrupt:
        is_broken_off = True
    except QuicksandError as error:
        complain(error)
        return 1
    if given.json:
        print(json.dumps(facts(search, is_broken_off=is_broken_off)))
    else:
        report(search, given, is_broken_off=is_broken_off)
    return 130 if is_broken_off else 0


def complain(error: QuicksandError) -> None:
    """Print an error and its hint. It can quote the guest, which must not steer the terminal."""
    lines = [f"tree_search: {error}"]
    if error.hint and error.hint not in str(error):
        lines.append(f"hint: {error.hint}")
    for line in "\n".join(lines).splitlines():
        print("".join(c if c.isprintable() else "?" for c in line), file=sys.stderr)


def rate(search: Search) -> float:
    """Nodes a second; 0 before the first."""
    return search.tried / search.seconds if search.tried else 0.0


def steps_of(costs: Costs) -> dict[str, list[float]]:
    """How long each kind of step took, by what a reader calls it."""
    return {
        "go back to a state": costs.go_back,
        "try a move": costs.attempt,
        "keep the new state": costs.keep,
        "  of that the machine stood still": costs.pauses,
    }


def facts(search: Search, *, is_broken_off: bool) -> dict[str, object]:
    """What `--json` prints."""
    return {
        "nodes": search.tried,
        "nodes_a_second": rate(search),
        "solution": search.solution,
        "broken_off": is_broken_off,
        "steps_s": steps_of(search.costs),
    }


def report(search: Search, given: argparse.Namespace, *, is_broken_off: bool) -> None:
    """Print how the search ended, how many nodes a second were tried, and what each kind of step
    took."""
    if search.solution is not None:
        print(f"solved in {len(search.solution)} moves: {' '.join(search.solution)}")
    elif is_broken_off:
        print(f"broken off after {search.tried} of {given.nodes} attempts, not solved")
    else:
        print(f"not solved within {search.tried} attempts")
    where = "one sandbox" if given.sandboxes == 1 else f"{given.sandboxes} sandboxes"
    print(
        f"{search.tried} nodes in {search.seconds:.1f} s in {where}: "
        f"{rate(search):.1f} nodes a second"
    )
    print(f"{'step':<36} {'times':>6} {'median ms':>10} {'longest':>8} {'in all':>8}")
    for name, taken in steps_of(search.costs).items():
        if taken:
            middle, longest = statistics.median(taken) * 1000, max(taken) * 1000
            print(f"{name:<36} {len(taken):>6} {middle:>10.0f} {longest:>8.0f} {sum(taken):>7.1f}s")


if __name__ == "__main__":
    sys.exit(main())
