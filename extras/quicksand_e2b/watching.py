"""Watches of directories for clients: as a stream, or by asking for news."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections import deque
from typing import Any

from quicksand import (
    AgentError,
    DirectoryWatch,
    Login,
    MachineError,
    QuicksandError,
    Sandbox,
    WatchEvent,
    WatchKind,
)

from quicksand_e2b.errors import RpcError, rpc_error
from quicksand_e2b.fanout import Cut, Event
from quicksand_e2b.fields import Body
from quicksand_e2b.filesystem import Filesystem, shown
from quicksand_e2b.guest_paths import absolute, join
from quicksand_e2b.tasks import Tasks

WATCHERS_MAX = 50
"""The most watches of one sandbox: each needs room in the connection to its guest."""

HELD_MAX = 1024 * 1024
"""The most bytes of events, as JSON, that wait for one client. While there are more, none is read:
the guest keeps some, and tells that it has dropped the others."""

CATCH_UP_S = 10.0
"""Seconds that a busy guest may take to tell its events."""

_TYPES = {
    WatchKind.CREATE: "EVENT_TYPE_CREATE", WatchKind.WRITE: "EVENT_TYPE_WRITE",
    WatchKind.REMOVE: "EVENT_TYPE_REMOVE", WatchKind.RENAME: "EVENT_TYPE_RENAME",
    WatchKind.CHMOD: "EVENT_TYPE_CHMOD",
}  # fmt: skip
_GONE = (WatchKind.REMOVE, WatchKind.RENAME)


class Watcher:
    """One watch, and the events that its client has not taken yet. It has the methods of `Listener`
    that a stream needs."""

    def __init__(
        self, owner: Watchers, watch: DirectoryWatch, filesystem: Filesystem, entries_of: str | None
    ) -> None:
        """``entries_of`` is the directory, if events are to have the facts of their files."""
        self._owner = owner
        self._watch = watch
        self._filesystem = filesystem
        self._entries_of = entries_of
        self._held: deque[tuple[Event, int]] = deque()
        self._size = 0
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()
        self._failure: Exception | None = None
        self._is_over = False
        self.task: asyncio.Task[Any] | None = None

    @property
    def _is_full(self) -> bool:
        return self._size >= HELD_MAX

    async def follow(self) -> None:
        """Reads the watch to its end."""
        failure: Exception | None = None
        try:
            with contextlib.closing(self._watch):
                async for event in self._watch:
                    if event.kind is WatchKind.LOST:
                        raise RpcError(
                            "resource_exhausted", "events were lost: watch the directory anew"
                        )
                    await self._keep(event)
        except RpcError as error:
            failure = error
        except (AgentError, MachineError) as error:
            told = rpc_error(error)
            failure = Cut() if told.code == "unavailable" else told
        except QuicksandError as error:
            failure = rpc_error(error)
        finally:
            self.finish(failure)

    async def _keep(self, event: WatchEvent) -> None:
        told: Event = {"name": shown(event.name) or ".", "type": _TYPES[event.kind]}
        if self._entries_of is not None and event.kind not in _GONE:
            # The file may be gone by now.
            with contextlib.suppress(QuicksandError):
                told["entry"] = await self._filesystem.entry_at(join(self._entries_of, event.name))
        while self._is_full:
            self._taken.clear()
            await self._taken.wait()
        size = len(json.dumps(told))
        self._held.append((told, size))
        self._size += size
        self._changed.set()

    def finish(self, failure: Exception | None = None) -> None:
        """Notes that there are no more events. Idempotent."""
        self._failure = self._failure or failure
        self._is_over = True
        self._changed.set()

    async def next(self) -> Event | None:
        """Returns the next message of a stream; None after the last. Raises RpcError, Cut."""
        while not self._held:
            if self._failure is not None:
                raise self._failure
            if self._is_over:
                return None
            self._changed.clear()
            await self._changed.wait()
        return {"filesystem": self._take()}

    async def news(self) -> list[Event]:
        """Returns the events since the last call, as far as there is room for them. Raises RpcError
        if the watch has failed."""
        await self._catch_up()
        if not self._held and self._failure is not None:
            if isinstance(self._failure, Cut):
                raise RpcError("unavailable", "the watch has ended with its machine")
            raise self._failure
        return [self._take() for _ in range(len(self._held))]

    async def _catch_up(self) -> None:
        waiting = [asyncio.ensure_future(self._watch.catch_up()),
                   asyncio.ensure_future(self._full_or_over())]  # fmt: skip
        try:
            await asyncio.wait(waiting, timeout=CATCH_UP_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            # A failure here was one in `follow`, too.
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _full_or_over(self) -> None:
        while not (self._is_full or self._is_over):
            self._changed.clear()
            await self._changed.wait()

    def _take(self) -> Event:
        event, size = self._held.popleft()
        self._size -= size
        self._taken.set()
        return event

    def close(self) -> None:
        """Ends the watch. Idempotent."""
        self._owner.forget(self)
        if self.task is not None:
            self.task.cancel()
        self._watch.close()


class Watchers:
    """The watches of one guest."""

    def __init__(self, guest: Sandbox, filesystem: Filesystem, tasks: Tasks) -> None:
        self._guest = guest
        self._filesystem = filesystem
        self._tasks = tasks
        self._open: dict[str, Watcher] = {}

    @property
    def are_open(self) -> bool:
        return bool(self._open)

    async def open(self, body: Body, login: Login) -> tuple[str, Watcher]:
        """Begins the watch that a client asks for. Raises RpcError, QuicksandError."""
        if len(self._open) >= WATCHERS_MAX:
            raise RpcError("resource_exhausted", f"{WATCHERS_MAX} directories are watched already")
        path = absolute(body.text("path", ""), login)
        watch = await self._guest.watch(
            path,
            recursive=body.flag("recursive", False),
            local=not body.flag("allowNetworkMounts", False),
        )
        entries_of = path if body.flag("includeEntry", False) else None
        watcher = Watcher(self, watch, self._filesystem, entries_of)
        id_ = secrets.token_hex(8)
        self._open[id_] = watcher
        watcher.task = self._tasks.start(watcher.follow(), f"api-watch-{id_}")
        return id_, watcher

    def require(self, id_: str) -> Watcher:
        """Returns a watch. Raises RpcError ("not_found")."""
        found = self._open.get(id_)
        if found is None:
            raise RpcError("not_found", f"there is no watcher {id_!r:.80}")
        return found

    def forget(self, watcher: Watcher) -> None:
        self._open = {id_: found for id_, found in self._open.items() if found is not watcher}

    def cut(self) -> None:
        """Ends the watches: the machine has gone, or is another one now."""
        for watcher in list(self._open.values()):
            watcher.finish(Cut())
            watcher.close()
