"""`/files`: the contents of files of a guest, read and written as they are."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiohttp import BodyPartReader, web
from quicksand import GuestFileNotFoundError, Login, QuicksandError

from quicksand_tui.api.errors import ApiError, RpcError, file_error
from quicksand_tui.api.fields import whole
from quicksand_tui.api.gate import address_of, answer, by_token, is_token, require_running
from quicksand_tui.api.guest_paths import absolute, name_of, parent_of
from quicksand_tui.api.live import Guest, Live
from quicksand_tui.api.metadata import noted
from quicksand_tui.api.rpc import Streams
from quicksand_tui.api.sandboxes import Sandboxes
from quicksand_tui.api.signatures import READ, WRITE, check_expiration, is_signed
from quicksand_tui.api.users import user_of

FILES_MAX = 1000
"""In one upload."""

CHUNK = 256 * 1024
_FILENAME = re.compile(r';\s*filename="((?:[^"\\]|\\.)*)"', re.IGNORECASE)


class FileRoutes:
    """Handlers. A request has the token of the sandbox, or its address is signed."""

    def __init__(self, sandboxes: Sandboxes, streams: Streams) -> None:
        self._sandboxes = sandboxes
        self._streams = streams

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/files", self._read, allow_head=False),
            web.post("/files", self._write),
        ]

    @contextlib.asynccontextmanager
    async def _using(
        self, request: web.Request, operation: str
    ) -> AsyncIterator[tuple[Live, Guest, Login]]:
        address = address_of(request)
        live = self._sandboxes.find(address[0]) if address else by_token(request, self._sandboxes)
        if request.query.get("signature"):
            live = self._signed(request, operation, live, named=address is not None)
        elif (live is not None and not is_token(request, live)) or (
            address is None and live is None
        ):
            raise ApiError(401, "the access token is missing or not valid")
        live = await require_running(live, address[0] if address else "", self._sandboxes)
        live.enter()
        try:
            guest = live.guest()
            name = request.query.get("username") or user_of(request.headers.get("Authorization"))
            yield live, guest, await guest.users.require(name)
        except RpcError as error:
            raise ApiError(401 if error.code == "unauthenticated" else error.status,
                           error.message) from error  # fmt: skip
        except ApiError:
            raise
        except QuicksandError as error:
            raise file_error(error) from error
        finally:
            live.leave()

    def _signed(
        self, request: web.Request, operation: str, live: Live | None, *, named: bool
    ) -> Live | None:
        """The sandbox that has signed an address. An address need not name it: then it is looked
        for. Raises ApiError (401)."""
        query = request.query
        text = query.get("signature_expiration")
        expiration = whole(text, "signature_expiration", most=2**40, least=0) if text else None
        check_expiration(expiration)
        if named and live is None:
            return None
        for candidate in [live] if live is not None else self._sandboxes:
            if candidate.is_listed and is_signed(
                query["signature"],
                query.get("path", ""),
                operation,
                query.get("username", ""),
                candidate.record.token,
                expiration,
            ):
                return candidate
        raise ApiError(401, "invalid signature")

    async def _read(self, request: web.Request) -> web.StreamResponse:
        async with self._using(request, READ) as (live, guest, login):
            path = absolute(request.query.get("path", ""), login)
            found = await guest.sandbox.files.stat(path)
            if found.is_dir:
                raise ApiError(400, f"path is a directory: {path}")
            if found.type != "file":
                raise ApiError(400, f"path is no file: {path}")
            self._streams.enter(live.id)
            try:
                return await self._send(request, guest, path)
            finally:
                self._streams.leave(live.id)

    @staticmethod
    async def _send(request: web.Request, guest: Guest, path: str) -> web.StreamResponse:
        """Send a file. Its length is not said before: what /proc holds has none."""
        response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        response.enable_chunked_encoding()
        pieces = guest.sandbox.files.stream(path)
        first = await anext(pieces, b"")  # errors are answered before anything is sent
        await response.prepare(request)
        try:
            if first:
                await response.write(first)
            async for piece in pieces:
                await response.write(piece)
        except QuicksandError as error:
            # The client must not take a part for the whole.
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError(str(error)) from error
        await response.write_eof()
        return response

    async def _write(self, request: web.Request) -> web.StreamResponse:
        async with self._using(request, WRITE) as (live, guest, login):
            notes = noted(request.headers)
            self._streams.enter(live.id)
            try:
                if request.content_type == "multipart/form-data":
                    return answer(await self._take_parts(request, guest, login, notes))
                path = request.query.get("path", "")
                if not path:
                    raise ApiError(400, "path is missing")
                pieces = request.content.iter_any()
                return answer([await _store(guest, path, login, pieces, notes)])
            finally:
                self._streams.leave(live.id)

    @staticmethod
    async def _take_parts(
        request: web.Request, guest: Guest, login: Login, notes: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        """Take the parts called "file": one at the path of the address, or each at its own."""
        stored: list[dict[str, Any]] = []
        try:
            reader = await request.multipart()
        except ValueError as error:
            raise ApiError(400, f"the form cannot be read: {error}") from error
        while (part := await _next_part(reader)) is not None:
            if not isinstance(part, BodyPartReader) or part.name != "file":
                continue
            if len(stored) >= FILES_MAX:
                raise ApiError(400, f"an upload has at most {FILES_MAX} files")
            path = request.query.get("path") or filename_of(part.headers)
            if not path:
                raise ApiError(400, "path is missing")
            stored.append(await _store(guest, path, login, _pieces(part), notes))
        return stored


async def _next_part(reader: Any) -> Any:
    try:
        return await reader.next()
    except ValueError as error:
        raise ApiError(400, f"the form cannot be read: {error}") from error


def filename_of(headers: Mapping[str, str]) -> str:
    """The file name of a part as it was sent, "" if there is none. aiohttp would take the slash
    away with which a path begins; clients escape as HTML says (multipart/form-data encoding)."""
    found = _FILENAME.search(headers.get("Content-Disposition", ""))
    if found is None:
        return ""
    text = re.sub(r"\\(.)", r"\1", found[1])
    for escaped, character in (("%22", '"'), ("%0A", "\n"), ("%0D", "\r")):
        text = text.replace(escaped, character)
    return text


async def _pieces(part: BodyPartReader) -> AsyncIterator[bytes]:
    while data := await part.read_chunk(CHUNK):
        yield bytes(data)


async def _store(
    guest: Guest,
    path: str,
    login: Login,
    content: AsyncIterator[bytes],
    notes: Mapping[str, str],
) -> dict[str, Any]:
    """Write a file, which is the user's, and the directories above it that are missing. It is
    written in place, as E2B's daemon does: who watches it is told of these very events."""
    place = absolute(path, login)
    files = guest.sandbox.files
    try:
        above = await files.stat(parent_of(place))
        if not above.is_dir:
            raise ApiError(400, f"{parent_of(place)} is no directory")
    except GuestFileNotFoundError:
        await guest.filesystem.make_directories(parent_of(place), login)
    await files.write(place, content, user=login.name, in_place=True, metadata=notes)
    told: dict[str, Any] = {"path": place, "name": name_of(place), "type": "file"}
    if notes:
        told["metadata"] = dict(notes)
    return told
