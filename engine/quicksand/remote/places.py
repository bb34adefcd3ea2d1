"""Directories at the far end for the files of a client's commands, sent by the client or written by
a command. A command that has one runs in it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from quicksand.base.errors import PathError, RemoteRefusedError
from quicksand.base.files import map_os_errors
from quicksand.base.paths import make_private_dir, paths
from quicksand.base.regular import open_regular
from quicksand.base.staging import staging
from quicksand.guest.agent.wire import Stream
from quicksand.records.host_sockets import host_places
from quicksand.remote.peer_link import Request

PLACES_MAX = 64
NAME_MAX = 255
"""The most bytes of a file's name, as in Linux."""
READ = 256 * 1024


class Places:
    """The directories of one client. They are removed at the end, or after a crash by the next
    client that makes such a directory."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._root: Path | None = None
        self._made: set[str] = set()
        self._lock = asyncio.Lock()

    async def make(self, request: Request) -> None:
        """Answer the request ``place``: make a directory."""
        async with self._lock:
            if len(self._made) >= PLACES_MAX:
                raise RemoteRefusedError("too many files were sent", code="too_many")
            if self._root is None:
                self._root = await asyncio.to_thread(self._make_root)
            name = str(len(self._made) + 1)
            (self._root / name).mkdir(mode=0o700)
            self._made.add(name)
        request.answer(place=name)

    def _make_root(self) -> Path:
        within = host_places(paths())
        make_private_dir(paths().cache)
        make_private_dir(within)
        return self._stack.enter_context(staging(within))

    def find(self, name: str) -> Path:
        """Return the directory of that name. Raises RemoteRefusedError."""
        if self._root is not None and name in self._made:
            return self._root / name
        raise RemoteRefusedError("there is no such place", code="bad_request")

    def _file(self, request: Request) -> Path:
        place = self.find(str(request.params.get("place")))
        name = request.params.get("name")
        if not isinstance(name, str) or not is_name(name):
            raise RemoteRefusedError("that is no name of a file", code="bad_request")
        return place / name

    async def put(self, request: Request) -> None:
        """Answer the request ``put``: write the incoming stream to a new file, then answer."""
        path = self._file(request)
        with map_os_errors(path):
            descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                size = 0
                while data := (await request.channel.piece()).data:
                    await asyncio.to_thread(_write_all, file.fileno(), data)
                    size += len(data)
        request.answer(bytes=size)

    async def get(self, request: Request) -> None:
        """Answer the request ``get``: send a file that a command has written."""
        path = self._file(request)
        try:
            descriptor = open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as error:
            raise PathError(f"cannot read {path.name}: {error.strerror}") from error
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            request.answer(bytes=os.fstat(descriptor).st_size)
            while data := await asyncio.to_thread(os.read, file.fileno(), READ):
                await request.channel.send(Stream.STDOUT, data)
        request.channel.finish(Stream.STDOUT)
        request.channel.tell("end")

    async def close(self) -> None:
        """Remove them all."""
        await asyncio.to_thread(self._stack.close)


def is_name(name: str) -> bool:
    """Whether a text can be a file's name in a directory."""
    return (
        name not in ("", ".", "..")
        and "/" not in name
        and name.isprintable()
        and len(name.encode("utf-8")) <= NAME_MAX
    )


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
