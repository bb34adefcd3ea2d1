"""Events of a sandbox of another machine, as they happen."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from quicksand.base.errors import RemoteProtocolError
from quicksand.hosted.codec import ForeignValueError, decode
from quicksand.hosted.life import FarLife
from quicksand.life.events import Event
from quicksand.remote.channel import Channel

LINE_MAX = 16 * 1024
"""Bytes of an event."""


async def watch(life: FarLife) -> AsyncIterator[Event]:
    """Yield events until the sandbox has ended. Raises as `Sandbox.events`, and RemoteError: events
    that happen while the connection is broken are lost, and so it says that."""
    channel = await life.open("events")
    try:
        await channel.reply
        async for line in _lines(channel, life.host.name):
            try:
                yield decode(json.loads(line), Event)
            except (ForeignValueError, ValueError, RecursionError) as error:
                raise RemoteProtocolError(
                    f"{life.host.name} sent an event that makes no sense"
                ) from error
    finally:
        channel.tell("enough")
        channel.close()


async def _lines(channel: Channel, machine: str) -> AsyncIterator[bytes]:
    rest = b""
    while piece := (await channel.piece()).data:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > LINE_MAX:
            raise RemoteProtocolError(f"{machine} sent an event without an end")
