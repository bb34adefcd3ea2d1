"""The far end of moving saves between machines (docs/internals/hosts.md, "Saves")."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from typing import Any

from quicksand.base.errors import RemoteRefusedError
from quicksand.base.paths import Paths
from quicksand.base.threads import in_stoppable_thread, in_thread_to_the_end
from quicksand.guest.agent.wire import Stream
from quicksand.hosted.answers import send_bytes, send_json, told_to
from quicksand.hosted.codec import encode
from quicksand.hosted.protocol import PIECE, SAVE_METHODS, SAVES
from quicksand.remote.peer_link import Request
from quicksand.saves.bundle.manifest import MANIFEST_MAX
from quicksand.saves.moving.depot import Depot
from quicksand.saves.moving.source import SaveSource


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
