"""A sandbox of the API while this server knows it: its record, and its guest while it runs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from quicksand import QuicksandError, Sandbox

from quicksand_tui.api.filesystem import Filesystem
from quicksand_tui.api.interpreter import Interpreter
from quicksand_tui.api.machines import Machines
from quicksand_tui.api.processes import Processes
from quicksand_tui.api.records import Records, SandboxRecord, State
from quicksand_tui.api.tasks import Tasks
from quicksand_tui.api.users import Users

IDLE_S = 60.0
"""Seconds without a request after which the connection to a guest, which serves few, is given
back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """What is done in a guest that runs."""

    sandbox: Sandbox
    users: Users
    filesystem: Filesystem
    processes: Processes
    interpreter: Interpreter


class Live:
    """Its state changes under `lock` only."""

    def __init__(
        self, record: SandboxRecord, machines: Machines, records: Records, tasks: Tasks
    ) -> None:
        self.record = record
        self.lock = asyncio.Lock()
        self._machines = machines
        self._records = records
        self._tasks = tasks
        self._guest: Guest | None = None
        self._used = time.monotonic()
        self._in_use = 0
        self.last_reading: tuple[float, float] | None = None
        """Seconds of processor time, and when they were read, of the metrics before."""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def is_listed(self) -> bool:
        """Whether its clients see it."""
        return self.record.state in (State.RUNNING, State.PAUSED, State.PAUSING)

    def save(self, state: State | None = None, **changes: object) -> None:
        """Change the record, on disk first. Raises DiskSpaceError, PathError."""
        record = self.record.with_state(state or self.record.state, **changes)
        self._records.save(record)
        self.record = record

    def adopt(self, sandbox: Sandbox) -> Guest:
        """Take the running machine of this sandbox."""
        users = Users(sandbox, self.record.user)
        self._guest = Guest(
            sandbox=sandbox,
            users=users,
            filesystem=Filesystem(sandbox, users),
            processes=Processes(
                sandbox,
                lambda: self._machines.attach(self.record.name),
                self._records.processes_of(self.id),
                self._tasks,
                self._records.tell,
            ),
            interpreter=Interpreter(sandbox, lambda: self.record.env),
        )
        return self._guest

    def guest(self) -> Guest:
        """What there is of its guest, which this attaches to after a restart of the server. Raises
        QuicksandError if it does not run."""
        self._used = time.monotonic()
        return self._guest or self.adopt(self._machines.attach(self.record.name))

    def give_back(self) -> None:
        """Give the connection to the guest back if nobody has needed it for a while."""
        guest = self._guest
        if guest is None or self._in_use or guest.processes.are_running:
            return
        if time.monotonic() - self._used > IDLE_S:
            guest.sandbox.disconnect()

    def enter(self) -> None:
        """A request begins to use the guest; `leave` ends that."""
        self._in_use += 1

    def leave(self) -> None:
        self._in_use -= 1
        self._used = time.monotonic()

    def let_go(self) -> None:
        """Break off all that is done in the guest, whose machine ends or has another."""
        guest, self._guest = self._guest, None
        if guest is not None:
            guest.processes.cut()
            guest.sandbox.close()

    def is_up(self) -> bool:
        """Whether it runs, by its record and by the engine."""
        try:
            return self.record.state is State.RUNNING and self._machines.is_live(self.record.name)
        except (QuicksandError, OSError):
            return False
