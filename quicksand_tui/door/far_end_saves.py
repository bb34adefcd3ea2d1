"""Tells another machine's app the saves and the trash of this one, and their changes: the request
`watch_saves` of `serve --stdio`. That app asks for them while it shows them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from quicksand.base.disk_changes import DiskChanges
from quicksand.base.errors import QuicksandError
from quicksand.guest.agent.wire import Stream

from quicksand_tui.door import lazy_door
from quicksand_tui.door.far_end import StatelessOffer, ending_together
from quicksand_tui.door.far_lines import LEAVE, LOOK, WATCH_SAVES, encode_line, saves_changes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from quicksand.remote.peer_link import Channel, Request

    from quicksand_tui.door.saves_look import SavesReader
    from quicksand_tui.model.shown_saves import SavesView

LOOK_EVERY_S = 10.0
"""The most seconds between two looks at the disk: for changes that leave no trace in a directory.
The system tells of all others."""


class SavesOffer(StatelessOffer):
    """The request `watch_saves`, as an offer of the far end (`remote.serving.Offer`)."""

    capability = WATCH_SAVES
    methods = frozenset({WATCH_SAVES})

    async def answer(self, request: Request, _: Callable[[], Awaitable[None]]) -> None:
        """Sends the saves, and then each change as it happens, until the client leaves."""
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
            view, directories = await asyncio.to_thread(_look, reader, fresh)
            for told in saves_changes(before, view):
                await self._channel.send(Stream.STDOUT, encode_line(told))
            before = view
            if not self._changes.follow(directories):
                await self._changes.wait(LOOK_EVERY_S)


def _look(reader: SavesReader, fresh: bool) -> tuple[SavesView, set[Path]]:
    """Reads the saves; returns them with their directories."""
    with contextlib.suppress(OSError, QuicksandError):
        directories = reader.directories()
        return reader.read(fresh=fresh), directories
    return reader.read(fresh=fresh), set()
