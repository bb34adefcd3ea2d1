"""Every name that may appear in a sandbox's directories (docs/internals/layout.md mirrors it).

::

    <data>/sandboxes/<id>/      what outlives a stop
        sandbox.json            the record: name, config, image, when
        lock                    flock'ed by whoever starts it, then by keeper and QEMU
        head.json               which layers the guest's disk is made of at this moment
        head.json.broken        one that could not be read, set aside by a start at a checkpoint
        history.lock            flock'ed by whoever changes layers or checkpoints
        layers/<id>.qcow2       the layer that the guest writes to, and those frozen by checkpoints
        layers/<id>.json        what identifies a frozen layer: size and checksums
        layers/<id>.sha256      its digest, once it was saved
        memory/<id>.pages       pages of guest memory that checkpoints are made of; a symbolic link
                                to <QUICKSAND_MEMORY_DIR>/<id>/ if that was set at the first start
        memory/<id>.ram         a complete memory image: sparse, every page at its own address
        memory/<id>.state       memory and devices as QEMU's own snapshot, a qcow2 file
        memory/<digest>.rom     the machine's firmware
        checkpoints/<id>/       node.json (written last); of the tier "pages" devices, pages.index
        console.log[.1]         what the guest wrote to its console, the last two pieces
        qemu.log[.1]            QEMU's stderr, likewise
        exit.json               how the last run ended

    <runtime>/<id>/             while it runs; 0700, removed by the keeper
        keeper.sock             the keeper's
        current                 a symbolic link to the directory of the QEMU that runs
        <number>/               one directory a QEMU: going back to a checkpoint takes a new one
            state.json          pids, accelerator, forwards: what a client needs to attach
            disk-full           while the VM waits for space on the host's disk
            tracked             the checkpoint since which the kernel tracks written memory
            loading             what QEMU writes while it loads a snapshot of its own
            waiting.json        that it waits to take over, and from where it is to go on
            agentN.sock, agentN.lock    one client each
            qmpN.sock, qmpN.lock        one client each
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from quicksand.errors import PathError
from quicksand.host.paths import SOCKET_PATH_MAX, Paths, make_private_dir

AGENT_PORTS = 24
"""Clients that can use a sandbox's agent at one time. A virtio-serial device has 31 ports at the
most, the first kept for a console (QEMU, hw/char/virtio-serial-bus.c)."""

QMP_MONITORS = 8
"""Clients that can use QMP at one time."""


def layer_name(name: str) -> Path:
    """A layer as QEMU, which runs in the directory of the layers, and the header of the layer above
    it call it: so the same file does for clones, and both names are one. If they were not, QEMU
    would describe the whole chain below in the name of each layer: 300 took it 8 s to open."""
    return Path(f"{name}.qcow2")


@dataclass(frozen=True, slots=True)
class SandboxDir:
    """The directory of one sandbox in the data directory."""

    root: Path
    memory_at: Path | None = None
    """Where `memory` is to lead, if not to be a directory of its own."""

    def make(self) -> None:
        """Make what is in it, as far as it is not there. Raises OSError, PathError."""
        for directory in (self.layers, self.checkpoints):
            directory.mkdir(mode=0o700, exist_ok=True)
        if self.memory.is_symlink():
            # The other place may be one that a reboot empties.
            make_private_dir(self.memory.readlink())
        elif self.memory_at is not None and not self.memory.exists():
            self.memory.symlink_to(make_private_dir(self.memory_at))
        else:
            self.memory.mkdir(mode=0o700, exist_ok=True)

    @property
    def record(self) -> Path:
        return self.root / "sandbox.json"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def head(self) -> Path:
        return self.root / "head.json"

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

    @property
    def console_log(self) -> Path:
        return self.root / "console.log"

    @property
    def qemu_log(self) -> Path:
        return self.root / "qemu.log"

    @property
    def exit(self) -> Path:
        return self.root / "exit.json"


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
    def tracked(self) -> Path:
        return self.root / "tracked"

    @property
    def waiting(self) -> Path:
        return self.root / "waiting.json"

    @property
    def loading(self) -> Path:
        return self.root / "loading"

    def agent_socket(self, port: int) -> Path:
        return self.root / f"agent{port}.sock"

    def qmp_socket(self, monitor: int) -> Path:
        return self.root / f"qmp{monitor}.sock"


@dataclass(frozen=True, slots=True)
class RuntimeDir:
    """The directory of one running sandbox in the runtime directory."""

    root: Path

    @property
    def keeper_socket(self) -> Path:
        return self.root / "keeper.sock"

    @property
    def current_link(self) -> Path:
        return self.root / "current"

    def machine(self, name: str) -> MachineDir:
        return MachineDir(self.root / name)

    def current(self) -> MachineDir:
        """The directory of the QEMU that runs at this moment, by its own name: what is done with it
        stays with that QEMU. If none runs, a directory that does not exist."""
        try:
            return self.machine(self.current_link.readlink().name)
        except OSError:
            return self.machine("none")

    def names(self) -> list[str]:
        """What is in it; nothing once all that ran has ended, for then it is gone."""
        try:
            return [path.name for path in self.root.iterdir()]
        except FileNotFoundError:
            return []

    def make(self, machine: str) -> MachineDir:
        """Make the directory of the sandbox, if need be, and of one of its machines. Raises
        PathError when sockets' paths in it would be too long, OSError."""
        self.check_length()
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self.machine(machine)
        found.root.mkdir(mode=0o700)
        return found

    def check_length(self) -> None:
        """Raise PathError if the sockets' paths would be too long for the kernel."""
        longest = str(self.machine("1000").agent_socket(AGENT_PORTS - 1))
        if len(longest.encode()) > SOCKET_PATH_MAX:
            raise PathError(
                f"the socket path {longest} is longer than the {SOCKET_PATH_MAX} bytes "
                "that the system allows",
                hint="set QUICKSAND_RUNTIME_DIR to a shorter path",
            )


def sandbox_dir(paths: Paths, sandbox_id: str) -> SandboxDir:
    memory = paths.memory / sandbox_id if paths.memory is not None else None
    return SandboxDir(paths.sandboxes / sandbox_id, memory)


def remove_memory(root: Path) -> None:
    """Remove the memory of the sandbox whose directory is ``root`` where that is elsewhere; its
    directory is about to go."""
    memory = root / "memory"
    if memory.is_symlink():
        shutil.rmtree(memory.readlink(), ignore_errors=True)


def runtime_dir(paths: Paths, sandbox_id: str) -> RuntimeDir:
    return RuntimeDir(paths.runtime / sandbox_id)
