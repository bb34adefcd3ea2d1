"""Requests to the agent in a sandbox's guest."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from quicksand.guest.agent.session import Ask, sync_guest
from quicksand.life.sandbox_life import Life

if TYPE_CHECKING:
    from quicksand.guest.traffic import GuestTraffic
    from quicksand.life.stats import GuestProcess, SandboxStats


class Guest:
    """The guest of one sandbox."""

    def __init__(self, life: Life) -> None:
        self._life = life

    async def request(self, method: str, params: dict[str, Any], timeout: float) -> dict[str, Any]:
        """See `Sandbox.request`."""
        return await (await self._life.session()).request(method, params, timeout=timeout)

    @property
    def asker(self) -> Ask | None:
        """`request`, or None while the guest is stopped or paused and cannot answer."""
        run = self._life.entry().run
        return self.request if run is not None and not run.paused else None

    async def sync(self) -> None:
        """Have the guest flush its page cache to its disk. Does nothing if the guest cannot answer
        or takes too long."""
        if (ask := self.asker) is not None:
            await sync_guest(ask)

    async def ping(self) -> float:
        """See `Sandbox.ping`."""
        started = time.perf_counter()
        await self.request("ping", {}, 30.0)
        return time.perf_counter() - started

    async def stats(self) -> SandboxStats:
        """See `Sandbox.stats`."""
        from quicksand.life.stats import read_stats  # noqa: PLC0415

        return await read_stats(self._life.entry(), self._life.session)

    async def traffic(self) -> GuestTraffic | None:
        """See `Sandbox.traffic`."""
        from quicksand.guest.files import GuestFiles  # noqa: PLC0415
        from quicksand.guest.traffic import read_traffic  # noqa: PLC0415

        return await read_traffic(GuestFiles(self._life.session))

    async def processes(self) -> list[GuestProcess]:
        """See `Sandbox.processes`."""
        from quicksand.life.stats import GuestProcess  # noqa: PLC0415

        return GuestProcess.parse_all(await self.request("processes", {}, 30.0))
