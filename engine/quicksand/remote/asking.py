"""A command that another machine carries out, as seen by its client."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quicksand.base.errors import (
    RemoteError,
    RemoteProtocolError,
    RemoteRefusedError,
    RemoteUnreachableError,
)
from quicksand.guest.agent.wire import Stream
from quicksand.remote.peer_link import Channel, Link, Piece

EXIT_S = 30.0
"""Seconds from the end of the output to the exit code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """A command line of quicksand-tui for another machine."""

    argv: Sequence[str]
    """The words after the program's name. Bytes that are not UTF-8 are as `os.fsdecode` makes
    them."""
    env: Mapping[str, str] = field(default_factory=dict)
    """How our terminal shows text (`commands.VARIABLES`)."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Variables that the command passes on to a guest, which its words only name."""
    stdin: bool = False
    terminal: tuple[int, int] | None = None
    """The columns and rows of the command's terminal; None for pipes."""
    place: str = ""
    """The directory of its files (`sending.make_place`)."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The local name of each of these files, by its name there."""
    changes: bool = False
    """Whether it changes something, so that a break leaves it unknown what was done."""


class AskedCommand:
    """A command at another machine, which ends with the connection. `pieces` yields its output;
    then `exit_code` is there."""

    def __init__(self, link: Link, line: CommandLine) -> None:
        self._link = link
        self._line = line
        self._channel: Channel | None = None
        self.exit_code: int | None = None

    async def start(self) -> None:
        """Begin the command. Raises RemoteError."""
        channel = self._link.open("command", **self._params())
        self._channel = channel
        try:
            await channel.reply
        except RemoteRefusedError:
            raise
        except RemoteError as error:
            raise self._broken(error) from error

    def _params(self) -> dict[str, Any]:
        line = self._line
        params: dict[str, Any] = {
            "argv_b64": [_coded(word) for word in line.argv],
            "env": dict(line.env),
            "stdin": line.stdin,
        }
        if line.values:
            params["values_b64"] = {name: _coded(value) for name, value in line.values.items()}
        if line.place:
            params["place"] = line.place
        if line.files:
            params |= {
                "directory_b64": _coded(str(Path.cwd())),
                "files_b64": {name: _coded(file) for name, file in line.files.items()},
            }
        if line.terminal is not None:
            params["terminal"] = {"columns": line.terminal[0], "rows": line.terminal[1]}
        return params

    def _broken(self, error: RemoteError) -> RemoteError:
        """Return the error to raise when the connection broke with ``error``: nothing is sent
        again, so a change was made once, or not at all."""
        if not self._line.changes:
            return error
        return RemoteUnreachableError(
            f"whether the command was carried out on {self._link.peer.name} is unknown: {error}",
            hint="look at what is there before you do it again",
        )

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield the output as it comes. Raises RemoteError."""
        channel = self._channel
        assert channel is not None
        open_streams = {Stream.STDOUT} | (set() if self._line.terminal else {Stream.STDERR})
        try:
            while open_streams:
                piece = await channel.piece()
                if piece.data:
                    yield piece
                else:
                    open_streams.discard(Stream(piece.stream))
            async with asyncio.timeout(EXIT_S):
                while self.exit_code is None:
                    match await channel.event():
                        case {"event": "exit", "exit_code": int(code)} if 0 <= code < 256:
                            self.exit_code = code
        except TimeoutError:
            name = self._link.peer.name
            raise RemoteProtocolError(f"{name} does not say how the command ended") from None
        except RemoteError as error:
            raise self._broken(error) from error
        channel.close()

    async def feed(self, data: bytes) -> None:
        """Send input; b"" ends it. Raises RemoteError."""
        if self._channel is not None:
            if data:
                await self._channel.send(Stream.INPUT, data)
            else:
                self._channel.finish(Stream.INPUT)

    def signal(self, name: str) -> None:
        """Send a signal, such as "INT", to the command."""
        if self._channel is not None:
            self._channel.tell("signal", signal=name)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of its terminal."""
        if self._channel is not None:
            self._channel.tell("resize", columns=columns, rows=rows)


def _coded(word: str) -> str:
    return base64.b64encode(os.fsencode(word)).decode("ascii")
