"""The kill matrix: accidents at random moments of checkpoint, revert, clone and delete, and what
must be true after each. Seeded: the same seed draws the same accidents.

`python -m tests.crash SEED POINTS [reverts]` runs it by itself and prints a line for each point;
`python -m tests.crash steps TARGETS FIRST STRIDE [new]` kills at each such step of a revert.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from quicksand import PortForward, Sandbox
from quicksand.base.errors import QuicksandError, RevertedError
from quicksand.base.files import is_locked, read_json
from quicksand.base.paths import Paths, paths
from quicksand.base.processes import Process, ProcessKind, processes_of
from quicksand.base.removal import MARK
from quicksand.records.dialled import ForwarderFiles
from quicksand.records.layout import SandboxDir, runtime_dir, sandbox_dir
from quicksand.records.nodes import Node
from quicksand.records.registry import Registry
from quicksand.snapshots import finisher
from quicksand.snapshots.history import AUTO_KEPT, History
from quicksand.snapshots.taking import working_on

from tests.conftest import fresh_places, listens, our_processes, wait_for
from tests.crash_client import Order
from tests.integration.snapshots.files import check_files, check_litter

NAME = "box"
KIB = 1024
BLOCK = 64 * KIB
RAM_BLOCKS, DISK_BLOCKS = 48, 16
NODES_MAX = 7
PATIENCE_S = 60.0

KINDS = ("checkpoint", "revert", "clone", "delete")
WEIGHTS = (38, 38, 14, 10)
REVERTS = (8, 92, 0, 0)
"""The weights for reverts nearly alone."""
TARGETS = (
    ["client"],
    ["qemu"],
    ["client", "qemu"],
    ["keeper"],
    ["client", "keeper"],
    ["keepers"],
    ["client", "keepers"],
    ["successor"],
    ["client", "finisher"],
)
OF_REVERTS = 2
"""How many of them, at the end, only reverts have."""
IN_NEW_QEMU_SHARE = 0.15
"""Of the reverts that do not need one."""
FINISHER_MAX_S = 1.5
"""Within that time after it has begun, the program that finishes a revert is killed."""
BOOT_SHARE = 0.12
"""Of the starts after a crash: from the disk. A boot takes longer than all the rest."""


@dataclass(frozen=True)
class Content:
    """What the guest's two files hold, one in memory and one on the disk."""

    ram: bytes
    disk: bytes

    @property
    def sums(self) -> list[str]:
        return [hashlib.sha256(data).hexdigest() for data in (self.ram, self.disk)]


@dataclass
class Point:
    """One accident."""

    number: int
    what: str
    when: str
    at: float
    targets: list[str]
    tag: str = ""
    in_new_qemu: bool = False
    """Whether a revert is to need another QEMU."""
    answer: dict[str, Any] = field(default_factory=dict)
    """The client's; empty if it died."""
    after: str = ""
    """How the sandbox was found."""

    @property
    def struck(self) -> bool:
        """Whether it came while the client was at work."""
        return not self.answer or bool(self.answer["struck"])

    def __str__(self) -> str:
        answer = self.answer["error"][:120] if self.answer else "the client died"
        missed = "" if self.struck else " (missed)"
        return (
            f"{self.number} {self.what} {self.when}={self.at:.4g} kills {'+'.join(self.targets)}"
            f"{missed}: {answer or 'done'}; {self.after}"
        )


class Client:
    """The process that has the accidents."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash_client"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def order(self, order: Order) -> dict[str, Any] | None:
        """Its answer; None if it died."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(asdict(order)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        return dict(json.loads(line)) if line else None

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class Box:
    """A sandbox that lives through accidents, and what is known of it."""

    def __init__(
        self,
        seed: int,
        *,
        say: Callable[[str], None] = print,
        weights: Sequence[int] = WEIGHTS,
    ) -> None:
        self.weights = weights
        self.dice = random.Random(seed)
        self.say = say
        self.paths = paths()
        self.registry = Registry(self.paths)
        self.client = Client()
        self.vm = Sandbox(image="debian", name=NAME, port_forwards=[PortForward(0, 7000)])
        self.now = Content(bytes(RAM_BLOCKS * BLOCK), bytes(DISK_BLOCKS * BLOCK))
        self.contents: dict[str, Content] = {}
        self.steps: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        """How much work each kind is on this host, that accidents come while it is done."""
        self.keepers: list[Process] = []
        """Those of the sandbox before the last accident."""
        self.counts: collections.Counter[str] = collections.Counter()
        self.nodes: dict[str, Node] = {}
        """The checkpoints that were there after the last accident."""

    @property
    def place(self) -> SandboxDir:
        return sandbox_dir(self.paths, self.vm.id)

    @property
    def history(self) -> History:
        return History(self.place)

    async def start(self) -> None:
        await self.vm.start()
        self.vm.detach()
        await self.fill()
        await self.make_nodes(2)
        for what, weight in zip(KINDS, self.weights, strict=True):
            if weight:
                await self.have(Point(0, what, "", 0, [], self.draw_tag(what, "measured")))

    async def make_nodes(self, count: int) -> None:
        for _ in range(count):
            await self.change()
            made = await self.vm.checkpoint()
            self.contents[made.id] = self.now

    async def end(self) -> None:
        """Load all that is left, then remove everything."""
        self.client.end()
        for id_ in list(self.contents):
            if id_ in self.contents:
                await self.load(id_)
        await self.vm.kill()
        self.registry.remove(self.vm.id)
        assert not our_processes(str(self.paths.data))

    # The guest

    async def guest(self, command: str) -> str:
        result = await self.vm.execute(command, timeout=60)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    async def fill(self) -> None:
        """Have the files in the guest as they are to be."""
        await self.vm.files.write("/dev/shm/f", self.now.ram)
        await self.vm.files.write("/root/f", self.now.disk)
        await self.guest("sync")

    async def change(self) -> None:
        """Rewrite some of either file."""
        data = self.dice.randbytes(BLOCK)
        ram, disk = self.dice.randrange(RAM_BLOCKS), self.dice.randrange(DISK_BLOCKS)
        await self.vm.files.write("/dev/shm/part", data)
        dd = "dd if=/dev/shm/part bs=64k conv=notrunc status=none"
        await self.guest(f"{dd} of=/dev/shm/f seek={ram}; {dd} of=/root/f seek={disk}; sync")
        self.now = Content(_put(self.now.ram, ram, data), _put(self.now.disk, disk, data))

    async def look(self, vm: Sandbox | None = None) -> list[str]:
        result = await (vm or self.vm).execute("sha256sum /dev/shm/f /root/f", timeout=60)
        return [line.split()[0] for line in result.stdout.splitlines()]

    async def load(self, id_: str) -> None:
        """Go to a checkpoint and see that all is there."""
        before = {node.id: node for node in self.history.nodes()}
        await self.vm.revert(id_, keep_now=False)
        assert await self.look() == self.contents[id_].sums, f"{id_} has other contents"
        self.now = self.contents[id_]
        # A client that was killed may have left one automatic checkpoint too many.
        left = {node.id for node in self.history.nodes()}
        check_lost(before.keys() - left, before, more=0)
        self.contents = {i: content for i, content in self.contents.items() if i in left}

    # An accident

    async def run(self, points: int) -> None:
        for number in range(points):
            point = self.draw(number)
            try:
                await self.have(point)
            except BaseException:
                self.say(f"FAILED {point}")
                raise
            self.say(str(point))
            hit = f"{point.what} / {'+'.join(point.targets)}" if point.struck else "missed"
            self.counts[hit] += 1

    def draw(self, number: int) -> Point:
        what = self.dice.choices(KINDS, self.weights)[0]
        if len(self.contents) < 2 and what == "delete":
            what = "checkpoint"
        targets = self.dice.choice(TARGETS[: None if what == "revert" else -OF_REVERTS])
        kinds = ("step", "time", "pause") if what in ("checkpoint", "revert") else ("step", "time")
        when = self.dice.choice(kinds)
        if when == "step":
            at = float(self.dice.randrange(1, self.steps[what] + 1))
        else:
            at = self.dice.uniform(0, self.seconds[what] if when == "time" else 0.05)
        tag = self.draw_tag(what, f"made {number}")
        in_new_qemu = "successor" in targets or self.dice.random() < IN_NEW_QEMU_SHARE
        return Point(number, what, when, at, list(targets), tag, in_new_qemu)

    def draw_tag(self, what: str, new: str) -> str:
        """The checkpoint that it is about: ``new``, if it makes one."""
        return new if what == "checkpoint" else self.dice.choice(sorted(self.contents))

    async def have(self, point: Point) -> None:
        await self.change()
        cloned, machine = self.now, self.machine
        before = {node.id: node for node in self.history.nodes()}
        self.keepers = [p for p in processes_of(self.place.root) if p.kind is ProcessKind.KEEPER]
        order = Order(
            point.what,
            NAME,
            point.tag,
            point.when,
            point.at,
            [target for target in point.targets if target != "finisher"],
            point.in_new_qemu,
        )
        answer = await asyncio.wait_for(asyncio.to_thread(self.client.order, order), 90)
        if answer is None:
            assert "client" in point.targets, "the client died by itself"
            self.client.end()
            self.client = Client()
            if "finisher" in point.targets:
                await asyncio.to_thread(self.kill_finisher)
        else:
            point.answer = answer
            assert not answer["wrong"], answer["wrong"]
            if not answer["struck"] and not answer["error"]:
                self.steps[point.what] = answer["steps"]
                # One that a busy host held up says nothing about the next.
                known = self.seconds.get(point.what, answer["seconds"])
                self.seconds[point.what] = (known + min(answer["seconds"], 2 * known)) / 2
        done = bool(point.answer) and not point.answer["error"]
        there = [self.contents[point.tag]] if point.what == "revert" else []
        allowed = there if done and there else [self.now, *there]
        self.check_nodes(point, before)
        self.settle(point)
        went_to = self.machine
        await self.bring_up(point, {content.sums[1]: content for content in allowed})
        is_reverted = point.what == "revert" and went_to not in ("", machine)
        await self.check_rest(point, cloned, has_kept=is_reverted)

    @property
    def machine(self) -> str:
        """The machine that the guest is, or was when it ended; "" if nobody has noted that."""
        current = runtime_dir(self.paths, self.vm.id).current()
        if current.root.exists():
            return current.name
        with contextlib.suppress(FileNotFoundError):
            return str(read_json(self.place.exit)["machine"])
        return ""

    async def check_kept(self, point: Point, before: Content) -> None:
        """The state that the revert has left is in a checkpoint, memory and all."""
        kept = [id_ for id_, content in self.contents.items() if content == before]
        kept = [id_ for id_ in kept if self.history.get(id_).tier.has_memory]
        assert kept, "the state before is in no checkpoint"
        await self.load(kept[-1])
        point.after += "; the state before is kept"

    def settle(self, point: Point) -> None:
        """Wait until what ends by itself has ended."""
        self.vm.close()
        # If all keepers are dead, too, nobody tidies up before the next command. One that is still
        # dying would get no successor.
        if "finisher" in point.targets:
            wait_for(lambda: not self.finishers(), what="the finisher's end", timeout=PATIENCE_S)
        elif {"keeper", "keepers"} & {*point.targets}:
            if point.struck:
                wait_for(self.are_keepers_dead, what="the dying to have died", timeout=PATIENCE_S)
        else:
            wait_for(self.is_settled, what="the dying to have died", timeout=PATIENCE_S)

    def kill_finisher(self) -> None:
        """Kill the program that finishes the revert, with the QEMU that it has started."""
        unfinished = runtime_dir(self.paths, self.vm.id).current().unfinished
        wait_for(
            lambda: not unfinished.exists() or self.finishers(),
            what="the end of the revert, or somebody who is at it",
            timeout=PATIENCE_S,
        )
        time.sleep(self.dice.uniform(0, FINISHER_MAX_S))
        for pid in self.finishers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def finishers(self) -> list[int]:
        """The processes that finish reverts."""
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (directory / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                if finisher.PROGRAM in words:
                    found.append(int(directory.name))
        return found

    def check_nodes(self, point: Point, before: dict[str, Node]) -> None:
        """No checkpoint is lost, none is damaged, and what was told is true."""
        assert not self.history.broken()
        nodes = {node.id: node for node in self.history.nodes()}
        lost = before.keys() - nodes.keys()
        done = bool(point.answer) and not point.answer["error"]
        if point.what == "delete":
            assert not done or point.tag in lost
            lost -= {point.tag}
        check_lost(lost, before)
        made = nodes.keys() - before.keys()
        assert len(made) <= (point.what in ("checkpoint", "revert")), f"made: {made}"
        assert not done or made or point.what in ("clone", "delete")
        for id_ in made:
            self.contents[id_] = self.now
        self.contents = {id_: self.contents[id_] for id_ in nodes}
        self.nodes = nodes
        for node in self.history.all_nodes():
            check_files(self.place, node)

    async def bring_up(self, point: Point, allowed: Mapping[str, Content]) -> None:
        """Have it run again, and see that it is what it was, or what it was to become: one of
        ``allowed``, by the checksum of its disk."""
        self.vm = Sandbox.open(NAME)
        if self.vm.is_running:
            point.after = "runs" if self.has_keeper() else "runs, with a new keeper"
            await self.check_present(point, allowed)
            assert self.has_keeper(), "it is not in a keeper's hands again"
            return
        await self.vm.kill()
        assert not is_locked(self.place.lock)
        if self.dice.random() < BOOT_SHARE:
            point.after += "booted"
            await self.vm.start()
            found = (await self.guest("sha256sum /root/f")).split()[0]
            self.now = Content(self.now.ram, allowed[found].disk)
            await self.fill()
        else:
            id_ = self.dice.choice(sorted(self.contents))
            point.after += "started at a checkpoint"
            await self.vm.start(at=id_)
            assert await self.look() == self.contents[id_].sums, f"{id_} has other contents"
            self.now = self.contents[id_]
            await self.forget_left_behind()
        self.vm.detach()

    async def forget_left_behind(self) -> None:
        """The disk that a start at a checkpoint has kept is whole; nothing here goes back to it."""
        for node in self.history.nodes():
            if not node.tier.has_memory:
                check_files(self.place, node)
                await self.vm.delete_checkpoint(node.id)

    async def check_present(self, point: Point, allowed: Mapping[str, Content]) -> None:
        if "finisher" in point.targets:
            await self.vm.resume()  # whoever works on it has it finished
        try:
            sums = await self.look()
        except RevertedError:
            if point.what != "revert" or not {"keeper", "keepers"} & {*point.targets}:
                raise
            # It was all but finished, and is finished anew by a new keeper.
            sums = await self.look()
        assert sums[1] in allowed, "the disk is neither the old one nor the new one"
        self.now = allowed[sums[1]]
        assert sums == self.now.sums, "memory and disk are of different instants"

    def are_keepers_dead(self) -> bool:
        return not any(keeper.is_there for keeper in self.keepers)

    def is_settled(self) -> bool:
        """Whether whatever ends, since its client or its keeper ended, has done so."""
        entry = self.registry.inspect(self.vm.id)
        assert entry is not None
        return self.alone() if entry.run is not None else not entry.is_live

    def alone(self) -> bool:
        """Whether QEMU (and its keeper) are the sandbox's only processes, and nothing is to be
        finished."""
        lines = our_processes(str(self.place.root))
        count = sum("qemu-system" in line and "keeper.py" not in line for line in lines)
        runtime = runtime_dir(self.paths, self.vm.id)
        return count == 1 and not (runtime.current().unfinished.exists() or self.finishers())

    def has_keeper(self) -> bool:
        return any("keeper.py" in line for line in our_processes(str(self.place.root)))

    async def check_rest(self, point: Point, cloned: Content, *, has_kept: bool) -> None:
        """Clones are whole or gone, nothing is left lying about, and a checkpoint loads; if the
        state before, ``cloned``, was to be kept (``has_kept``), that one, too."""
        await self.check_clones(cloned, may_die=point.struck)
        known = self.nodes.keys()
        record = self.registry.find(self.vm.id).record
        assert record is not None
        async with working_on(self.registry, record):
            self.history.sweep()
        made = {node.id: node for node in self.history.nodes() if node.id not in known}
        # What a client has left to be kept.
        self.contents |= dict.fromkeys(made, cloned)
        self.nodes |= made
        check_litter(self.place)
        for port in self.vm.port_forwards.values():
            assert listens(port)
        left = {node.id for node in self.history.nodes()}
        check_lost(self.contents.keys() - left, self.nodes)
        self.contents = {id_: content for id_, content in self.contents.items() if id_ in left}
        if has_kept:
            await self.check_kept(point, cloned)
        ids = sorted(self.contents)
        while len(ids) > NODES_MAX:
            doomed = ids.pop(self.dice.randrange(len(ids)))
            await self.vm.delete_checkpoint(doomed)
            del self.contents[doomed]
        await self.load(self.dice.choice(ids))
        runtime = runtime_dir(self.paths, self.vm.id)
        forwarder = ForwarderFiles(runtime.root)
        own = {MARK, "keeper.sock", "keeper.lock", "current", runtime.current().name}
        own |= {forwarder.socket.name, forwarder.lock.name}

        def names() -> set[str]:
            found = {path.name for path in runtime.root.iterdir()}
            return found - {"commands.log", "commands.log.1", forwarder.forwards.name}

        # The machine before the revert ends behind it.
        wait_for(lambda: names() == own, what=f"{own} alone", timeout=PATIENCE_S)

    async def check_clones(self, cloned: Content, *, may_die: bool) -> None:
        for id_ in [entry.id for entry in Sandbox.list() if entry.id != self.vm.id]:
            wait_for(lambda id_=id_: self.clone_is_settled(id_), what="the clone")  # type: ignore[misc]
            if self.registry.inspect(id_) is None:
                continue
            clone = Sandbox.open(id_)
            if clone.is_running:
                assert await self.look_at_clone(clone, may_die=may_die) in (None, cloned.sums)
            await clone.kill()
            self.registry.remove(id_)
        self.registry.reap()
        left = self.directories(self.paths.sandboxes) - {self.vm.id}
        whole = {id_ for id_ in left if sandbox_dir(self.paths, id_).record.exists()}
        assert not whole, f"left of clones: {whole}"
        assert self.directories(self.paths.runtime) == {self.vm.id}
        wait_for(self.is_alone, what="directories without a record to be reaped")
        wait_for(self.only_ours, what="QEMUs of clones to end")

    async def look_at_clone(self, clone: Sandbox, *, may_die: bool) -> list[str] | None:
        """None if it is just ending, since its client or its QEMU was killed."""
        try:
            return await self.look(clone)
        except QuicksandError:
            if not may_die:
                raise
            wait_for(lambda: not clone.is_running, what="the end of a clone that does not answer")
            return None

    def clone_is_settled(self, id_: str) -> bool:
        entry = self.registry.inspect(id_)
        return entry is None or not entry.is_live or entry.run is not None

    def is_alone(self) -> bool:
        """A directory without a record is reaped once its maker cannot be at work any more."""
        self.registry.reap()
        return self.directories(self.paths.sandboxes) == {self.vm.id}

    @staticmethod
    def directories(root: Path) -> set[str]:
        return {path.name for path in root.iterdir() if path.name[0] != "."}

    def only_ours(self) -> bool:
        return len(our_processes(str(self.paths.data))) == 2


def _put(data: bytes, block: int, part: bytes) -> bytes:
    return data[: block * BLOCK] + part + data[(block + 1) * BLOCK :]


def check_lost(lost: Set[str], before: Mapping[str, Node], *, more: int = 1) -> None:
    """Only the oldest automatic checkpoints make room, for so many ``more``."""
    automatic = [id_ for id_, node in before.items() if node.auto]
    assert lost <= set(automatic[: max(0, len(automatic) + more - AUTO_KEPT)]), f"lost: {lost}"


async def run_matrix(
    seed: int, points: int, say: Callable[[str], None], weights: Sequence[int] = WEIGHTS
) -> dict[str, int]:
    """Have ``points`` accidents, of the kinds KINDS by their ``weights``; returns how many there
    were of each kind."""
    box = Box(seed, say=say, weights=weights)
    try:
        await box.start()
        await box.run(points)
        await box.end()
    except BaseException:
        box.client.end()
        await Sandbox.open(NAME).kill()
        raise
    return dict(box.counts)


async def kill_at_steps(
    targets: Sequence[str],
    steps: Iterable[int],
    say: Callable[[str], None],
    *,
    in_new_qemu: bool = False,
) -> int:
    """Kill ``targets`` at each of these steps of a revert, each time of another one; returns how
    many came while it was under way."""
    box = Box(0, say=say, weights=REVERTS)
    struck = 0
    try:
        await box.start()
        for step in steps:
            tag = box.draw_tag("revert", "")
            point = Point(step, "revert", "step", step, list(targets), tag, in_new_qemu)
            try:
                await box.have(point)
            except BaseException:
                say(f"FAILED {point}")
                raise
            say(str(point))
            if not point.struck:
                break
            struck += 1
        await box.end()
    except BaseException:
        box.client.end()
        await Sandbox.open(NAME).kill()
        raise
    return struck


def main() -> None:
    if sys.argv[1] == "steps":
        steps = range(int(sys.argv[3]), 100_000, int(sys.argv[4]))
        _kill_at_steps(sys.argv[2].split("+"), steps, in_new_qemu="new" in sys.argv[5:])
        return
    seed, points = int(sys.argv[1]), int(sys.argv[2])
    prepared: Paths = paths()
    started = time.monotonic()
    with fresh_places(prepared):
        weights = REVERTS if "reverts" in sys.argv[3:] else WEIGHTS
        counts = asyncio.run(
            run_matrix(seed, points, lambda text: print(text, flush=True), weights)
        )
    print(json.dumps(counts, indent=1), f"{time.monotonic() - started:.0f} s", flush=True)


def _kill_at_steps(targets: Sequence[str], steps: Iterable[int], *, in_new_qemu: bool) -> None:
    def say(text: str) -> None:
        print(text, flush=True)

    with fresh_places(paths()):
        print(asyncio.run(kill_at_steps(targets, steps, say, in_new_qemu=in_new_qemu)))


if __name__ == "__main__":
    main()
