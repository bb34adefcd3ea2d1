"""The parts of a `Sandbox`: the small ones, and all of them together. `LocalParts` are those of a
sandbox of this machine; a sandbox of another machine has others with the same methods
(quicksand.hosted)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from quicksand.base.effort import best_effort
from quicksand.base.errors import ConfigError, StateError
from quicksand.base.files import tail
from quicksand.base.paths import paths
from quicksand.base.remedies import Remedy, Words
from quicksand.base.threads import to_the_end
from quicksand.life import machinery
from quicksand.life.basis import find_basis, workspace_of
from quicksand.life.forwarding import Forwarding
from quicksand.life.guest import InGuest
from quicksand.life.host_directories import HostDirectories
from quicksand.life.sandbox_checkpoints import Checkpoints
from quicksand.life.sandbox_desktop import Desktop
from quicksand.life.sandbox_life import Life
from quicksand.life.sandbox_saves import Saves
from quicksand.records.config import SandboxConfig
from quicksand.records.dialled import ForwarderFiles, read_dialled
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.records.paused import forget_mark, mark_of
from quicksand.records.port_forwards import Protocol as PortProtocol
from quicksand.records.registry import Registry, publish_state

if TYPE_CHECKING:
    from quicksand.base.progress import BootTiming
    from quicksand.guest.guest_files import GuestFiles
    from quicksand.life.qmp_events import Event


class Ending:
    """The end of one sandbox. `stop`, `abandon` and `trash` are methods of `Sandbox`."""

    def __init__(self, life: Life, directories: HostDirectories, saves: Saves) -> None:
        self._life = life
        self._directories = directories
        self._saves = saves

    async def stop(self, *, grace: float = 10.0) -> None:
        """Stop the VM: the guest syncs and powers down within ``grace`` seconds, or it is killed.

        An ephemeral sandbox is killed at once and removed. `stop` may be called in any state and
        any number of times. A sandbox made with ``save`` is saved first, unless ``grace`` is 0. If
        that save fails or is cancelled, the sandbox is stopped but kept, and the error says so.

        Raises MachineError if the VM's processes cannot be ended, and what `save` raises.
        """
        if self._life.record is not None:
            if grace > 0:
                await self._directories.mounts.write_back()
            await self._saves.stop(grace)

    def abandon(self) -> bool:
        """End an ephemeral VM of this process without waiting, if nothing is at stake: its keeper
        kills QEMU and removes all files, in some hundredths of a second, as it does when this
        process dies.

        Returns False and does nothing if `stop` is needed: the sandbox has a name or ports of the
        host, which must be free for the next one; it has mounted directories, to which its guest
        may have to write; it will be saved; it has lost its keeper, or is not ours.
        """
        if not self._life.is_nothing_at_stake or self._saves.at_stop is not None:
            return False
        if self._directories.mounts.list():
            return False
        self._life.close()
        return True

    async def trash(self) -> None:
        """Move the sandbox to the trash, where it stays for a week; `Sandbox.restore` brings it
        back. A running sandbox is stopped; if possible its last state is kept as an automatic
        checkpoint. An ephemeral sandbox is removed for good.

        Raises StateError if it was never started, HistoryError while another client works on its
        checkpoints, SandboxNotFoundError, HostError, MachineError.
        """
        await self._directories.mounts.write_back()
        await self._life.trash()


class Pausing:
    """The pauses of one sandbox. `pause` and `resume` are methods of `Sandbox`."""

    def __init__(self, life: Life) -> None:
        self._life = life

    async def pause(self) -> None:
        """Pause the VM (QMP ``stop``). Until `resume` the guest runs no instruction, so its agent
        does not answer either. If another client is taking a checkpoint, that comes first. Raises
        StateError, HistoryError, MachineError."""
        await self._set(True)

    async def resume(self) -> None:
        """Resume a paused VM (QMP ``cont``). It is no error if the VM is not paused. Raises as
        `pause`."""
        await self._set(False)

    async def _set(self, paused: bool) -> None:
        """Pause or resume the VM. Raises StateError if it is not running or QEMU did not obey,
        HistoryError if another client takes too long with a checkpoint, MachineError."""
        life = self._life
        if life.entry().run is None:
            raise life.not_running()
        # A checkpoint or a revert also pauses and resumes it.
        async with machinery.finished_history(life.registry, life.require_record()):
            await self._set_now(paused)

    async def _set_now(self, paused: bool) -> None:
        life = self._life
        run = life.entry().run
        if run is None:
            raise life.not_running()
        machine = runtime_dir(life.registry.paths, life.id).current()
        hypervisor = await machinery.Qemu.connect(machine)
        held = mark_of(machine)
        try:
            await (hypervisor.pause() if paused else hypervisor.resume())
            if await hypervisor.is_running() is paused:
                raise StateError(f"QEMU did not {'pause' if paused else 'resume'} the sandbox")
        finally:
            await hypervisor.close()
        if not paused:
            forget_mark(machine, held)
        life.run = replace(run, paused=paused)
        publish_state(machine, life.run)
        if not paused and life.link is not None:
            await machinery.set_clock_soon(life.link, life.log)


class Facts:
    """The facts about one sandbox. `events` and `logs` are methods of `Sandbox`; the others are its
    properties."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def events(self) -> AsyncIterator[Event]:
        """Yield the events of the VM as they happen: pauses, a full host disk, a panic, its end.
        The iterator ends with the VM. Raises StateError if too many clients watch (`QMP_MONITORS`),
        MachineError."""
        return machinery.watch_events(self._life.registry, self._life.id)

    def logs(self, *, limit: int = 64 * 1024) -> str:
        """The last ``limit`` bytes of the guest's console, "" if there are none. Raises
        OSError, and ConfigError for a limit below 0."""
        if limit < 0:
            raise ConfigError(f"limit must be 0 or more bytes, not {limit}")
        return tail(sandbox_dir(self._life.registry.paths, self._life.id).console_log, limit=limit)

    async def look(self) -> None:
        """Learn anew the facts of a sandbox of another machine, which are as of that machine's last
        answer. Raises SandboxNotFoundError, StateError, RemoteError. Of one of this machine they
        are always new."""

    def id(self) -> str:
        """12 hexadecimal digits, unique on this host. The first start may change it to the id of
        the spare that it takes over."""
        return self._life.id

    def name(self) -> str:
        """The name, or the id of a sandbox without one."""
        return self._life.name

    def host(self) -> str | None:
        """The place where it runs: "local" for this machine, the address of another machine, or the
        name of a machine in a fleet. None for a sandbox that its fleet has not placed yet."""
        return "local"

    def config(self) -> SandboxConfig:
        """The options, with those that came from a save."""
        return self._life.config

    def is_running(self) -> bool:
        """Whether the VM runs at this moment."""
        return self._life.is_running

    def accelerator(self) -> str | None:
        """The QEMU accelerator ("kvm", "hvf", "tcg" …), or None while the sandbox is stopped."""
        run = self._life.run
        return run.accel if run is not None else None

    def boot_timeout(self) -> float:
        """Seconds that `start` waits for the agent (`SandboxConfig.boot_timeout`)."""
        return self._life.config.boot_timeout

    def boot_timing(self) -> BootTiming | None:
        """How long each phase of the start took, in seconds; None unless this object started the
        VM."""
        return self._life.timing

    def qemu_command(self) -> list[str]:
        """The command line of the running QEMU; empty while the sandbox is stopped."""
        run = self._life.run
        return [*run.qemu_command] if run is not None else []

    def port_forwards(self) -> dict[int, int]:
        """The forwards of TCP, including those of `Sandbox.forward`: guest port -> host port, which
        is the chosen one where host port 0 was requested. Empty while the sandbox is stopped."""
        return self._forwards(PortProtocol.TCP)

    def udp_port_forwards(self) -> dict[int, int]:
        """The same for UDP."""
        return self._forwards(PortProtocol.UDP)

    def _forwards(self, protocol: PortProtocol) -> dict[int, int]:
        run = self._life.run
        if run is None:
            return {}
        runtime = runtime_dir(self._life.registry.paths, self._life.id)
        made = (*run.published, *read_dialled(ForwarderFiles(runtime.root)).forwards)
        return {one.guest: one.host for one in made if one.protocol is protocol}

    def agent_url(self) -> str | None:
        """The URL of the agent's HTTP interface (guest-agent/openapi.yaml), or None without the
        option ``agent_http`` or while the sandbox is stopped."""
        run = self._life.run
        port = run.http_port if run is not None else None
        return None if port is None else f"http://127.0.0.1:{port}"

    def agent_token(self) -> str | None:
        """The bearer token for the agent's HTTP interface, a secret that changes with every start;
        None while the sandbox is stopped."""
        run = self._life.run
        return run.token if run is not None else None

    def notices(self) -> tuple[str, ...]:
        """Warnings: that this user did not make the save named by ``image`` on this host, and which
        of its options were left out; after a start, which directories are gone and could not be
        mounted, and that a guest with the full network cannot resolve names."""
        return (*self._life.basis_notices, *self._life.notices)


class Parts(Protocol):
    """The parts of one sandbox, which carry out its methods. They are looked up at each call."""

    @property
    def life(self) -> Life: ...
    @property
    def guest(self) -> InGuest: ...
    @property
    def directories(self) -> HostDirectories: ...
    @property
    def desktop(self) -> Desktop: ...
    @property
    def checkpoints(self) -> Checkpoints: ...
    @property
    def saves(self) -> Saves: ...
    @property
    def pausing(self) -> Pausing: ...
    @property
    def ending(self) -> Ending: ...
    @property
    def forwarding(self) -> Forwarding: ...
    @property
    def facts(self) -> Facts: ...
    @property
    def files(self) -> GuestFiles: ...

    async def clone(
        self,
        n: int,
        *,
        concurrency: int | None,
        at: str | None,
        names: Sequence[str | None] | None,
        mounts: str | None,
    ) -> Sequence[Parts]:
        """Clone the sandbox, or raise why a clone did not start; then none of them is left."""

    async def fork(
        self, count: int, *, concurrency: int | None, at: str | None, mounts: str | None
    ) -> Sequence[Parts | Exception]:
        """Return for each clone its parts, or the error that kept it from starting."""

    async def leave(self) -> None:
        """Note that the ``async with`` block of the sandbox has ended."""


class LocalParts:
    """The parts of a sandbox of this machine."""

    def __init__(self, life: Life, workspace: Path | None = None) -> None:
        """``workspace`` is the directory for its saves."""
        self.life = life
        self.guest = InGuest(life)
        self.directories = HostDirectories(life, self.guest)
        self.desktop = Desktop(life)
        self.pausing = Pausing(life)
        self.forwarding = Forwarding(life)
        self.facts = Facts(life)
        self._workspace = workspace

    # Most commands are over before these are needed.

    @cached_property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.life, self.guest, self.directories.mounts)

    @cached_property
    def saves(self) -> Saves:
        return Saves(self.life, self.guest, self.checkpoints, self._workspace)

    @property
    def ending(self) -> Ending:
        return Ending(self.life, self.directories, self.saves)

    @property
    def files(self) -> GuestFiles:
        return machinery.GuestFiles(self.life.session)

    async def clone(
        self,
        n: int,
        *,
        concurrency: int | None,
        at: str | None,
        names: Sequence[str | None] | None,
        mounts: str | None,
    ) -> Sequence[Parts]:
        """See `Parts.clone`."""
        made = await self.checkpoints.clone(
            n, concurrency=concurrency, at=at, names=names, mounts=mounts
        )
        lives = [one for one in made if isinstance(one, Life)]
        for failure in made:
            if isinstance(failure, Exception):
                await to_the_end(_remove_all(lives))
                raise failure
        return [LocalParts(life) for life in lives]

    async def fork(
        self, count: int, *, concurrency: int | None, at: str | None, mounts: str | None
    ) -> Sequence[Parts | Exception]:
        """See `Parts.fork`."""
        made = await self.checkpoints.clone(
            count, concurrency=concurrency, at=at, names=None, mounts=mounts
        )
        return [LocalParts(one) if isinstance(one, Life) else one for one in made]

    async def leave(self) -> None:
        """See `Parts.leave`."""


async def _remove_all(lives: Sequence[Life]) -> None:
    for life in lives:
        # A clone that cannot be removed must not keep the next from being ended.
        with best_effort("remove a clone", life.registry.paths.engine_log):
            await life.remove()


def make_here(own: Mapping[str, Any], options: Mapping[str, Any]) -> LocalParts:
    """Return the parts of a sandbox that `start` makes. ``own`` are the keywords of `Sandbox` that
    are not ``options`` of the machine. Raises as `Sandbox`."""
    registry = Registry(paths())
    workspace, base_dir = own["workspace"], own["base_dir"]
    place = workspace_of(workspace) if workspace is not None else None
    basis = find_basis(own["image"], options, registry.paths, workspace=place, trust=own["trust"])
    basis.warn_caller()
    life = Life(
        registry,
        basis,
        name=own["name"],
        discard=own["ephemeral"],
        base_dir=Path(base_dir).absolute() if base_dir is not None else None,
        warm=own["warm"],
        build=own["build"],
        progress=own["progress_callback"],
    )
    parts = LocalParts(life, place)
    if own["save"] is not None:
        parts.saves.save_on_stop(own["save"], parts.saves.store())
    return parts


def attach_here(id_or_name: str, *, set_clock: bool) -> LocalParts:
    """The parts of a running sandbox. Raises as `Sandbox.attach`."""
    registry = Registry(paths())
    life = Life.of_entry(registry, registry.find(id_or_name), set_clock=set_clock)
    if life.run is None:
        raise StateError(
            f"the sandbox {life.name!r} is not running",
            hint=Words(Remedy("start", name=life.name), " starts it"),
        )
    return LocalParts(life)


def restore_here(id_or_name: str, name: str | None) -> LocalParts:
    """The parts of a sandbox that is brought back from the trash. Raises as `Sandbox.restore`."""
    registry = Registry(paths())
    entry = machinery.SandboxTrash(registry).restore(id_or_name, name)
    return LocalParts(Life.of_entry(registry, entry))
