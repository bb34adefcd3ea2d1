"""`Sandbox`, the public class: one VM. It delegates to the parts in `quicksand.life`."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack

from quicksand.base.arguments import checked_methods
from quicksand.base.delegation import Attribute, Delegation
from quicksand.base.files import map_os_errors
from quicksand.base.paths import paths
from quicksand.life import machinery
from quicksand.life.forwarding import Forwarding
from quicksand.life.guest import InGuest
from quicksand.life.host_directories import HostDirectories
from quicksand.life.parts import (
    Ending,
    Facts,
    LocalParts,
    Parts,
    Pausing,
    attach_here,
    restore_here,
)
from quicksand.life.sandbox_checkpoints import Checkpoints
from quicksand.life.sandbox_desktop import Desktop
from quicksand.life.sandbox_life import Life
from quicksand.life.sandbox_saves import Saves
from quicksand.records.config import SandboxConfig, check_name
from quicksand.records.machine_options import refuse_unknown
from quicksand.records.registry import Registry
from quicksand.where import Fleet, Restart, is_elsewhere, make_parts, open_kept, open_parts

if TYPE_CHECKING:
    from quicksand.base.progress import Progress
    from quicksand.guest.guest_files import GuestFiles
    from quicksand.hosted.remote_host import RemoteHost
    from quicksand.records.params import MachineOptions, ResumeOptions
    from quicksand.records.sandboxes import Entry
    from quicksand.saves.save_manifest import SaveManifest

OPTIONS = tuple(SandboxConfig.__dataclass_fields__)
OWN = (
    *("name", "ephemeral", "warm", "build", "progress_callback"),
    *("save", "workspace", "base_dir", "trust", "host", "fleet", "restart"),
)


_in_guest: Delegation[Sandbox, InGuest] = Delegation(lambda sandbox: sandbox._parts.guest)
_to_checkpoints: Delegation[Sandbox, Checkpoints] = Delegation(
    lambda sandbox: sandbox._parts.checkpoints
)
_to_saves: Delegation[Sandbox, Saves] = Delegation(lambda sandbox: sandbox._parts.saves)
_to_life: Delegation[Sandbox, Life] = Delegation(lambda sandbox: sandbox._parts.life)
_to_pausing: Delegation[Sandbox, Pausing] = Delegation(lambda sandbox: sandbox._parts.pausing)
_to_its_end: Delegation[Sandbox, Ending] = Delegation(lambda sandbox: sandbox._parts.ending)
_to_forwarding: Delegation[Sandbox, Forwarding] = Delegation(
    lambda sandbox: sandbox._parts.forwarding
)
_to_facts: Delegation[Sandbox, Facts] = Delegation(lambda sandbox: sandbox._parts.facts)
_to_directories: Delegation[Sandbox, HostDirectories] = Delegation(
    lambda sandbox: sandbox._parts.directories
)
_to_desktop: Delegation[Sandbox, Desktop] = Delegation(lambda sandbox: sandbox.desktop)


@checked_methods
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

    _parts: Parts

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
        host: str | RemoteHost | None = None,
        fleet: Fleet | bool | None = None,
        restart: Restart | bool | None = None,
        progress_callback: Progress | None = None,
        **options: Unpack[MachineOptions],
    ) -> None:
        """Check the options; ``options`` are the fields of `SandboxConfig`. Nothing starts yet.

        ``image``: the name of an image or of a save, or the path of a save, a snapshot file, or a
        bundle (a .quicksand file), which the first `start` unpacks. From a save or snapshot the
        sandbox takes its disk and, where ``options`` do not override it, its config; ``base_dir``
        is searched first for the image below that disk. If this user did not make the save on this
        host, or if it comes in a bundle, its network, ports and QEMU arguments are ignored unless
        ``trust`` is true; `notices` and a SaveWarning then name the omitted ones.

        ``ephemeral``: remove the sandbox when it stops. The default is true without a ``name``.

        ``save``: save the disk under this name when the sandbox stops, even after an exception in
        the block or SIGTERM. ``workspace``: the directory for saves, by default
        ``.quicksand/sandboxes`` in the current directory; it is also searched for ``image``.

        ``warm``: let the first start continue from a template (a checkpoint of a machine of this
        kind, taken just after boot). If there is none, the machine boots and a background process
        makes a template for later starts. A spare (a machine started from it) is taken over.

        ``build``: whether `start` may build a missing image, which takes minutes, or install one
        that is known to be published. None means yes if stderr is a terminal.

        ``host``: another machine that runs it: ``ssh://USER@HOST:PORT``, a name of the config's
        table [hosts], or a `RemoteHost`; "local" is this one. Paths are that machine's, and must be
        absolute; image and save are looked for by `start`.
        ``fleet``: a `Fleet` that finds a machine when it starts, or True for the one that is up.
        ``restart``: a `Restart`, or True: start it elsewhere if that machine is lost.

        Raises ConfigError for a bad value, UnknownOptionError (a TypeError) for an unknown keyword,
        SaveError for a save that cannot be used; for a bundle BundleError (a SaveError),
        ImageNotFound, PathError.
        """
        refuse_unknown(options, {*OPTIONS, *OWN})
        if name is not None:
            check_name(name)
        own = {
            **{"image": image, "name": name, "warm": warm},
            "ephemeral": name is None if ephemeral is None else ephemeral,
            **{"build": build, "save": save, "workspace": workspace, "base_dir": base_dir},
            **{"trust": trust, "progress_callback": progress_callback},
        }
        self._parts = make_parts(host, fleet, restart, own, options)

    @classmethod
    def _of(cls, parts: Parts) -> Sandbox:
        """Return a `Sandbox` for one that already exists."""
        sandbox = cls.__new__(cls)
        sandbox._parts = parts
        return sandbox

    @property
    def desktop(self) -> Desktop:
        """The screen, the keyboard and the pointer; its methods are the sandbox's, too."""
        return self._parts.desktop

    # Life

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self._parts.leave()
            raise
        if (saving := self._parts.saves.at_stop) is not None:
            saving.watch()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.stop()
        finally:
            if (saving := self._parts.saves.at_stop) is not None:
                saving.release()
            await self._parts.leave()

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
        that ended during the wait for its desktop exists, stopped.
        """
        await self._parts.life.start(at)

    stop = _to_its_end(Ending.stop)
    abandon = _to_its_end(Ending.abandon)
    trash = _to_its_end(Ending.trash)

    async def kill(self) -> None:
        """Stop the VM at once, like pulling the plug. Raises MachineError."""
        await self.stop(grace=0)

    @classmethod
    def restore(cls, id_or_name: str, *, name: str | None = None) -> Sandbox:
        """Bring a sandbox back from the trash: the one with that id, or the one most recently
        removed with that name. It comes back stopped, called ``name`` if given, with all its
        checkpoints.

        Raises SandboxNotFoundError, NameTakenError, ConfigError for a bad name, HostError.
        """
        return cls._of(restore_here(id_or_name, name))

    pause = _to_pausing(Pausing.pause)
    resume = _to_pausing(Pausing.resume)
    detach = _to_life(Life.detach)
    disconnect = _to_life(Life.disconnect)
    close = _to_life(Life.close)

    # The host's directories

    mount = _to_directories(HostDirectories.mount)
    unmount = _to_directories(HostDirectories.unmount)
    active_mounts = _to_directories.attribute(HostDirectories.active_mounts)

    # Finding others

    @staticmethod
    def list() -> builtins.list[Entry]:
        """Every sandbox of this user on this host, running or not, oldest first. A sandbox whose
        record cannot be read is listed with ``Status.BROKEN``."""
        return Registry(paths()).list()

    @classmethod
    def attach(
        cls,
        id_or_name: str,
        *,
        set_clock: bool = True,
        host: str | RemoteHost | None = None,
        fleet: Fleet | bool | None = None,
    ) -> Sandbox:
        """Connect to the running sandbox with that name or id. Closing this object leaves the VM
        running. If the guest's clock is off, it is corrected unless ``set_clock`` is False. On a
        ``host`` (as in `Sandbox`), the first awaited call looks for it, and clocks are that
        machine's business. A ``fleet`` (as in `Sandbox`) looks for it on its machines.

        Raises SandboxNotFoundError, or StateError if the sandbox is not running.
        """
        if fleet is not None and fleet is not False:
            return cls._of(open_kept(fleet, id_or_name))
        if is_elsewhere(host):
            return cls._of(open_parts(host, id_or_name))
        return cls._of(attach_here(id_or_name, set_clock=set_clock))

    @classmethod
    def open(
        cls,
        id_or_name: str,
        *,
        to_end_it: bool = False,
        host: str | RemoteHost | None = None,
        progress_callback: Progress | None = None,
    ) -> Sandbox:
        """The sandbox with that name or id, running or stopped; `start` starts a stopped one.

        A sandbox that is still starting or is unreachable (its sockets are gone) can only be ended:
        pass ``to_end_it`` and call `stop` or `kill`. ``host`` is that of `attach`. Raises
        SandboxNotFoundError, StateError.
        """
        if is_elsewhere(host):
            parts = open_parts(
                host,
                id_or_name,
                must_run=False,
                to_end_it=to_end_it,
                progress_callback=progress_callback,
            )
            return cls._of(parts)
        registry = Registry(paths())
        life = Life.of_entry(registry, registry.find(id_or_name), to_end_it=to_end_it)
        life.progress = progress_callback
        return cls._of(LocalParts(life))

    # Commands, and other work in the guest

    execute = _in_guest(InGuest.execute)
    spawn = _in_guest(InGuest.spawn)
    attach_command = _in_guest(InGuest.attach_command)
    shell = _in_guest(InGuest.shell)
    attach_shell = _in_guest(InGuest.attach_shell)
    watch_shell = _in_guest(InGuest.watch_shell)
    shells = _in_guest(InGuest.shells)
    create_user = _in_guest(InGuest.create_user)
    delete_user = _in_guest(InGuest.delete_user)
    find_user = _in_guest(InGuest.find_user)
    dial = _in_guest(InGuest.dial)
    dial_udp = _in_guest(InGuest.dial_udp)
    listen = _in_guest(InGuest.listen)
    open_sftp = _in_guest(InGuest.open_sftp)
    watch = _in_guest(InGuest.watch)
    forward = _to_forwarding(Forwarding.forward)
    unforward = _to_forwarding(Forwarding.unforward)
    wait_disconnected = _in_guest(InGuest.wait_disconnected)
    request = _in_guest(InGuest.request)
    ping = _in_guest(InGuest.ping)
    stats = _in_guest(InGuest.stats)
    traffic = _in_guest(InGuest.traffic)
    processes = _in_guest(InGuest.processes)

    @property
    def files(self) -> GuestFiles:
        """The guest's files: reading, writing, listing."""
        return self._parts.files

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
            note=note,
            compress=compress,
            freeze=freeze,
            progress=report or self._parts.life.progress,
        )
        await self._parts.saves.write_snapshot(target, options)
        base_dir = self._parts.life.base_dir
        return await asyncio.to_thread(Snapshot.load, target, base_dir=base_dir)

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
    checkpoint_shell = _to_checkpoints(Checkpoints.checkpoint_shell)
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
        made = await self._parts.clone(
            n, concurrency=concurrency, at=at, names=names, mounts=mounts
        )
        return [Sandbox._of(parts) for parts in made]

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
        made = await self._parts.fork(count, concurrency=concurrency, at=at, mounts=mounts)
        return [one if isinstance(one, Exception) else Sandbox._of(one) for one in made]

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
    vnc_socket: Attribute[Path] = _to_desktop.attribute(Desktop.vnc_socket)
    vnc_port: Attribute[int | None] = _to_desktop.attribute(Desktop.vnc_port)
    vnc_password: Attribute[str | None] = _to_desktop.attribute(Desktop.vnc_password)

    # Looking

    events = _to_facts(Facts.events)
    logs = _to_facts(Facts.logs)
    look = _to_facts(Facts.look)
    id = _to_facts.attribute(Facts.id)
    name = _to_facts.attribute(Facts.name)
    host = _to_facts.attribute(Facts.host)
    config = _to_facts.attribute(Facts.config)
    is_running = _to_facts.attribute(Facts.is_running)
    accelerator = _to_facts.attribute(Facts.accelerator)
    boot_timeout = _to_facts.attribute(Facts.boot_timeout)
    boot_timing = _to_facts.attribute(Facts.boot_timing)
    qemu_command = _to_facts.attribute(Facts.qemu_command)
    port_forwards = _to_facts.attribute(Facts.port_forwards)
    udp_port_forwards = _to_facts.attribute(Facts.udp_port_forwards)
    agent_url = _to_facts.attribute(Facts.agent_url)
    agent_token = _to_facts.attribute(Facts.agent_token)
    notices = _to_facts.attribute(Facts.notices)


@checked_methods
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

        Raises SaveNotFoundError if there is no such file, SaveError if it is none or damaged.
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
