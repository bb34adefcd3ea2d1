"""The output of a command whose client may go and come again."""

from __future__ import annotations

import asyncio

from quicksand.remote.outflow import KEPT_MAX, ROOM, Outflow

from tests.unit.remote.far import until


async def take_all(flow: Outflow, at: int = 0) -> tuple[bytes, int]:
    """What a client reads from ``at`` on, and how much it has missed."""
    found, lost = b"", 0
    while True:
        place, data = await flow.take(at)
        lost += place - at
        if not data:
            return found, lost
        found += data
        at = place + len(data)


async def test_a_slow_client_holds_the_command_back() -> None:
    flow = Outflow(keeps=False)
    written = 0

    async def write() -> None:
        nonlocal written
        for _ in range(100):
            await flow.put(bytes(ROOM // 4))
            written += 1
        flow.end()

    writing = asyncio.create_task(write())
    await until(lambda: written == 4, "room to be used up")
    found, lost = await take_all(flow)
    await writing
    assert (len(found), lost) == (100 * (ROOM // 4), 0)


async def test_what_was_read_is_kept_for_who_reads_it_again() -> None:
    flow = Outflow(keeps=True)
    flow.hold()
    await flow.put(b"one two ")
    assert await flow.take(0) == (0, b"one two ")
    flow.let_go()
    await flow.put(b"three")
    flow.end()
    assert await take_all(flow, 4) == (b"two three", 0)
    assert await take_all(flow, 13) == (b"", 0)


async def test_without_a_client_the_end_is_kept_and_it_is_told_how_much_is_lost() -> None:
    flow = Outflow(keeps=True)
    for number in range(3 * KEPT_MAX // 1024):
        await flow.put(bytes([number % 256]) * 1024)
    flow.end()
    found, lost = await take_all(flow)
    assert (len(found), lost) == (KEPT_MAX, 2 * KEPT_MAX)
    assert found[-1] == (3 * KEPT_MAX // 1024 - 1) % 256


async def test_nobody_waits_once_the_client_has_gone() -> None:
    flow = Outflow(keeps=False)
    writing = asyncio.create_task(flow.put(bytes(3 * ROOM)))
    await asyncio.sleep(0)
    assert not writing.done()
    flow.let_go()
    await writing
