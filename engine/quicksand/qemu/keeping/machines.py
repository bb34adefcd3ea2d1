"""What a keeper looks after: machines, and the clients that ask for them."""

import os
import socket

from .files import CHUNK, BoundedLog
from .space import SpaceWatch

REQUEST_MAX = 1024 * 1024
DESCRIPTORS_MAX = 250
"""That a message can carry (unix(7), SCM_MAX_FD is 253)."""


class Machine:
    """One QEMU."""

    def __init__(
        self, name: str, pid: int, pipes: dict[int, BoundedLog], space: SpaceWatch
    ) -> None:
        self.name = name
        """Of its directory in the runtime directory."""
        self.pid = pid
        self.pipes = pipes
        """Its stdout and stderr."""
        self.space = space
        self.owner: Client | None = None
        """Whose end would be its end. None: nobody's."""
        self.status: int | None = None
        """Its wait status, once it has ended."""
        self.ends_at: float | None = None
        """When it has waited long enough."""
        self.took: list[str] = []
        """Forwards that it may have taken from the current machine, which is to have them back when
        this one has ended."""


class Client:
    """A connection to ``keeper.sock``."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.text = b""
        self.descriptors: list[int] = []
        self.guards = False
        """It has paused the current machine, which is to go on when the client is gone."""
        self.forwards: list[str] = []
        """Of the current machine; those that it then lacks it gets again."""
        self.awaits: Machine | None = None
        """It wants to be told when this one has ended."""

    def reply(self, **values: object) -> None:
        import json

        try:
            self.connection.sendall(json.dumps(values).encode() + b"\n")
        except OSError:
            return  # it is gone; its end is seen by whoever polls

    def read(self) -> list[dict[str, object]] | None:
        """Requests that are complete; None at the end or for nonsense."""
        import json

        try:
            data, found, _, _ = socket.recv_fds(self.connection, CHUNK, DESCRIPTORS_MAX)
        except OSError:
            return None
        for descriptor in found:
            os.set_inheritable(descriptor, False)  # a QEMU gets copies of its own ones only
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
