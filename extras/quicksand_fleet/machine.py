"""One machine of a fleet, as seen from the near end: its reports, and claims on its memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from quicksand import RemoteHost
from quicksand.errors import (
    HostError,
    MemoryBudgetError,
    QuicksandError,
    RemoteError,
    RemoteRefusedError,
    RemoteUnreachableError,
)
from quicksand.extending import (
    Channel,
    ForeignValueError,
    Link,
    decode_error,
    printable,
    require_capability,
)

from quicksand_fleet.capacity import CAPACITY, CLAIM, FLEET, LINE_MAX, Capacity, decode_capacity
from quicksand_fleet.interface import HostState

PAUSES_S = (1.0, 30.0)
"""The first and the longest pause in seconds between two attempts to connect; the pause doubles."""
WHY_MAX = 300
"""The most characters kept of the reason why a machine is away."""


class Claim(Protocol):
    """Memory that a machine keeps for a sandbox."""

    def drop(self) -> None:
        """Give it up. Idempotent."""


class Machine(Protocol):
    """The part of a machine that the back end needs."""

    name: str
    address: str
    state: HostState
    """READY, UNREACHABLE or UNFIT; the machine itself does not know whether it is drained."""
    since: float | None
    """Unix time of the last change of state; None until it has answered or counts as silent."""
    why: str
    capacity: Capacity | None
    """Its last report; None if there is none."""

    async def run(self) -> None:
        """Follow the machine until cancelled."""

    async def claim(self, id_: str, memory_bytes: int) -> Claim:
        """Claim memory for a guest. Raises MemoryBudgetError if the machine has none,
        RemoteError."""

    def host(self) -> RemoteHost:
        """Return the way to the machine."""


class _ChannelClaim:
    """A claim lasts as long as the request for it."""

    def __init__(self, channel: Channel) -> None:
        self._channel: Channel | None = channel

    def drop(self) -> None:
        if self._channel is not None:
            self._channel.tell("enough")
            self._channel.close()
            self._channel = None


class FarMachine:
    """A machine that is reached by a connection (`Machine`)."""

    def __init__(self, name: str, remote: RemoteHost, changed: Callable[[], None]) -> None:
        """``changed`` is called when what is known of the machine has changed."""
        self.name = name
        self.address = remote.address
        self.state = HostState.UNREACHABLE
        self.since: float | None = None
        self.why = "it has not answered yet"
        self.capacity: Capacity | None = None
        self._remote = remote
        self._changed = changed

    def host(self) -> RemoteHost:
        """See `Machine.host`."""
        return self._remote

    async def run(self) -> None:
        """See `Machine.run`."""
        shared = self._remote.shared()
        first, longest = PAUSES_S
        pause = first
        try:
            with shared.use():
                while True:
                    try:
                        await require_capability(shared, FLEET)
                        pause = first
                        await self._follow(await shared.link())
                    except RemoteUnreachableError as error:
                        self._note(HostState.UNREACHABLE, error)
                    except (RemoteError, HostError) as error:
                        self._note(HostState.UNFIT, error)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, longest)
        finally:
            await shared.ended()

    async def _follow(self, link: Link) -> None:
        """Take the machine's reports over one connection. Raises the error that ended it."""
        channel = link.open(CAPACITY)
        rest = b""
        try:
            await channel.reply
            while piece := (await channel.piece()).data:
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    self._take(decode_capacity(line))
                if len(rest) > LINE_MAX:
                    raise ForeignValueError("a line has no end")
        except ForeignValueError as error:
            raise RemoteError(f"{self.name} tells what makes no sense: {error}") from error
        finally:
            channel.tell("enough")
            channel.close()
        raise RemoteUnreachableError(f"{self.name} tells no more")

    def _take(self, capacity: Capacity) -> None:
        self.capacity = capacity
        if self.state is not HostState.READY:
            self.state, self.since, self.why = HostState.READY, time.time(), ""
        self._changed()

    def _note(self, state: HostState, error: QuicksandError) -> None:
        """Note why the machine cannot be used; its last report is kept."""
        self.why = printable(" · ".join(str(error).split("\n")))[:WHY_MAX]
        if state is not self.state or self.since is None:
            self.state, self.since = state, time.time()
        self._changed()

    async def claim(self, id_: str, memory_bytes: int) -> Claim:
        """See `Machine.claim`."""
        channel = self._remote.shared().present().open(CLAIM, id=id_, memory_bytes=memory_bytes)
        claim = _ChannelClaim(channel)
        try:
            answer = await channel.reply
            if "error" in answer:
                raise decode_error(answer["error"], self.name)
        except (MemoryBudgetError, RemoteUnreachableError):
            claim.drop()
            raise
        except (QuicksandError, OSError) as error:
            claim.drop()
            if isinstance(error, RemoteRefusedError):
                raise
            raise RemoteError(f"{self.name} kept no memory: {error}") from error
        except BaseException:
            claim.drop()
            raise
        return claim
