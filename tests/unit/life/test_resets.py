"""Resets of connections from which nobody reads."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
from collections.abc import Iterator

import pytest
from quicksand.life.forwarder import Resets

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="only Linux tells of them")


@contextlib.contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        mine = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    with mine, theirs:
        yield mine, theirs


def break_off(one: socket.socket) -> None:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


async def test_a_peer_that_resets_is_told_of_though_its_data_wait() -> None:
    resets, told = Resets(), asyncio.Event()
    with pair() as (mine, theirs):
        resets.watch(mine.fileno(), told.set)
        theirs.send(b"unread")
        break_off(theirs)
        await asyncio.wait_for(told.wait(), 60)
        resets.forget(mine.fileno(), told.set)
    resets.close()


async def test_an_end_with_unread_data_is_no_reset_and_what_is_forgotten_is_not_told_of() -> None:
    resets, told, last = Resets(), asyncio.Event(), asyncio.Event()
    with pair() as (mine, theirs), pair() as (other, reset), pair() as (third, end):
        resets.watch(mine.fileno(), told.set)
        mine.shutdown(socket.SHUT_WR)
        theirs.send(b"unread")
        theirs.close()
        resets.watch(other.fileno(), told.set)
        resets.forget(other.fileno(), told.set)
        break_off(reset)
        resets.watch(third.fileno(), last.set)
        break_off(end)
        await asyncio.wait_for(last.wait(), 60)
        assert not told.is_set()
    resets.close()
