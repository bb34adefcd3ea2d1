"""A screen of another machine. The near end has a Unix socket whose connections lead to it, so that
viewers and processes that draw or record need not know of other machines; the far end passes the
bytes of QEMU's VNC server on.

A connection to the socket begins with one byte, which says what it is for (`display.place`).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Self

from quicksand_vnc.client import CLOSE_S

from quicksand.base.errors import (
    MachineError,
    QuicksandError,
    RemoteProtocolError,
    RemoteRefusedError,
    RemoteUnreachableError,
    SandboxNotFoundError,
    StateError,
)
from quicksand.base.listening import Acceptor, bind_private
from quicksand.base.paths import Paths, make_private_dir, paths
from quicksand.display.place import SIZE, TO_SIZE, TO_VNC, RelayedScreen
from quicksand.display.screendump import take_size
from quicksand.display.sought import machine_with_screen
from quicksand.guest.agent.wire import Stream
from quicksand.hosted.calling import require_capability, told_to
from quicksand.hosted.codec import decode_error
from quicksand.hosted.protocol import SCREEN_METHODS, SCREENS, SCREENS_MAX
from quicksand.records.host_sockets import SCREEN_SOCKETS, screen_socket
from quicksand.records.layout import MachineDir
from quicksand.records.registry import Registry
from quicksand.remote.abandoned import remove_abandoned
from quicksand.remote.connection import Sharing
from quicksand.remote.peer_link import Channel, Request, pass_on

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


class Screens:
    """The screens that are sent to one client (an `Offer` of `remote.serving`). They end with its
    connection, and nothing is kept."""

    capability = SCREENS
    methods = SCREEN_METHODS
    is_empty = True

    def __init__(self, places: Paths) -> None:
        """``places`` are those of this machine."""
        self._places = places
        self._sent = 0
        """The number of screens sent now."""

    async def answer(self, request: Request, _: Callable[[], Awaitable[None]]) -> None:
        """See `Offer.answer`."""
        with told_to(request):
            if request.method == "screen_size":
                width, height = await take_size(await self._find(request))
                request.answer(width=width, height=height)
            elif self._sent >= SCREENS_MAX:
                raise RemoteRefusedError(f"{SCREENS_MAX} screens are sent now", code="too_many")
            else:
                self._sent += 1
                try:
                    await self._send(request)
                finally:
                    self._sent -= 1

    async def _send(self, request: Request) -> None:
        machine = await self._find(request)
        try:
            reader, writer = await asyncio.open_unix_connection(machine.vnc_socket)
        except OSError as error:
            # A revert removes the directory of the earlier machine.
            raise MachineError(f"the screen cannot be reached: {error.strerror}") from error
        try:
            request.answer()
            await pass_on(request.channel, Stream.STDOUT, reader, writer)
        finally:
            writer.close()

    async def _find(self, request: Request) -> MachineDir:
        """Return the running machine of the requested sandbox, as `Sandbox.display` would there.
        Raises SandboxNotFoundError, NoDisplayError, StateError."""
        name = request.params.get("sandbox")
        if not isinstance(name, str):
            raise RemoteRefusedError("sandbox is no text", code="bad_request")
        entry = await asyncio.to_thread(Registry(self._places).find, name)
        if entry.record is None:
            raise StateError(f"the sandbox {entry.name!r} is broken: {entry.error}")
        if entry.run is None and entry.is_live:
            raise MachineError(f"the sandbox {entry.name!r} is {entry.status.value}")
        return machine_with_screen(self._places, entry.name, entry.record.config, lambda: entry)

    def away(self) -> None:
        """See `Offer.away`."""

    def back(self) -> None:
        """See `Offer.back`."""

    async def leave(self) -> None:
        """See `Offer.leave`."""

    async def settle(self) -> None:
        """See `Offer.settle`."""
