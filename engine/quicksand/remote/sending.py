"""Sends files of this machine to a command at another one, and fetches those that it writes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from pathlib import Path

from quicksand.base.errors import (
    ConfigError,
    PathError,
    RemoteProtocolError,
    RemoteUnreachableError,
)
from quicksand.base.files import map_os_errors, sync_dir
from quicksand.base.regular import NotAFileError, open_regular
from quicksand.guest.agent.wire import Stream
from quicksand.remote.peer_link import Link

READ = 256 * 1024


async def make_place(link: Link) -> str:
    """Have a directory made at the other machine, and return its name there. Raises RemoteError."""
    match await link.request("place"):
        case {"place": str(place)}:
            return place
    raise RemoteProtocolError(f"{link.peer.name} does not say where files go")


async def send_file(link: Link, source: Path, place: str, name: str) -> None:
    """Write a local file to ``place``, as ``name``. Raises RemoteError, PathError, and ConfigError
    for anything that is not a file."""
    try:
        descriptor = open_regular(source)
    except NotAFileError as error:
        raise ConfigError(f"{source} is no file, and only files are sent") from error
    except OSError as error:
        raise PathError(f"cannot read {source}: {error.strerror}") from error
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        channel = link.open("put", place=place, name=name)
        try:
            sent = 0
            while data := await asyncio.to_thread(os.read, file.fileno(), READ):
                await channel.send(Stream.INPUT, data)
                sent += len(data)
            channel.finish(Stream.INPUT)
            answer = await channel.reply
        finally:
            channel.close()
    if answer.get("bytes") != sent:
        raise RemoteProtocolError(f"{link.peer.name} did not write all of {source}")


def require_replaceable(target: Path) -> None:
    """Raise PathError if something other than a regular file is there. Links are refused, too: one
    could lead the file to where somebody else wants it."""
    with map_os_errors(target), contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(target.lstat().st_mode):
            raise PathError(f"{target} exists and is not a regular file", hint="name a new file")


async def fetch_file(link: Link, place: str, name: str, target: Path, mode: int = 0o600) -> None:
    """Write a file of the other machine to ``target``, with those permissions; an existing file is
    replaced once the new one is complete. Raises RemoteError, PathError, DiskSpaceError."""
    require_replaceable(target)
    channel = link.open("get", place=place, name=name)
    temporary = target.with_name(f".{target.name[:200]}.{os.urandom(4).hex()}")
    try:
        answer = await channel.reply
        with map_os_errors(target):
            size = answer.get("bytes")
            if isinstance(size, bool) or not isinstance(size, int):
                raise RemoteProtocolError(f"{link.peer.name} does not say how large {target} is")
            received = 0
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, mode)
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                while data := (await channel.piece()).data:
                    received += len(data)
                    if received > size:
                        raise RemoteProtocolError(
                            f"{link.peer.name} sent more of {target} than it said"
                        )
                    await asyncio.to_thread(_write_all, file.fileno(), data)
                await asyncio.to_thread(os.fsync, file.fileno())
            # Without this, an error at the other end would look like the end of the file.
            if received != size or (await channel.event()).get("event") != "end":
                raise RemoteUnreachableError(f"{link.peer.name} did not send all of {target}")
            require_replaceable(target)
            temporary.replace(target)
            await asyncio.to_thread(sync_dir, target.absolute().parent)
    finally:
        channel.close()
        with contextlib.suppress(OSError):
            temporary.unlink()


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
