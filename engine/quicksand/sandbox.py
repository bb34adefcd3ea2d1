"""`Sandbox`: one VM. A thin facade over the collaborators that do the work."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from quicksand import execution, lifecycle
from quicksand.agent.link import AgentLink
from quicksand.agent.session import Session
from quicksand.config import BootTiming, SandboxConfig, check_name, refuse_unknown
from quicksand.diskdiff.changes import FileChange
from quicksand.errors import ConfigError, QuicksandError, SandboxNotFoundError, StateError
from quicksand.events import Event, watch_events
from quicksand.execution import Command, ExecuteResult, StdinSource
from quicksand.guest_files import GuestFiles
from quicksand.guest_traffic import GuestTraffic, read_traffic
from quicksand.host.paths import paths
from quicksand.host.threads import in_thread_to_the_end, to_the_end
from quicksand.layout import runtime_dir, sandbox_dir
from quicksand.lifecycle import LiveMachine, Progress
from quicksand.registry import (
    Entry,
    Record,
    Registry,
    RunState,
    Status,
    new_id,
    publish_state,
)
from quicksand.saves.autosave import AutoSave
from quicksand.saves.finding import workspace_store
from quicksand.saves.manifest import SaveManifest, check_save_name
from quicksand.saves.resuming import find_base, look_up, merge_config, source_of
from quicksand.saves.store import Save, SaveStore, check_save
from quicksand.shell import Shell, ShellInfo
from quicksand.snapshots.checkpoint import Checkpoint, list_checkpoints
from quicksand.snapshots.next_revert import AFTER_CHECKPOINT_S, AFTER_REVERT_S, NextRevert
from quicksand.snapshots.records import PAGES
from quicksand.stats import GuestProcess, SandboxStats, read_stats
from quicksand.stopping import stop_machine

if TYPE_CHECKING:
    from quicksand.saves.portable import Snapshot
    from quicksand.saves.saving import Ask, Options

SYNC_S = 2.0

OPTIONS = tuple(SandboxConfig.__dataclass_fields__)
OWN = ("name", "ephemeral", "warm", "progress_callback", "save", "workspace", "base_dir")
LATER = {
    "mounts": [],
    "enable_display": False,
}
"""Keywords of the specification that this version cannot serve yet: their defaults are accepted,
anything else is refused rather than ignored."""


class Sandbox:
    """A Linux VM in which untrusted code runs.

    ::

        async with Sandbox(image="debian") as sb:
            result = await sb.execute("uname -a")

    In an ``async with`` block the VM dies with the block, and with this process, even on kill -9.
    `detach` lets it live on; `Sandbox.attach` comes back to it. A sandbox without ``name`` is
    removed when it stops; one with a name keeps its disk and can be started again, unless
    ``ephemeral``.
    """

    def __init__(
        self,
        *,
        image: str,
        name: str | None = None,
        ephemeral: bool | None = None,
        warm: bool = True,
        save: str | None = None,
        workspace: str | Path | None = None,
        base_dir: str | Path | None = None,
        progress_callback: Progress | None = None,
        **options: Any,
    ) -> None:
        """Check and keep the options (see `SandboxConfig`); nothing is started yet.

        ``image``: an image's name, or that of a save, or a snapshot's file: then the sandbox begins
        with its disk, and its config counts where ``options`` do not; the image that it lies on is
        looked for in ``base_dir`` first.

        ``save``: the disk is saved under this name when the sandbox stops, also after an error in
        the block or SIGTERM. ``workspace``: the directory for saves, ``.quicksand`` if not given.

        ``warm``: the first start goes on from a template of a booted machine, if there is one;
        else it boots, and a template is made in the background for those that come after.

        Raises ConfigError for a bad value, UnknownOptionError (a TypeError) for an unknown keyword.
        """
        later = {key: options.pop(key) for key in LATER if key in options}
        refuse_unknown(options, {*OPTIONS, *LATER, *OWN})
        for key, value in later.items():
            if value != LATER[key] and value:
                raise ConfigError(f"{key} is not possible in this version of quicksand")
        registry = Registry(paths())
        place = Path(workspace).absolute() if workspace is not None else None
        source = look_up(image, registry.paths, place) if isinstance(image, str) else None
        self._set(
            registry,
            merge_config(source, options)
            if source is not None
            else SandboxConfig.parse({"image": image, **options}),
            name=check_name(name) if name is not None else None,
            discard=name is None if ephemeral is None else ephemeral,
            source=source,
        )
        self._saving: AutoSave | None = (
            AutoSave(check_save_name(save), workspace_store(place)) if save is not None else None
        )
        self._workspace: Path | None = place
        self._base_dir = Path(base_dir).absolute() if base_dir is not None else None
        self._warm = warm
        self._progress: Progress | None = progress_callback

    def _set(
        self,
        registry: Registry,
        config: SandboxConfig,
        *,
        name: str | None,
        discard: bool,
        source: Save | None = None,
    ) -> None:
        self._registry = registry
        self._config = config
        self._name = name
        self._discard = discard
        self._source = source
        """The save to begin with."""
        self._id = new_id()
        self._run: RunState | None = None
        self._link: AgentLink | None = None
        self._machine: LiveMachine | None = None
        self._timing: BootTiming | None = None
        self._record: Record | None = None
        self._next_revert = NextRevert()
        self._saving = None
        self._workspace = None
        self._base_dir = None
        self._warm = True
        self._progress = None

    # Life

    async def __aenter__(self) -> Self:
        await self.start()
        if self._saving is not None:
            self._saving.watch()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.stop()
        finally:
            if self._saving is not None:
                self._saving.release()

    async def start(self, *, at: str | None = None) -> None:
        """Boot the VM; return when its agent has answered. With ``at`` a stopped sandbox goes on
        from that checkpoint, its processes running; its disk as it was is kept as an automatic
        checkpoint, of the tier "disk": a start at that one boots from it.

        Raises NameTakenError, HostError, ImageError, MachineError. After an error or a
        cancellation nothing of the start is left; the object can be started again.
        """
        if self._link is not None:
            raise StateError("the sandbox is already running")
        if self._record is not None:
            await self._start_again(self._record, at)
            return
        if at is not None:
            raise StateError("a new sandbox has no checkpoints to start at")
        record = await asyncio.to_thread(self._new_record)
        lock = self._registry.create(record)
        try:
            self._adopt(
                await lifecycle.boot(
                    self._registry, record, lock, progress=self._progress, warm=self._warm
                )
            )
            self._commit()
        except BaseException:
            await self._end_owned()
            with contextlib.suppress(QuicksandError):
                lifecycle.remove_quietly(sandbox_dir(self._registry.paths, record.id).root)
            raise
        finally:
            os.close(lock)

    def _new_record(self) -> Record:
        record = Record(
            id=self._id,
            name=self._name or self._id,
            config=self._config,
            image_digest="",
            chain=(),
            created=time.time(),
            committed=False,
            discard=self._discard,
        )
        if self._source is None:
            return record
        base = find_base(self._source, self._registry.paths, self._base_dir)
        return replace(
            record,
            image_digest=base.digest,
            chain=tuple(str(path) for path in base.chain),
            source=source_of(self._source, self._registry.paths),
        )

    def _commit(self) -> None:
        """Make the record of a first start last: from here on the sandbox exists."""
        assert self._machine is not None
        image = self._machine.image
        self._record = replace(
            self._machine.record,
            committed=True,
            image_digest=image.digest,
            chain=tuple(str(path) for path in image.chain),
        )
        self._registry.save(self._record)

    async def _start_again(self, record: Record, at: str | None) -> None:
        lock = self._registry.lock(record.id)
        try:
            self._adopt(
                await lifecycle.boot(self._registry, record, lock, progress=self._progress, at=at)
            )
        finally:
            os.close(lock)

    def _adopt(self, machine: LiveMachine) -> None:
        self._machine = machine
        self._link = machine.link
        self._run = machine.run
        self._timing = machine.timing

    async def stop(self, *, grace: float = 10.0) -> None:
        """Stop the VM: the guest syncs and powers down within ``grace`` seconds, else it is killed.

        A sandbox that is to be discarded is killed at once and removed. Safe at any time, in any
        state, any number of times. One that was made with ``save`` is saved first, but not if
        ``grace`` is 0; if that fails, or is cancelled, it is kept, stopped, and the error says so.
        """
        if self._record is None:
            return
        await self._next_revert.settle()
        if self._saving is None or grace == 0 or not self.is_running:
            await self._stop(grace)
            return
        try:
            await self._save_at_stop(self._saving)
        except BaseException as error:
            if self._machine is None:  # whoever started it goes on with it
                raise
            # Its disk holds what could not be saved.
            await to_the_end(self._keep())
            await self._stop(grace)
            error.add_note(f"the sandbox {self.name!r} is kept, stopped: nothing of it is lost")
            raise
        await self._stop(grace)

    async def _save_at_stop(self, saving: AutoSave) -> None:
        from quicksand.saves.saving import Options

        await self.save_to(saving.store, saving.name, Options(progress=self._progress))

    async def _keep(self) -> None:
        """Have it stay when it is stopped."""
        assert self._record is not None
        self._record = replace(self._record, discard=False)
        await asyncio.to_thread(self._registry.save, self._record)

    async def _stop(self, grace: float) -> None:
        record = self._record
        assert record is not None
        link, self._link = self._link, None
        try:
            await stop_machine(self._registry, record, link, self._run, grace=grace)
        finally:
            if link is not None:
                link.close()
            await self._end_owned()
            self._run = None
        if record.discard:
            with contextlib.suppress(SandboxNotFoundError):
                self._registry.remove(record.id)
            self._record = None

    async def kill(self) -> None:
        """Stop the VM at once, as pulling the plug would."""
        await self.stop(grace=0)

    async def pause(self) -> None:
        """Freeze the VM where it is: no instruction runs, so no agent answers, until `resume`."""
        await self._set_paused(True)

    async def resume(self) -> None:
        """Let a paused VM go on. No error if it runs."""
        await self._set_paused(False)

    async def _set_paused(self, paused: bool) -> None:
        from quicksand.qemu.qmp import Monitor

        run = self._entry().run
        if run is None:
            raise StateError(f"the sandbox {self.name!r} is not running")
        machine = runtime_dir(self._registry.paths, self._id).current()
        monitor = await Monitor.connect(machine)
        try:
            await monitor.execute("stop" if paused else "cont")
            status = await monitor.execute("query-status")
            if status["running"] is paused:
                raise StateError(f"QEMU did not {'pause' if paused else 'resume'} the sandbox")
        finally:
            await monitor.close()
        self._run = replace(run, paused=paused)
        publish_state(machine, self._run)

    async def _end_owned(self) -> None:
        machine, self._machine = self._machine, None
        if machine is not None:
            machine.link.close()
            machine.process.cut()
            await asyncio.shield(machine.process.wait())
        self._link = None

    def detach(self) -> None:
        """Let the VM outlive this process. The object stays usable."""
        if self._link is None:
            raise StateError("the sandbox is not running")
        if self._machine is not None:
            self._machine.process.detach()
            self._machine = None

    def disconnect(self) -> None:
        """Let go of the guest's agent, which serves few clients; what is asked next connects again.
        Commands in flight end."""
        if self._link is not None:
            self._link.close()

    def close(self) -> None:
        """Let go of an attached sandbox: the connection is closed, the VM runs on.

        Of a sandbox that this object started and has not detached, the VM ends.
        """
        self._next_revert.cancel()
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._machine is not None:
            self._machine.process.cut()
            self._machine = None

    # Finding others

    @staticmethod
    def list() -> builtins.list[Entry]:
        """Every sandbox of this user on this host, running or not, oldest first."""
        return Registry(paths()).list()

    @classmethod
    def attach(cls, id_or_name: str, *, set_clock: bool = True) -> Sandbox:
        """The running sandbox of that name or id. It goes on when this object is closed.

        A guest whose clock is off has it set when a client comes, unless ``set_clock`` is False.
        Raises SandboxNotFoundError, or StateError if it does not run.
        """
        sandbox = cls._of_entry(Registry(paths()).find(id_or_name), set_clock=set_clock)
        if sandbox._run is None:
            raise StateError(
                f"the sandbox {sandbox.name!r} is not running",
                hint=f"`quicksand-tui start {sandbox.name}` starts it",
            )
        return sandbox

    @classmethod
    def open(cls, id_or_name: str) -> Sandbox:
        """The sandbox of that name or id, running or stopped (then `start` starts it again)."""
        return cls._of_entry(Registry(paths()).find(id_or_name))

    @classmethod
    def _of_entry(cls, entry: Entry, *, set_clock: bool = True) -> Sandbox:
        if entry.record is None:
            raise StateError(f"the sandbox {entry.name!r} is broken: {entry.error}")
        sandbox = cls._of_record(entry.record)
        if entry.status is Status.STARTING:
            raise StateError(f"the sandbox {entry.name!r} is still starting; try again")
        if entry.run is not None:
            place = sandbox_dir(sandbox._registry.paths, entry.id)
            sandbox._run = entry.run
            sandbox._link = AgentLink(
                runtime_dir(sandbox._registry.paths, entry.id),
                entry.run.token,
                why_gone=lambda: lifecycle.why_gone(place, doing="it was in use"),
                set_clock=set_clock,
            )
        return sandbox

    # Commands

    async def execute(
        self,
        command: str | Sequence[str],
        timeout: float | None = 30.0,
        cwd: str | None = None,
        shell: str = "/bin/sh",
        on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
        exclusive: bool = False,
        user: str | None = None,
        *,
        stdin: StdinSource | None = None,
        env: Mapping[str, str] | None = None,
    ) -> ExecuteResult:
        """Run a command to its end.

        A string is run by ``shell``, a list as it is. It runs as root in ``/``, or as ``user`` in
        that user's home; no state is kept between calls. ``timeout`` is in seconds: then its
        processes are killed and the result says ``timed_out``, with the output until then. The
        callbacks get decoded text as it comes and may be coroutine functions. ``exclusive`` is
        refused while another command runs.

        Raises AgentRefusedError when it cannot be started (no such user or directory),
        MachineError or AgentUnreachableError when the guest is gone. Cancelling ends the command.
        """
        running = await self.spawn(
            command,
            timeout=timeout,
            cwd=cwd,
            shell=shell,
            exclusive=exclusive,
            user=user,
            env=env,
            stdin=stdin is not None,
        )
        return await execution.run(running, stdin=stdin, on_stdout=on_stdout, on_stderr=on_stderr)

    async def spawn(
        self,
        command: str | Sequence[str],
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        shell: str = "/bin/sh",
        exclusive: bool = False,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bool = False,
        detach: bool = False,
    ) -> Command:
        """Start a command and return at once; see `Command`. Parameters as for `execute`.

        With ``detach`` the command goes on when this process ends.
        """
        params = execution.command_params(
            command,
            timeout=timeout,
            cwd=cwd,
            shell=shell,
            user=user,
            env=env,
            exclusive=exclusive,
        )
        return await execution.spawn(await self._session(), params, stdin=stdin, detach=detach)

    async def shell(
        self,
        command: str | Sequence[str] | None = None,
        *,
        columns: int = 80,
        rows: int = 24,
        cwd: str | None = None,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Shell:
        """Open a terminal: a login shell, or ``command``. It lives on in the guest until it ends
        or is closed; `attach_shell` comes back to it."""
        return await Shell.open(
            await self._session(),
            command,
            columns=columns,
            rows=rows,
            cwd=cwd,
            user=user,
            env=env,
        )

    async def attach_shell(self, session: str, *, columns: int = 80, rows: int = 24) -> Shell:
        """Come back to a terminal; its latest output is replayed."""
        return await Shell.attach(await self._session(), session, columns=columns, rows=rows)

    async def shells(self) -> builtins.list[ShellInfo]:
        """The guest's terminals."""
        return await Shell.list(await self._session())

    @property
    def files(self) -> GuestFiles:
        """The guest's files."""
        return GuestFiles(self._session)

    async def create_user(self, name: str, *, sudo: bool = False) -> None:
        """Make a user with a home. Raises AgentRefusedError (code "exists") if there is one."""
        await self.request("create_user", {"name": name, "sudo": sudo})

    async def delete_user(self, name: str, *, remove_home: bool = True) -> None:
        """Remove a user. Raises AgentRefusedError (code "not_found") if there is none."""
        await self.request("delete_user", {"name": name, "remove_home": remove_home})

    async def request(
        self, method: str, params: dict[str, Any] | None = None, *, timeout: float = 30.0
    ) -> dict[str, Any]:
        """Call a method of the agent directly (docs/internals/agent-protocol.md)."""
        return await (await self._session()).request(method, params, timeout=timeout)

    async def ping(self) -> float:
        """Seconds that a round trip to the agent takes."""
        started = time.perf_counter()
        await self.request("ping")
        return time.perf_counter() - started

    # Saves

    async def save(
        self,
        name: str,
        *,
        workspace: str | Path | None = None,
        compress: bool = False,
        delete_checkpoints: bool = False,
        note: str = "",
        replace: bool = True,
        freeze: bool | None = None,
    ) -> SaveManifest:
        """Save the disk under ``name`` in ``workspace`` (`.quicksand`), running or not; a running
        VM goes on. ``Sandbox(image=name)`` begins with it.

        A save that has the name goes to the trash, unless ``replace`` is false. Checkpoints stay,
        unless ``delete_checkpoints``. ``freeze``: whether the guest's file system stands still for
        the instant; by default where that takes no time.

        Raises ConfigError for a bad name, SaveError, StateError, HistoryError, HostError,
        MachineError: then there is no save, or the one that was there.
        """
        from quicksand.saves.saving import Options

        options = Options(
            compress=compress,
            delete_checkpoints=delete_checkpoints,
            note=note,
            replace=replace,
            freeze=freeze,
            progress=self._progress,
        )
        place = Path(workspace).absolute() if workspace is not None else self._workspace
        return (await self.save_to(workspace_store(place), name, options)).require()

    def save_on_stop(self, name: str, store: SaveStore) -> None:
        """Save the disk when the sandbox is stopped, as the keyword ``save`` has it done."""
        self._saving = AutoSave(check_save_name(name), store)

    async def snapshot(
        self,
        path: str | Path,
        *,
        note: str = "",
        compress: bool = False,
        freeze: bool | None = None,
        report: Progress | None = None,
    ) -> Snapshot:
        """Write the disk to one portable file, running or not; a running VM goes on. The file
        needs the image, here or elsewhere, and nothing else. One that is there is replaced.
        ``report`` is told a stage, bytes done, and all.

        Raises as `save`.
        """
        from quicksand.saves.portable import Snapshot
        from quicksand.saves.saving import Options, write_snapshot

        target = Path(path).absolute()
        options = Options(
            note=note, compress=compress, freeze=freeze, progress=report or self._progress
        )
        await self._next_revert.settle()
        await write_snapshot(
            self._registry, self._require_record(), target, options, self._agent_asker()
        )
        return await asyncio.to_thread(Snapshot.load, target, base_dir=self._base_dir)

    async def save_to(self, store: SaveStore, name: str, options: Options) -> Save:
        """Save the disk in a store of one's own choice. Raises as `save`."""
        from quicksand.saves.saving import save

        record = self._require_record()
        await self._next_revert.settle()
        return await save(self._registry, record, name, store, options, self._agent_asker())

    def _agent_asker(self) -> Ask | None:
        """What asks the guest's agent, if that can answer."""
        run = self._entry().run
        return self._ask if run is not None and not run.paused else None

    async def _ask(self, method: str, params: dict[str, Any], timeout: float) -> dict[str, Any]:
        return await self.request(method, params, timeout=timeout)

    @staticmethod
    def validate_save(path: str | Path) -> SaveManifest:
        """Look at a save without loading it: manifest, files, sizes, headers.

        Raises SaveNotFoundError (a FileNotFoundError), SaveError (a ValueError).
        """
        return check_save(Path(path))

    # Checkpoints

    async def checkpoint(
        self,
        tag: str | None = None,
        *,
        note: str = "",
        replace: bool = False,
        tier: str | None = None,
    ) -> Checkpoint:
        """Keep this instant: memory, processes, disk. The VM stands still for milliseconds; longer
        in the ``tier`` "internal", which is used where "pages" is not possible, or on request.

        Raises ConfigError for a bad tag or one that is taken (unless ``replace``), HistoryError,
        HostError, MachineError: then there is no checkpoint and the VM runs on.
        """
        from quicksand.snapshots.operations import take_checkpoint

        record = self._require_record()
        await self._next_revert.settle()
        await self._sync_guest()
        node = await take_checkpoint(
            self._registry, record, tag, note=note, replace_tag=replace, tier=tier
        )
        if node.tier == PAGES:  # of others the one that waits would not share the memory
            self._next_revert.expect(self._registry, record, node, after=AFTER_CHECKPOINT_S)
        return Checkpoint.from_node(node)

    async def _sync_guest(self) -> None:
        """Have the guest write what it has in memory to its disk, so that `diff` can see it. A
        checkpoint has the memory too, so this may fail, and must not take long."""
        run = self._entry().run
        if run is not None and not run.paused:
            with contextlib.suppress(QuicksandError, TimeoutError):
                async with asyncio.timeout(SYNC_S):
                    await self.request("sync")

    async def revert(self, tag: str, *, keep_now: bool = True) -> Checkpoint:
        """Go back to a checkpoint: memory, processes and disk are as they were.

        The present is kept as an automatic checkpoint, so that `undo` comes back to it, unless
        ``keep_now`` is false. Commands in flight, of all clients, raise RevertedError.

        Raises CheckpointNotFoundError (a ValueError), HistoryError, HostError, MachineError.
        """
        return await self._revert(tag, keep_now=keep_now)

    async def _revert(self, tag: str | None, *, keep_now: bool = True) -> Checkpoint:
        from quicksand.snapshots.reverting import revert

        record = self._require_record()
        await self._next_revert.settle(tag)
        node, _ = await revert(self._registry, record, tag, keep_now=keep_now)
        self.disconnect()
        self._run = self._entry().run
        if not node.auto:
            self._next_revert.expect(self._registry, record, node, after=AFTER_REVERT_S)
        return Checkpoint.from_node(node)

    async def undo(self) -> Checkpoint:
        """Take the last revert back: go to the automatic checkpoint that it took. Again, and it is
        made again. Raises as `revert` does, StateError if it was never reverted."""
        return await self._revert(None)

    async def delete_checkpoint(self, tag: str) -> None:
        """Remove a checkpoint; what others need of it stays. Works in any state of the sandbox, and
        by its id for one that cannot be read.

        Raises CheckpointNotFoundError, HistoryError for one that is pinned, or while another client
        works on the history.
        """
        from quicksand.snapshots.standby import forget_removed

        history = self._registry.history(self._id)
        async with history.locked():
            await in_thread_to_the_end(lambda: history.delete(tag))
        await forget_removed(self._registry, self._require_record())

    def checkpoints(self) -> builtins.list[Checkpoint]:
        """All checkpoints, the oldest first."""
        return list_checkpoints(self._registry.history(self._id))

    async def pin_checkpoint(self, tag: str, pinned: bool = True) -> None:
        """Keep a checkpoint from being deleted, or no longer. Raises as `delete_checkpoint`."""
        history = self._registry.history(self._id)
        async with history.locked():
            await in_thread_to_the_end(lambda: history.pin(history.find(tag), pinned))

    async def note_checkpoint(self, tag: str, note: str) -> None:
        """Write another note to a checkpoint; "" takes it away. Raises as `delete_checkpoint`."""
        history = self._registry.history(self._id)
        async with history.locked():
            await in_thread_to_the_end(lambda: history.write_note(history.find(tag), note))

    async def diff(self, a: str, b: str | None = None) -> builtins.list[FileChange]:
        """The files that differ between the disks of two checkpoints, by path; without ``b``
        between one and the present disk: while it runs, what has reached it so far. Works in any
        state of the sandbox, boots nothing.

        Raises CheckpointNotFoundError, ImageError or HistoryError for a disk that cannot be read.
        """
        from quicksand.diskdiff.checkpoints import diff_disks

        return await diff_disks(self._registry, self._require_record(), a, b)

    # Clones

    async def clone(
        self,
        n: int = 1,
        *,
        concurrency: int = 1,
        at: str | None = None,
        names: Sequence[str | None] | None = None,
    ) -> builtins.list[Sandbox]:
        """``n`` sandboxes that go on from this instant, or from the checkpoint ``at``: memory,
        processes and disk are the same, names, addresses and secrets are their own. All of them or,
        after an error, none.

        This sandbox stands still no longer than for a checkpoint. Clones of one that is stopped
        boot from its disk. Unless ``names`` are given, those of a named sandbox are called NAME-1
        and so on. They belong to this process, as if it had started them: see `detach`.

        Raises ConfigError, NameTakenError, CheckpointNotFoundError, HistoryError, HostError,
        MachineError.
        """
        made = await self._clone(n, concurrency=concurrency, at=at, names=names)
        clones = [clone for clone in made if isinstance(clone, Sandbox)]
        for failure in made:
            if isinstance(failure, Exception):
                await to_the_end(self._remove_all(clones))
                raise failure
        return clones

    async def fork(
        self, count: int, *, concurrency: int = 1, at: str | None = None
    ) -> builtins.list[Sandbox | Exception]:
        """As `clone`, but for each clone that could not be started its error is returned."""
        return await self._clone(count, concurrency=concurrency, at=at, names=None)

    async def _clone(
        self, n: int, *, concurrency: int, at: str | None, names: Sequence[str | None] | None
    ) -> builtins.list[Sandbox | Exception]:
        from quicksand.cloning import make_clones

        await self._next_revert.settle()
        made = await make_clones(
            self._registry, self._require_record(), n, names=names, concurrency=concurrency, at=at
        )
        return [m if isinstance(m, Exception) else Sandbox._of_machine(m) for m in made]

    @classmethod
    def _of_machine(cls, machine: LiveMachine) -> Sandbox:
        """An object for a sandbox that was just started."""
        sandbox = cls._of_record(machine.record)
        sandbox._adopt(machine)
        return sandbox

    @staticmethod
    async def _remove_all(clones: Sequence[Sandbox]) -> None:
        for clone in clones:
            await clone._remove()

    async def _remove(self) -> None:
        """End this sandbox, which this process has started, and remove it."""
        await self._end_owned()
        with contextlib.suppress(SandboxNotFoundError):
            self._registry.remove(self._id)
        self._record = None

    @classmethod
    def _of_record(cls, record: Record) -> Sandbox:
        """An object for the sandbox of ``record``, which is not running."""
        sandbox = cls.__new__(cls)
        sandbox._set(Registry(paths()), record.config, name=record.name, discard=record.discard)
        sandbox._id = record.id
        sandbox._record = record
        return sandbox

    def _require_record(self) -> Record:
        if self._record is None:
            raise StateError(f"the sandbox {self.name!r} is not running")
        return self._record

    # Looking

    async def stats(self) -> SandboxStats:
        """What it uses: of the host, and within the guest."""
        return await read_stats(self._entry(), self._session)

    async def traffic(self) -> GuestTraffic | None:
        """What the guest says it has received and sent; None if it does not tell."""
        return await read_traffic(self.files)

    async def processes(self) -> builtins.list[GuestProcess]:
        """The guest's processes."""
        reply = await self.request("processes")
        return GuestProcess.parse_all(reply)

    def events(self) -> AsyncIterator[Event]:
        """What happens to the VM, as it happens: pauses, a full host disk, a panic, its end."""
        return watch_events(self._registry, self._id)

    def logs(self, *, limit: int = 64 * 1024) -> str:
        """The last ``limit`` bytes of the guest's console."""
        from quicksand.host.files import tail

        return tail(sandbox_dir(self._registry.paths, self._id).console_log, limit=limit)

    @property
    def id(self) -> str:
        return self._id

    @property
    def name(self) -> str:
        return self._name or self._id

    @property
    def config(self) -> SandboxConfig:
        return self._config

    @property
    def is_running(self) -> bool:
        """Whether the VM runs at this moment."""
        return self._link is not None and self._entry().is_live

    @property
    def accelerator(self) -> str | None:
        """How the guest's instructions are run, or None while it is stopped."""
        return self._run.accel if self._run is not None else None

    @property
    def boot_timing(self) -> BootTiming | None:
        """How long each phase of the start took; None unless this object started it."""
        return self._timing

    @property
    def qemu_command(self) -> builtins.list[str]:
        """The command line of the running QEMU."""
        return [*self._run.qemu_command] if self._run is not None else []

    @property
    def port_forwards(self) -> dict[int, int]:
        """Guest port -> host port, as they are (a host port of 0 became a free one)."""
        return {guest: host for host, guest in self._run.forwards} if self._run else {}

    @property
    def agent_url(self) -> str | None:
        """Where the agent's HTTP is (guest-agent/openapi.yaml), if ``agent_http`` was asked for."""
        port = self._run.http_port if self._run is not None else None
        return None if port is None else f"http://127.0.0.1:{port}"

    @property
    def agent_token(self) -> str | None:
        """The bearer token that the agent's HTTP asks for. A secret; new with every start."""
        return self._run.token if self._run is not None else None

    def _entry(self) -> Entry:
        entry = self._registry.inspect(self._id)
        if entry is None:
            raise SandboxNotFoundError(f"the sandbox {self.name!r} does not exist any more")
        return entry

    async def _session(self) -> Session:
        if self._link is None:
            raise StateError(f"the sandbox {self.name!r} is not running")
        return await self._link.session()
