"""Has exported saves removed that nobody needs any more, on all machines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from quicksand.extending import Paths, best_effort

from quicksand_fleet.keeping.book import Kept, Phase
from quicksand_fleet.keeping.exports import HERE, Copy, read_copies, write_copies

TOLD_MAX = 100
"""The most saves that one message tells a machine to remove."""
AGAIN_S = 600.0
"""Seconds after which a machine is told again to remove a save that it still has: another save may
have been based on it."""


class Unneeded:
    """The copies that may exist, and which of them are to be removed."""

    def __init__(self, paths: Paths, clock: Callable[[], float]) -> None:
        self._paths = paths
        self._clock = clock
        self._copies: frozenset[Copy] | None = None
        """None until they have been read."""
        self._seen: set[str] = set()
        """Names of saves that pages of the book have brought: each is taken over once."""
        self._coming: set[str] = set()
        """Names of saves that are being exported."""
        self._wanted: frozenset[Copy] = frozenset()
        """The copies to be removed, as of the last look."""
        self._not_before: dict[Copy, float] = {}
        self._writing = asyncio.Lock()
        self._is_unwritten = False

    async def look(self, book: Collection[Kept], names: Collection[str]) -> None:
        """Determine which saves are needed. ``names`` are those of all pages of the book, including
        damaged ones: of these nothing is removed. Raises HostError."""
        if self._copies is None:
            self._copies = frozenset()
            with best_effort("read which saves were exported", self._paths.engine_log):
                self._copies = await asyncio.to_thread(read_copies, self._paths)
        found = [copy for kept in book for copy in _copies_of(kept)]
        await self.note(*(copy for copy in found if copy.name not in self._seen))
        self._seen |= {copy.name for copy in found}
        readable = {kept.name for kept in book}
        needed = {kept.exported.name for kept in book if kept.exported and not _has_ended(kept)}
        self._wanted = frozenset(
            copy
            for copy in self._copies
            if copy.name not in needed
            and copy.name not in self._coming
            and (copy.of in readable or copy.of not in names)
        )

    @property
    def hosts(self) -> frozenset[str]:
        """Return the other machines that have copies to be removed."""
        return frozenset(copy.host for copy in self._wanted if copy.host != HERE)

    def due(self, host: str) -> tuple[str, ...]:
        """Return the names of the copies that a machine is to be told of now."""
        now = self._clock()
        mine = sorted(copy for copy in self._wanted if copy.host == host)
        due = [copy.name for copy in mine if now >= self._not_before.get(copy, 0.0)]
        return tuple(due[:TOLD_MAX])

    async def tried(self, host: str, names: Iterable[str], left: Collection[str]) -> None:
        """Note that a machine has removed ``names`` except those ``left``. Raises HostError."""
        tried = {Copy(host, name) for name in names}
        kept = {copy for copy in tried if copy.name in left}
        for copy in kept:
            self._not_before[copy] = self._clock() + AGAIN_S
        gone = frozenset(tried - kept)
        if gone:
            for copy in gone:
                self._not_before.pop(copy, None)
            self._wanted -= gone
            await self._write((self._copies or frozenset()) - gone)

    async def note(self, *copies: Copy) -> None:
        """Note copies that may exist from now on. Raises HostError."""
        known = self._copies or frozenset()
        if self._is_unwritten or not known.issuperset(copies):
            await self._write(known | {*copies})

    def begin(self, name: str) -> None:
        """A save is being exported: it is needed until `end`."""
        self._coming.add(name)

    def end(self, name: str) -> None:
        """Note that a save was exported: from now on the book says whether it is needed."""
        self._coming.discard(name)

    async def _write(self, copies: frozenset[Copy]) -> None:
        self._copies, self._is_unwritten = copies, True
        async with self._writing:
            latest = self._copies
            await asyncio.to_thread(write_copies, self._paths, latest)
            self._is_unwritten = self._copies is not latest


def _has_ended(kept: Kept) -> bool:
    return kept.phase is Phase.ENDED


def _copies_of(kept: Kept) -> Iterable[Copy]:
    """Return the copies that a page of the book names."""
    exported = kept.exported
    names = (*kept.unneeded, *((exported.name,) if exported else ()))
    hosts = (HERE, kept.host, *(exported.hosts if exported else ()))
    return [Copy(host, name) for name in names for host in dict.fromkeys(hosts)]
