"""Every name that may appear in a sandbox's directories (docs/internals/layout.md mirrors it).

::

    <data>/sandboxes/<id>/      what outlives a stop
        sandbox.json            the record: name, config, image, when
        lock                    flock'ed by whoever starts it, then by keeper and QEMU
        disk.qcow2              the overlay that the guest writes to
        console.log[.1]         what the guest wrote to its console, the last two pieces
        qemu.log[.1]            QEMU's stderr, likewise
        exit.json               how the last run ended

    <runtime>/<id>/             while it runs; 0700, removed by the keeper
        state.json              pids, accelerator, forwards: what a client needs to attach
        disk-full               while the VM waits for space on the host's disk
        agentN.sock, agentN.lock    one client each
        qmpN.sock, qmpN.lock        one client each
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from quicksand.errors import PathError
from quicksand.host.paths import SOCKET_PATH_MAX, Paths

AGENT_PORTS = 24
"""Clients that can use a sandbox's agent at one time. A virtio-serial device has 31 ports at the
most, the first kept for a console (QEMU, hw/char/virtio-serial-bus.c)."""

QMP_MONITORS = 8
"""Clients that can use QMP at one time."""


@dataclass(frozen=True, slots=True)
class SandboxDir:
    """The directory of one sandbox in the data directory."""

    root: Path

    @property
    def record(self) -> Path:
        return self.root / "sandbox.json"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def disk(self) -> Path:
        return self.root / "disk.qcow2"

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
class RuntimeDir:
    """The directory of one running sandbox in the runtime directory."""

    root: Path

    @property
    def state(self) -> Path:
        return self.root / "state.json"

    @property
    def disk_full(self) -> Path:
        return self.root / "disk-full"

    def agent_socket(self, port: int) -> Path:
        return self.root / f"agent{port}.sock"

    def qmp_socket(self, monitor: int) -> Path:
        return self.root / f"qmp{monitor}.sock"

    def check_length(self) -> None:
        """Raise PathError if the sockets' paths would be too long for the kernel."""
        longest = str(self.agent_socket(AGENT_PORTS - 1))
        if len(longest.encode()) > SOCKET_PATH_MAX:
            raise PathError(
                f"the socket path {longest} is longer than the {SOCKET_PATH_MAX} bytes "
                "that the system allows",
                hint="set QUICKSAND_RUNTIME_DIR to a shorter path",
            )


def sandbox_dir(paths: Paths, sandbox_id: str) -> SandboxDir:
    return SandboxDir(paths.sandboxes / sandbox_id)


def runtime_dir(paths: Paths, sandbox_id: str) -> RuntimeDir:
    return RuntimeDir(paths.runtime / sandbox_id)
