"""A command that another machine carries out, as seen by its client."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from quicksand.base.errors import (
    HostError,
    RemoteError,
    RemoteProtocolError,
    RemoteRefusedError,
    RemoteUnreachableError,
)
from quicksand.guest.agent.wire import Stream
from quicksand.remote.channel import Channel, Piece
from quicksand.remote.destination import Destination
from quicksand.remote.link import Link
from quicksand.remote.node import NodeDestination

LASTED_S = 30.0
"""Seconds after which a connection counts as working, even if nothing came over it."""

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
    once: bool = False
    """Whether the command runs to its end even without us, and must not be done twice. Otherwise it
    ends with the connection."""


class Way(Protocol):
    """The part of a `Connection` that a command needs; users of a shared one have another."""

    @property
    def destination(self) -> Destination | NodeDestination: ...

    @property
    def link(self) -> Link:
        """Return the present connection. Raises RemoteUnreachableError if there is none yet."""

    async def again(self, error: RemoteError, *, told: Callable[[RemoteError], None]) -> bool:
        """Wait for another connection; return whether the other machine still knows what was begun.
        Raises RemoteError or HostError if the machine is given up."""

    def got_on(self) -> None:
        """Note that the machine did more than answer."""


class AskedCommand:
    """A command at another machine. `pieces` yields its output; then `exit_code` is there."""

    def __init__(
        self,
        connection: Way,
        line: CommandLine,
        *,
        on_away: Callable[[RemoteError], None] = lambda _: None,
        on_back: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_away`` is called before each attempt to reconnect, with the error of the last one,
        and ``on_back`` once the machine has resumed the command."""
        self._connection = connection
        self._line = line
        self._once = os.urandom(16).hex() if line.once else ""
        self._on_away = on_away
        self._on_back = on_back
        self._channel: Channel | None = None
        self._read = dict.fromkeys((Stream.STDOUT, Stream.STDERR), 0)
        self._size = line.terminal
        self._is_sent = False
        self._opened = 0.0
        self.exit_code: int | None = None
        self.lost = 0
        """Bytes of output that were dropped while the machine was away."""

    @property
    def is_away(self) -> bool:
        """Whether the machine is away now and connection attempts go on."""
        return self._channel is None

    async def start(self) -> None:
        """Begin the command. If the connection breaks meanwhile, a command with ``once`` goes on
        when the machine is back. Raises RemoteError."""
        try:
            await self._open()
        except RemoteRefusedError:
            raise
        except RemoteError as error:
            await self._go_on(error)

    async def _go_on(self, error: RemoteError) -> None:
        """Find the command again after a break. Raises RemoteError; ``error`` if the command has
        ended with the connection."""
        if not self._once or not self._is_sent:
            raise error
        if not isinstance(error, RemoteUnreachableError):
            raise self._unknown(str(error)) from error
        while True:
            self._note_break()
            self._on_away(error)
            try:
                is_known = await self._connection.again(error, told=self._on_away)
            except (RemoteError, HostError) as found:
                raise self._unknown(str(found)) from found
            if not is_known:
                raise self._unknown("the connection broke, and it no longer knows of it") from error
            try:
                await self._open()
                self._on_back()
                return
            except RemoteUnreachableError as broken:
                error = broken
            except RemoteProtocolError as found:
                raise self._unknown(str(found)) from found

    def _note_break(self) -> None:
        """Take the output that came over the broken connection."""
        channel, self._channel = self._channel, None
        if channel is not None:
            # Lost bytes count for the position at which the output resumes.
            for event in channel.take_events():
                self._take_event(event)
            if asyncio.get_running_loop().time() - self._opened >= LASTED_S:
                self._connection.got_on()

    async def _open(self) -> None:
        link = self._connection.link
        params: dict[str, Any] = {
            "argv_b64": [_coded(word) for word in self._line.argv],
            "env": dict(self._line.env),
            "stdin": self._line.stdin,
        }
        if self._line.values:
            params["values_b64"] = {
                name: _coded(value) for name, value in self._line.values.items()
            }
        if self._line.place:
            params["place"] = self._line.place
        if self._line.files:
            params |= {
                "directory_b64": _coded(str(Path.cwd())),
                "files_b64": {name: _coded(file) for name, file in self._line.files.items()},
            }
        if self._size is not None:
            params["terminal"] = {"columns": self._size[0], "rows": self._size[1]}
        if self._once:
            params |= {
                "once": self._once,
                "have": {str(int(stream)): count for stream, count in self._read.items()},
            }
        channel = link.open("command", **params)
        self._is_sent = True
        self._channel = channel
        self._opened = asyncio.get_running_loop().time()
        await channel.reply

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield the output as it comes. After a break, a command with ``once`` goes on, and so does
        this iterator, when the machine is back. Raises RemoteError."""
        while True:
            try:
                async for piece in self._read_all():
                    yield piece
                return
            except RemoteError as error:
                await self._go_on(error)

    async def _read_all(self) -> AsyncIterator[Piece]:
        channel = self._channel
        assert channel is not None
        open_streams = {Stream.STDOUT} if self._line.terminal else set(self._read)
        while open_streams:
            piece = await channel.piece()
            stream = Stream(piece.stream)
            if piece.data:
                self._connection.got_on()
                self._read[stream] += len(piece.data)
                yield piece
            else:
                open_streams.discard(stream)
        try:
            async with asyncio.timeout(EXIT_S):
                while self.exit_code is None:
                    self._take_event(await channel.event())
        except TimeoutError:
            name = self._connection.destination.short
            raise RemoteProtocolError(f"{name} does not say how the command ended") from None
        channel.close()

    def _take_event(self, event: dict[str, Any]) -> None:
        match event:
            case {"event": "exit", "exit_code": int(code)} if 0 <= code < 256:
                self.exit_code = code
            case {"event": "lost", "stream": 1 | 2 as stream, "bytes": int(count)} if count > 0:
                self.lost += count
                self._read[Stream(stream)] += count

    async def feed(self, data: bytes) -> None:
        """Send input; b"" ends it. Input is dropped while the machine is away. Raises
        RemoteError."""
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
        self._size = (columns, rows)
        if self._channel is not None:
            self._channel.tell("resize", columns=columns, rows=rows)

    async def forget(self) -> None:
        """Have the other machine forget a command that has ended and whose result is known here. If
        it does not answer, it forgets the command by itself."""
        if self._once and self.exit_code is not None:
            with contextlib.suppress(RemoteError):
                await self._connection.link.request("forget", once=self._once)

    def _unknown(self, why: str) -> RemoteUnreachableError:
        return RemoteUnreachableError(
            f"whether the command was carried out on {self._connection.destination.short} is "
            f"unknown: {why}",
            hint="look at what is there before you do it again",
        )


def _coded(word: str) -> str:
    return base64.b64encode(os.fsencode(word)).decode("ascii")
