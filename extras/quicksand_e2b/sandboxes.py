"""The sandboxes of the API: their owners, the times when they are up, and their ends.

Each step writes its record before it does anything, so that the next server finishes or undoes the
work of a killed one (`load`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from quicksand import QuicksandError, RemoteError
from quicksand.extending import to_the_end

from quicksand_e2b.asked import PAUSE, TIMEOUT_S
from quicksand_e2b.errors import ApiError, HostAwayError, RpcError, no_such_sandbox
from quicksand_e2b.live import Live
from quicksand_e2b.machines import Machines
from quicksand_e2b.records import Records, SandboxRecord, SnapshotRecord, State
from quicksand_e2b.tasks import Tasks, words_of

AGAIN_S = 60.0
"""Seconds after which a failed end or pause is tried again."""

AWAY_S = 5.0
"""Seconds after which an action that only waits for its host is tried again."""

LATE_S = 150.0
"""Seconds after which no action of a killed server goes on at a host any more: the host hears of
that server's end (60), keeps its work for it (30), and undoes it (60)."""

LOOK_S = 15.0
"""Seconds between two looks at connections that nobody needs."""


class Sandboxes:
    """The sandboxes by their ids. Methods raise ApiError and QuicksandError. A change of a
    sandbox's state goes to its end even if the client that asked for it leaves (`finish`)."""

    def __init__(self, machines: Machines, records: Records, tell: Callable[[str], None]) -> None:
        """``tell`` is told of failures for which no client has asked."""
        self.machines = machines
        self.records = records
        self._tell = tell
        self.tasks = Tasks(self._tell_of)
        self._known: dict[str, Live] = {}
        self.snapshots: dict[str, SnapshotRecord] = {}
        self._changed = asyncio.Event()
        self._again: dict[str, float] = {}
        """The times, by the loop's clock, when failed actions are tried again."""
        self._unsettled: set[str] = set()
        """Ids of sandboxes with an action under way whose end is not known yet."""
        self._late_until: dict[str, float] = {}
        """The times, by the loop's clock, until which such actions may go on at their hosts."""
        self._halves: dict[str, SnapshotRecord] = {}
        """Snapshots that could not be taken, and are not undone yet."""

    def _tell_of(self, name: str, error: BaseException) -> None:
        """Tells of a fault of ours; any other was told to the client that asked."""
        if not isinstance(error, ApiError | RpcError | QuicksandError):
            self._tell(f"{name}: {words_of(error)}")

    # Finding

    def __iter__(self) -> Iterator[Live]:
        return iter(list(self._known.values()))

    def find(self, id_: str) -> Live | None:
        """Returns a sandbox that its clients see; None if there is none."""
        live = self._known.get(id_)
        return live if live is not None and live.is_listed else None

    def require(self, id_: str, owner: str) -> Live:
        """Returns an owner's sandbox. Raises ApiError (404), also for another owner's: a stranger
        learns nothing of it."""
        live = self.find(id_)
        if live is None or live.record.owner != owner:
            raise no_such_sandbox(id_)
        return live

    def require_up(self, id_: str, owner: str) -> Live:
        """Returns an owner's sandbox that runs or is paused; one whose machine has ended is gone
        for its clients. Raises HostAwayError if that is not known now."""
        live = self.require(id_, owner)
        self.require_settled(live)
        if live.record.state is State.RUNNING and not live.is_up():
            raise no_such_sandbox(id_)
        return live

    def add(self, record: SandboxRecord) -> Live:
        """Adds a new sandbox, of which no client hears yet. A search for its idempotency key finds
        it from now on. The caller has its `lock` at once, and saves it before anything of it
        exists."""
        return self._know(record)

    def _know(self, record: SandboxRecord) -> Live:
        live = Live(record, self.machines, self.records, self.tasks)
        self._known[record.id] = live
        return live

    async def begin(self, live: Live, timeout_s: float) -> None:
        """Makes a sandbox run from now on, for so many seconds."""
        try:
            await live.save(State.RUNNING, ends=time.time() + timeout_s)
        finally:
            self._changed.set()

    async def drop(self, live: Live) -> None:
        """Forgets a sandbox of which nothing is left."""
        await to_the_end(self._drop(live))

    async def _drop(self, live: Live) -> None:
        await live.forget()
        self._known.pop(live.id, None)
        self._again.pop(live.id, None)
        self._unsettled.discard(live.id)
        self._late_until.pop(live.id, None)

    # At the start of the server

    async def load(self) -> None:
        """Takes over an earlier server's sandboxes; finishes or undoes what it was killed at."""
        self.records.prepare()
        self.snapshots = {found.id: found for found in self.records.snapshots()}
        for record in list(self.records.sandboxes()):
            self._know(record)
        for snapshot in list(self.snapshots.values()):
            if not snapshot.is_whole:
                await self.undo_snapshot(snapshot)
        for live in self:
            if live.record.host:
                self._note_late(live)
            await self._settle(live)
        self.tasks.start(self._find_processes(), "api-find-processes")

    async def _find_processes(self) -> None:
        for live in self:
            try:
                await live.find_processes()
            except HostAwayError:
                continue  # `Live.look` does it once the host is back
            except (QuicksandError, OSError) as error:
                self._tell(f"cannot find the processes of {live.id}: {error}")

    def _note_late(self, live: Live) -> None:
        """Notes that an action on a sandbox may still go on at its host."""
        self._late_until[live.id] = asyncio.get_running_loop().time() + LATE_S

    async def _settle(self, live: Live) -> None:
        """Takes a sandbox over, as far as possible now; the rest is tried again."""
        self._unsettled.add(live.id)
        try:
            is_settled = await self._take_over(live)
        except HostAwayError:
            is_settled = False  # the user was told
        except (QuicksandError, OSError) as error:
            is_settled = not live.record.host
            self._again[live.id] = asyncio.get_running_loop().time() + AGAIN_S
            self._tell(f"cannot take over {live.id}: {error}")
        if is_settled:
            self._unsettled.discard(live.id)

    async def _take_over(self, live: Live) -> bool:
        """Takes a sandbox over. Returns False if an action on it still goes on."""
        match live.record.state:
            case State.ENDING:
                await self.kill(live)
            case State.HELD:
                await self._remove_unless_held(live)
            case _:
                async with live.lock:
                    return await self._find_out(live)
        return True

    async def _find_out(self, live: Live) -> bool:
        """Finds out how far an action has come. Returns False if it may still go on."""
        record = live.record
        is_late = asyncio.get_running_loop().time() < self._late_until.get(live.id, 0.0)
        if record.state is State.MAKING:
            if record.request_key:  # a client that asks again gets another one
                await live.save(request_key="", request_digest="")
            await self.machines.remove(record)
            if not is_late:
                await self.drop(live)
            return not is_late
        if not self.machines.exists(record):
            await self.drop(live)
            return True
        is_live = self.machines.is_live(record)
        if is_live and is_late and record.state in (State.PAUSING, State.PAUSED):
            return False
        if record.state is State.PAUSING:
            await self._note_pause(live)
        elif record.state is State.PAUSED and is_live:
            # The server was killed just after it had resumed the sandbox.
            await live.save(State.RUNNING, ends=max(record.ends, time.time() + TIMEOUT_S))
        return True

    def require_settled(self, live: Live) -> None:
        """Checks that no action on a sandbox has an unknown end. Raises HostAwayError."""
        if live.id in self._unsettled:
            raise HostAwayError(f"what was begun with the sandbox {live.id} is not over yet")

    async def _note_pause(self, live: Live) -> None:
        """Notes the outcome of a pause that was broken off."""
        if self.machines.is_live(live.record):
            await live.save(State.RUNNING)
        elif self.machines.exists(live.record):
            memory = await self.machines.has_pause(live.record)
            await live.save(State.PAUSED, paused_memory=memory)

    # Actions on a sandbox

    async def undo(self, live: Live) -> None:
        """Removes a sandbox that could not be made. If that fails now, it is tried again."""
        live.let_go()
        try:
            await self.machines.remove(live.record)
        except (QuicksandError, OSError) as error:
            self._tell(f"cannot remove {live.id}, which could not be made: {error}")
            await live.save(State.ENDING)
            self._changed.set()
        else:
            await self.drop(live)

    async def kill(self, live: Live) -> None:
        """Ends a sandbox and removes it; while it has snapshots, it is kept, unseen."""
        async with live.lock:
            if live.record.state is State.HELD or live.id not in self._known:
                return
            self.machines.exists(live.record)  # if its host is away, nothing is done
            await live.save(State.ENDING)
            live.let_go()
            if self._is_held(live.id):
                await self.machines.end(live.record)
                await live.save(State.HELD)
                return
            await self.machines.remove(live.record)
            await self.drop(live)

    async def pause(self, live: Live, *, memory: bool) -> None:
        """Pauses a sandbox. Raises ApiError: 409 if it is paused, 404 if it does not run."""
        async with live.lock:
            self.require_settled(live)
            if live.record.state is State.PAUSED:
                raise ApiError(409, f"the sandbox {live.id} is paused already")
            if not live.is_up():
                raise no_such_sandbox(live.id)
            await live.save(State.PAUSING)
            try:
                await self.machines.pause(live.record, memory=memory)
            except RemoteError:
                self._note_late(live)
                self._unsettled.add(live.id)
                raise
            except BaseException:
                await self._note_pause(live)
                raise
            finally:
                live.let_go()
            await live.save(State.PAUSED, paused_memory=memory)

    async def resume(self, live: Live, timeout_s: float, *, memory: bool = True) -> bool:
        """Makes a sandbox run for at least so many seconds from now. Returns whether it was paused.
        A running one goes on as it is; without ``memory`` a paused one boots from its disk."""
        async with live.lock:
            self.require_settled(live)
            if live.record.state is State.PAUSED:
                kept = live.record.paused_memory and memory
                try:
                    live.adopt(await self.machines.resume(live.record, memory=kept))
                except RemoteError:
                    self._note_late(live)
                    self._unsettled.add(live.id)
                    raise
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
        """Returns the sandbox that holds a snapshot. Raises ApiError (404)."""
        live = self._known.get(snapshot.source)
        if live is None:
            raise ApiError(404, f"the sandbox of the snapshot {snapshot.id} is gone")
        return live

    async def undo_snapshot(self, snapshot: SnapshotRecord) -> None:
        """Removes a snapshot that could not be taken. If that fails now, it is tried again."""
        try:
            await self.forget_snapshot(snapshot)
        except (QuicksandError, OSError) as error:
            self._halves[snapshot.id] = snapshot
            if not isinstance(error, HostAwayError):
                self._tell(f"cannot undo the snapshot {snapshot.id}: {error}")
        else:
            self._halves.pop(snapshot.id, None)
            self._again.pop(snapshot.id, None)

    async def forget_snapshot(self, snapshot: SnapshotRecord) -> None:
        """Removes a snapshot; with the last one of a sandbox that is gone, that sandbox, too."""
        source = self._known.get(snapshot.source)
        if source is not None:
            async with source.lock:
                await self.machines.delete_checkpoint(source.record, snapshot.tag)
        await self.records.forget(snapshot)
        self.snapshots.pop(snapshot.id, None)
        if source is not None:
            await self._remove_unless_held(source)

    async def _remove_unless_held(self, live: Live) -> None:
        async with live.lock:
            if live.record.state is State.HELD and not self._is_held(live.id):
                await self.machines.remove(live.record)
                await self.drop(live)

    # The clock

    async def watch(self) -> None:
        """Ends or pauses each sandbox when its time is up; tries failed ends again, until
        cancelled."""
        loop = asyncio.get_running_loop()
        looked = loop.time()
        while True:
            self._changed.clear()
            now = time.time()
            nearest = LOOK_S
            for live in self:
                if (ends := self._due(live)) is None:
                    continue
                if (again := self._again.get(live.id, 0.0)) > loop.time():
                    nearest = min(nearest, again - loop.time())
                elif ends <= now:
                    self._again[live.id] = loop.time() + AGAIN_S
                    self.tasks.start(self._attend(live), f"api-expire-{live.id}")
                else:
                    nearest = min(nearest, ends - now)
            if loop.time() - looked >= LOOK_S:
                looked = loop.time()
                for live in self:
                    live.give_back()
                for half in list(self._halves.values()):
                    if self._again.get(half.id, 0.0) <= looked:
                        self._again[half.id] = looked + AGAIN_S
                        self.tasks.start(self.undo_snapshot(half), f"api-undo-{half.id}")
            try:
                async with asyncio.timeout(max(0.01, nearest)):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _due(self, live: Live) -> float | None:
        """Returns the Unix time of the next action on a sandbox; None if there is none."""
        if live.lock.locked():
            return None
        if live.id in self._unsettled or live.record.state is State.ENDING:
            return 0.0
        return live.record.ends if live.record.state is State.RUNNING else None

    async def _attend(self, live: Live) -> None:
        """Does the action that is due."""
        if live.id in self._unsettled:
            self._again[live.id] = asyncio.get_running_loop().time() + AWAY_S
            await self._settle(live)
            self._changed.set()
            return
        await self._expire(live)

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
            return  # the sandbox is paused or gone by now
        except HostAwayError:
            self._again[live.id] = asyncio.get_running_loop().time() + AWAY_S
            return
        except (QuicksandError, OSError) as error:
            self._tell(f"cannot end {live.id}, whose time is up: {error}")
            return
        self._again.pop(live.id, None)

    async def finish(self) -> None:
        """Leaves the sandboxes as they are; breaks off all work in them."""
        for live in self:
            live.let_go()
        await self.tasks.end()
