"""Watching directories in a guest: its agent reports their changes, by inotify(7)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from quicksand.base.errors import AgentProtocolError, ConfigError
from quicksand.guest.agent import values
from quicksand.guest.carried import Carried, open_channel, require_able

if TYPE_CHECKING:
    from quicksand.guest.agent.channel import Channel
    from quicksand.guest.agent.session import Session

CAPABILITY = "watch"
"""The capability of watching directories, in an agent's hello."""

NAME_MAX = 8192
"""Bytes of a name in a record (docs/internals/agent-protocol.md)."""

_HEAD = struct.Struct("!HBB")
"""The length of the name, the kind, and whether it is a directory."""

_MARK = 7


class WatchKind(StrEnum):
    """The kind of change of a file."""

    CREATE = "create"
    """The file was made, or moved to here."""
    WRITE = "write"
    REMOVE = "remove"
    RENAME = "rename"
    """The file was moved away; its new name gets CREATE, if that is watched."""
    CHMOD = "chmod"
    """The file's mode, owner, times or extended attributes were changed."""
    LOST = "lost"
    """Too much has happened at once, and some of it is not reported: the directory must be read
    anew."""


_KINDS = dict(enumerate(WatchKind, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One change in a watched directory."""

    kind: WatchKind
    name: str
    """Its path below the directory, "" for the directory itself; bytes that are not UTF-8 are
    surrogates, as in `os.fsdecode`."""
    is_dir: bool = False


class DirectoryWatch(Carried):
    """A watch of a directory, made by `Sandbox.watch`: an async iterator of `WatchEvent`, which
    ends when the directory itself is removed. One task may iterate, and others `catch_up`.

    While nobody reads, at most a window of records is kept here and some 16,000 events in the
    guest; then the guest drops further events, and reports `WatchKind.LOST`. Leaving ``async with``
    ends the watch.
    """

    def __init__(self, session: Session, channel: Channel) -> None:
        super().__init__(session, channel)
        self._arrived = Splitter()
        self._asked: list[asyncio.Future[None]] = []

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        """Return the next event. Raises AgentRefusedError (code "too_many") for too many new
        directories, RevertedError, AgentUnreachableError or MachineError if the guest is gone."""
        try:
            while True:
                found = self._arrived.next()
                if isinstance(found, WatchEvent):
                    return found
                if found is Splitter.MARK:
                    self._answer()
                    continue
                item = await self._channel.read()
                if isinstance(item, tuple):
                    self._arrived.push(item[1])
                else:
                    self._end(item)
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                self._answer(everyone=True)
            raise

    def _answer(self, *, everyone: bool = False) -> None:
        while self._asked:
            asked = self._asked.pop(0)
            if not asked.done():
                asked.set_result(None)
            if not everyone:
                return

    def _end(self, event: dict[str, Any]) -> None:
        if event.get("event") != "end":
            raise AgentProtocolError("the agent sent an event that a watch does not have")
        if (error := event.get("error")) is not None:
            raise self._channel.refusal(error, "the watch has ended")
        raise StopAsyncIteration

    async def catch_up(self) -> None:
        """Wait until the iterator has returned everything that had happened before this call, and
        is asked for more; another task must iterate. Returns at once when the watch has ended."""
        if self._channel.has_ended:
            return
        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        await self._channel.write(b"\0")
        await asked


class Splitter:
    """Finds records in pieces of a stream."""

    MARK = object()

    def __init__(self) -> None:
        self._waiting = bytearray()

    def push(self, piece: bytes) -> None:
        self._waiting += piece

    def next(self) -> WatchEvent | object | None:
        """Return the next event or `MARK`; None if more bytes are needed. Raises AgentProtocolError
        for impossible ones."""
        if len(self._waiting) < _HEAD.size:
            return None
        length, kind, is_dir = _HEAD.unpack_from(self._waiting)
        if length > NAME_MAX or is_dir > 1 or (kind != _MARK and kind not in _KINDS):
            raise AgentProtocolError("the agent sent a record that a watch does not have")
        end = _HEAD.size + length
        if len(self._waiting) < end:
            return None
        name = bytes(self._waiting[_HEAD.size : end]).decode("utf-8", "surrogateescape")
        del self._waiting[:end]
        if kind == _MARK:
            return self.MARK
        return WatchEvent(kind=_KINDS[kind], name=name, is_dir=is_dir == 1)


async def watch(session: Session, path: str, *, recursive: bool, local: bool) -> DirectoryWatch:
    """Watch a directory. Raises AgentRefusedError, ConfigError for what is no path, StateError if
    too many channels are open or the agent is too old."""
    if not isinstance(path, str) or "\0" in path:
        raise ConfigError(f"{path!r} is no path")
    require_able(session, CAPABILITY, "watches of directories")
    params = {**values.parameter("path", path), "recursive": recursive, "local": local}
    return DirectoryWatch(session, await open_channel(session, "watch", params))
