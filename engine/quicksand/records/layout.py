"""Every name that may appear in a sandbox's directories (docs/internals/layout.md says why).

::

    <data>/sandboxes/<id>/      what outlives a stop
        .quicksand              marks it as quicksand's, so that it may be removed (base/removal.py)
        sandbox.json            the record: name, config, image, time of creation
        spare.json              instead of that: no sandbox yet, but a spare (spares/)
        lock                    flock'ed by the client that starts it, then by keeper and QEMU
        head.json               which layers the guest's disk is made of at this moment
        head.json.broken        a head that could not be read, renamed by a start at a checkpoint
        given-up.json           the present that a revert in place gives up, until it is stored
        history.lock            flock'ed by the client that changes layers or checkpoints
        layers/<id>.qcow2       the layer that the guest writes to, and those frozen by checkpoints
        layers/<id>.json        the seal of a frozen layer: size and checksums
        layers/<id>.sha256      its SHA-256, once it was saved
        memory/                 a symbolic link to <QUICKSAND_MEMORY_DIR>/<id>/ if that was set at
                                the first start
        memory/<id>.pages       pages of guest memory that checkpoints are made of
        memory/<id>.ram         a complete memory image: sparse, every page at its own address
        memory/<id>.state       memory and devices as QEMU's own snapshot, a qcow2 file
        memory/<id>.held        pages of the present that is being given up, as they were copied
        memory/<digest>.rom     the machine's firmware
        checkpoints/<id>/       node.json (written last); of the tier "pages" devices, pages.index,
                                and held.index before they are stored;
                                with a display screen.png, a small picture of it; with a shell
                                shell.json, the end of its output
        console.log[.1], qemu.log[.1]   the guest's console, QEMU's stderr; the last two pieces
        engine.log[.1]          what was tried and not possible, and why (base/effort.py)
        runtime                 a symbolic link to its runtime directory (see below)
        exit.json               how the last run ended; while it runs, exit.json.tmp is its space
        lease.json, trash.json  a fleet keeps it (fleet_files.py); when and why it was removed
    <data>/sandboxes/.trash/<id>/   a sandbox that was removed; it can be brought back for a week
    <data>/sandboxes/.trash/overdue.json    since when which of them are known to be due

    <runtime>/<id>/             while it runs; 0700, removed by the keeper
        .quicksand              marks it as quicksand's, and names the sandbox's own directory
        keeper.sock, keeper.lock    for the keeper's clients; flock'ed by it while it lives
        current                 a symbolic link to the directory of the QEMU that runs
        commands.log[.1]        the commands that ended in its guest, for `events`
        forwarder.*, forwards.json  the process that carries its ports (records/dialled.py)
        vnc.password            for viewers at a port, if one is asked for
        <number>/               one directory per machine: each revert makes another one, whose
                                sockets are links to those of the same QEMU, or of a new one
            state.json          pids, accelerator, forwards: what a client needs to attach
            disk-full           exists while the VM waits for space on the host's disk
            oversized           exists while the VM is paused because QEMU has too much memory
            tracked             the checkpoint since which the kernel tracks written memory
            loading             an overlay to which QEMU writes while it loads a snapshot
            unfinished          exists while a revert writes the guest's memory anew, and names the
                                program that finishes it (keeper_parts/finishing.py)
            unstored            exists from then on until the present before is stored; names the
                                same program
            state.qcow2, now    the devices' state for that, and what it was before that
            agentN.sock, agentN.lock, qmpN.sock, qmpN.lock  one client each
            qtest.sock  QEMU's test server, once the sandbox was reverted in place
            vnc.sock    QEMU's VNC server, if the machine has a screen (display/)
            port.sock   QEMU's VNC server for a port, until it has that port
            input.lock  flock'ed by the client that uses its keyboard and pointer now
            input.json  where the pointer was moved to, and what is held down
            smbN.sock, smbN.lock    one share's stream (mounts/); flock'ed by its server
            smbN.json   the share: directories, and the process that serves it
            smbN.refuser   the process that refuses what is still wanted of a share that is gone
            smbN.sock.log  the last words of servers of the share that ended
            smbN.sock.told     what the guest wrote there that programs of the host run
            smbN.sock.traffic  the bytes that the stream has carried
            smb.starts  a byte for each server that was started
            smb.past    its guest may have shares mounted from before its checkpoint
            9p.json     the directories that QEMU serves itself, and which of them are mounted

Two directories may lie elsewhere: that of the memory files of its checkpoints, on another volume,
and that of its sockets. The latter is noted in its directory, since a client with another TMPDIR or
QUICKSAND_RUNTIME_DIR would look elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.errors import PathError
from quicksand.base.files import map_os_errors
from quicksand.base.paths import SOCKET_PATH_MAX, Paths, is_for_all, make_private_dir, memory_place
from quicksand.base.processes import is_same_place
from quicksand.base.removal import NotOursError, belongs_to, make_marked, remove
from quicksand.records.mount import MOUNTS_MAX

LINK = "runtime"
PLACES = ("memory",)
"""The links to a sandbox's directories in other places, which a test compares with the options that
are places. No other link is followed."""


def make_elsewhere(place: Path) -> Path:
    """Make a sandbox's directory in another place, unless it exists, and return it. Raises
    PathError if somebody else has made it or a directory above it, OSError."""
    if not is_for_all(place.parent):  # as for sandboxes of earlier versions, in /dev/shm itself
        make_private_dir(place.parent)
    if not os.path.lexists(place):
        with map_os_errors(place):
            make_marked(place)
    return make_private_dir(place)


def elsewhere(root: Path) -> tuple[Path, ...]:
    """The directories in which the sandbox in ``root`` keeps files in other places, such as its
    memory: the links of `place_option` lead there. Blocks for I/O."""
    found: list[Path] = []
    for name in PLACES:
        with contextlib.suppress(OSError):  # most are directories, not links
            found.append((root / name).readlink())
    return tuple(found)


def directories_elsewhere(paths: Paths) -> set[Path]:
    """Every directory in which sandboxes of this user have such directories. Blocks for I/O."""
    found = {paths.memory} if paths.memory is not None else set()
    with contextlib.suppress(OSError):
        for root in paths.sandboxes.iterdir():
            found.update(place.parent for place in elsewhere(root))
    return found


def remove_elsewhere(root: Path) -> None:
    """Remove what the sandbox in ``root`` has in other places. Called before the directory itself
    is removed."""
    for place in elsewhere(root):
        with contextlib.suppress(OSError):  # a directory without quicksand's mark is not removed
            remove(place)


def find_place(sandbox: Path, usual: Path) -> Path:
    """Return the runtime directory of the sandbox in ``sandbox``: the one where it was started, if
    that exists and its mark names this sandbox (a copied data directory links to another
    sandbox's); else ``usual``."""
    try:
        noted = os.readlink(sandbox / LINK)  # noqa: PTH115 - no `Path` for most: `ps` asks of all
    except OSError:
        return usual
    if noted == os.fspath(usual):
        return usual
    try:
        is_its = is_same_place(belongs_to(Path(noted)), sandbox)
    except (NotOursError, OSError):
        return usual
    return Path(noted) if is_its else usual


def note_place(sandbox: Path, runtime: Path) -> None:
    """Note its place. Raises OSError."""
    temporary = sandbox / f".{LINK}.{os.urandom(4).hex()}"
    temporary.symlink_to(runtime)
    temporary.replace(sandbox / LINK)


NAMES = 10_000
"""Names of machines are numbers below this, so that the paths of their sockets stay short."""

AGENT_PORTS = 24
"""Clients that can use a sandbox's agent at the same time. A virtio-serial device has at most 31
ports, the first of which is reserved for a console (QEMU, hw/char/virtio-serial-bus.c)."""

QMP_MONITORS = 8
"""Clients that can use QMP at the same time."""

SHARES = MOUNTS_MAX
"""Streams through QEMU to the servers of mounts: one for each."""


def layer_name(name: str) -> Path:
    """A layer's file name, relative to the directory of the layers, in which QEMU runs. QEMU's
    command line and the qcow2 header of the layer above both use this name: so clones can share the
    file, and QEMU sees that both are the same. With different names QEMU would describe the whole
    chain below in the name of each layer, and opening 300 layers took 8 s."""
    return Path(f"{name}.qcow2")


@dataclass(frozen=True, slots=True)
class SandboxDir:
    """The directory of one sandbox in the data directory."""

    root: Path
    memory_at: Path | None = None
    """The target of the link `memory`; None if that is a directory here."""

    def make(self) -> None:
        """Create the directories in it that are missing. Raises OSError, PathError."""
        for directory in (self.layers, self.checkpoints):
            directory.mkdir(mode=0o700, exist_ok=True)
        for place in elsewhere(self.root):
            make_elsewhere(place)  # a reboot may have emptied the other place (a tmpfs)
        if self.memory_at is not None and not os.path.lexists(self.memory):
            self.memory.symlink_to(make_elsewhere(self.memory_at))
        elif not self.memory.is_symlink():
            self.memory.mkdir(mode=0o700, exist_ok=True)

    def put_elsewhere(self, places: Mapping[str, Path], sandbox_id: str) -> None:
        """Have a sandbox's ``places`` (`SandboxConfig.places`) in directories of its own in those
        of the host. Raises PathError, DiskSpaceError, HostError."""
        for name, named in places.items():
            with map_os_errors(named):
                above = memory_place(named) / ("" if name == self.memory.name else name)
                (self.root / name).symlink_to(make_elsewhere(above / sandbox_id))

    @property
    def record(self) -> Path:
        return self.root / "sandbox.json"

    @property
    def spare(self) -> Path:
        return self.root / "spare.json"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def head(self) -> Path:
        return self.root / "head.json"

    @property
    def given_up(self) -> Path:
        return self.root / "given-up.json"

    def held(self, checkpoint: str) -> Path:
        return self.memory / f"{checkpoint}.held"

    def held_index(self, checkpoint: str) -> Path:
        return self.checkpoints / checkpoint / "held.index"

    @property
    def broken_head(self) -> Path:
        return self.root / "head.json.broken"

    @property
    def history_lock(self) -> Path:
        return self.root / "history.lock"

    @property
    def layers(self) -> Path:
        return self.root / "layers"

    @property
    def memory(self) -> Path:
        return self.root / "memory"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    def layer(self, name: str) -> Path:
        return self.layers / layer_name(name)

    def seal(self, name: str) -> Path:
        return self.layers / f"{name}.json"

    def digest(self, name: str) -> Path:
        return self.layers / f"{name}.sha256"

    def screen(self, checkpoint: str) -> Path:
        return self.checkpoints / checkpoint / "screen.png"

    @property
    def console_log(self) -> Path:
        return self.root / "console.log"

    @property
    def qemu_log(self) -> Path:
        return self.root / "qemu.log"

    @property
    def engine_log(self) -> Path:
        return self.root / "engine.log"

    @property
    def exit(self) -> Path:
        return self.root / "exit.json"

    @property
    def reserved_exit(self) -> Path:
        """Space for `exit`, made by the keeper at a start (keeper_parts/keeper_files.py)."""
        return self.root / "exit.json.tmp"

    @property
    def trashed(self) -> Path:
        return self.root / "trash.json"

    @property
    def mounted(self) -> Path:
        return self.root / "mounted.json"

    @property
    def left_out(self) -> Path:
        return self.root / "left-out.json"


@dataclass(frozen=True, slots=True)
class MachineDir:
    """The directory of one QEMU."""

    root: Path

    @property
    def name(self) -> str:
        return self.root.name

    @property
    def state(self) -> Path:
        return self.root / "state.json"

    @property
    def disk_full(self) -> Path:
        return self.root / "disk-full"

    @property
    def oversized(self) -> Path:
        return self.root / "oversized"

    @property
    def tracked(self) -> Path:
        return self.root / "tracked"

    @property
    def unfinished(self) -> Path:
        return self.root / "unfinished"

    @property
    def unstored(self) -> Path:
        return self.root / "unstored"

    @property
    def state_disk(self) -> Path:
        return self.root / "state.qcow2"

    @property
    def devices_now(self) -> Path:
        return self.root / "now"

    @property
    def loading(self) -> Path:
        return self.root / "loading"

    @property
    def qtest_socket(self) -> Path:
        return self.root / "qtest.sock"

    @property
    def vnc_socket(self) -> Path:
        return self.root / "vnc.sock"

    @property
    def vnc_port_socket(self) -> Path:
        return self.root / "port.sock"

    @property
    def vnc_password(self) -> Path:
        """The password, one for all machines of the sandbox, in the directory above."""
        return self.root.parent / "vnc.password"

    @property
    def input_lock(self) -> Path:
        return self.root / "input.lock"

    @property
    def input_record(self) -> Path:
        return self.root / "input.json"

    def agent_socket(self, port: int) -> Path:
        return self.root / f"agent{port}.sock"

    def qmp_socket(self, monitor: int) -> Path:
        return self.root / f"qmp{monitor}.sock"

    def share_socket(self, number: int) -> Path:
        return self.root / f"smb{number}.sock"

    def share_lock(self, number: int) -> Path:
        return self.root / f"smb{number}.lock"

    def share_log(self, number: int) -> Path:
        return self.root / f"smb{number}.sock.log"

    def share_traffic(self, number: int) -> Path:
        return self.root / f"smb{number}.sock.traffic"

    def share_told(self, number: int) -> Path:
        return self.root / f"smb{number}.sock.told"

    def share_record(self, number: int) -> Path:
        return self.root / f"smb{number}.json"

    def share_refuser(self, number: int) -> Path:
        return self.root / f"smb{number}.refuser"

    @property
    def share_starts(self) -> Path:
        return self.root / "smb.starts"

    @property
    def past_shares(self) -> Path:
        return self.root / "smb.past"

    @property
    def ninep(self) -> Path:
        return self.root / "9p.json"


@dataclass(frozen=True, slots=True)
class RuntimeDir:
    """The directory of one running sandbox in the runtime directory."""

    root: Path
    of: Path
    """The sandbox's own directory; several data directories may share a runtime directory."""

    @property
    def keeper_socket(self) -> Path:
        return self.root / "keeper.sock"

    @property
    def keeper_lock(self) -> Path:
        return self.root / "keeper.lock"

    @property
    def command_log(self) -> Path:
        return self.root / "commands.log"

    @property
    def current_link(self) -> Path:
        return self.root / "current"

    def machine(self, name: str) -> MachineDir:
        return MachineDir(self.root / name)

    def current(self) -> MachineDir:
        """The directory of the QEMU that runs now. It is not the link itself, so it keeps naming
        that QEMU after a revert. If none runs, a directory that does not exist."""
        try:
            return self.machine(self.current_link.readlink().name)
        except OSError:
            return self.machine("none")

    def names(self) -> list[str]:
        """The names in it; none once the sandbox has ended and the directory is gone."""
        try:
            return [path.name for path in self.root.iterdir()]
        except FileNotFoundError:
            return []

    def new_name(self) -> str:
        """A free name for another machine. It is derived from the clock, so that a name is not
        reused soon: the keeper may still be removing the directory of a machine that has ended."""
        number = time.monotonic_ns() // 1_000_000
        taken = set(self.names())
        names = (str(2 + (number + n) % (NAMES - 2)) for n in range(NAMES))
        return next(name for name in names if name not in taken)

    def make(self, machine: str) -> MachineDir:
        """Create the directory of one of the sandbox's machines, and this one if it is missing.
        Raises PathError if the paths of its sockets would be too long, OSError."""
        self.check_length()
        if not self.root.exists():
            make_private_dir(self.root.parent)
            make_marked(self.root, of=self.of)
            note_place(self.of, self.root)
        found = self.machine(machine)
        found.root.mkdir(mode=0o700)
        return found

    def remove_machine(self, name: str) -> None:
        """Remove the directory of a machine that has ended. Raises PathError."""
        with map_os_errors(self.root / name):
            remove(self.root, part=name)

    def check_length(self) -> None:
        """Raise PathError if its sockets' paths would be too long for the kernel (unix(7))."""
        longest = str(self.machine(str(NAMES - 1)).agent_socket(AGENT_PORTS - 1))
        if len(longest.encode()) > SOCKET_PATH_MAX:
            raise PathError(
                f"the socket path {longest} is longer than the {SOCKET_PATH_MAX} bytes "
                "that the system allows",
                hint="set QUICKSAND_RUNTIME_DIR to a shorter path",
            )


def sandbox_dir(paths: Paths, sandbox_id: str) -> SandboxDir:
    memory = paths.memory / sandbox_id if paths.memory is not None else None
    return SandboxDir(paths.sandboxes / sandbox_id, memory)


def log_of(machine: MachineDir) -> Path:
    """The engine's log of the sandbox whose machine this is; in the machine's own directory if the
    mark above it does not say which one that is. Blocks for I/O."""
    try:
        of = belongs_to(machine.root.parent)
    except OSError:
        of = ""
    return Path(of or machine.root) / "engine.log"


def runtime_dir(paths: Paths, sandbox_id: str) -> RuntimeDir:
    """Return a sandbox's runtime directory: the one in which it was started, if it runs; else the
    one in which this process would start it."""
    of = paths.sandboxes / sandbox_id
    return RuntimeDir(find_place(of, paths.runtime / sandbox_id), of)
