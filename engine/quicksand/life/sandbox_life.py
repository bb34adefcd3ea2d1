"""The life of one sandbox, from start to removal: its record, and its machine while it runs.

The machine is the QEMU process. This process owns it if it started it and has not detached it. Of a
sandbox that a fleet keeps, its lease says who may start it, and when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from quicksand.base.effort import best_effort
from quicksand.base.errors import MachineError, SandboxNotFoundError, StateError
from quicksand.base.files import is_locked
from quicksand.base.paths import Paths
from quicksand.base.remedies import Remedy, Words
from quicksand.base.settings import check_settings
from quicksand.base.threads import to_the_end
from quicksand.guest.agent.link import AgentLink
from quicksand.life import machinery, whole
from quicksand.life.basis import Basis, unpack_basis
from quicksand.qemu.keeper_check import KeeperCheck
from quicksand.qemu.keeper_parts.owner import now
from quicksand.records.command_log import note_command
from quicksand.records.fleet_files import lease_file, use_permission
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.records.paused import refuse_paused
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Entry, Record, RunState, new_id
from quicksand.things.status import Status

if TYPE_CHECKING:
    from quicksand.base.progress import BootTiming, Progress
    from quicksand.guest.agent.session import Session
    from quicksand.guest.execution import ExitStatus
    from quicksand.qemu.process import OwnedProcess, StartedMachine
    from quicksand.snapshots.history import History
    from quicksand.things.sandbox_facts import SandboxStats
    from quicksand.warm.publishing import ForwarderCheck


def refuse_unusable(entry: Entry) -> None:
    """Raise StateError for a sandbox that is still starting or stopping, or cannot be reached."""
    if entry.status is Status.STARTING:
        raise StateError(f"the sandbox {entry.name!r} is still starting; try again")
    if entry.status is Status.STOPPING:
        raise StateError(f"the sandbox {entry.name!r} is just stopping; try again")
    if entry.status is Status.UNREACHABLE:
        raise StateError(
            f"the sandbox {entry.name!r} cannot be reached: its sockets are gone",
            hint=Words(Remedy("end", name=entry.name), " ends it, `start` starts it again"),
        )


def require_may_start(paths: Paths, record: Record) -> None:
    """See `use_permission`. Blocks."""
    use_permission(sandbox_dir(paths, record.id), record.name, now())


def detach(paths: Paths, id_: str, process: OwnedProcess) -> None:
    """Let a VM outlive this process. A VM that a fleet keeps must not run without its keeper, which
    ends it. Raises MachineError, then it is not detached."""
    if lease_file(sandbox_dir(paths, id_)).exists():
        process.detach_to(runtime_dir(paths, id_).keeper_socket)
    else:
        process.detach()


T = TypeVar("T")


class Life:
    """One sandbox as this process knows it. Other processes may start, stop and revert it too."""

    def __init__(
        self,
        registry: Registry,
        basis: Basis,
        *,
        name: str | None,
        discard: bool,
        base_dir: Path | None = None,
        warm: bool = True,
        build: bool | None = None,
        progress: Progress | None = None,
    ) -> None:
        """``basis``: the image, save or bundle of the sandbox. ``discard``: remove the sandbox when
        it stops. The others are as for `Sandbox`."""
        self.registry = registry
        self.config = basis.config
        self.base_dir = base_dir
        self.progress = progress
        self.id = new_id()
        self.record: Record | None = None
        """The record; None before the first start, and after the sandbox is removed."""
        self.run: RunState | None = None
        self.timing: BootTiming | None = None
        self.notices: tuple[str, ...] = ()
        """Notices of steps that failed in the last start by this process."""
        self.basis_notices = basis.notices
        self._name = name
        self._discard = discard
        self._source = basis.source
        self._bundle = basis.bundle
        self._trusts_source = basis.trusted
        self._warm = warm
        self._build = build
        self._link: AgentLink | None = None
        self._machine: StartedMachine | None = None
        self._keeper = KeeperCheck()
        self._forwarder: ForwarderCheck | None = None

    @classmethod
    def of_record(cls, registry: Registry, record: Record) -> Life:
        """The life of a stopped sandbox."""
        life = cls(registry, Basis(record.config), name=record.name, discard=record.discard)
        life.id, life.record = record.id, record
        return life

    @classmethod
    def of_machine(cls, registry: Registry, machine: StartedMachine) -> Life:
        """The life of a sandbox that this process has just started."""
        life = cls.of_record(registry, machine.record)
        life._adopt(machine)
        return life

    @classmethod
    def of_entry(
        cls, registry: Registry, entry: Entry, *, set_clock: bool = True, to_end_it: bool = False
    ) -> Life:
        """The life of a sandbox in the registry, whoever started it. Raises StateError if it is
        broken or, unless it is opened ``to_end_it``, still starting or unreachable."""
        if entry.record is None:
            raise StateError(f"the sandbox {entry.name!r} is broken: {entry.error}")
        if not to_end_it:
            refuse_unusable(entry)
        life = cls.of_record(registry, entry.record)
        if entry.run is not None:
            place = sandbox_dir(registry.paths, entry.id)
            life.run = entry.run
            life._link = AgentLink(
                entry.name,
                runtime_dir(registry.paths, entry.id),
                entry.run.token,
                why_gone=lambda: machinery.why_gone(place, doing="it was in use"),
                set_clock=set_clock,
            )
            whole.make_whole_soon()
        return life

    @property
    def name(self) -> str:
        return self._name or self.id

    @property
    def is_running(self) -> bool:
        """Whether the VM runs at this moment."""
        return self._link is not None and self.entry().is_live

    @property
    def is_owned(self) -> bool:
        """Whether the VM belongs to this process."""
        return self._machine is not None

    @property
    def is_nothing_at_stake(self) -> bool:
        """Whether the sandbox would not be missed, holds nothing of the host, and has its keeper
        there to remove it."""
        record, run = self.record, self.run
        if record is None or run is None or not self.is_owned:
            return False
        ports = (*run.published, run.http_port, run.vnc_port)
        return (
            record.discard
            and record.name == record.id
            and set(ports) <= {None}
            and is_locked(runtime_dir(self.registry.paths, self.id).keeper_lock)
        )

    def entry(self) -> Entry:
        """The sandbox's present state on disk. Raises SandboxNotFoundError if it is gone."""
        entry = self.registry.inspect(self.id)
        if entry is None:
            raise SandboxNotFoundError(f"the sandbox {self.name!r} does not exist any more")
        return entry

    def require_record(self) -> Record:
        """The sandbox's record. Raises StateError before the first start and after removal."""
        if self.record is None:
            raise self.not_running()
        return self.record

    def not_running(self) -> StateError:
        """The error for calls that need a running VM."""
        return StateError(f"the sandbox {self.name!r} is not running")

    @property
    def log(self) -> Path:
        """The log of attempts that failed."""
        return sandbox_dir(self.registry.paths, self.id).engine_log

    def history(self) -> History:
        """The sandbox's layers, checkpoints and head."""
        return machinery.history_of(self.registry, self.id)

    @property
    def link(self) -> AgentLink | None:
        """The link to the guest's agent; None if this process knows of no run."""
        return self._link

    async def session(self) -> Session:
        """A connected session with the guest's agent. Raises StateError, also for a paused sandbox
        or an unfinished revert, MachineError, AgentError."""
        if self._link is None:
            raise self.not_running()
        machine = runtime_dir(self.registry.paths, self.id).current()
        refuse_paused(self.name, machine)
        if self.record is not None:
            await self._keeper.ensure(self.registry, self.record)
            if machine.unfinished.exists():
                await machinery.until_finished(self.registry, self.record)
        if self.run is not None and (published := self.run.published):
            self._forwarder = self._forwarder or machinery.ForwarderCheck()
            runtime = runtime_dir(self.registry.paths, self.id)
            await self._forwarder.ensure(runtime, self.id, published)
        return await self._link.session()

    @property
    def can_answer(self) -> bool:
        """Whether the guest runs, and is not paused. Raises SandboxNotFoundError."""
        return self.entry().status is Status.RUNNING

    async def stats(self) -> SandboxStats:
        """See `Sandbox.stats`."""
        return await machinery.read_stats(self.entry(), self.session)

    def note_command(self, command: str | Sequence[str], status: ExitStatus) -> None:
        """Note the end of a command for those who watch the sandbox."""
        note_command(
            runtime_dir(self.registry.paths, self.id).command_log,
            command,
            exit_code=status.exit_code,
            seconds=status.duration_s,
            timed_out=status.timed_out,
        )

    # Starting

    async def start(self, at: str | None) -> None:
        """See `Sandbox.start`."""
        check_settings()
        if self._link is not None:
            raise StateError("the sandbox is already running")
        if self.record is None:
            await self._start_first(at)
        else:
            await self._start_again(self.record, at)

    async def _start_first(self, at: str | None) -> None:
        if at is not None:
            raise StateError("a new sandbox has no checkpoints to start at")
        progress = self.progress
        if self._bundle is not None:
            self.config, self._source = await unpack_basis(
                self._bundle, self.config, self.registry.paths, progress
            )
        elif self._source is None:
            progress = await machinery.build_if_missing(
                self.config.image,
                self.registry.paths,
                arch=self.config.arch,
                build=self._build,
                progress=progress,
            )
        record = await asyncio.to_thread(self.new_record)
        machine, lock = await machinery.with_memory(
            self.registry,
            lambda: machinery.make_machine(
                self.registry, record, warm=self._warm, progress=progress, named=self._set_id
            ),
        )
        try:
            self._adopt(machine)
            self._commit()
        except BaseException:
            await self.end_owned()
            with best_effort("remove the sandbox", self.log):
                machinery.remove_quietly(sandbox_dir(self.registry.paths, self.id).root)
            raise
        finally:
            os.close(lock)
        async with self._undone_by(self.remove):
            await self._await_desktop(progress)
            if self._warm:
                await machinery.expect_next(self.registry, self.require_record(), machine.timing)

    def _set_id(self, id_: str) -> None:
        self.id = id_

    def new_record(self) -> Record:
        """The record of a sandbox that was never started. Raises ImageError, SaveError."""
        record = Record(
            id=self.id,
            name=self.name,
            config=self.config,
            image_digest="",
            chain=(),
            created=time.time(),
            committed=False,
            discard=self._discard,
        )
        if self._source is None:
            return record

        places = self.registry.paths
        base = machinery.find_base(self._source, places, self.base_dir, trusted=self._trusts_source)
        return replace(
            record,
            image_digest=base.digest,
            chain=tuple(str(path) for path in base.chain),
            source=machinery.source_of(self._source, places),
        )

    def _commit(self) -> None:
        """Mark the record committed after a first start: from now on the sandbox exists. A former
        spare no longer is one."""
        assert self._machine is not None
        image = self._machine.image
        self.record = replace(
            self._machine.record,
            committed=True,
            image_digest=image.digest,
            chain=tuple(str(path) for path in image.chain),
        )
        self.registry.save(self.record)
        with contextlib.suppress(OSError):
            sandbox_dir(self.registry.paths, self.id).spare.unlink()

    async def _start_again(self, record: Record, at: str | None) -> None:
        lock = self.registry.lock(record.id)
        try:
            await asyncio.to_thread(require_may_start, self.registry.paths, record)
            self._adopt(
                await machinery.with_memory(
                    self.registry,
                    lambda: machinery.boot(
                        self.registry, record, lock, progress=self.progress, at=at
                    ),
                )
            )
        finally:
            os.close(lock)
        async with self._undone_by(self.end_owned):
            await self._await_desktop(self.progress)

    @contextlib.asynccontextmanager
    async def _undone_by(
        self, undo: Callable[[], Coroutine[Any, Any, None]]
    ) -> AsyncIterator[None]:
        """Await ``undo`` if the block, which is the rest of a start, fails or is cancelled."""
        try:
            yield
        except BaseException as error:
            # A machine that has ended leaves the sandbox as others may have changed it meanwhile.
            stays = isinstance(error, MachineError) and not self.require_record().discard
            try:
                with best_effort("end a start that failed", self.log):
                    await to_the_end(self.end_owned() if stays else undo())
            finally:
                self.run = None
            raise

    async def _await_desktop(self, progress: Progress | None) -> None:
        """Wait for the desktop of a booted machine. Raises MachineError if the machine ends."""
        if self._machine is not None and self.config.enable_display:
            self._adopt(await machinery.with_desktop(self._machine, progress))

    def _adopt(self, machine: StartedMachine) -> None:
        self._machine = machine
        self._link = machine.link
        self.run = machine.run
        self.timing = machine.timing
        self.notices = machine.notices
        whole.make_whole_soon()
        if self.registry.expired:
            names = ", ".join(self.registry.expired)
            told = f"a week in the trash has passed for {names}: gone for good"
            self.notices = (*self.notices, told)
            self.registry.expired = ()

    # While it runs

    def look_again(self) -> None:
        """Read the state again after another QEMU has taken over; requests then go to its agent."""
        if self._link is not None:
            self._link.move_on()
        self.run = self.entry().run

    def disconnect(self) -> None:
        """Close this object's connection to the guest's agent, which serves few clients (see
        `AGENT_PORTS`). Commands in flight end; the next call that needs the agent reconnects."""
        if self._link is not None:
            self._link.close()

    def detach(self) -> None:
        """Let the VM outlive this process. This object stays usable. Raises StateError if the
        sandbox is not running, MachineError if a fleet keeps it and its keeper does not answer."""
        if self._link is None:
            raise StateError("the sandbox is not running")
        if self._machine is not None:
            detach(self.registry.paths, self.id, self._machine.process)
            self._machine = None

    # Its end

    async def keep(self) -> None:
        """Keep the sandbox when it stops, even if it is ephemeral."""
        self.record = replace(self.require_record(), discard=False)
        await asyncio.to_thread(self.registry.save, self.record)

    async def stop(self, grace: float) -> None:
        """See `Sandbox.stop`; this makes no save."""
        record = self.require_record()
        link, self._link = self._link, None
        try:
            await machinery.stop_machine(self.registry, record, link, self.run, grace=grace)
        finally:
            if link is not None:
                link.close()
            await self.end_owned()
            self.run = None
        if record.discard:
            self._remove_record()

    async def trash(self) -> None:
        """See `Sandbox.trash`."""
        from quicksand.life.sandbox_removal import remove_sandbox  # noqa: PLC0415

        try:
            await remove_sandbox(self.registry, self.require_record().id, stop=True)
        finally:
            entry = self.registry.inspect(self.id)
            if entry is None or not entry.is_live:
                await self.end_owned()
                self.run = None
        self.record = None

    async def remove(self) -> None:
        """End a sandbox that this process owns and remove it for good."""
        await self.end_owned()
        self._remove_record()

    def _remove_record(self) -> None:
        with contextlib.suppress(SandboxNotFoundError):  # its keeper has removed it
            self.registry.remove(self.id)
        self.record = None

    async def end_owned(self) -> None:
        """End the VM if this process owns it."""
        machine, self._machine = self._machine, None
        self._link = None
        if machine is not None:
            await machine.end()

    def close(self) -> None:
        """Close the connection to an attached or detached sandbox; its VM keeps running. A VM that
        this object started and did not `detach` is ended."""
        self.disconnect()
        self._link = None
        if self._machine is not None:
            self._machine.process.let_go()
            self._machine = None
