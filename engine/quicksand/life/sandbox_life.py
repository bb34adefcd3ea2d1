"""The life of one sandbox, from start to removal: its record, and its machine while it runs.

The machine is the QEMU process. This process owns it if it started it and has not detached it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from quicksand.base.errors import (
    MachineError,
    MemoryBudgetError,
    QuicksandError,
    SandboxNotFoundError,
    StateError,
)
from quicksand.base.files import is_locked
from quicksand.base.settings import check_settings
from quicksand.base.threads import to_the_end
from quicksand.guest.agent.link import AgentLink
from quicksand.qemu.keeper_successor import KeeperCheck
from quicksand.records.config import SandboxConfig
from quicksand.records.layout import SandboxDir, runtime_dir, sandbox_dir
from quicksand.records.registry import Registry, publish_state
from quicksand.records.sandboxes import Entry, Record, RunState, Status, new_id

if TYPE_CHECKING:
    from quicksand.base.boot_timing import BootTiming
    from quicksand.base.progress import Progress
    from quicksand.guest.agent.session import Session
    from quicksand.qemu.live_machine import LiveMachine
    from quicksand.saves.store import Save
    from quicksand.snapshots.history import History

T = TypeVar("T")


class Life:
    """One sandbox as this process knows it. Other processes may start, stop and revert it too."""

    def __init__(
        self,
        registry: Registry,
        config: SandboxConfig,
        *,
        name: str | None,
        discard: bool,
        source: Save | None = None,
        trusts_source: bool = False,
        base_dir: Path | None = None,
        warm: bool = True,
        build: bool | None = None,
        progress: Progress | None = None,
    ) -> None:
        """``discard``: remove the sandbox when it stops. ``source``: the save whose disk it starts
        with. The other parameters are those of `Sandbox`."""
        self.registry = registry
        self.config = config
        self.base_dir = base_dir
        self.progress = progress
        self.id = new_id()
        self.record: Record | None = None
        """None before the first start, and again once the sandbox is removed."""
        self.run: RunState | None = None
        self.timing: BootTiming | None = None
        self.notices: tuple[str, ...] = ()
        """Notices of steps that failed in the last start by this process."""
        self._name = name
        self._discard = discard
        self._source = source
        self._trusts_source = trusts_source
        self._warm = warm
        self._build = build
        self._link: AgentLink | None = None
        self._machine: LiveMachine | None = None
        self._keeper = KeeperCheck()

    @classmethod
    def of_record(cls, registry: Registry, record: Record) -> Life:
        """The life of a stopped sandbox."""
        life = cls(registry, record.config, name=record.name, discard=record.discard)
        life.id, life.record = record.id, record
        return life

    @classmethod
    def of_machine(cls, registry: Registry, machine: LiveMachine) -> Life:
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
            _refuse_unusable(entry)
        life = cls.of_record(registry, entry.record)
        if entry.run is not None:
            place = sandbox_dir(registry.paths, entry.id)
            life.run = entry.run
            life._link = AgentLink(
                runtime_dir(registry.paths, entry.id),
                entry.run.token,
                why_gone=lambda: _why_gone(place),
                set_clock=set_clock,
            )
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
        """Whether nobody would miss the sandbox, nor anything that it has of the host, and its
        keeper is there to remove it."""
        record, run = self.record, self.run
        if record is None or run is None or not self.is_owned:
            return False
        ports = (*run.forwards, run.http_port, run.vnc_port)
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
            raise self._not_running()
        return self.record

    def _not_running(self) -> StateError:
        return StateError(f"the sandbox {self.name!r} is not running")

    def history(self) -> History:
        """The sandbox's layers, checkpoints and head."""
        from quicksand.snapshots.history import history_of

        return history_of(self.registry, self.id)

    @property
    def link(self) -> AgentLink | None:
        """The link to the guest's agent; None if this process knows of no run."""
        return self._link

    async def session(self) -> Session:
        """A connected session with the guest's agent. Raises StateError, MachineError,
        AgentError."""
        if self._link is None:
            raise self._not_running()
        if self.record is not None:
            await self._keeper.ensure(self.registry, self.record)
        return await self._link.session()

    # Starting

    async def start(self, at: str | None) -> None:
        """See `Sandbox.start`."""
        from quicksand.life.image_building import build_if_missing
        from quicksand.qemu.live_machine import remove_quietly

        check_settings()
        if self._link is not None:
            raise StateError("the sandbox is already running")
        if self.record is not None:
            await self._start_again(self.record, at)
            return
        if at is not None:
            raise StateError("a new sandbox has no checkpoints to start at")
        if self._source is None:
            await build_if_missing(
                self.config.image, self.registry.paths, build=self._build, progress=self.progress
            )
        record = await asyncio.to_thread(self._new_record)
        machine, lock = await self._with_memory(lambda: self._make_machine(record))
        try:
            self._adopt(machine)
            self._commit()
        except BaseException:
            await self.end_owned()
            with contextlib.suppress(QuicksandError):
                remove_quietly(sandbox_dir(self.registry.paths, self.id).root)
            raise
        finally:
            os.close(lock)
        await self._await_desktop(undo=self.remove)
        if self._warm:
            from quicksand.warm.spares.next_start import expect_next

            await expect_next(self.registry, self.require_record(), machine.timing)

    async def _make_machine(self, record: Record) -> tuple[LiveMachine, int]:
        """The machine of a new sandbox, and the descriptor of its lock. It was a spare (then it has
        the spare's id), or is started now."""
        from quicksand.qemu.live_machine import remove_quietly
        from quicksand.qemu.planning import look_for_parts
        from quicksand.warm.spares.next_start import may_take

        found = None
        if self._warm and await asyncio.to_thread(may_take, self.registry.paths):
            from quicksand.warm.spares.handover import take

            found = await look_for_parts(self.registry, record, self.progress)
            taken = await take(self.registry, record, found.parts, found.watch, named=self._set_id)
            if taken is not None:
                return taken.machine, taken.lock
        # A start that takes a spare over needs none of this.
        from quicksand.warm import starting

        self.id = record.id
        lock = self.registry.create(record)
        try:
            machine = await starting.boot(
                self.registry, record, lock, progress=self.progress, warm=self._warm, found=found
            )
        except BaseException:
            with contextlib.suppress(QuicksandError):
                remove_quietly(sandbox_dir(self.registry.paths, record.id).root)
            os.close(lock)
            raise
        return machine, lock

    async def _with_memory(self, start: Callable[[], Awaitable[T]]) -> T:
        """Await ``start``. If it lacks memory, end the spares, which take some for a start that may
        never come, and try once more."""
        try:
            return await start()
        except MemoryBudgetError:
            from quicksand.warm.spares.ending import end_all

            if not await asyncio.to_thread(end_all, self.registry):
                raise
        return await start()

    def _set_id(self, id_: str) -> None:
        self.id = id_

    def _new_record(self) -> Record:
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
        from quicksand.saves.resuming import find_base, source_of

        places = self.registry.paths
        base = find_base(self._source, places, self.base_dir, trusted=self._trusts_source)
        return replace(
            record,
            image_digest=base.digest,
            chain=tuple(str(path) for path in base.chain),
            source=source_of(self._source, places),
        )

    def _commit(self) -> None:
        """Mark the record committed after a first start: from here on the sandbox exists. One that
        was a spare is none any more."""
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
        from quicksand.warm import starting

        lock = self.registry.lock(record.id)
        try:
            self._adopt(
                await self._with_memory(
                    lambda: starting.boot(
                        self.registry, record, lock, progress=self.progress, at=at
                    )
                )
            )
        finally:
            os.close(lock)
        await self._await_desktop(undo=self.end_owned)

    async def _await_desktop(self, *, undo: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the desktop of a machine that has booted. The sandbox is there for others
        meanwhile, who may want to see it boot. ``undo`` is awaited if that is cancelled. Raises
        MachineError if the machine ends.
        """
        if self._machine is None or not self.config.enable_display:
            return
        from quicksand.warm.desktop_ready import with_desktop

        try:
            self._adopt(await with_desktop(self._machine, self.progress))
        except BaseException as error:
            # A machine that has ended leaves what others may have made of the sandbox meanwhile.
            stays = isinstance(error, MachineError) and not self.require_record().discard
            with contextlib.suppress(QuicksandError):
                await to_the_end(self.end_owned() if stays else undo())
            self.run = None
            raise

    def _adopt(self, machine: LiveMachine) -> None:
        self._machine = machine
        self._link = machine.link
        self.run = machine.run
        self.timing = machine.timing
        self.notices = machine.notices
        if self.registry.expired:
            names = ", ".join(self.registry.expired)
            told = f"a week in the trash has passed for {names}: gone for good"
            self.notices = (*self.notices, told)
            self.registry.expired = ()

    # While it runs

    async def set_paused(self, paused: bool) -> None:
        """Pause or resume the VM. Raises StateError if it is not running or QEMU did not obey,
        HistoryError if another client takes too long with a checkpoint, MachineError."""
        if self.entry().run is None:
            raise self._not_running()
        # A checkpoint or a revert pauses and resumes it, too.
        async with self.history().locked():
            await self._set_paused(paused)

    async def _set_paused(self, paused: bool) -> None:
        from quicksand.qemu.qmp import Monitor
        from quicksand.records.oversized import forget_mark, mark_of

        run = self.entry().run
        if run is None:
            raise self._not_running()
        machine = runtime_dir(self.registry.paths, self.id).current()
        monitor = await Monitor.connect(machine)
        held = mark_of(machine)
        try:
            await monitor.execute("stop" if paused else "cont")
            status = await monitor.execute("query-status")
            if status["running"] is paused:
                raise StateError(f"QEMU did not {'pause' if paused else 'resume'} the sandbox")
        finally:
            await monitor.close()
        if not paused:
            forget_mark(machine, held)
        self.run = replace(run, paused=paused)
        publish_state(machine, self.run)
        if not paused and self._link is not None:
            from quicksand.qemu.guest_resume import set_clock_soon

            await set_clock_soon(self._link)

    def look_again(self) -> None:
        """Read the state again after another QEMU has taken over; requests go to the new one's
        agent."""
        if self._link is not None:
            self._link.move_on()
        self.run = self.entry().run

    def disconnect(self) -> None:
        """Close the connection to the agent; commands in flight end."""
        if self._link is not None:
            self._link.close()

    def detach(self) -> None:
        """Let the VM outlive this process. Raises StateError if the sandbox is not running."""
        if self._link is None:
            raise StateError("the sandbox is not running")
        if self._machine is not None:
            self._machine.process.detach()
            self._machine = None

    # Its end

    async def keep(self) -> None:
        """Keep the sandbox when it stops, even if it is ephemeral."""
        self.record = replace(self.require_record(), discard=False)
        await asyncio.to_thread(self.registry.save, self.record)

    async def stop(self, grace: float) -> None:
        """See `Sandbox.stop`; this makes no save."""
        from quicksand.qemu.stopping import stop_machine

        record = self.require_record()
        link, self._link = self._link, None
        try:
            await stop_machine(self.registry, record, link, self.run, grace=grace)
        finally:
            if link is not None:
                link.close()
            await self.end_owned()
            self.run = None
        if record.discard:
            self._remove_record()

    async def trash(self) -> None:
        """See `Sandbox.trash`."""
        from quicksand.life.sandbox_removal import remove_sandbox

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
        with contextlib.suppress(SandboxNotFoundError):
            self.registry.remove(self.id)
        self.record = None

    async def end_owned(self) -> None:
        """End the VM if this process owns it."""
        machine, self._machine = self._machine, None
        if machine is not None:
            machine.link.close()
            machine.process.cut()
            await asyncio.shield(machine.process.wait())
        self._link = None

    def close(self) -> None:
        """See `Sandbox.close`."""
        self.disconnect()
        self._link = None
        if self._machine is not None:
            self._machine.process.let_go()
            self._machine = None


def _why_gone(place: SandboxDir) -> QuicksandError | None:
    """The error that says why a machine has ended; None while it lives."""
    from quicksand.qemu.live_machine import why_gone

    return why_gone(place, doing="it was in use")


def _refuse_unusable(entry: Entry) -> None:
    if entry.status is Status.STARTING:
        raise StateError(f"the sandbox {entry.name!r} is still starting; try again")
    if entry.status is Status.UNREACHABLE:
        raise StateError(
            f"the sandbox {entry.name!r} cannot be reached: its sockets are gone",
            hint=f"`quicksand-tui kill {entry.name}` ends it, `start` starts it again",
        )
