"""Tells another machine's app the sandboxes, saves and trash of this one, and their changes: the
requests `watch` and `watch_saves` of `serve --stdio`. That app asks for saves while it shows
them."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from quicksand.base.disk_changes import DiskChanges
from quicksand.base.errors import QuicksandError, RemoteRefusedError
from quicksand.base.files import map_os_errors
from quicksand.guest.agent.wire import Stream
from quicksand.remote.hello import WATCH
from quicksand.remote.serving import StatelessOffer

from quicksand_tui.door import lazy_door
from quicksand_tui.door.far_lines import (
    LEAVE,
    LOG,
    LOOK,
    SANDBOXES_MAX,
    WATCH_SAVES,
    encode_line,
    saves_changes,
    world_changes,
)
from quicksand_tui.model.jobs import OperationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path

    from quicksand.remote.peer_link import Channel, Request

    from quicksand_tui.door.look import Reader
    from quicksand_tui.door.saves_look import SavesReader
    from quicksand_tui.model.shown_saves import SavesView
    from quicksand_tui.model.world import World


LOG_EVERY_S = 0.2
"""Seconds between two looks at a log."""
LOOK_EVERY_S = 1.0
"""The most seconds between two looks at the disk: for things that leave no trace in a directory,
such as the use of the CPU. The system tells of all others."""
LOOK_AT_ALL_EVERY_S = 10.0
"""The most seconds between two looks at all sandboxes: for file systems that do not tell of
everything, such as those of other machines. The looks between are at running ones only."""


class WatchOffer(StatelessOffer):
    """The requests `watch` and `log`."""

    capability = WATCH
    methods = frozenset({WATCH, LOG})

    async def answer(self, request: Request, _: Callable[[], Awaitable[None]]) -> None:
        await (answer_log if request.method == LOG else answer_watch)(request)


async def ending_together(*parts: Coroutine[Any, Any, None]) -> None:
    """Runs the parts until one of them ends or fails; cancels the others, and raises the
    failure."""
    tasks = [asyncio.create_task(part, name="quicksand-tell") for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def answer_log(request: Request) -> None:
    """Sends the last lines of a sandbox's log, and then what is added, until the sandbox ends or
    the client leaves. Raises SandboxNotFoundError, PathError, RemoteError."""
    match request.params:
        case {"sandbox": str(name), "qemu": bool(qemu), "lines": int(lines)} if lines >= 0:
            pass
        case _:
            raise RemoteRefusedError("sandbox, qemu or lines is missing", code="bad_request")
    registry = lazy_door.Registry(lazy_door.paths())
    sandbox = registry.find(name).id
    place = registry.place(sandbox)
    log = lazy_door.FileLog(place.qemu_log if qemu else place.console_log)
    channel = request.channel
    request.answer()

    async def tell() -> None:
        before = (await read()).splitlines(keepends=True)
        if last := "".join(before[-lines:] if lines else []):
            await channel.send(Stream.STDOUT, last.encode())
        is_live = True
        while is_live:
            # Asking before reading makes sure that the last output before the end is read.
            is_live = await asyncio.to_thread(registry.is_live, sandbox)
            if text := await read():
                await channel.send(Stream.STDOUT, text.encode())
            await asyncio.sleep(LOG_EVERY_S)

    async def read() -> str:
        with map_os_errors(place.console_log):
            return await asyncio.to_thread(log.read)

    async def until_left() -> None:
        while (await channel.event()).get("event") != LEAVE:
            pass

    try:
        await ending_together(tell(), until_left())
    finally:
        log.close()
    channel.finish(Stream.STDOUT)


async def answer_watch(request: Request) -> None:
    """Sends the world, and then each change as it happens, until the client has gone. A client that
    reads slowly gets fewer, larger changes. Raises RemoteError at its end."""
    watch = _Watch(request.channel)
    request.answer()
    try:
        await ending_together(watch.take_wishes(), watch.tell())
    finally:
        watch.close()


class _Watch:
    """The state of one client's watch."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._changes = DiskChanges()
        self._visible: frozenset[str] = frozenset()
        self._fresh = False

    def close(self) -> None:
        self._changes.close()

    async def take_wishes(self) -> None:
        """Takes the wishes of the client. Raises RemoteError when it has gone."""
        while True:
            match await self._channel.event():
                case {"event": "look", "visible": list(ids), **more}:
                    known = (id_ for id_ in ids[:SANDBOXES_MAX] if isinstance(id_, str))
                    self._visible = frozenset(known)
                    self._fresh = self._fresh or more.get("fresh") is True
                    self._changes.note()

    async def tell(self) -> None:
        """Tells the changes, as soon as the earlier ones are under way."""
        reader = await asyncio.to_thread(lazy_door.Reader)
        before: World | None = None
        loop, has_changed, all_by = asyncio.get_running_loop(), True, 0.0
        while True:
            fresh, self._fresh = self._fresh, False
            is_quiet = not has_changed and self._changes.is_whole and loop.time() < all_by
            if not is_quiet:
                all_by = loop.time() + LOOK_AT_ALL_EVERY_S
            looking = partial(_look, reader, self._visible, fresh=fresh, is_quiet=is_quiet)
            world = await asyncio.to_thread(looking)
            if world is not None and (told := world_changes(before, world)):
                await self._channel.send(Stream.STDOUT, encode_line(told))
                before = world
            has_changed = self._changes.follow_also([*reader.directories()])
            has_changed = has_changed or await self._changes.wait(LOOK_EVERY_S)


def _look(reader: Reader, visible: frozenset[str], *, fresh: bool, is_quiet: bool) -> World | None:
    """Looks at the disk; returns None if it cannot be read now."""
    try:
        return reader.read(visible, fresh=fresh, is_quiet=is_quiet)
    except (OSError, OperationError, lazy_door.QuicksandError):
        return None


SAVES_EVERY_S = 10.0
"""The most seconds between two looks at the disk: for changes that leave no trace in a directory.
The system tells of all others."""


class SavesOffer(StatelessOffer):
    """The request `watch_saves`, as an offer of the far end (`remote.serving.Offer`)."""

    capability = WATCH_SAVES
    methods = frozenset({WATCH_SAVES})

    async def answer(self, request: Request, _: Callable[[], Awaitable[None]]) -> None:
        """Sends the saves, and then each change as it happens, until the client leaves."""
        watch = _SavesWatch(request.channel)
        request.answer()
        try:
            await ending_together(watch.take_wishes(), watch.tell())
        finally:
            watch.close()


class _SavesWatch:
    """The state of one client's watch."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._changes = DiskChanges()
        self._fresh = False

    def close(self) -> None:
        self._changes.close()

    async def take_wishes(self) -> None:
        """Takes the wishes of the client, until it leaves. Raises RemoteError when it has gone."""
        while True:
            event = (await self._channel.event()).get("event")
            if event == LOOK:
                self._fresh = True
                self._changes.note()
            elif event == LEAVE:
                return

    async def tell(self) -> None:
        """Tells the changes, as soon as the earlier ones are under way."""
        reader = await asyncio.to_thread(lazy_door.SavesReader)
        before: SavesView | None = None
        while True:
            fresh, self._fresh = self._fresh, False
            view, directories = await asyncio.to_thread(_look_at_saves, reader, fresh)
            for told in saves_changes(before, view):
                await self._channel.send(Stream.STDOUT, encode_line(told))
            before = view
            if not self._changes.follow(directories):
                await self._changes.wait(SAVES_EVERY_S)


def _look_at_saves(reader: SavesReader, fresh: bool) -> tuple[SavesView, set[Path]]:
    """Reads the saves; returns them with their directories."""
    with contextlib.suppress(OSError, QuicksandError):
        directories = reader.directories()
        return reader.read(fresh=fresh), directories
    return reader.read(fresh=fresh), set()
