"""The sandboxes of the API: who has which, until when, and what becomes of them then.

Each step writes its record before it does anything, so that the next server finishes or undoes
what a killed one began (`load`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from quicksand import QuicksandError
from quicksand.base.threads import to_the_end

from quicksand_tui.api.asked import PAUSE, TIMEOUT_S
from quicksand_tui.api.errors import ApiError, RpcError, no_such_sandbox
from quicksand_tui.api.live import Live
from quicksand_tui.api.machines import Machines
from quicksand_tui.api.records import Records, SandboxRecord, SnapshotRecord, State
from quicksand_tui.api.tasks import Tasks

AGAIN_S = 60.0
"""Seconds after which what could not be ended or paused is tried again."""

LOOK_S = 15.0
"""Seconds between two looks at connections that nobody needs."""


class Sandboxes:
    """Methods raise ApiError and QuicksandError. What changes the state of a sandbox goes to its
    end even if the client that asked for it leaves (`finish`)."""

    def __init__(self, machines: Machines, records: Records, tell: Callable[[str], None]) -> None:
        """``tell`` is told what goes wrong when nobody has asked."""
        self.machines = machines
        self.records = records
        self._tell = tell
        self.tasks = Tasks(self._tell_of)
        self._known: dict[str, Live] = {}
        self.snapshots: dict[str, SnapshotRecord] = {}
        self._changed = asyncio.Event()
        self._again: dict[str, float] = {}
        """When to try again what failed, by the loop's clock."""

    def _tell_of(self, name: str, error: BaseException) -> None:
        """Tell of a fault of ours; anything else was told to the client that asked."""
        if not isinstance(error, ApiError | RpcError | QuicksandError):
            self._tell(f"{name}: {error!r}")

    # Which there are

    def __iter__(self) -> Iterator[Live]:
        return iter(list(self._known.values()))

    def find(self, id_: str) -> Live | None:
        """A sandbox that its clients see; None if there is none."""
        live = self._known.get(id_)
        return live if live is not None and live.is_listed else None

    def require(self, id_: str, owner: str) -> Live:
        """Raises ApiError (404), also for another owner's: who asks learns nothing of it."""
        live = self.find(id_)
        if live is None or live.record.owner != owner:
            raise no_such_sandbox(id_)
        return live

    def require_up(self, id_: str, owner: str) -> Live:
        """The same for one that runs or is paused; one whose machine has ended is gone for its
        clients."""
        live = self.require(id_, owner)
        if live.record.state is State.RUNNING and not live.is_up():
            raise no_such_sandbox(id_)
        return live

    def add(self, record: SandboxRecord) -> Live:
        """Take a new one, of which no client hears yet. Who looks for its idempotency key finds it
        from now on. The caller has its `lock` at once, and saves it before there is anything of
        it."""
        return self._know(record)

    def _know(self, record: SandboxRecord) -> Live:
        live = Live(record, self.machines, self.records, self.tasks)
        self._known[record.id] = live
        return live

    async def begin(self, live: Live, timeout_s: float) -> None:
        """It runs from now on, for so many seconds."""
        try:
            await live.save(State.RUNNING, ends=time.time() + timeout_s)
        finally:
            self._changed.set()

    async def drop(self, live: Live) -> None:
        """Forget one of which nothing is left."""
        await to_the_end(self._drop(live))

    async def _drop(self, live: Live) -> None:
        await live.forget()
        self._known.pop(live.id, None)
        self._again.pop(live.id, None)

    # At the start of the server

    async def load(self) -> None:
        """Take over what an earlier server has left; finish or undo what it was killed at."""
        self.records.prepare()
        self.snapshots = {found.id: found for found in self.records.snapshots()}
        for record in list(self.records.sandboxes()):
            self._know(record)
        for snapshot in list(self.snapshots.values()):
            if not snapshot.is_whole:
                await self._try(f"undo {snapshot.id}", self.forget_snapshot(snapshot))
        for live in self:
            await self._try(f"take over {live.id}", self._take_over(live))
        self.tasks.start(self._find_processes(), "api-find-processes")

    async def _find_processes(self) -> None:
        for live in self:
            if live.is_up():
                await self._try(f"find the processes of {live.id}", live.find_processes())

    async def _try(self, what: str, work: object) -> None:
        try:
            await work  # type: ignore[misc]
        except (QuicksandError, OSError) as error:
            self._tell(f"cannot {what}: {error}")

    async def _take_over(self, live: Live) -> None:
        record = live.record
        is_live = self.machines.is_live(record.name)
        match record.state:
            case State.MAKING:
                await self.machines.remove(record.name)
                await self.drop(live)
            case State.ENDING:
                await self.kill(live)
            case State.HELD:
                await self._remove_unless_held(live)
            case State.PAUSING | State.RUNNING | State.PAUSED if not self.machines.exists(
                record.name
            ):
                await self.drop(live)
            case State.PAUSING:
                await self._note_pause(live)
            case State.PAUSED if is_live:  # the server was killed just after it had resumed it
                await live.save(State.RUNNING, ends=max(record.ends, time.time() + TIMEOUT_S))
            case _:
                pass

    async def _note_pause(self, live: Live) -> None:
        """Note what has become of a pause that was broken off."""
        if self.machines.is_live(live.record.name):
            await live.save(State.RUNNING)
        elif self.machines.exists(live.record.name):
            memory = self.machines.has_pause(live.record.name)
            await live.save(State.PAUSED, paused_memory=memory)

    # What is done with one

    async def undo(self, live: Live) -> None:
        """Remove one that could not be made. What cannot be removed now is tried again."""
        live.let_go()
        try:
            await self.machines.remove(live.record.name)
        except (QuicksandError, OSError) as error:
            self._tell(f"cannot remove {live.id}, which could not be made: {error}")
            await live.save(State.ENDING)
            self._changed.set()
        else:
            await self.drop(live)

    async def kill(self, live: Live) -> None:
        """End a sandbox and remove it; it is kept, unseen, while there are snapshots of it."""
        async with live.lock:
            if live.record.state is State.HELD or live.id not in self._known:
                return
            await live.save(State.ENDING)
            live.let_go()
            if self._is_held(live.id):
                await self.machines.end(live.record.name)
                await live.save(State.HELD)
                return
            await self.machines.remove(live.record.name)
            await self.drop(live)

    async def pause(self, live: Live, *, memory: bool) -> None:
        """Raises ApiError (409) if it is paused already, 404 if it does not run."""
        async with live.lock:
            if live.record.state is State.PAUSED:
                raise ApiError(409, f"the sandbox {live.id} is paused already")
            if not live.is_up():
                raise no_such_sandbox(live.id)
            await live.save(State.PAUSING)
            try:
                await self.machines.pause(live.record.name, memory=memory)
            except BaseException:
                await self._note_pause(live)
                raise
            finally:
                live.let_go()
            await live.save(State.PAUSED, paused_memory=memory)

    async def resume(self, live: Live, timeout_s: float, *, memory: bool = True) -> bool:
        """Have it run for at least so many seconds from now. Returns whether it was paused. A
        running one goes on as it is; without ``memory`` a paused one boots from its disk."""
        async with live.lock:
            if live.record.state is State.PAUSED:
                kept = live.record.paused_memory and memory
                live.adopt(await self.machines.resume(live.record.name, memory=kept))
                await self.begin(live, timeout_s)
                return True
            if not live.is_listed or not live.is_up():
                raise no_such_sandbox(live.id)
            if time.time() + timeout_s > live.record.ends:
                await self.begin(live, timeout_s)
            return False

    async def set_timeout(self, live: Live, timeout_s: float) -> None:
        async with live.lock:
            if live.record.state is State.PAUSED or not live.is_up():
                raise no_such_sandbox(live.id)
            await self.begin(live, timeout_s)

    # Snapshots of it

    def _is_held(self, id_: str) -> bool:
        return any(found.source == id_ for found in self.snapshots.values())

    def of_snapshot(self, snapshot: SnapshotRecord) -> Live:
        """The sandbox that holds a snapshot. Raises ApiError (404)."""
        live = self._known.get(snapshot.source)
        if live is None:
            raise ApiError(404, f"the sandbox of the snapshot {snapshot.id} is gone")
        return live

    async def forget_snapshot(self, snapshot: SnapshotRecord) -> None:
        """Remove a snapshot, and with the last one of a sandbox that is gone that, too."""
        source = self._known.get(snapshot.source)
        if source is not None:
            async with source.lock:
                await self.machines.delete_checkpoint(source.record.name, snapshot.tag)
        await self.records.forget(snapshot)
        self.snapshots.pop(snapshot.id, None)
        if source is not None:
            await self._remove_unless_held(source)

    async def _remove_unless_held(self, live: Live) -> None:
        async with live.lock:
            if live.record.state is State.HELD and not self._is_held(live.id):
                await self.machines.remove(live.record.name)
                await self.drop(live)

    # The clock

    async def watch(self) -> None:
        """End or pause each sandbox when its time is up, and try again to end what could not be
        ended, until cancelled."""
        loop = asyncio.get_running_loop()
        looked = loop.time()
        while True:
            self._changed.clear()
            now = time.time()
            nearest = LOOK_S
            for live in self:
                if live.record.state not in (State.RUNNING, State.ENDING) or live.lock.locked():
                    continue
                ends = live.record.ends if live.record.state is State.RUNNING else now
                if (again := self._again.get(live.id, 0.0)) > loop.time():
                    nearest = min(nearest, again - loop.time())
                elif ends <= now:
                    self._again[live.id] = loop.time() + AGAIN_S
                    self.tasks.start(self._expire(live), f"api-expire-{live.id}")
                else:
                    nearest = min(nearest, ends - now)
            if loop.time() - looked >= LOOK_S:
                looked = loop.time()
                for live in self:
                    live.give_back()
            try:
                async with asyncio.timeout(max(0.01, nearest)):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _expire(self, live: Live) -> None:
        try:
            is_running = live.record.state is State.RUNNING
            if is_running and live.record.ends > time.time():
                return  # lengthened meanwhile
            if is_running and live.record.on_timeout == PAUSE and live.is_up():
                await self.pause(live, memory=live.record.pauses_memory)
            else:
                await self.kill(live)
        except ApiError:
            return  # it is paused or gone by now
        except (QuicksandError, OSError) as error:
            self._tell(f"cannot end {live.id}, whose time is up: {error}")
            return
        self._again.pop(live.id, None)

    async def finish(self) -> None:
        """Leave the sandboxes as they are; break off what is done in them."""
        for live in self:
            live.let_go()
        await self.tasks.end()
