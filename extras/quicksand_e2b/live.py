"""A sandbox of the API while this server knows it: its record, and its guest while it runs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from quicksand import QuicksandError, Sandbox
from quicksand.extending import to_the_end

from quicksand_e2b.errors import HostAwayError
from quicksand_e2b.filesystem import Filesystem
from quicksand_e2b.interpreter import Interpreter
from quicksand_e2b.machines import Machines
from quicksand_e2b.points import History
from quicksand_e2b.process_list import ProcessList
from quicksand_e2b.processes import Processes
from quicksand_e2b.records import Records, SandboxRecord, State
from quicksand_e2b.tasks import Tasks
from quicksand_e2b.users import Users
from quicksand_e2b.watching import Watchers

IDLE_S = 60.0
"""Seconds without a request after which the connection to a guest is given back: it serves few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """The parts that serve a guest that runs."""

    sandbox: Sandbox
    users: Users
    filesystem: Filesystem
    processes: Processes
    interpreter: Interpreter
    watchers: Watchers


class Live:
    """A sandbox. Its state changes under `lock` only."""

    def __init__(
        self, record: SandboxRecord, machines: Machines, records: Records, tasks: Tasks
    ) -> None:
        self.record = record
        self.lock = asyncio.Lock()
        self._machines = machines
        self._records = records
        self._tasks = tasks
        self._list = ProcessList(records.processes_of(record.id), tasks, records.tell)
        self._guest: Guest | None = None
        self._used = time.monotonic()
        self._in_use = 0
        self.history = History()

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def is_listed(self) -> bool:
        """Whether its clients see it."""
        return self.record.state in (State.RUNNING, State.PAUSED, State.PAUSING)

    async def save(self, state: State | None = None, **changes: object) -> None:
        """Changes the record, on disk first and to the end: after a cancellation both have the
        change. Raises DiskSpaceError, PathError."""
        await to_the_end(self._save(self.record.with_state(state or self.record.state, **changes)))

    async def _save(self, record: SandboxRecord) -> None:
        await self._records.save(record)
        self.record = record

    def adopt(self, sandbox: Sandbox) -> Guest:
        """Takes the running machine of this sandbox."""
        users = Users(sandbox, self.record.user)
        filesystem = Filesystem(sandbox, users)
        self._guest = Guest(
            sandbox=sandbox,
            users=users,
            filesystem=filesystem,
            watchers=Watchers(sandbox, filesystem, self._tasks),
            processes=Processes(
                sandbox,
                lambda: self._machines.attach(self.record),
                self._list,
                self._tasks,
            ),
            interpreter=Interpreter(sandbox, lambda: self.record.variables),
        )
        return self._guest

    def guest(self) -> Guest:
        """Returns the parts that serve its guest, to which this attaches after a restart of the
        server. Raises QuicksandError if it does not run."""
        self._used = time.monotonic()
        return self._guest or self.adopt(self._machines.attach(self.record))

    async def look(self) -> None:
        """Notes its present use of the host, if it runs, and connects again to its processes if the
        connection to their host has been lost. That does not count as use of the connection to its
        guest. Raises QuicksandError."""
        if not self.lock.locked() and self.is_up():
            guest = self._guest or self.adopt(self._machines.attach(self.record))
            await guest.processes.find_earlier()
            await self.history.look(guest.sandbox)

    async def find_processes(self) -> None:
        """Connects to the processes that another server has started: their ends are to be seen, and
        their limits of time kept. Raises QuicksandError."""
        if self.is_up() and self._list.read():
            await self.guest().processes.find_earlier()

    def give_back(self) -> None:
        """Gives the connection to the guest back if nobody has needed it for a while."""
        guest = self._guest
        if guest is None or self._in_use or guest.processes.are_running or guest.watchers.are_open:
            return
        if time.monotonic() - self._used > IDLE_S:
            guest.sandbox.disconnect()

    def enter(self) -> None:
        """Notes that a request begins to use the guest; `leave` ends that."""
        self._in_use += 1

    def leave(self) -> None:
        self._in_use -= 1
        self._used = time.monotonic()

    def let_go(self) -> None:
        """Breaks off all work in the guest, whose machine ends or is replaced."""
        guest, self._guest = self._guest, None
        if guest is not None:
            guest.processes.cut()
            guest.watchers.cut()
            guest.sandbox.close()

    async def forget(self) -> None:
        """Removes its files, when nothing else of it is left."""
        await self._list.close()
        await self._records.forget(self.record)

    def is_up(self) -> bool:
        """Whether it runs, by its record and by the engine. Raises HostAwayError if unknown."""
        try:
            return self.record.state is State.RUNNING and self._machines.is_live(self.record)
        except HostAwayError:
            raise
        except (QuicksandError, OSError):
            return False
