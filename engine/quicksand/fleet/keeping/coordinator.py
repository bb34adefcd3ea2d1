"""The coordinator: grants leases, exports saves, and starts what is lost elsewhere.

There is one for each book. What it needs of machines is `Doing`, so its rules are tested without
any. Each sandbox has at most one piece of work under way; what is known of it changes in memory at
once, and on disk before anything is done or granted for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Protocol

from quicksand.base.effort import best_effort
from quicksand.base.errors import FleetError, QuicksandError
from quicksand.base.text import printable
from quicksand.fleet.keeping.book import Book, Exported, Kept, Phase, Wish
from quicksand.fleet.keeping.judging import Judge, Step, starting
from quicksand.fleet.keeping.wire import Line, Told

LOOK_S = 0.5
"""Seconds between two looks at what is to be done."""
CONNECT_S = 1.0
"""Seconds between two attempts to reach a machine."""
AGAIN_S = 5.0
"""Seconds after which what has failed is tried again."""
CONFIRM_S = 60.0
"""Seconds that a machine has to confirm a first lease."""
ALONE_S = 30.0
"""Seconds after which a coordinator ends that has nothing to keep, or only what has ended."""
WHY_MAX = 300


class Answering(Protocol):
    """A machine that asks for leases."""

    def lines(self) -> AsyncIterator[Line]:
        """Yield what the machine says. Raises RemoteError when its connection breaks."""

    def answer(self, told: Told) -> None:
        """Answer the last line."""


class Doing(Protocol):
    """What a coordinator does with machines. All raise QuicksandError."""

    def machine(self, host: str) -> contextlib.AbstractAsyncContextManager[Answering]:
        """A connection to a machine."""

    async def start_elsewhere(
        self, kept: Kept, chosen: Callable[[Kept, str], Coroutine[None, None, None]]
    ) -> tuple[str, str]:
        """Start it from its exported save on a machine that has room; ``chosen`` is awaited with
        the machine's name before anything is done there. Return that and the id. The sandbox ends
        with this process until it is let go of."""

    async def start_here(self, kept: Kept) -> None:
        """Start it on its machine, from its own disk; as above."""

    async def let_go(self, kept: Kept) -> None:
        """Let it outlive this process; it ends with its lease from now on."""

    async def abandon(self, name: str) -> None:
        """Let one end that was not let go of. Does not raise."""

    async def find_left_over(self, kept: Kept) -> tuple[str, bool]:
        """The id of a sandbox that an earlier coordinator has begun to start on ``kept.host``, ""
        if there is none, and whether it still runs."""

    async def export(self, kept: Kept, saves: str) -> Exported:
        """Take a save of it into the directory ``saves`` of its machine, and send it to another."""

    async def remove_exported(self, name: str) -> None:
        """Remove an exported save of this machine."""


@dataclass(slots=True)
class _Following:
    """What is known of a machine that is followed."""

    task: asyncio.Task[None]
    saves: str = ""
    why: str = ""
    """Why it was not reached last."""
    is_hearing: bool = False
    """Whether something that it has told is being written."""
    unneeded: set[str] = field(default_factory=set)


class Coordinator:
    """Keeps the sandboxes of one book."""

    def __init__(
        self, book: Book, doing: Doing, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``clock``: of this machine, in seconds."""
        self._book = book
        self._doing = doing
        self._clock = clock
        self._judge = Judge(clock())
        self._kept: dict[str, Kept] = {}
        self._following: dict[str, _Following] = {}
        self._work: dict[str, asyncio.Task[None]] = {}
        self._not_before: dict[str, float] = {}
        self._saved_at: dict[str, float] = {}
        self._writing = asyncio.Lock()

    async def run(self, *, is_over: Callable[[], bool] = lambda: False) -> None:
        """Keep them until there is nothing to keep, or ``is_over``."""
        busy_at = self._clock()
        try:
            while True:
                await self._read()
                if any(kept.phase is not Phase.ENDED for kept in self._kept.values()):
                    busy_at = self._clock()
                if self._clock() >= busy_at + ALONE_S or await asyncio.to_thread(is_over):
                    return
                self._follow_machines()
                for name in list(self._kept):
                    await self._look_at(name)
                await asyncio.sleep(LOOK_S)
        finally:
            tasks = [*self._work.values(), *(one.task for one in self._following.values())]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def _read(self) -> None:
        """Take over what programs have added."""
        found = await asyncio.to_thread(self._book.read_all)
        for name, kept in found.items():
            known = self._kept.get(name)
            is_other = known is not None and known.phase is Phase.ENDED and known.id != kept.id
            if known is None or is_other:
                self._kept[name] = kept
        for name in self._kept.keys() - found.keys():
            if name not in self._work:
                del self._kept[name]

    async def _change(self, kept: Kept) -> None:
        """Note what is known now; it is on the disk when this returns. ``kept`` is made of what is
        known at this moment. Raises HostError."""
        self._kept[kept.name] = kept
        await self._write(kept.name)

    async def _write(self, name: str) -> None:
        """Write what is known by now."""
        async with self._writing:
            if (latest := self._kept.get(name)) is not None:
                await asyncio.to_thread(self._book.write, latest)

    # Leases

    def _follow_machines(self) -> None:
        wanted = {kept.host for kept in self._kept.values() if kept.host}
        wanted |= {old.host for kept in self._kept.values() for old in kept.older}
        for host in wanted - self._following.keys():
            task = asyncio.create_task(self._follow(host), name="quicksand-leases")
            self._following[host] = _Following(task)
        for host in self._following.keys() - wanted:
            # What was heard is written first.
            if not self._following[host].is_hearing:
                self._following.pop(host).task.cancel()

    async def _follow(self, host: str) -> None:
        """Answer a machine for as long as that is cancelled."""
        while True:
            try:
                async with self._doing.machine(host) as machine:
                    async for line in machine.lines():
                        machine.answer(await self._hear(host, line))
            except QuicksandError as error:
                self._following[host].why = str(error)
            await asyncio.sleep(CONNECT_S)

    async def _hear(self, host: str, line: Line) -> Told:
        """What a machine is answered. Raises HostError; it must not be answered then."""
        following = self._following[host]
        following.saves, following.is_hearing = line.saves, True
        try:
            told, changed = self._judge.hear(host, line, self._clock(), self._kept.values())
            # All at once: what is known must not be replaced by what was known before.
            self._kept.update({kept.name: kept for kept in changed})
            for kept in changed:
                await self._write(kept.name)
        finally:
            following.is_hearing = False
        told = replace(told, unneeded=tuple(following.unneeded))
        following.unneeded.clear()
        return told

    # What is to be done

    async def _look_at(self, name: str) -> None:
        if name in self._work or self._clock() < self._not_before.get(name, 0.0):
            return
        wishes = await asyncio.to_thread(self._book.wishes, name)
        kept = self._kept[name]
        is_ending = Wish.END in wishes
        # Nothing may come between what is decided and that no more leases are granted.
        step = self._judge.decide(kept, self._clock(), is_ending=is_ending)
        work: Callable[[Kept], Coroutine[None, None, None]]
        match step:
            case Step.END:
                work = self._end
            case Step.REMOVE:
                work = self._remove
            case Step.RESTART_HERE | Step.RESTART_ELSEWHERE:
                kept = self._kept[name] = starting(kept, step)
                work = self._restart
            case Step.GO_ON:
                work = self._end if is_ending and not kept.host else self._restart
            case Step.NOTHING:
                if is_ending or not self._is_save_due(kept, is_wanted=Wish.SAVE in wishes):
                    return
                work = self._export
        task = asyncio.create_task(self._do(kept, work), name="quicksand-kept")
        self._work[name] = task
        task.add_done_callback(lambda _: self._work.pop(name, None))

    async def _do(self, kept: Kept, work: Callable[[Kept], Coroutine[None, None, None]]) -> None:
        try:
            await work(kept)
        except QuicksandError as error:
            self._not_before[kept.name] = self._clock() + AGAIN_S
            why = printable(" · ".join(str(error).split("\n")))[:WHY_MAX]
            with best_effort("note why it failed", self._book.log):
                await self._change(replace(self._kept[kept.name], trouble=why))

    async def _end(self, kept: Kept) -> None:
        await self._change(replace(self._kept[kept.name], phase=Phase.ENDED))

    async def _remove(self, kept: Kept) -> None:
        for name in (*kept.unneeded, *((kept.exported.name,) if kept.exported else ())):
            await self._remove_save(name)
        await asyncio.to_thread(self._book.remove, kept.name)
        self._kept.pop(kept.name, None)

    async def _remove_save(self, name: str) -> None:
        """Remove an exported save here, and from machines that are followed."""
        for following in self._following.values():
            following.unneeded.add(name)
        with best_effort("remove an exported save", self._book.log):
            await self._doing.remove_exported(name)

    async def _restart(self, kept: Kept) -> None:
        """Start it; what an earlier coordinator has begun to start is looked for first."""
        name = kept.name
        await self._write(name)
        if kept.is_here:
            await self._doing.start_here(kept)
            how = "on its own machine, from its own disk"
        else:
            if kept.host and not await self._is_nothing_left(kept):
                return
            host, id_ = await self._doing.start_elsewhere(self._kept[name], self._chosen)
            kept = replace(kept, host=host, id=id_)
            how = _origin(self._kept[name])
        try:
            placed = replace(self._kept[name], host=kept.host, id=kept.id, phase=Phase.PLACED)
            restarted = f"{_when(time.time())}, {how}"
            await self._change(replace(placed, restarted=restarted, trouble=""))
            await self._confirmed(name)
            await self._doing.let_go(self._kept[name])
        except BaseException:
            await self._doing.abandon(name)
            raise
        await self._change(replace(self._kept[name], phase=Phase.LEASED))

    async def _chosen(self, kept: Kept, host: str) -> None:
        """A machine was chosen for its start: that has to be known if this process is lost."""
        await self._change(replace(self._kept[kept.name], host=host))

    async def _confirmed(self, name: str) -> None:
        """Wait until the machine has said that it ends the sandbox with its lease. Raises
        FleetError; what has become of it is seen by the next look then."""
        deadline = self._clock() + CONFIRM_S
        while not self._kept[name].is_fenced:
            if self._clock() >= deadline:
                raise FleetError(f"the machine of {name!r} has not confirmed its lease")
            await asyncio.sleep(LOOK_S / 5)

    async def _is_nothing_left(self, kept: Kept) -> bool:
        """Whether nothing of an interrupted start runs; its disk is kept as an older epoch. Raises
        RemoteError while its machine is away: then it is unknown, and nothing is started."""
        id_, runs = await self._doing.find_left_over(kept)
        if runs:
            self._not_before[kept.name] = self._clock() + AGAIN_S
            return False
        latest = replace(self._kept[kept.name], id=id_)
        await self._change(starting(latest, Step.RESTART_ELSEWHERE))
        return True

    # Saves

    def _is_save_due(self, kept: Kept, *, is_wanted: bool) -> bool:
        if kept.phase is not Phase.LEASED:
            return False
        if is_wanted or kept.exported is None:
            return True
        last = self._saved_at.setdefault(kept.name, self._clock())
        return kept.every is not None and self._clock() >= last + kept.every

    async def _export(self, kept: Kept) -> None:
        following = self._following.get(kept.host)
        if following is None or not following.saves:
            return
        await asyncio.to_thread(self._book.grant_wish, kept.name, Wish.SAVE)
        self._saved_at[kept.name] = self._clock()
        exported = await self._doing.export(kept, following.saves)
        before = self._kept[kept.name]
        unneeded = (*before.unneeded, *((before.exported.name,) if before.exported else ()))
        await self._change(replace(before, exported=exported, unneeded=(), trouble=""))
        for name in unneeded:
            await self._remove_save(name)


def _origin(kept: Kept) -> str:
    """From what a sandbox was started elsewhere."""
    assert kept.exported is not None
    lost = f", since {kept.older[-1].host} was lost" if kept.older else ""
    return f"from the save of {_when(kept.exported.at)}{lost}"


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
