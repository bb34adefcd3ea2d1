"""`/files`: the contents of files of a guest, read and written as they are."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiohttp import BodyPartReader, web
from quicksand import GuestFileNotFoundError, Login, QuicksandError

from quicksand_e2b.bodies import is_packed, pieces
from quicksand_e2b.errors import ApiError, RpcError, file_error
from quicksand_e2b.fields import whole
from quicksand_e2b.gate import address_of, answer, by_token, is_token, require_running
from quicksand_e2b.guest_paths import absolute, name_of, parent_of
from quicksand_e2b.live import Guest, Live
from quicksand_e2b.metadata import noted
from quicksand_e2b.rpc import Streams
from quicksand_e2b.sandboxes import Sandboxes
from quicksand_e2b.signatures import READ, WRITE, check_expiration, is_signed
from quicksand_e2b.users import user_of

FILES_MAX = 1000
"""The most files of one upload."""

CHUNK = 256 * 1024
_FILENAME = re.compile(r';\s*filename="((?:[^"\\]|\\.)*)"', re.IGNORECASE)


class FileRoutes:
    """Handles the requests. Each has the token of the sandbox, or a signed address."""

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
        """Returns the sandbox that has signed an address. An address need not name it: then it is
        looked for. Raises ApiError (401)."""
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
        """Sends a file. Its length is not told before: files in /proc have none."""
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
                return answer([await _store(guest, path, login, pieces(request), notes)])
            finally:
                self._streams.leave(live.id)

    @staticmethod
    async def _take_parts(
        request: web.Request, guest: Guest, login: Login, notes: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        """Stores the parts of a form that are called "file", and returns an entry for each. The
        path in the address counts for all; without one, each goes to its own file name."""
        if is_packed(request):
            raise ApiError(415, "a form is not taken packed: send the file alone, or unpacked")
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
    """Returns the file name of a part as it was sent, "" if there is none. aiohttp would take away
    the slash at the beginning of a path; clients escape as HTML says (multipart/form-data
    encoding)."""
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
    """Writes a file, which is the user's, and the missing directories above it. It is written in
    place, as by E2B's daemon: watchers are told of these very events."""
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
