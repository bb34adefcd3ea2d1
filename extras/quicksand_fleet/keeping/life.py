"""A sandbox that is started elsewhere when its machine is lost, as seen by its program."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Self

from quicksand import SandboxConfig
from quicksand.errors import FleetError, QuicksandError, RemoteError, RemoteRefusedError
from quicksand.extending import (
    ENDING_METHODS,
    Known,
    Progress,
    Session,
    best_effort,
    paths,
    to_the_end,
)

from quicksand_fleet.desk import Desk
from quicksand_fleet.keeping.book import Book, Kept, Phase, Wish
from quicksand_fleet.keeping.restart import Restart
from quicksand_fleet.keeping.running import ensure_coordinator
from quicksand_fleet.life import FleetLife

FENCED_S, EXPORTED_S = 60.0, 900.0
"""Seconds within which the machine must take a lease, and the first save must be elsewhere."""
FORGOTTEN_S = 10.0
"""Seconds that the coordinator has to notice an end."""
LOOK_S = 0.2
FIND_S = 5.0
"""Seconds between two looks whether there is a coordinator."""


class KeptLife(FleetLife):
    """A kept sandbox of a fleet. It outlives its program, and this object follows it to the machine
    where it was restarted."""

    def __init__(
        self,
        fleet: Desk | None,
        known: Known,
        opening: dict[str, Any],
        terms: Restart,
        *,
        own: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
    ) -> None:
        """``own`` are the keywords of `Sandbox`, needed to make it again elsewhere."""
        super().__init__(fleet, known, opening, progress=progress)
        self._terms = terms
        self._own = own or {}
        self._book = Book(paths())
        self._name = known.name
        self._epoch = 0
        """The sandbox's epoch; 0 while it is not kept."""

    @classmethod
    def of(cls, fleet: Desk | None, kept: Kept) -> Self:
        """Return the life of a sandbox that is already kept."""
        made = json.loads(kept.make)
        known = Known(id=kept.id, name=kept.name, config=SandboxConfig.parse(made["config"]))
        terms = Restart(every=kept.every, lease=kept.lease)
        life = cls(fleet, known, {}, terms, own=made["own"])
        life._is_at(kept)
        return life

    @property
    def where(self) -> str | None:
        """See `FarLife.where`."""
        return self.last_place if self._epoch else super().where

    # Starting

    async def start(self, at: str | None) -> None:
        """See `Sandbox.start`. Returns when a save of it is elsewhere."""
        await self._follow()
        await super().start(at)
        try:
            await self._begin_to_keep()
        except BaseException:
            await to_the_end(self._give_up())
            raise

    async def _begin_to_keep(self) -> None:
        assert self.last_place is not None
        known = await asyncio.to_thread(self._book.read, self._name)
        own = {key: value for key, value in self._own.items() if key not in LEFT_OUT}
        made = {"own": own, "config": self.known.config.to_json()}
        kept = Kept(
            name=self._name,
            epoch=1 if known is None else known.epoch + 1,
            phase=Phase.PLACED,
            host=self.last_place,
            id=self.known.id,
            lease=self._terms.lease,
            every=self._terms.every,
            make=json.dumps(made, default=str),
        )
        await asyncio.to_thread(self._book.add, kept)
        self._epoch = kept.epoch
        await self._until(lambda now: now.is_fenced, FENCED_S, "it has no lease")
        await super().call("detach")
        await self._until(
            lambda now: now.exported is not None, EXPORTED_S, "no save of it is elsewhere"
        )

    async def _until(self, is_so: Callable[[Kept], bool], seconds: float, what: str) -> None:
        """Wait for the coordinator. Raises FleetError."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        find_at = loop.time()
        kept: Kept | None = None
        while loop.time() < deadline:
            if loop.time() >= find_at:
                await ensure_coordinator(paths())
                find_at = loop.time() + FIND_S
            kept = await asyncio.to_thread(self._book.read, self._name)
            if kept is not None and is_so(kept):
                return
            if kept is None or kept.phase is Phase.ENDED or kept.trouble:
                break
            await asyncio.sleep(LOOK_S)
        why = f": {kept.trouble}" if kept is not None and kept.trouble else ""
        raise FleetError(f"the sandbox {self._name!r} cannot be kept, {what}{why}")

    async def _give_up(self) -> None:
        """End a sandbox that could not be kept."""
        with best_effort("end a sandbox that cannot be kept", self._book.log):
            if self._epoch:
                await asyncio.to_thread(self._book.wish, self._name, Wish.END)
            await super().call("trash")
        self._epoch = 0

    # Calls

    async def call(self, name: str, *args: Any, wanted: Any = None, **keywords: Any) -> Any:
        """See `FarLife.call`. If the sandbox was started elsewhere meanwhile, the call goes
        there."""
        if name != "start":
            await self._follow()
        if name in ENDING_METHODS and self._epoch:
            await asyncio.to_thread(self._book.wish, self._name, Wish.END)
            await ensure_coordinator(paths())
        try:
            found = await super().call(name, *args, wanted=wanted, **keywords)
        except QuicksandError as error:
            if name in ENDING_METHODS and self._epoch and not _is_unknown(error):
                # The call was refused and the sandbox goes on: then it is kept as before.
                await asyncio.to_thread(self._book.grant_wish, self._name, Wish.END)
            raise
        if name in ENDING_METHODS and self._epoch:
            await self._await_forgotten()
            self._epoch = 0
        if name == "save" and self._epoch:
            await asyncio.to_thread(self._book.wish, self._name, Wish.SAVE)
        return found

    async def session(self) -> Session:
        """See `FarLife.session`."""
        await self._follow()
        return await super().session()

    async def _follow(self) -> None:
        """Follow the sandbox to its present machine."""
        if self._epoch:
            kept = await asyncio.to_thread(self._book.read, self._name)
            if kept is not None and kept.epoch > self._epoch and kept.phase is Phase.LEASED:
                self._is_at(kept)

    def _is_at(self, kept: Kept) -> None:
        self.put_on(self._opened().host(kept.host))
        self._opening = {"name": kept.id, "must_run": False, "to_end_it": False}
        self._epoch, self.last_place = kept.epoch, kept.host
        self._reservation = None

    async def _await_forgotten(self) -> None:
        """Give the coordinator time to notice the end: then the sandbox can be started again."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + FORGOTTEN_S
        while loop.time() < deadline:
            kept = await asyncio.to_thread(self._book.read, self._name)
            if kept is None:
                return
            await asyncio.sleep(LOOK_S)


def _is_unknown(error: QuicksandError) -> bool:
    """Whether it is unknown if the machine has done what it was asked."""
    return isinstance(error, RemoteError) and not isinstance(error, RemoteRefusedError)


LEFT_OUT = ("image", "progress_callback", "workspace", "base_dir", "build")
"""Keywords that make no sense elsewhere, or are given anew."""
