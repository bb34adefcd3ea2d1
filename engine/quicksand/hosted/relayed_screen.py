"""The near end of a screen of another machine: a Unix socket of ours whose connections lead to it.
So viewers and processes that draw or record need not know of other machines.

A connection begins with one byte, which says what it is for (`display.place`).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

from quicksand.base.errors import (
    QuicksandError,
    RemoteProtocolError,
    RemoteUnreachableError,
    SandboxNotFoundError,
    StateError,
)
from quicksand.base.listening import Acceptor, bind_private
from quicksand.base.paths import make_private_dir, paths
from quicksand.display.place import SIZE, TO_SIZE, TO_VNC, RelayedScreen
from quicksand.display.rfb import CLOSE_S
from quicksand.guest.agent.wire import Stream
from quicksand.hosted.calling import require_capability
from quicksand.hosted.errors import decode_error
from quicksand.hosted.protocol import SCREENS
from quicksand.records.host_sockets import SCREEN_SOCKETS, screen_socket
from quicksand.remote.abandoned import remove_abandoned
from quicksand.remote.passing import pass_on
from quicksand.remote.peer_channel import Channel
from quicksand.remote.shared_connection import Sharing

CONNECTIONS_MAX = 16
"""The most connections to one screen at the same time; further ones are closed."""

FIRST_S = 10.0
"""Seconds within which a connection must say what it is for."""

ANSWER_S = 30.0
"""Seconds to wait for the other machine's answer."""

STEADY_S = 1.0
"""Seconds after which the end of a connection counts as the end of the machine that was shown."""

SIDE_MAX = 2**16
"""The most pixels of a side, as in VNC."""


class ScreenRelay:
    """The local socket for the screen of one sandbox, made by `open`."""

    def __init__(self, shared: Sharing, sandbox: str, path: Path) -> None:
        self._shared = shared
        self._sandbox = sandbox
        self._path = path
        self._turn = 0
        self._has_ended = False

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, shared: Sharing, sandbox: str) -> AsyncIterator[Self]:
        """Ask for the screen of a sandbox, given by its id there, and listen. Raises
        NoDisplayError, StateError if it does not run, SandboxNotFoundError, RemoteError (also if
        that machine is too old)."""
        await require_capability(shared, SCREENS, to="send screens")
        runtime = paths().runtime
        relay = cls(shared, sandbox, screen_socket(runtime, secrets.token_hex(16)))
        async with relay._asked("screen"):
            pass  # it can be seen
        make_private_dir(runtime)
        await remove_abandoned(runtime, SCREEN_SOCKETS)
        try:
            listening = bind_private(relay._path)
            acceptor = Acceptor(
                [listening], relay._serve, name="quicksand-screen", most=CONNECTIONS_MAX
            )
            try:
                yield relay
            finally:
                # A key pressed just before still arrives.
                await acceptor.close(grace_s=CLOSE_S)
        finally:
            relay._path.unlink(missing_ok=True)

    @property
    def place(self) -> RelayedScreen | None:
        """Return where the screen is now; None once the sandbox has ended."""
        return None if self._has_ended else RelayedScreen(self._path, self._turn)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection to its end. If it fails it is closed, and its client tries again."""
        with (
            contextlib.closing(writer),
            contextlib.suppress(QuicksandError, OSError, EOFError),
        ):
            async with asyncio.timeout(FIRST_S):
                first = await reader.readexactly(1)
            if first == TO_SIZE:
                writer.write(SIZE.pack(*await self._ask_size()))
                await writer.drain()
            elif first == TO_VNC:
                async with self._asked("screen") as (channel, _):
                    began = asyncio.get_running_loop().time()
                    await pass_on(channel, Stream.INPUT, reader, writer)
                self._turn += asyncio.get_running_loop().time() - began > STEADY_S

    async def _ask_size(self) -> tuple[int, int]:
        """Return the screen's size. Raises the other machine's errors, and RemoteError."""
        async with self._asked("screen_size") as (_, answer):
            match answer:
                case {"width": int(width), "height": int(height)} if (
                    0 < width < SIDE_MAX and 0 < height < SIDE_MAX
                ):
                    return width, height
        raise RemoteProtocolError(f"{self._shared.destination.short} tells a size that is none")

    @contextlib.asynccontextmanager
    async def _asked(self, method: str) -> AsyncIterator[tuple[Channel, dict[str, Any]]]:
        """Send a request about the sandbox, and yield it with its answer. Raises as `_ask_size`."""
        name = self._shared.destination.short
        channel: Channel | None = None
        try:
            try:
                async with asyncio.timeout(ANSWER_S):
                    link = await self._shared.link()
                    channel = link.open(method, sandbox=self._sandbox)
                    answer = await channel.reply
            except TimeoutError:
                raise RemoteUnreachableError(
                    f"{name} did not answer {method!r} within {ANSWER_S:g} s"
                ) from None
            if "error" in answer:
                raise decode_error(answer["error"], name)
            self._has_ended = False
            yield channel, answer
        except (StateError, SandboxNotFoundError):
            self._has_ended = True
            raise
        finally:
            if channel is not None:
                channel.abandon(Stream.INPUT)
