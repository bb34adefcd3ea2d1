"""The coordinator: grants leases, exports saves, and starts lost sandboxes elsewhere.

There is one for each book. It reaches machines only by way of `Doing`, so its rules are tested
without any. Each sandbox has at most one piece of work under way. A change is noted in memory at
once, and on disk before anything is done or granted because of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from quicksand.errors import FleetError, QuicksandError
from quicksand.extending import best_effort, printable

from quicksand_fleet.keeping.book import Book, Exported, Kept, Phase, Wish
from quicksand_fleet.keeping.exports import HERE, Copy, new_name
from quicksand_fleet.keeping.judging import Judge, Step, starting
from quicksand_fleet.keeping.unneeded import Unneeded
from quicksand_fleet.keeping.wire import Line, Told

LOOK_S = 0.5
"""Seconds between two looks for work."""
CONNECT_S = 1.0
"""Seconds between two attempts to reach a machine."""
AGAIN_S = 5.0
"""Seconds after which a failed step is tried again."""
CONFIRM_S = 60.0
"""Seconds that a machine has to confirm a first lease."""
ALONE_S = 30.0
"""Seconds after which a coordinator ends if nothing is kept, or only sandboxes that have ended."""
WHY_MAX = 300


class Answering(Protocol):
    """A machine that asks for leases."""

    def lines(self) -> AsyncIterator[Line]:
        """Yield what the machine says. Raises RemoteError when its connection breaks."""

    def answer(self, told: Told) -> None:
        """Answer the last line."""


class Doing(Protocol):
    """The coordinator's actions on machines. All raise QuicksandError."""

    def machine(self, host: str) -> contextlib.AbstractAsyncContextManager[Answering]:
        """Connect to a machine."""

    async def start_elsewhere(
        self, kept: Kept, chosen: Callable[[Kept, str], Coroutine[None, None, None]]
    ) -> tuple[str, str]:
        """Start the sandbox from its exported save on a machine that has room, and return the
        machine's name and the sandbox's id. ``chosen`` is awaited with the name before anything is
        done there. The sandbox ends with this process until `let_go`."""

    async def start_here(self, kept: Kept) -> None:
        """Start the sandbox on its own machine, from its own disk; otherwise as
        `start_elsewhere`."""

    async def let_go(self, kept: Kept) -> None:
        """Let the sandbox outlive this process; from now on it ends with its lease."""

    async def abandon(self, name: str) -> None:
        """End a sandbox that was not let go of. Does not raise."""

    async def find_left_over(self, kept: Kept) -> tuple[str, bool]:
        """Find a sandbox that an earlier coordinator has begun to start on ``kept.host``. Return
        its id, "" if there is none, and whether it still runs."""

    def choose_other(self, kept: Kept) -> str:
        """Choose the machine that gets the sandbox's next save."""

    async def export(self, kept: Kept, saves: str, name: str, other: str) -> Exported:
        """Take the save ``name`` of the sandbox into the directory ``saves`` of its machine, and
        send it by way of this machine to the machine ``other``."""

    async def remove_exported(self, name: str) -> None:
        """Remove an exported save of this machine, if it is there."""


@dataclass(slots=True)
class _Following:
    """The state of a machine that is followed."""

    task: asyncio.Task[None]
    saves: str = ""
    why: str = ""
    """Why the last attempt to reach it failed."""
    is_hearing: bool = False
    """Whether one of its reports is being written."""
    told: Sequence[str] = ()
    """The exported saves that the last answer over this connection told it to remove."""


class Coordinator:
    """Keeps the sandboxes of one book."""

    def __init__(
        self,
        book: Book,
        doing: Doing,
        unneeded: Unneeded,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` is the clock of this machine, in seconds."""
        self._book = book
        self._unneeded = unneeded
        self._removing: asyncio.Task[None] | None = None
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
        """Keep the sandboxes until there is nothing to keep, or ``is_over``."""
        busy_at = self._clock()
        try:
            while True:
                await self._read()
                if any(kept.phase is not Phase.ENDED for kept in self._kept.values()):
                    busy_at = self._clock()
                if self._clock() >= busy_at + ALONE_S or await asyncio.to_thread(is_over):
                    return
                self._follow_machines()
                self._remove_here()
                for name in list(self._kept):
                    await self._look_at(name)
                await asyncio.sleep(LOOK_S)
        finally:
            tasks = [*self._work.values(), *(one.task for one in self._following.values())]
            tasks += [self._removing] if self._removing is not None else []
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def _read(self) -> None:
        """Take over the sandboxes that programs have added."""
        found = await asyncio.to_thread(self._book.read_all)
        for name, kept in found.items():
            known = self._kept.get(name)
            is_other = known is not None and known.phase is Phase.ENDED and known.id != kept.id
            if known is None or is_other:
                self._kept[name] = kept
        for name in self._kept.keys() - found.keys():
            if name not in self._work:
                del self._kept[name]
        with best_effort("see which exported saves are needed", self._book.log):
            names = await asyncio.to_thread(self._book.names)
            await self._unneeded.look(self._kept.values(), names | self._kept.keys())

    async def _change(self, kept: Kept) -> None:
        """Note a change; it is on the disk when this returns. ``kept`` must be made from the state
        of this moment. Raises HostError."""
        self._kept[kept.name] = kept
        await self._write(kept.name)

    async def _write(self, name: str) -> None:
        """Write the present state."""
        async with self._writing:
            if (latest := self._kept.get(name)) is not None:
                await asyncio.to_thread(self._book.write, latest)

    # Leases

    def _follow_machines(self) -> None:
        wanted = {kept.host for kept in self._kept.values() if kept.host}
        wanted |= {old.host for kept in self._kept.values() for old in kept.older}
        wanted |= self._unneeded.hosts
        for host in wanted - self._following.keys():
            task = asyncio.create_task(self._follow(host), name="quicksand-leases")
            self._following[host] = _Following(task)
        for host in self._following.keys() - wanted:
            # The report is written before it is acted on.
            if not self._following[host].is_hearing:
                self._following.pop(host).task.cancel()

    async def _follow(self, host: str) -> None:
        """Answer a machine until cancelled."""
        while True:
            try:
                self._following[host].told = ()
                async with self._doing.machine(host) as machine:
                    async for line in machine.lines():
                        machine.answer(await self._hear(host, line))
            except QuicksandError as error:
                self._following[host].why = str(error)
            await asyncio.sleep(CONNECT_S)

    async def _hear(self, host: str, line: Line) -> Told:
        """Return the answer to a machine's report. Raises HostError; the machine must not be
        answered then."""
        following = self._following[host]
        following.saves, following.is_hearing = line.saves, True
        try:
            told, changed = self._judge.hear(host, line, self._clock(), self._kept.values())
            # All in one step: newer knowledge must not be replaced by older.
            self._kept.update({kept.name: kept for kept in changed})
            for kept in changed:
                await self._write(kept.name)
        finally:
            following.is_hearing = False
        # A machine of an older version does not report which saves are left, and is not told again.
        with best_effort("note that exported saves are gone", self._book.log):
            await self._unneeded.tried(host, following.told, line.left)
        following.told = self._unneeded.due(host)
        return replace(told, unneeded=following.told)

    # What is to be done

    async def _look_at(self, name: str) -> None:
        if name in self._work or self._clock() < self._not_before.get(name, 0.0):
            return
        wishes = await asyncio.to_thread(self._book.wishes, name)
        kept = self._kept[name]
        is_ending = Wish.END in wishes
        # Nothing may come between the decision and the end of granting leases.
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
                work = self._end_unstarted if is_ending else self._restart
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

    async def _end_unstarted(self, kept: Kept) -> None:
        """End a sandbox that was about to be started, because its program ends it. Raises
        RemoteError while it is unknown whether an earlier coordinator has started it."""
        if kept.host:
            id_, runs = await self._doing.find_left_over(kept)
            if runs:  # it ends, too, since nobody has let go of it
                self._not_before[kept.name] = self._clock() + AGAIN_S
                return
            await self._change(replace(self._kept[kept.name], id=id_))
        await self._end(kept)

    async def _remove(self, kept: Kept) -> None:
        await asyncio.to_thread(self._book.remove, kept.name)
        self._kept.pop(kept.name, None)

    async def _restart(self, kept: Kept) -> None:
        """Start the sandbox, after looking for one that an earlier coordinator has begun to
        start."""
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
        """Note the machine chosen for the start: it must be known if this process is lost."""
        if kept.exported is not None:
            await self._unneeded.note(Copy(host, kept.exported.name))
        await self._change(replace(self._kept[kept.name], host=host))

    async def _confirmed(self, name: str) -> None:
        """Wait until the machine has confirmed that it ends the sandbox with its lease. Raises
        FleetError; the next look then sees what has become of the sandbox."""
        deadline = self._clock() + CONFIRM_S
        while not self._kept[name].is_fenced:
            if self._clock() >= deadline:
                raise FleetError(f"the machine of {name!r} has not confirmed its lease")
            await asyncio.sleep(LOOK_S / 5)

    async def _is_nothing_left(self, kept: Kept) -> bool:
        """Whether nothing of an interrupted start runs; its disk is kept as an older epoch. Raises
        RemoteError while its machine is away: then the answer is unknown, and nothing is
        started."""
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
        other, name = self._doing.choose_other(kept), new_name(kept.name)
        self._unneeded.begin(name)
        try:
            await self._unneeded.note(*(Copy(host, name) for host in (HERE, kept.host, other)))
            exported = await self._doing.export(kept, following.saves, name, other)
            now = replace(self._kept[kept.name], exported=exported, unneeded=(), trouble="")
            await self._change(now)
        finally:
            self._unneeded.end(name)

    def _remove_here(self) -> None:
        """Remove, in a task, those exported saves of this machine that nobody needs."""
        if self._removing is None or self._removing.done():
            self._removing = None
            if due := self._unneeded.due(HERE):
                work = self._remove_saves(due)
                self._removing = asyncio.create_task(work, name="quicksand-unneeded")

    async def _remove_saves(self, names: Sequence[str]) -> None:
        for name in names:
            left = {name}
            with best_effort("remove an exported save", self._book.log):
                await self._doing.remove_exported(name)
                left.clear()
            with best_effort("note that an exported save is gone", self._book.log):
                await self._unneeded.tried(HERE, (name,), left)


def _origin(kept: Kept) -> str:
    """Return from what a sandbox was started elsewhere, in words."""
    assert kept.exported is not None
    lost = f", since {kept.older[-1].host} was lost" if kept.older else ""
    return f"from the save of {_when(kept.exported.at)}{lost}"


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
