"""Moving saves between machines: the near end sends or fetches a save, and only those of its files
that the other side lacks; the far end gives or takes them."""

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
    RemoteRefusedError,
    RemoteUnreachableError,
)
from quicksand.base.paths import Paths
from quicksand.base.progress import Progress
from quicksand.base.threads import in_stoppable_thread, in_thread_to_the_end, to_the_end
from quicksand.guest.agent.wire import Stream
from quicksand.hosted.calling import (
    read_answer,
    read_bytes,
    require_capability,
    send_bytes,
    send_json,
    told_to,
)
from quicksand.hosted.codec import ForeignValueError, decode, decode_error, encode
from quicksand.hosted.protocol import PIECE, SAVE_METHODS, SAVES
from quicksand.remote.connection import SharedConnection
from quicksand.remote.peer_link import Channel, Link, Request
from quicksand.saves.bundle.manifest import MANIFEST_MAX
from quicksand.saves.travelling import Depot, Missing, SaveSource

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


class MovingSaves:
    """The saves that one client sends and fetches (an `Offer` of `remote.serving`), one each way at
    a time. Transfers end with the connection; received files stay for the next one."""

    capability = SAVES
    methods = SAVE_METHODS

    def __init__(self, places: Paths) -> None:
        """``places`` are those of this machine."""
        self._places = places
        self._source: SaveSource | None = None
        self._depot: Depot | None = None

    async def answer(self, request: Request, before_keeping: Callable[[], Awaitable[None]]) -> None:
        """See `Offer.answer`."""
        with told_to(request):
            match request.method:
                case "save_open":
                    await self._open(request)
                case "save_read":
                    await self._read(request)
                case "save_expect":
                    await self._expect(request)
                case "save_put":
                    await self._put(request)
                case "save_publish":
                    made = await in_stoppable_thread(self._require_depot().publish)
                    await send_json(request, {"name": made.name, "notes": encode(made.notes)})
                case "save_close":
                    await self._close(discard=request.params.get("discard") is True)
                    request.answer()

    async def _open(self, request: Request) -> None:
        name = _text(request, "name")
        self._close_source()
        source = self._source = SaveSource(name, self._places)
        await in_stoppable_thread(lambda stop: source.open(lambda *_: stop()))
        await send_bytes(request, source.manifest)

    async def _read(self, request: Request) -> None:
        source, sha256 = self._source, _text(request, "sha256")
        if source is None:
            raise _bad("no save is open")
        at = _number(request, "offset")
        request.answer(bytes=source.find(sha256).size)
        while data := await asyncio.to_thread(source.read, sha256, at, PIECE):
            await request.channel.send(Stream.STDOUT, data)
            at += len(data)
        request.channel.finish(Stream.STDOUT)

    async def _expect(self, request: Request) -> None:
        manifest = bytearray()
        while data := (await request.channel.piece()).data:
            manifest += data
            if len(manifest) > MANIFEST_MAX:
                raise _bad("the manifest is too long")
        self._close_depot()
        depot = self._depot = Depot(self._places)
        await in_thread_to_the_end(depot.open)
        expect = functools.partial(
            depot.expect,
            bytes(manifest),
            name=_text(request, "name"),
            replace=request.params.get("replace") is True,
            trusted=request.params.get("trusted") is True,
        )
        missing = await in_thread_to_the_end(expect)
        done = depot.done.name if depot.done is not None else None
        await send_json(request, {"missing": encode(missing), "done": done})

    async def _put(self, request: Request) -> None:
        depot, sha256 = self._require_depot(), _text(request, "sha256")
        with contextlib.closing(depot.take(sha256, _number(request, "offset"))) as arriving:
            await in_thread_to_the_end(arriving.begin)
            while data := (await request.channel.piece()).data:
                await in_thread_to_the_end(functools.partial(arriving.write, data))
            await in_thread_to_the_end(arriving.finish)
        depot.keep(sha256)
        request.answer()

    def _require_depot(self) -> Depot:
        if self._depot is None:
            raise _bad("no save is expected")
        return self._depot

    def _close_source(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _close_depot(self) -> None:
        depot, self._depot = self._depot, None
        if depot is not None:
            depot.close()

    async def _close(self, *, discard: bool) -> None:
        self._close_source()
        if discard and self._depot is not None:
            await in_thread_to_the_end(self._depot.discard)
        self._close_depot()

    @property
    def is_empty(self) -> bool:
        """See `Offer.is_empty`."""
        return True

    def away(self) -> None:
        """See `Offer.away`."""
        self._close_source()
        self._close_depot()

    def back(self) -> None:
        """See `Offer.back`."""

    async def leave(self) -> None:
        """See `Offer.leave`."""
        self.away()

    async def settle(self) -> None:
        """See `Offer.settle`."""


def _text(request: Request, name: str) -> str:
    found: Any = request.params.get(name)
    if not isinstance(found, str):
        raise _bad(f"{name} is no text")
    return found


def _number(request: Request, name: str) -> int:
    found: Any = request.params.get(name)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 2**63:
        raise _bad(f"{name} is no number")
    return found


def _bad(what: str) -> RemoteRefusedError:
    return RemoteRefusedError(what, code="bad_request")
