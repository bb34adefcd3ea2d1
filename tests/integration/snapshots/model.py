"""What a sandbox must be after any sequence of checkpoints, reverts, undos and deletions: a model
that remembers what memory, disk and processes were at each checkpoint, beside the sandbox itself.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from quicksand import Checkpoint, Sandbox
from quicksand.snapshots.history import AUTO_KEPT

from tests.integration.guests import say

LOOK = (
    "cat /dev/shm/model; dd if=/root/model bs=512 count=1 iflag=direct status=none | head -n 1"
    "; pgrep -ax sleep | cut -d' ' -f3"
)
"""Prints what is in memory, on the disk itself (not in the page cache), and a process's word."""


@dataclass(frozen=True, slots=True)
class Content:
    """A number in each of them."""

    memory: int = 0
    disk: int = 0
    process: int = 0


class Model:
    """A sandbox, and what it must be."""

    def __init__(self, vm: Sandbox, seed: int) -> None:
        self.vm = vm
        self._dice = random.Random(seed)
        self._number = 10_000  # seconds for which a process sleeps, too
        self._now = Content()
        self._known: dict[str, Content] = {}
        """By the checkpoint's id."""
        self.did: list[str] = []
        """What was done, for whoever reads that it went wrong."""

    # What changes

    async def change_all(self) -> None:
        await self.change_memory()
        await self.change_disk()
        await self.change_process()

    async def change_memory(self) -> None:
        """Write some memory, of which the number is a part, and more or less beside it."""
        number = self._next()
        mib = self._dice.choice([0, 1, 9])
        await say(
            self.vm,
            f"echo {number} > /dev/shm/model; head -c {mib}M /dev/urandom > /dev/shm/beside",
        )
        self._now = replace(self._now, memory=number)

    async def change_disk(self) -> None:
        number = self._next()
        await say(self.vm, f"echo {number} > /root/model; sync /root/model")
        self._now = replace(self._now, disk=number)

    async def change_process(self) -> None:
        number = self._next()
        await self.vm.execute("pkill -KILL -x sleep")
        await self.vm.spawn(["sleep", str(number)], detach=True)
        self._now = replace(self._now, process=number)

    # What is done with it

    async def checkpoint(self) -> Checkpoint:
        made = await self.vm.checkpoint()
        self._known[made.id] = self._now
        return made

    async def revert(self, id_: str, *, keep_now: bool = True) -> None:
        before = {made.id for made in self.vm.checkpoints()}
        await self.vm.revert(id_, keep_now=keep_now)
        self._moved(before, self._known[id_], kept=keep_now)

    async def undo(self) -> Checkpoint:
        before = {made.id for made in self.vm.checkpoints()}
        last = [made for made in self.vm.checkpoints() if made.auto][-1]
        went = await self.vm.undo()
        assert went.id == last.id
        self._moved(before, self._known[last.id], kept=True)
        return went

    async def delete(self, id_: str) -> None:
        await self.vm.delete_checkpoint(id_)
        assert id_ not in {made.id for made in self.vm.checkpoints()}

    def _moved(self, before: set[str], content: Content, *, kept: bool) -> None:
        made = [one for one in self.vm.checkpoints() if one.id not in before]
        assert len(made) == kept, made
        for one in made:
            assert one.auto
            self._known[one.id] = self._now
        automatic = [one for one in self.vm.checkpoints() if one.auto and not one.pinned]
        assert len(automatic) <= AUTO_KEPT
        self._now = content

    async def check(self) -> None:
        """It is what it must be."""
        seen = await say(self.vm, LOOK)
        now = self._now
        expected = [str(number) for number in (now.memory, now.disk, now.process)]
        assert seen.split() == expected, f"{now} after {self.did}"

    async def walk(self, steps: int) -> None:
        """Do so many things of which each can follow each other."""
        for _ in range(steps):
            name, step = self._choose()
            self.did.append(name)
            await step()
            await self.check()

    def _choose(self) -> tuple[str, Callable[[], Awaitable[object]]]:
        nodes = self.vm.checkpoints()
        choices: list[tuple[str, Callable[[], Awaitable[object]]]] = [
            ("change memory", self.change_memory),
            ("change disk", self.change_disk),
            ("change process", self.change_process),
            ("checkpoint", self.checkpoint),
        ]
        if nodes:
            goal = self._dice.choice(nodes)
            keep = self._dice.random() < 0.7
            choices += [
                (f"revert {goal.id} {keep=}", lambda: self.revert(goal.id, keep_now=keep)),
            ] * 3
        if any(node.auto for node in nodes):
            choices += [("undo", self.undo)] * 2
        if len(nodes) > 3:
            old = self._dice.choice(nodes)
            choices.append((f"delete {old.id}", lambda: self.delete(old.id)))
        return self._dice.choice(choices)

    def _next(self) -> int:
        self._number += 1
        return self._number
