"""The objects in a keeper's care: machines (QEMU processes), clients and their requests."""

import json
import os
import select
import signal
import socket
from collections.abc import Sequence

from .bounds import MemoryWatch
from .full_disk import SpaceWatch
from .keeper_files import CHUNK, BoundedLog

REQUEST_MAX = 1024 * 1024
DESCRIPTORS_MAX = 250
"""Descriptors that one message can carry (unix(7): SCM_MAX_FD is 253)."""


class Machine:
    """One QEMU."""

    def __init__(
        self,
        name: str,
        pid: int,
        pipes: dict[int, BoundedLog],
        space: SpaceWatch,
        memory: MemoryWatch,
        directory: str,
    ) -> None:
        self.name = name
        """The name of its directory in the runtime directory."""
        self.pid = pid
        self.pipes = pipes
        """The read ends of its stdout and stderr, and their logs."""
        self.space = space
        self.memory = memory
        self.directory = directory
        self.owner: Client | None = None
        """The client with which the machine ends; None for no client."""
        self.ended = False
        self.code: int | None = None
        """Its exit code, negative for a signal; None while it runs, or if unknown."""
        self.pidfd: int | None = None
        """The pidfd of a machine that another keeper started; None for a child of this one."""
        self.took: list[str] = []
        """Forwards that it may have taken from the current machine, which gets them back when this
        machine has ended."""

    @property
    def unfinished(self) -> str:
        """The path of the mark that exists while a revert rewrites its memory: nobody may resume
        its guest then (finishing.py)."""
        return os.path.join(self.directory, "unfinished")

    @property
    def is_unfinished(self) -> bool:
        return os.path.exists(self.unfinished)

    @property
    def unstored(self) -> str:
        """The path of the mark that exists until the state before a revert is stored."""
        return os.path.join(self.directory, "unstored")

    @property
    def is_unstored(self) -> bool:
        return os.path.exists(self.unstored)

    def go_on(self) -> None:
        """Resume a guest that a client has paused for a moment, unless it has become too large."""
        if not self.memory.is_holding and not self.is_unfinished:
            self.space.send("cont")

    def turn(self, name: str, directory: str) -> None:
        """Let its guest go on as another machine, with another directory."""
        self.name, self.directory = name, directory
        self.space.mark = os.path.join(directory, os.path.basename(self.space.mark))
        self.memory.mark = os.path.join(directory, os.path.basename(self.memory.mark))

    @property
    def looks_at(self) -> "list[float | None]":
        """The times at which `look_at_host` has work to do. A guest that is paused for its memory
        is not resumed when there is space on the disk."""
        if self.is_unfinished:
            return []
        return [self.memory.look_at, None if self.memory.is_holding else self.space.look_at]

    def look_at_host(self) -> None:
        """Pause or resume the guest as the host's memory and disk require."""
        self.memory.look()
        if not self.memory.is_holding:
            self.space.look()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal; it is no error if it has ended."""
        try:
            if self.pidfd is None:
                os.kill(self.pid, number)  # a child, so its id is not reused before waitpid
            else:
                signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            return

    def look(self) -> bool:
        """Check whether it has ended, and set `ended` and `code`."""
        if self.pidfd is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.ended, self.code = True, os.waitstatus_to_exitcode(status)
        elif select.select([self.pidfd], [], [], 0)[0]:
            self.space.read_rest()  # whether the guest has powered down
            self.ended, self.code = True, 0 if self.space.shut_down else None
        return self.ended

    def wait(self) -> None:
        """Wait until it has ended, after it was killed."""
        if self.pidfd is None:
            self.ended, self.code = True, os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        else:
            select.select([self.pidfd], [], [])
            self.look()


class Client:
    """A connection to ``keeper.sock``."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.text = b""
        self.descriptors: list[int] = []
        self.guards = False
        """Whether it has paused the current machine, which is resumed when the connection ends."""
        self.forwards: list[str] = []
        """Forwards that the current machine gets back when the client's connection ends."""
        self.awaits: Machine | None = None
        """The machine whose end it waits to be told."""

    def reply(self, passed: Sequence[int] = (), **values: object) -> None:
        """Send a reply, with copies of the descriptors ``passed``."""
        message = json.dumps(values).encode() + b"\n"
        try:
            if passed:
                # The socket's buffer is empty, so the few bytes go with them.
                socket.send_fds(self.connection, [message], passed)
            else:
                self.connection.sendall(message)
        except OSError:
            return  # the client is gone, as the loop will notice

    def read(self) -> list[dict[str, object]] | None:
        """The complete requests received so far; None at the end of the connection or for an
        invalid message."""
        try:
            data, found, _, _ = socket.recv_fds(self.connection, CHUNK, DESCRIPTORS_MAX)
        except OSError:
            return None
        for descriptor in found:
            os.set_inheritable(descriptor, False)  # only the QEMU that they are for gets copies
        self.descriptors += found
        *lines, self.text = (self.text + data).split(b"\n")
        if not data or len(self.text) > REQUEST_MAX or len(self.descriptors) > DESCRIPTORS_MAX:
            return None
        try:
            return [dict(json.loads(line)) for line in lines]
        except (ValueError, TypeError, RecursionError):
            return None

    def close(self) -> None:
        self.connection.close()
        self.drop_descriptors()

    def drop_descriptors(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []
