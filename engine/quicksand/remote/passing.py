"""Passes the bytes of a channel on unread, to and from a socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from quicksand.base.errors import RemoteError
from quicksand.guest.agent.wire import Stream
from quicksand.remote.peer_channel import Channel

READ = 64 * 1024


async def pass_on(
    channel: Channel,
    mine: Stream,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    at_end: Callable[[], None] = lambda: None,
) -> None:
    """Pass bytes on between a channel and a socket, until one of them ends. ``mine`` is the stream
    that this end sends; ``at_end`` is called before its end."""

    async def out() -> None:
        while data := await reader.read(READ):
            await channel.send(mine, data)

    async def back() -> None:
        while data := (await channel.piece()).data:
            writer.write(data)
            await writer.drain()

    ways = [
        asyncio.create_task(out(), name="quicksand-pass-out"),
        asyncio.create_task(back(), name="quicksand-pass-back"),
    ]
    try:
        with contextlib.suppress(RemoteError, OSError):
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in done:
                way.result()
    finally:
        for way in ways:
            way.cancel()
        await asyncio.wait(ways)
        at_end()
        channel.finish(mine)
        writer.close()
