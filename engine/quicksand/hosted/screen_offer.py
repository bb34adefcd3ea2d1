"""The far end of sending screens (docs/internals/hosts.md, "Screens"): the bytes of QEMU's VNC
server are passed on unread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from quicksand.base.errors import MachineError, RemoteRefusedError, StateError
from quicksand.base.paths import Paths
from quicksand.display.screendump import take_size
from quicksand.display.sought import machine_with_screen
from quicksand.guest.agent.wire import Stream
from quicksand.hosted.answers import told_to
from quicksand.hosted.protocol import SCREEN_METHODS, SCREENS, SCREENS_MAX
from quicksand.records.layout import MachineDir
from quicksand.records.registry import Registry
from quicksand.remote.passing import pass_on
from quicksand.remote.peer_link import Request


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
