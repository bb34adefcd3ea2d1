"""Events of a sandbox of another machine, as they happen."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from quicksand.base.errors import RemoteProtocolError
from quicksand.hosted.codec import ForeignValueError, decode
from quicksand.hosted.life import FarLife
from quicksand.life.qmp_events import Event
from quicksand.remote.peer_channel import Channel

LINE_MAX = 16 * 1024
"""The most bytes of an event."""


async def watch(life: FarLife) -> AsyncIterator[Event]:
    """Yield events until the sandbox has ended. Raises as `Sandbox.events`, and RemoteError if the
    connection breaks: events that happen meanwhile are lost."""
    channel = await life.open("events")
    try:
        await channel.reply
        async for line in lines_of(channel, life.host.name):
            try:
                yield decode(json.loads(line), Event)
            except (ForeignValueError, ValueError, RecursionError) as error:
                raise RemoteProtocolError(
                    f"{life.host.name} sent an event that makes no sense"
                ) from error
    finally:
        channel.tell("enough")
        channel.close()


async def lines_of(channel: Channel, machine: str, longest: int = LINE_MAX) -> AsyncIterator[bytes]:
    """Yield the lines that ``machine`` sends over a channel. Raises RemoteProtocolError if one has
    more than ``longest`` bytes, and the error that ended the channel."""
    rest = b""
    while piece := (await channel.piece()).data:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > longest:
            raise RemoteProtocolError(f"{machine} sent a line without an end")
