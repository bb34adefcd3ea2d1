"""Guests that QEMU has paused because the host's disk is full."""

import json
import os
import socket
import time
from collections.abc import Callable

from .keeper_files import CHUNK

SPACE_POLL_S = 1.0
"""Seconds between two looks at the free space: file systems do not notify about it."""

SPACE_WANTED = 64 * 1024 * 1024
"""Bytes that must be free before such a guest is resumed."""

LINE_MAX = 64 * 1024
"""Bytes of an incomplete QMP message that are kept; QEMU's messages are far shorter."""

READS_MAX = 64
"""Reads of CHUNK bytes after QEMU's end; a socket's buffer holds less (socket(7), wmem_max)."""


class SpaceWatch:
    """Resumes a guest that QEMU has paused because the host's disk was full (werror=stop).

    Until then the file ``disk-full`` exists in the machine's directory, for clients to see.
    """

    def __init__(self, monitor: socket.socket, disk_dir: str, machine_dir: str) -> None:
        self.monitor = monitor
        self.disk_dir = disk_dir
        self.mark = os.path.join(machine_dir, "disk-full")
        self.line = b""
        self.shut_down = False
        """Whether the guest has powered down, or QEMU was asked to end."""
        self.look_at: float | None = None
        """The monotonic time of the next look at the free space; None if the guest is not
        waiting."""
        self.on_run_state: Callable[[bool], None] | None = None
        """Called whenever the guest is paused (False) or goes on (True)."""
        monitor.setblocking(False)
        self.send("qmp_capabilities")

    def send(self, command: str, arguments: dict[str, str] | None = None) -> None:
        message = {"execute": command} | ({} if arguments is None else {"arguments": arguments})
        try:
            self.monitor.send(json.dumps(message).encode() + b"\n")
        except OSError:
            return  # QEMU is ending or does not read; the next look sends it again

    def forward(self, rule: str) -> None:
        """Have QEMU forward a port (HMP hostfwd_add); it refuses one that it forwards already."""
        self.send("human-monitor-command", {"command-line": f"hostfwd_add net0 {rule}"})

    def read(self) -> bool:
        """Read QMP events; False if QEMU has closed the connection."""
        try:
            data = self.monitor.recv(CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        *lines, self.line = (self.line + data).split(b"\n")
        self.line = self.line[-LINE_MAX:]
        for line in lines:
            if b'"event": "BLOCK_IO_ERROR"' in line and b'"nospace": true' in line:
                self.begin()
            elif b'"event": "RESUME"' in line:
                self.end()
                self.tell(runs=True)
            elif b'"event": "STOP"' in line:
                self.tell(runs=False)
            elif b'"event": "SHUTDOWN"' in line:
                self.shut_down = True
        return bool(data)

    def tell(self, *, runs: bool) -> None:
        if self.on_run_state is not None:
            self.on_run_state(runs)

    def read_rest(self) -> None:
        """Read QEMU's last words before its end."""
        for _ in range(READS_MAX):
            if not self.read():
                return

    def begin(self) -> None:
        self.look_at = time.monotonic() + SPACE_POLL_S
        try:
            os.close(os.open(self.mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except OSError:
            return  # no space for the mark either; the guest is still resumed later

    def end(self) -> None:
        """Note that the guest was resumed, by the keeper or a client. If the disk is still full,
        QEMU sends another event."""
        self.look_at = None
        try:
            os.unlink(self.mark)
        except OSError:
            return

    def look(self) -> None:
        if self.look_at is not None and time.monotonic() >= self.look_at:
            self.look_at = time.monotonic() + SPACE_POLL_S
            free = os.statvfs(self.disk_dir)
            if free.f_bavail * free.f_frsize >= SPACE_WANTED:
                self.send("cont")
