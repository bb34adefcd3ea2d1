"""The machines of a fleet seen as one: what is known of them, and the places kept on them."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, MutableMapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

from quicksand import HostedSandbox, RemoteHost
from quicksand.errors import ConfigError, RemoteError
from quicksand.extending import paths

from quicksand_fleet.interface import BackEnd, FleetEvent, FleetHost, HostState, Need, Reservation
from quicksand_fleet.keeping.kept import KeptSandbox, list_kept
from quicksand_fleet.keeping.running import ensure_coordinator
from quicksand_fleet.opening import open_back_end
from quicksand_fleet.waiting import seen_waiting

WAIT_S = 300.0
"""Seconds for which a sandbox waits for a place, unless its fleet says otherwise."""

HEARD_S = 40.0
"""Seconds after which each machine has answered or counts as silent (`remote.ssh.ANSWER_S`)."""

OTHERS_S, OTHERS_TIMES = 5.0, 3.0
"""The time that the other machines have once the first one that takes sandboxes has answered: at
least so many seconds, and so many times as long as the first one took. On a busy host all are
slow."""


class Desk:
    """The part that knows the machines and keeps places on them. `Fleet` is one."""

    def __init__(self, back_end: BackEnd, *, wait_s: float = WAIT_S) -> None:
        """``wait_s``: seconds for which a sandbox waits for a place. Raises ConfigError."""
        if isinstance(wait_s, bool) or not isinstance(wait_s, int | float) or not wait_s >= 0:
            raise ConfigError(f"wait_s must be a number of seconds, not {wait_s!r:.80}")
        self._back_end = back_end
        self._has_heard = False
        self.wait_s = float(wait_s)

    @classmethod
    def open(cls, *, wait_s: float = WAIT_S) -> Self:
        """Open the fleet that is up (command `fleet up`), or else the machines of the config's
        table [hosts]. An event loop must run. Raises FleetError if there is neither,
        ConfigError."""
        return cls(open_back_end(), wait_s=wait_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def hosts(self) -> Sequence[FleetHost]:
        """See `BackEnd.hosts`."""
        return self._back_end.hosts()

    def watch(self) -> AsyncIterator[FleetEvent]:
        """See `BackEnd.watch`."""
        return self._back_end.watch()

    def host(self, name: str) -> RemoteHost:
        """See `BackEnd.host`: `Sandbox.attach(NAME, host=fleet.host("box"))`."""
        return self._back_end.host(name)

    async def drain(self, name: str, *, on: bool = True) -> None:
        """See `BackEnd.drain`."""
        await self._back_end.drain(name, on=on)

    async def close(self) -> None:
        """See `BackEnd.close`."""
        await self._back_end.close()

    async def settle(self, *, timeout_s: float = HEARD_S) -> None:
        """Wait at most so long until each machine has answered or counts as silent. If sandboxes
        are kept and their coordinator was lost, start a new one."""
        await ensure_coordinator(paths())
        events = self.watch()
        async with contextlib.aclosing(events):  # type: ignore[type-var]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    async for _ in events:
                        if self._all_are_known():
                            return

    def _all_are_known(self) -> bool:
        """Whether each machine is known either to answer or not to."""
        return all(host.since is not None for host in self.hosts())

    async def sandboxes(self) -> dict[str, Sequence[HostedSandbox]]:
        """The sandboxes of each machine that can be reached, by its name."""
        names = [
            host.name
            for host in self.hosts()
            if host.state not in (HostState.UNREACHABLE, HostState.UNFIT)
        ]
        found = await asyncio.gather(
            *(self.host(name).list() for name in names), return_exceptions=True
        )
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, RemoteError):
                raise one
        pairs = zip(names, found, strict=True)
        return {name: one for name, one in pairs if not isinstance(one, BaseException)}

    async def kept(self) -> Sequence[KeptSandbox]:
        """The sandboxes of this user's fleets that were made with ``restart``, by name."""
        return await asyncio.to_thread(list_kept, paths())

    # Places

    async def reserve(self, need: Need, *, timeout_s: float | None = None) -> Reservation:
        """See `BackEnd.reserve`; waits ``wait_s`` unless told otherwise."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self.wait_s if timeout_s is None else timeout_s)
        async with seen_waiting():
            if need.on is None and not self._has_heard:
                if not self._all_are_known():
                    await self._hear(deadline)
                self._has_heard = True
            return await self._back_end.reserve(need, timeout_s=max(0.0, deadline - loop.time()))

    async def _hear(self, deadline: float) -> None:
        """Wait until the machines have reported what they have: otherwise the first sandboxes would
        all go to the machine that answers first."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        deadline = min(deadline, began + HEARD_S)
        is_one_there = False
        events = self.watch()
        async with contextlib.aclosing(events):  # type: ignore[type-var]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline) as limit:
                    async for _ in events:
                        if self._all_are_known():
                            break
                        if not is_one_there and any(host.takes_new for host in self.hosts()):
                            is_one_there = True
                            more = max(OTHERS_S, OTHERS_TIMES * (loop.time() - began))
                            limit.reschedule(min(deadline, loop.time() + more))

    async def confirm(self, reservation: Reservation, sandbox_id: str) -> None:
        """See `BackEnd.confirm`."""
        await self._back_end.confirm(reservation, sandbox_id)

    async def refused(self, reservation: Reservation, why: str) -> None:
        """See `BackEnd.refused`."""
        await self._back_end.refused(reservation, why)

    async def release(self, reservation: Reservation) -> None:
        """See `BackEnd.release`."""
        await self._back_end.release(reservation)


class SharedDesks:
    """The fleet shared by all sandboxes of an event loop that were given no other."""

    _of_loops: ClassVar[MutableMapping[asyncio.AbstractEventLoop, list[Any]]] = (
        weakref.WeakKeyDictionary()
    )
    """The fleet of each event loop, and how many sandboxes use it."""

    @classmethod
    def use(cls) -> Desk:
        """Use the fleet of this loop; `leave` is due for each call. Raises as `Desk.open`."""
        shared = cls._of_loops.get(asyncio.get_running_loop())
        if shared is None:
            shared = [Desk.open(), 0]
            cls._of_loops[asyncio.get_running_loop()] = shared
        shared[1] += 1
        fleet: Desk = shared[0]
        return fleet

    @classmethod
    async def leave(cls, fleet: Desk) -> None:
        """Stop using the fleet; the last user closes it."""
        loop = asyncio.get_running_loop()
        shared = cls._of_loops[loop]
        shared[1] -= 1
        if not shared[1]:
            del cls._of_loops[loop]
            await fleet.close()
