"""The coordinator's actions on machines, over their connections (`Doing`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from quicksand import RemoteHost, SandboxConfig
from quicksand.errors import FleetError, RemoteError, SaveError, StateError
from quicksand.extending import (
    Channel,
    FarLife,
    ForeignValueError,
    Paths,
    describe,
    encode,
    in_thread_to_the_end,
    life_of,
    require_capability,
)

from quicksand_fleet.desk import Desk
from quicksand_fleet.interface import HostState, Need
from quicksand_fleet.keeping.book import Exported, Kept
from quicksand_fleet.keeping.tidying import remove_exported
from quicksand_fleet.keeping.wire import KEEPING, LEASES, LINE_MAX, Line, Told, decode_line
from quicksand_fleet.life import FleetLife
from quicksand_fleet.placing import candidates

PLACE_S = 30.0
"""Seconds to wait for a place before the next attempt begins."""
PERMIT_TRIES, PERMIT_PAUSE_S = 20, 0.5


class _Asking:
    """A machine's request for leases (`Answering`)."""

    def __init__(self, channel: Channel, name: str) -> None:
        self._channel = channel
        self._name = name

    async def lines(self) -> AsyncIterator[Line]:
        await self._channel.reply
        rest = b""
        try:
            while piece := (await self._channel.piece()).data:
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    yield decode_line(line)
                if len(rest) > LINE_MAX:
                    raise ForeignValueError("a line has no end")
        except ForeignValueError as error:
            raise RemoteError(f"{self._name} tells what makes no sense: {error}") from error

    def answer(self, told: Told) -> None:
        self._channel.tell("tell", told=encode(told))


class Machines:
    """The machines of a fleet, for a coordinator (`Doing`)."""

    def __init__(self, desk: Desk, paths: Paths) -> None:
        self._desk = desk
        self._paths = paths
        self._started: dict[str, FarLife] = {}
        """Sandboxes that still end with this process."""

    def _host(self, name: str) -> RemoteHost:
        return self._desk.host(name)

    @contextlib.asynccontextmanager
    async def machine(self, host: str) -> AsyncIterator[_Asking]:
        """See `Doing.machine`."""
        shared = self._host(host).shared()
        try:
            with shared.use():
                await require_capability(shared, KEEPING)
                channel = (await shared.link()).open(LEASES)
                try:
                    yield _Asking(channel, host)
                finally:
                    channel.tell("enough")
                    channel.close()
        finally:
            await shared.ended()

    # Starting

    async def start_elsewhere(
        self, kept: Kept, chosen: Callable[[Kept, str], Coroutine[None, None, None]]
    ) -> tuple[str, str]:
        """See `Doing.start_elsewhere`."""
        if kept.exported is None:
            raise SaveError(f"there is no exported save of {kept.name!r}")
        save = kept.exported.name

        async def prepare(host: str) -> None:
            await chosen(kept, host)
            await self._host(host).send_save(save, replace=True, trusted=True)

        lost = kept.older[-1].host if kept.older else None
        own, options = _words(kept, image=save)
        known, opening = describe(own, options)
        life = FleetLife(self._desk, known, opening, prepare=prepare, wait_s=PLACE_S, but=lost)
        await self._start(kept, life, lambda: life.start(None))
        assert life.last_place is not None
        return life.last_place, life.known.id

    async def start_here(self, kept: Kept) -> None:
        """See `Doing.start_here`."""
        config = SandboxConfig.parse(json.loads(kept.make)["config"])
        need = Need(memory_bytes=config.memory_bytes, cpus=config.cpus, on=kept.host)
        reservation = await self._desk.reserve(need, timeout_s=PLACE_S)
        try:
            life = life_of(self._host(kept.host), kept.id)

            async def start() -> None:
                for left in reversed(range(PERMIT_TRIES)):
                    try:
                        return await life.start(None)
                    except StateError:
                        # The permission comes with the next answer to the machine.
                        if not left:
                            raise
                    await asyncio.sleep(PERMIT_PAUSE_S)

            await self._start(kept, life, start)
            await self._desk.confirm(reservation, life.known.id)
        finally:
            await self._desk.release(reservation)

    async def _start(
        self, kept: Kept, life: FarLife, start: Callable[[], Coroutine[None, None, None]]
    ) -> None:
        try:
            await start()
        except BaseException:
            await life.leave()
            raise
        self._started[kept.name] = life

    async def let_go(self, kept: Kept) -> None:
        """See `Doing.let_go`."""
        life = self._started[kept.name]
        await life.call("detach")
        del self._started[kept.name]
        await life.leave()

    async def abandon(self, name: str) -> None:
        """See `Doing.abandon`."""
        life = self._started.pop(name, None)
        if life is not None:
            await life.leave()

    async def find_left_over(self, kept: Kept) -> tuple[str, bool]:
        """See `Doing.find_left_over`."""
        for found in await self._host(kept.host).list():
            if found.name == kept.name:
                return found.id, found.status not in ("stopped", "crashed", "broken")
        return "", False

    # Saves

    async def export(self, kept: Kept, saves: str, name: str, other: str) -> Exported:
        """See `Doing.export`."""
        at = time.time()
        host = self._host(kept.host)
        life = life_of(host, kept.id)
        try:
            await life.call("save", name, workspace=saves, note="exported by the fleet")
        finally:
            await life.leave()
        await host.fetch_save(f"{saves}/{name}", new_name=name, trusted=True)
        await self._host(other).send_save(name, trusted=True)
        return Exported(name=name, at=at, hosts=(other,))

    def choose_other(self, kept: Kept) -> str:
        """See `Doing.choose_other`: the machine that has the last save, or else the one with most
        room. Raises FleetError if there is none."""
        ready = [
            host
            for host in self._desk.hosts()
            if host.state in (HostState.READY, HostState.DRAINING, HostState.DRAINED)
            and host.name != kept.host
        ]
        before = kept.exported.hosts if kept.exported is not None else ()
        for host in ready:
            if host.name in before:
                return host.name
        roomy = candidates(ready, Need(memory_bytes=0)) or ready
        if not roomy:
            raise FleetError(f"no other machine answers that could have the save of {kept.name!r}")
        return roomy[0].name

    async def remove_exported(self, name: str) -> None:
        """See `Doing.remove_exported`."""
        await in_thread_to_the_end(lambda: remove_exported(self._paths, name))


def _words(kept: Kept, *, image: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keywords of `Sandbox` that make the sandbox again from a save: its own, and those
    that are options of the machine."""
    made = json.loads(kept.make)
    own = {**made["own"], "image": image, "progress_callback": None, "build": False}
    own |= {"workspace": None, "base_dir": None}
    options = {key: value for key, value in made["config"].items() if key != "image"}
    return own, options
