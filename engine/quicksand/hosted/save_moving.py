"""The near end of moving saves between machines: sends or fetches a save, and only those of its
files that the other side lacks."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quicksand.base.errors import (
    BundleError,
    RemoteError,
    RemoteProtocolError,
    RemoteUnreachableError,
)
from quicksand.base.paths import Paths
from quicksand.base.progress import Progress
from quicksand.base.threads import in_stoppable_thread, in_thread_to_the_end, to_the_end
from quicksand.guest.agent.wire import Stream
from quicksand.hosted.calling import read_answer, read_bytes, require_capability
from quicksand.hosted.codec import ForeignValueError, decode
from quicksand.hosted.errors import decode_error
from quicksand.hosted.protocol import PIECE, SAVES
from quicksand.remote.peer_channel import Channel
from quicksand.remote.peer_link import Link
from quicksand.remote.shared_connection import SharedConnection
from quicksand.saves.bundle.manifest import MANIFEST_MAX
from quicksand.saves.moving.depot import Depot, Missing
from quicksand.saves.moving.source import SaveSource

TRIES = 5
"""The most attempts in a row that bring nothing new before the connection breaks again."""


CLOSE_S = 10.0
"""Seconds for the other machine to confirm that it has tidied up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedSave:
    """A save that has been moved to the other machine, or here."""

    name: str
    """Its name there."""
    sent: int
    """Bytes sent over the connection."""
    was_there: bool = False
    """Whether the save was already there."""
    notes: Sequence[str] = ()
    """Notes on what may not work there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The conditions under which a save is imported at its new place."""

    name: str = ""
    replace: bool = False
    trusted: bool = False


class Mover:
    """Moves one save, over as many connections as necessary."""

    def __init__(
        self,
        shared: SharedConnection,
        places: Paths,
        terms: Terms,
        progress: Progress | None,
    ) -> None:
        """``places`` are those of this machine."""
        self._shared = shared
        self._places = places
        self._terms = terms
        self._progress = progress or (lambda stage, done, total: None)
        self._moved = 0
        """Bytes sent over all connections."""
        self._total = 0

    async def send(self, name: str | Path) -> MovedSave:
        """See `RemoteHost.send_save`."""
        source = SaveSource(name, self._places)
        try:
            await in_stoppable_thread(lambda stop: source.open(self._stopping(stop)))
            return await self._try(lambda shared: self._send_once(shared, source))
        finally:
            source.close()

    async def fetch(self, name: str) -> MovedSave:
        """See `RemoteHost.fetch_save`."""
        depot = Depot(self._places)
        try:
            await in_thread_to_the_end(depot.open)
            return await self._try(lambda shared: self._fetch_once(shared, name, depot))
        except RemoteUnreachableError:
            raise  # the files that have arrived are kept for another attempt
        except BaseException:
            await to_the_end(asyncio.to_thread(depot.discard))
            raise
        finally:
            depot.close()

    def _stopping(self, stop: Callable[[], None]) -> Progress:
        def say(stage: str, done: int, total: int) -> None:
            stop()
            self._progress(stage, done, total)

        return say

    async def _try(self, attempt: Callable[[SharedConnection], Awaitable[MovedSave]]) -> MovedSave:
        """Resume after each break of the connection, from where the transfer had got."""
        shared = self._shared
        failed, before = 0, -1
        try:
            with shared.use():
                async with shared.bulk:  # the other end takes one save at a time
                    while True:
                        await require_capability(shared, SAVES)
                        try:
                            return await attempt(shared)
                        except RemoteUnreachableError:
                            failed = failed + 1 if self._moved == before else 0
                            before = self._moved
                            if failed >= TRIES:
                                raise
        finally:
            await shared.ended()

    # Sending

    async def _send_once(self, shared: SharedConnection, source: SaveSource) -> MovedSave:
        link = await shared.link()
        try:
            made = await self._send_over(link, source)
        except RemoteUnreachableError:
            raise
        except BaseException:
            await _close(link, discard=True)
            raise
        await _close(link, discard=False)
        shared.got_on()
        return made

    async def _send_over(self, link: Link, source: SaveSource) -> MovedSave:
        terms = {
            **{"name": self._terms.name, "replace": self._terms.replace},
            **{"trusted": self._terms.trusted},
        }
        async with _asking(link, "save_expect", **terms) as channel:
            await channel.send(Stream.INPUT, source.manifest)
            channel.finish(Stream.INPUT)
            answer = await read_answer(link, channel)
        missing, done = _read_missing(answer, link)
        self._count(missing)
        if done is not None:
            return self._result(done, was_there=True)
        for one in missing:
            await self._send_file(link, source, one)
        self._progress("publishing", self._total, self._total)
        async with _asking(link, "save_publish") as channel:
            answer = await read_answer(link, channel)
        match answer:
            case {"name": str(name), "notes": list(notes)}:
                return self._result(name, notes=[str(one) for one in notes])
        raise RemoteProtocolError(f"{link.peer.name} does not say what the save is called")

    async def _send_file(self, link: Link, source: SaveSource, one: Missing) -> None:
        size = source.find(one.sha256).size
        if size != one.size or not 0 <= one.have <= size:
            raise RemoteProtocolError(f"{link.peer.name} wants a file that is none of the save's")
        at = one.have
        async with _asking(link, "save_put", sha256=one.sha256, offset=at) as channel:
            # An error at the other end ends the sending.
            refused = asyncio.create_task(_reply(channel, link), name="quicksand-put")
            try:
                while data := await asyncio.to_thread(source.read, one.sha256, at, PIECE):
                    await _send_or_fail(channel, data, refused)
                    at += len(data)
                    self._advance("sending", len(data))
                channel.finish(Stream.INPUT)
                await refused
            finally:
                refused.cancel()
                await asyncio.wait([refused])

    # Fetching

    async def _fetch_once(self, shared: SharedConnection, name: str, depot: Depot) -> MovedSave:
        link = await shared.link()
        async with _asking(link, "save_open", name=name) as channel:
            manifest = await read_bytes(link, channel, MANIFEST_MAX)
        terms = self._terms
        missing = await in_thread_to_the_end(
            lambda: depot.expect(
                manifest, name=terms.name, replace=terms.replace, trusted=terms.trusted
            )
        )
        self._count(missing)
        if depot.done is not None:
            await _close(link, discard=False)
            return self._result(depot.done.name, was_there=True)
        for one in missing:
            await self._fetch_file(link, depot, one)
        self._progress("publishing", self._total, self._total)
        made = await in_stoppable_thread(depot.publish)
        await _close(link, discard=False)
        shared.got_on()
        return self._result(made.name, notes=made.notes)

    async def _fetch_file(self, link: Link, depot: Depot, one: Missing) -> None:
        async with _asking(link, "save_read", sha256=one.sha256, offset=one.have) as channel:
            await _reply(channel, link)
            with contextlib.closing(depot.take(one.sha256, one.have)) as arriving:
                await in_thread_to_the_end(arriving.begin)
                while data := (await channel.piece()).data:
                    await in_thread_to_the_end(functools.partial(arriving.write, data))
                    self._advance("fetching", len(data))
                await in_thread_to_the_end(arriving.finish)
            depot.keep(one.sha256)

    # Both

    def _count(self, missing: Sequence[Missing]) -> None:
        self._total = self._moved + sum(one.size - one.have for one in missing)

    def _advance(self, stage: str, count: int) -> None:
        self._moved += count
        self._progress(stage, self._moved, self._total)

    def _result(
        self, name: str, *, was_there: bool = False, notes: Sequence[str] = ()
    ) -> MovedSave:
        return MovedSave(name=name, sent=self._moved, was_there=was_there, notes=tuple(notes))


@contextlib.asynccontextmanager
async def _asking(link: Link, method: str, **params: Any) -> AsyncIterator[Channel]:
    channel = link.open(method, **params)
    try:
        yield channel
    finally:
        channel.close()


async def _reply(channel: Channel, link: Link) -> None:
    """Wait for an answer without a value. Raises the error in it."""
    answer = await channel.reply
    if "error" in answer:
        raise decode_error(answer["error"], link.peer.name)


async def _send_or_fail(channel: Channel, data: bytes, refused: asyncio.Task[None]) -> None:
    """Send a piece; or raise the reason why the other end refuses it."""
    sending = asyncio.create_task(channel.send(Stream.INPUT, data), name="quicksand-piece")
    try:
        await asyncio.wait([sending, refused], return_when=asyncio.FIRST_COMPLETED)
        if refused.done():
            refused.result()
            raise BundleError("the other machine has ended a file before its end")
        await sending
    finally:
        sending.cancel()
        await asyncio.wait([sending])


async def _close(link: Link, *, discard: bool) -> None:
    with contextlib.suppress(RemoteError):
        await link.request("save_close", timeout=CLOSE_S, discard=discard)


def _read_missing(answer: Any, link: Link) -> tuple[Sequence[Missing], str | None]:
    match answer:
        case {"missing": missing, "done": str() | None as done}:
            try:
                return decode(missing, tuple[Missing, ...]), done
            except ForeignValueError:
                pass
    raise RemoteProtocolError(f"{link.peer.name} does not say what of the save it lacks")
