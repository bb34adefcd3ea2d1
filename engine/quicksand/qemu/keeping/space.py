"""Guests that ran out of the host's disk space."""

import os
import socket
import time

from .files import CHUNK

SPACE_POLL_S = 1.0
"""No file system tells when it has space again."""

SPACE_WANTED = 64 * 1024 * 1024
"""Bytes that must be free before a guest that ran out of them goes on."""

LINE_MAX = 64 * 1024
"""Of a QMP message's beginning that is dropped while its end is awaited; QEMU's are far shorter."""


class SpaceWatch:
    """Lets a guest go on that QEMU paused since the host's disk was full (werror=stop).

    Meanwhile the file ``disk-full`` in the machine's directory tells clients.
    """

    def __init__(self, monitor: socket.socket, disk_dir: str, machine_dir: str) -> None:
        self.monitor = monitor
        self.disk_dir = disk_dir
        self.mark = os.path.join(machine_dir, "disk-full")
        self.line = b""
        self.look_at: float | None = None
        """When to look for space next; None while there is nothing to wait for."""
        monitor.setblocking(False)
        self.send("qmp_capabilities")

    def send(self, command: str, arguments: dict[str, str] | None = None) -> None:
        message = f'{{"execute": "{command}"}}'
        if arguments is not None:
            import json

            message = json.dumps({"execute": command, "arguments": arguments})
        try:
            self.monitor.send(message.encode() + b"\n")
        except OSError:
            return  # QEMU is ending, or has its hands full: the next look sends it again

    def read(self) -> bool:
        """Take what QEMU says; False at its end."""
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
        return bool(data)

    def begin(self) -> None:
        self.look_at = time.monotonic() + SPACE_POLL_S
        try:
            open(self.mark, "wb").close()
        except OSError:
            return  # there too is no space; the guest waits all the same

    def end(self) -> None:
        """It runs: resumed by us or by a client. If it fails again, QEMU says so again."""
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
