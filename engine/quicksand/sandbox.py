"""`Sandbox`, the public class: one VM. It delegates to the parts in `quicksand.life`."""

from __future__ import annotations

import asyncio
import builtins
import warnings
from collections.abc import AsyncIterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack

from quicksand.base.delegation import Delegation
from quicksand.base.errors import StateError
from quicksand.base.files import map_os_errors, tail
from quicksand.base.paths import paths
from quicksand.base.remedies import Remedy, Words
from quicksand.base.threads import to_the_end
from quicksand.desktop import Desktop
from quicksand.life import machinery
from quicksand.life.basis import Basis, find_basis
from quicksand.life.checkpoints import Checkpoints
from quicksand.life.guest import InGuest
from quicksand.life.sandbox_life import Life
from quicksand.life.saves import Saves
from quicksand.records.config import SandboxConfig, check_name, refuse_unknown
from quicksand.records.layout import sandbox_dir
from quicksand.records.mount import CIFS, Mount
from quicksand.records.registry import Registry

if TYPE_CHECKING:
    from quicksand.base.boot_timing import BootTiming
    from quicksand.base.progress import Progress
    from quicksand.guest.files import GuestFiles
    from quicksand.life.events import Event
    from quicksand.life.mounts import MountHandle, Mounts
    from quicksand.records.params import MachineOptions, ResumeOptions
    from quicksand.records.sandboxes import Entry
    from quicksand.saves.manifest import SaveManifest

OPTIONS = tuple(SandboxConfig.__dataclass_fields__)
OWN = (
    *("name", "ephemeral", "warm", "build", "progress_callback"),
    *("save", "workspace", "base_dir", "trust"),
)


_in_guest: Delegation[Sandbox, InGuest] = Delegation(lambda sandbox: sandbox._guest)
_to_checkpoints: Delegation[Sandbox, Checkpoints] = Delegation(lambda sandbox: sandbox._checkpoints)
_to_saves: Delegation[Sandbox, Saves] = Delegation(lambda sandbox: sandbox._saves)
_to_desktop: Delegation[Sandbox, Desktop] = Delegation(lambda sandbox: sandbox.desktop)


class Sandbox:
    """A Linux VM in which untrusted code runs.

    ::

        async with Sandbox(image="debian") as sb:
            result = await sb.execute("uname -a")

    The VM ends with the ``async with`` block, and with this process, even on kill -9. `detach` lets
    it outlive both; `Sandbox.attach` reconnects to it later. A sandbox without a ``name`` is
    removed when it stops; a named one keeps its disk and can be started again, unless
    ``ephemeral`` is true.

    All errors derive from `QuicksandError` (`quicksand.errors`). Besides the errors that a method
    lists, every method that talks to the guest (commands, shells, files, users, `stats`) raises
    StateError if the sandbox is not running, MachineError if its VM has ended, and AgentError if
    the guest's agent does not answer or answers nonsense. Sizes are in bytes, times in seconds.
    """

    desktop: Desktop
    """The screen, the keyboard and the pointer; its methods are the sandbox's, too."""
    _guest: InGuest

    def __init__(
        self,
        *,
        image: str,
        name: str | None = None,
        ephemeral: bool | None = None,
        warm: bool = True,
        build: bool | None = None,
        save: str | None = None,
        workspace: str | Path | None = None,
        base_dir: str | Path | None = None,
        trust: bool = False,
        progress_callback: Progress | None = None,
        **options: Unpack[MachineOptions],
    ) -> None:
        """Check the options; ``options`` are the fields of `SandboxConfig`. Nothing starts yet.

        ``image``: the name of an image or of a save, or the path of a save, a snapshot file, or a
        bundle (a .quicksand file), which the first `start` unpacks. From a save or snapshot the
        sandbox takes its disk and, where ``options`` do not override it, its config; ``base_dir``
        is searched first for the image below that disk. If this user did not make the save on this
        host, or if it comes in a bundle, its network, ports and QEMU arguments are ignored unless
        ``trust`` is true; `notices` and a SaveWarning then name what was left out.

        ``ephemeral``: remove the sandbox when it stops. The default is true without a ``name``.

        ``save``: save the disk under this name when the sandbox stops, even after an exception in
        the block or SIGTERM. ``workspace``: the directory for saves, by default
        ``.quicksand/sandboxes`` in the current directory; it is also searched for ``image``.

        ``warm``: let the first start continue from a template (a checkpoint of a machine of this
        kind, taken just after boot). If there is none, the machine boots and a background process
        makes a template for later starts. If a spare waits (a machine that has started from the
        template already), the start takes that one over.

        ``build``: whether `start` may build a missing image, which takes minutes, or install one
        that is known to be published. None means yes if stderr is a terminal.

        Raises ConfigError for a bad value, UnknownOptionError (a TypeError) for an unknown keyword,
        SaveError for a save that cannot be used; for a bundle BundleError (a SaveError),
        ImageNotFound, PathError.
        """
        refuse_unknown(options, {*OPTIONS, *OWN})
        registry = Registry(paths())
        place = Path(workspace).absolute() if workspace is not None else None
        basis = find_basis(image, options, registry.paths, workspace=place, trust=trust)
        self._take_notice(basis)
        life = Life(
            registry,
            basis.config,
            name=check_name(name) if name is not None else None,
            discard=name is None if ephemeral is None else ephemeral,
            source=basis.source,
            bundle=basis.bundle,
            trusts_source=basis.trusted,
            base_dir=Path(base_dir).absolute() if base_dir is not None else None,
            warm=warm,
            build=build,
            progress=progress_callback,
        )
        self._set_parts(life, place)
        if save is not None:
            self.save_on_stop(save, self._saves.store())

    def _take_notice(self, basis: Basis) -> None:
        self._notices = basis.notices
        if basis.is_surprising:
            warnings.warn(basis.notices[0], machinery.SaveWarning, stacklevel=3)

    def _set_parts(self, life: Life, workspace: Path | None = None) -> None:
        self._life = life
        self._workspace = workspace
        self._guest = InGuest(life)
        self.desktop = Desktop(life)

    # Most commands only run something in a guest, and are over before these are needed.

    @cached_property
    def _mounts(self) -> Mounts:
        from quicksand.life.mounts import Mounts  # noqa: PLC0415

        return Mounts(self._life, self._guest)

    @cached_property
    def _checkpoints(self) -> Checkpoints:
        return Checkpoints(self._life, self._guest, self._mounts)

    @cached_property
    def _saves(self) -> Saves:
        return Saves(self._life, self._guest, self._checkpoints, self._workspace)

    @classmethod
    def _of(cls, life: Life) -> Sandbox:
        """A `Sandbox` for one that exists already."""
        sandbox = cls.__new__(cls)
        sandbox._notices = ()
        sandbox._set_parts(life)
        return sandbox

    # Life

    async def __aenter__(self) -> Self:
        await self.start()
        if (saving := self._saves.at_stop) is not None:
            saving.watch()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.stop()
        finally:
            if (saving := self._saves.at_stop) is not None:
                saving.release()

    async def start(self, *, at: str | None = None) -> None:
        """Boot the VM and return when its agent has answered; with a display, when the image says
        that its desktop is there, or after three minutes with one of the `notices`.

        ``at``: the tag or id of a checkpoint of this stopped sandbox; the VM continues from it with
        its processes running. The disk as it was at the last stop is kept as an automatic
        checkpoint of the tier "disk", which has no memory: a start at that one boots.

        Raises StateError if the sandbox is running, NameTakenError, CheckpointNotFoundError,
        HistoryError, SaveError, ImageError, HostError, MachineError (BootTimeoutError if the agent
        does not answer within ``boot_timeout`` seconds), AgentError. After an error or a
        cancellation nothing of the start is left, and `start` can be called again; only a sandbox
        that has ended while its desktop was waited for exists, stopped.
        """
        await self._life.start(at)

    async def stop(self, *, grace: float = 10.0) -> None:
        """Stop the VM: the guest syncs and powers down within ``grace`` seconds, or it is killed.

        An ephemeral sandbox is killed at once and removed. `stop` may be called in any state and
        any number of times. A sandbox made with ``save`` is saved first, unless ``grace`` is 0. If
        that save fails or is cancelled, the sandbox is stopped but kept, and the error says so.

        Raises MachineError if the VM's processes cannot be ended, and what `save` raises.
        """
        if self._life.record is not None:
            if grace > 0:
                await self._mounts.write_back()
            await self._saves.stop(grace)

    async def kill(self) -> None:
        """Stop the VM at once, like pulling the plug. Raises MachineError."""
        await self.stop(grace=0)

    def abandon(self) -> bool:
        """End an ephemeral VM of this process and do not wait for it, if nothing is at stake: its
        keeper kills QEMU and removes all files, in some hundredths of a second, as it does when
        this process dies.

        Returns False, and has done nothing, if `stop` is needed: the sandbox has a name or ports of
        the host, which whoever comes next must find free; directories are mounted, to which its
        guest may have to write; it is to be saved; it has lost its keeper, or is not ours.
        """
        if not self._life.is_nothing_at_stake or self._saves.at_stop is not None:
            return False
        if self._mounts.list():
            return False
        self.close()
        return True

    async def trash(self) -> None:
        """Move the sandbox to the trash, where it stays for a week; `Sandbox.restore` brings it
        back. A running sandbox is stopped; if possible its last moment is kept as an automatic
        checkpoint. An ephemeral sandbox is removed for good.

        Raises StateError if it was never started, HistoryError while another client works on its
        checkpoints, SandboxNotFoundError, HostError, MachineError.
        """
        await self._mounts.write_back()
        await self._life.trash()

    @classmethod
    def restore(cls, id_or_name: str, *, name: str | None = None) -> Sandbox:
        """Bring a sandbox back from the trash: the one with that id, or the one most recently
        removed with that name. It comes back stopped, called ``name`` if given, with all its
        checkpoints.

        Raises SandboxNotFoundError, NameTakenError, ConfigError for a bad name, HostError.
        """
        registry = Registry(paths())
        return cls._of(
            Life.of_entry(registry, machinery.SandboxTrash(registry).restore(id_or_name, name))
        )

    async def pause(self) -> None:
        """Pause the VM (QMP ``stop``). Until `resume` the guest runs no instruction, so its agent
        does not answer either. A checkpoint that another client takes comes first. Raises
        StateError, HistoryError, MachineError."""
        await self._life.set_paused(True)

    async def resume(self) -> None:
        """Resume a paused VM (QMP ``cont``). It is no error if it is not paused. Raises as
        `pause`."""
        await self._life.set_paused(False)

    def detach(self) -> None:
        """Let the VM outlive this process. This object stays usable. Raises StateError if the
        sandbox is not running."""
        self._life.detach()

    def disconnect(self) -> None:
        """Close this object's connection to the guest's agent, which serves few clients (see
        `AGENT_PORTS`). Commands in flight end; the next call that needs the agent reconnects."""
        self._life.disconnect()

    def close(self) -> None:
        """Close the connection to an attached or detached sandbox; its VM keeps running. A VM that
        this object started and did not `detach` is ended."""
        self._life.close()

    # The host's directories

    async def mount(
        self,
        host: str | Path,
        guest: str,
        readonly: bool = False,
        *,
        type: str = CIFS,  # noqa: A002 - as the field of Mount
        fsync: bool = True,
        protect: bool = False,
    ) -> MountHandle:
        """Mount a directory of the host in the running guest, until it is unmounted or the VM
        stops. What was mounted stays so when the sandbox is reverted; what the guest still has open
        there is lost then. A clone has no mounts unless `clone` is told.

        ``guest`` is an absolute path; the directory is made if it is missing. A ``readonly`` mount
        cannot be changed, not even by root in the guest. Without ``fsync`` (`Mount.fsync`) many
        small files are made faster, and less is safe from a power failure of the host. With
        ``protect`` (`Mount.protect`) the guest cannot change git's hooks and the like. Raises
        ConfigError, MountError if the directory cannot be served or mounted, StateError if the
        sandbox is not running or has no network card.
        """
        mount = Mount(str(host), guest, readonly, type, fsync=fsync, protect=protect)
        return await self._mounts.add(mount)

    async def unmount(self, handle: MountHandle | str, *, force: bool = False) -> None:
        """Take a mount away, given its handle or the guest's path. With ``force`` it is gone even
        if programs use it; they get errors. Raises ConfigError if nothing is mounted there,
        MountError if it is in use, StateError."""
        guest = handle if isinstance(handle, str) else handle.guest
        await self._mounts.remove(guest, force=force)

    @property
    def active_mounts(self) -> builtins.list[MountHandle]:
        """The directories that are mounted at this moment, not those that the guest is still being
        asked to mount. Blocks for a few small files."""
        return [*self._mounts.list()]

    # Finding others

    @staticmethod
    def list() -> builtins.list[Entry]:
        """Every sandbox of this user on this host, running or not, oldest first. A sandbox whose
        record cannot be read is listed with ``Status.BROKEN``."""
        return Registry(paths()).list()

    @classmethod
    def attach(cls, id_or_name: str, *, set_clock: bool = True) -> Sandbox:
        """Connect to the running sandbox with that name or id. Closing this object leaves the VM
        running. If the guest's clock is off, it is corrected unless ``set_clock`` is False.

        Raises SandboxNotFoundError, or StateError if the sandbox is not running.
        """
        registry = Registry(paths())
        life = Life.of_entry(registry, registry.find(id_or_name), set_clock=set_clock)
        if life.run is None:
            raise StateError(
                f"the sandbox {life.name!r} is not running",
                hint=Words(Remedy("start", name=life.name), " starts it"),
            )
        return cls._of(life)

    @classmethod
    def open(
        cls,
        id_or_name: str,
        *,
        to_end_it: bool = False,
        progress_callback: Progress | None = None,
    ) -> Sandbox:
        """The sandbox with that name or id, running or stopped; `start` starts a stopped one.

        A sandbox that is still starting or is unreachable (its sockets are gone) can only be ended:
        pass ``to_end_it`` and call `stop` or `kill`. Raises SandboxNotFoundError, StateError.
        """
        registry = Registry(paths())
        life = Life.of_entry(registry, registry.find(id_or_name), to_end_it=to_end_it)
        life.progress = progress_callback
        return cls._of(life)

    # Commands, and what else is done in the guest

    execute = _in_guest(InGuest.execute)
    spawn = _in_guest(InGuest.spawn)
    shell = _in_guest(InGuest.shell)
    attach_shell = _in_guest(InGuest.attach_shell)
    shells = _in_guest(InGuest.shells)
    create_user = _in_guest(InGuest.create_user)
    delete_user = _in_guest(InGuest.delete_user)
    request = _in_guest(InGuest.request)
    ping = _in_guest(InGuest.ping)
    stats = _in_guest(InGuest.stats)
    traffic = _in_guest(InGuest.traffic)
    processes = _in_guest(InGuest.processes)

    @property
    def files(self) -> GuestFiles:
        """The guest's files: reading, writing, listing."""
        return machinery.GuestFiles(self._life.session)

    # Saves

    save = _to_saves(Saves.save)
    save_on_stop = _to_saves(Saves.save_on_stop)
    save_to = _to_saves(Saves.save_to)

    async def snapshot(
        self,
        path: str | Path,
        *,
        note: str = "",
        compress: bool = False,
        freeze: bool | None = None,
        report: Progress | None = None,
    ) -> Snapshot:
        """Write the disk to one portable qcow2 file, running or not; a running VM keeps running.
        To use the file, a host needs only it and the image. An existing file is replaced.
        ``report`` is called with a stage, the bytes done and the bytes in all.

        Raises as `save`, and ImageError if the image is not in the image store.
        """
        target = Path(path).absolute()
        options = machinery.SaveOptions(
            note=note, compress=compress, freeze=freeze, progress=report or self._life.progress
        )
        await self._saves.write_snapshot(target, options)
        return await asyncio.to_thread(Snapshot.load, target, base_dir=self._life.base_dir)

    @staticmethod
    def validate_save(path: str | Path) -> SaveManifest:
        """Check the save in the directory ``path`` without reading its data: manifest, files,
        sizes, qcow2 headers.

        Raises SaveNotFoundError (a FileNotFoundError), SaveError (a ValueError).
        """
        return machinery.check_save(Path(path))

    # Checkpoints

    checkpoint = _to_checkpoints(Checkpoints.checkpoint)
    revert = _to_checkpoints(Checkpoints.revert)
    undo = _to_checkpoints(Checkpoints.undo)
    delete_checkpoint = _to_checkpoints(Checkpoints.delete_checkpoint)
    checkpoints = _to_checkpoints(Checkpoints.checkpoints)
    checkpoint_screen = _to_checkpoints(Checkpoints.checkpoint_screen)
    pin_checkpoint = _to_checkpoints(Checkpoints.pin_checkpoint)
    note_checkpoint = _to_checkpoints(Checkpoints.note_checkpoint)
    diff = _to_checkpoints(Checkpoints.diff)
    compare = _to_checkpoints(Checkpoints.compare)
    compare_file = _to_checkpoints(Checkpoints.compare_file)
    patch = _to_checkpoints(Checkpoints.patch)

    # Clones

    async def clone(
        self,
        n: int = 1,
        *,
        concurrency: int | None = None,
        at: str | None = None,
        names: Sequence[str | None] | None = None,
        mounts: str | None = None,
    ) -> builtins.list[Sandbox]:
        """Make ``n`` sandboxes that continue from the present state, or from the checkpoint ``at``.
        Each has the same memory, processes and disk but its own name, addresses and secrets. After
        an error none of them is left; `fork` keeps those that started.

        A running sandbox is paused for as long as a checkpoint takes; clones of a stopped one boot
        from its disk. ``concurrency`` clones start at a time: by default one for each processor, at
        most 4. Unless ``names`` are given, clones of a named sandbox are called NAME-1, NAME-2 and
        so on. They belong to this process as if it had started them: see `detach`.

        ``mounts``: "ro" or "rw" mounts in each clone, now and at its later starts, the directories
        that are mounted in this sandbox now (if it is stopped: those that its start mounts). With
        "ro" they are read-only; with "rw" they are as they are here, so that all of them write to
        the same files of the host. None, the default, mounts none.

        Raises ConfigError (also for more than 1000 clones), NameTakenError, StateError,
        CheckpointNotFoundError, HistoryError, HostError (MountError for a directory that is gone),
        ImageError, MachineError, AgentError.
        """
        lives = await self._checkpoints.clone(
            n, concurrency=concurrency, at=at, names=names, mounts=mounts
        )
        clones = [life for life in lives if isinstance(life, Life)]
        for failure in lives:
            if isinstance(failure, Exception):
                await to_the_end(_remove_all(clones))
                raise failure
        return [Sandbox._of(life) for life in clones]

    async def fork(
        self,
        count: int,
        *,
        concurrency: int | None = None,
        at: str | None = None,
        mounts: str | None = None,
    ) -> builtins.list[Sandbox | Exception]:
        """Like `clone`, but clones that started are kept, and the list holds the error in place of
        each clone that did not."""
        lives = await self._checkpoints.clone(
            count, concurrency=concurrency, at=at, names=None, mounts=mounts
        )
        return [Sandbox._of(life) if isinstance(life, Life) else life for life in lives]

    # The desktop

    display = _to_desktop(Desktop.display)
    screenshot = _to_desktop(Desktop.screenshot)
    record = _to_desktop(Desktop.record)
    query_display_size = _to_desktop(Desktop.query_display_size)
    set_display_size = _to_desktop(Desktop.set_display_size)
    wait_for_screen = _to_desktop(Desktop.wait_for_screen)
    type_text = _to_desktop(Desktop.type_text)
    press_key = _to_desktop(Desktop.press_key)
    key_down = _to_desktop(Desktop.key_down)
    key_up = _to_desktop(Desktop.key_up)
    mouse_move = _to_desktop(Desktop.mouse_move)
    mouse_move_px = _to_desktop(Desktop.mouse_move_px)
    mouse_click = _to_desktop(Desktop.mouse_click)
    mouse_down = _to_desktop(Desktop.mouse_down)
    mouse_up = _to_desktop(Desktop.mouse_up)
    mouse_drag = _to_desktop(Desktop.mouse_drag)
    mouse_scroll = _to_desktop(Desktop.mouse_scroll)
    query_mouse_position = _to_desktop(Desktop.query_mouse_position)

    @property
    def vnc_socket(self) -> Path:
        """The Unix socket of QEMU's VNC server, which needs no password and which only this user
        can open. After a revert it is another one."""
        return self.desktop.vnc_socket

    @property
    def vnc_port(self) -> int | None:
        """The port of 127.0.0.1 at which VNC viewers find the screen; None without the option
        ``vnc_port`` or while the sandbox is stopped."""
        return self.desktop.vnc_port

    @property
    def vnc_password(self) -> str | None:
        """The password of viewers at `vnc_port`, a secret that changes with every start; None
        without that port."""
        return self.desktop.vnc_password

    # Looking

    def events(self) -> AsyncIterator[Event]:
        """Yield what happens to the VM as it happens: pauses, a full host disk, a panic, its end.
        The iterator ends with the VM. Raises StateError if too many clients watch (`QMP_MONITORS`),
        MachineError."""
        return machinery.watch_events(self._life.registry, self.id)

    def logs(self, *, limit: int = 64 * 1024) -> str:
        """The last ``limit`` bytes of the guest's console, "" if there are none. Raises
        OSError."""
        return tail(sandbox_dir(self._life.registry.paths, self.id).console_log, limit=limit)

    @property
    def id(self) -> str:
        """12 hexadecimal digits, unique on this host. The first start may give it another one: that
        of the spare that it takes over."""
        return self._life.id

    @property
    def name(self) -> str:
        """The name, or the id of a sandbox without one."""
        return self._life.name

    @property
    def config(self) -> SandboxConfig:
        """The options, with those that came from a save."""
        return self._life.config

    @property
    def notices(self) -> tuple[str, ...]:
        """Warnings: about the save that ``image`` names, that this user did not make it on this
        host, and which of its options were left out; after a start, which directories could not be
        mounted because they are gone, and that a guest with the full network finds no names."""
        return (*self._notices, *self._life.notices)

    @property
    def is_running(self) -> bool:
        """Whether the VM runs at this moment."""
        return self._life.is_running

    @property
    def accelerator(self) -> str | None:
        """The QEMU accelerator ("kvm", "hvf", "tcg" …), or None while the sandbox is stopped."""
        run = self._life.run
        return run.accel if run is not None else None

    @property
    def boot_timeout(self) -> float:
        """Seconds that `start` waits for the agent (`SandboxConfig.boot_timeout`)."""
        return self.config.boot_timeout

    @property
    def boot_timing(self) -> BootTiming | None:
        """How long each phase of the start took, in seconds; None unless this object started the
        VM."""
        return self._life.timing

    @property
    def qemu_command(self) -> builtins.list[str]:
        """The command line of the running QEMU; empty while the sandbox is stopped."""
        run = self._life.run
        return [*run.qemu_command] if run is not None else []

    @property
    def port_forwards(self) -> dict[int, int]:
        """Guest port -> host port of each forward; where the config asked for host port 0, the port
        that was chosen. Empty while the sandbox is stopped."""
        run = self._life.run
        return {guest: host for host, guest in run.forwards} if run is not None else {}

    @property
    def agent_url(self) -> str | None:
        """The URL of the agent's HTTP interface (guest-agent/openapi.yaml), or None without the
        option ``agent_http`` or while the sandbox is stopped."""
        run = self._life.run
        port = run.http_port if run is not None else None
        return None if port is None else f"http://127.0.0.1:{port}"

    @property
    def agent_token(self) -> str | None:
        """The bearer token for the agent's HTTP interface, a secret that changes with every start;
        None while the sandbox is stopped."""
        run = self._life.run
        return run.token if run is not None else None


async def _remove_all(lives: Sequence[Life]) -> None:
    for life in lives:
        await life.remove()


class Snapshot:
    """A portable qcow2 file with a sandbox's disk, made by `Sandbox.snapshot`. Any number of new
    sandboxes can start with it; they never change it."""

    def __init__(self, path: Path, manifest: SaveManifest, base_dir: Path | None) -> None:
        self.path = path
        self.manifest = manifest
        self._base_dir = base_dir

    @classmethod
    def load(cls, path: str | Path, *, base_dir: str | Path | None = None) -> Snapshot:
        """The snapshot in the file ``path``; ``base_dir`` is searched first for its image.

        Raises SaveNotFoundError if there is no such file, SaveError if it is no snapshot or is
        damaged.
        """
        found = Path(path).absolute()
        return cls(found, machinery.check_portable(found), Path(base_dir) if base_dir else None)

    async def resume(self, **options: Unpack[ResumeOptions]) -> Sandbox:
        """Start a new sandbox with this disk; ``options`` are those of `Sandbox`. The caller stops
        it. Raises as `Sandbox` and `Sandbox.start`."""
        sandbox = Sandbox(image=str(self.path), base_dir=self._base_dir, **options)
        await sandbox.start()
        return sandbox

    def delete(self) -> None:
        """Remove the file and its metadata beside it (``<file>.json``). Sandboxes that started with
        it are not affected. Raises PathError."""
        with map_os_errors(self.path):
            self.path.unlink(missing_ok=True)
            machinery.sidecar(self.path).unlink(missing_ok=True)
