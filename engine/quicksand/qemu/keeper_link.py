"""A client's connection to a keeper (see `keeper_parts.client_requests` for the requests)."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from quicksand.base.error_text import reason_of
from quicksand.base.errors import MachineError, StateError
from quicksand.base.remedies import Remedy, Words

REPLY_MAX = 64 * 1024
HOLD_S = 5.0
"""Seconds that a keeper has to take the leash."""


class KeeperLink:
    """A connection to the keeper. The keeper undoes what a client has launched or paused when its
    link closes, unless the client has said otherwise, so a client that dies leaves neither a
    process nor a paused VM."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._text = b""
        self._busy = asyncio.Lock()

    @classmethod
    async def connect(cls, path: Path) -> KeeperLink:
        """Connect to the keeper's socket. Raises StateError if no keeper listens."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, str(path))
        except OSError as error:
            connection.close()
            raise _unreachable(error) from error
        except BaseException:
            connection.close()
            raise
        return cls(connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def ask(
        self, op: str, *, pass_descriptors: Sequence[int] = (), **values: Any
    ) -> dict[str, Any]:
        """Send a request and return its reply. Raises MachineError for a refusal or a dead keeper.

        A cancellation closes the link, because the reply to this request could still arrive.
        """
        message = json.dumps({"op": op, **values}).encode() + b"\n"
        async with self._busy:
            if self._connection.fileno() < 0:
                raise _gone(op)
            try:
                reply = await self._exchange(message, pass_descriptors)
            except asyncio.CancelledError:
                self.close()
                raise
            except ConnectionError as error:
                self.close()
                raise _gone(op) from error
            except (OSError, ValueError, TypeError) as error:
                self.close()
                raise MachineError(f"the keeper did not {op}: {reason_of(error)}") from error
        if "error" in reply:
            raise MachineError(f"the keeper did not {op}: {reply['error']}")
        return reply

    async def _exchange(self, message: bytes, descriptors: Sequence[int]) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        if descriptors:
            # Descriptors go with the first bytes; the socket's buffer is empty, so it cannot block.
            sent = socket.send_fds(self._connection, [message], list(descriptors))
            message = message[sent:]
        await loop.sock_sendall(self._connection, message)
        while b"\n" not in self._text:
            data = await loop.sock_recv(self._connection, REPLY_MAX)
            if len(self._text) > REPLY_MAX:
                raise ValueError("its reply is too long")
            if not data:
                raise ConnectionResetError
            self._text += data
        line, self._text = self._text.split(b"\n", 1)
        return dict(json.loads(line))

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._connection.close()


def hold_leash(path: Path, leash_end: int) -> None:
    """Give the keeper at that socket the owner's end of the leash. Blocks for milliseconds, or
    `HOLD_S`. Raises MachineError."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(HOLD_S)
            connection.connect(str(path))
            socket.send_fds(connection, [b'{"op": "hold"}\n'], [leash_end])
            reply = json.loads(connection.makefile("rb").readline(REPLY_MAX))
    except (OSError, ValueError) as error:
        raise MachineError(f"the keeper did not hold the leash: {error}") from error
    if "error" in reply:
        raise MachineError(f"the keeper did not hold the leash: {reply['error']}")


def _unreachable(error: OSError) -> StateError:
    again = "stop the sandbox and start it again"
    if isinstance(error, FileNotFoundError):
        return StateError(
            "the process that looks after the sandbox's QEMU cannot be reached: its socket is gone",
            hint=f"somebody has removed it, or the sandbox has just ended: {again}",
        )
    return StateError(
        f"nobody looks after the sandbox's QEMU ({error.strerror})",
        hint=f"its keeper was killed: {again}",
    )


def _gone(op: str) -> MachineError:
    return MachineError(
        f"the process that looks after the sandbox's QEMU went away and did not {op}",
        hint=Words("most likely the sandbox has ended: ", Remedy("list"), " tells"),
    )
