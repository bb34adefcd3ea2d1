"""The far end: reports this machine's capacity to a fleet, and keeps memory for its sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from quicksand.errors import RemoteRefusedError
from quicksand.extending import (
    HEX32,
    MEMORY_MAX,
    Claims,
    DiskChanges,
    HeldClaim,
    ImageStore,
    Paths,
    Request,
    Stream,
    cpus_for_sandboxes,
    machine_id,
    told_to,
)

from quicksand_fleet.capacity import (
    CAPACITY,
    CLAIM,
    CLAIMS_MAX,
    FLEET,
    IMAGES_MAX,
    STEP,
    Capacity,
    encode_capacity,
)

PAUSES_S = (0.2, 5.0)
"""The first and the longest time in seconds between two looks at this machine. The time doubles
with each look and starts again after a change. Directories show that something happens, but neither
that a machine's last process is gone nor that memory has shrunk."""


class MachineOfFleets:
    """This machine, as clients of fleets know it (an `Offer` of `remote.serving`). A claim lasts as
    long as its request, so nothing is kept for a client that may come back."""

    capability = FLEET
    methods = (CAPACITY, CLAIM)
    is_empty = True

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._claims = Claims(paths)

    def away(self) -> None: ...

    def back(self) -> None: ...

    async def leave(self) -> None: ...

    async def settle(self) -> None: ...

    async def answer(self, request: Request, _: Callable[[], Awaitable[None]]) -> None:
        """Answer one of ``methods``."""
        if request.method == CAPACITY:
            await self._tell(request)
        else:
            await self._claim(request)

    async def _claim(self, request: Request) -> None:
        id_, wanted = request.params.get("id"), request.params.get("memory_bytes")
        if not isinstance(id_, str) or not HEX32.fullmatch(id_):
            raise RemoteRefusedError("id is not 32 hex digits", code="bad_request")
        if type(wanted) is not int or not 0 < wanted <= MEMORY_MAX:
            raise RemoteRefusedError("memory_bytes makes no sense", code="bad_request")
        taking = asyncio.ensure_future(asyncio.to_thread(self._claims.take, id_, wanted))
        held: HeldClaim | None = None
        try:
            with told_to(request):
                held = await asyncio.shield(taking)
                request.answer(bytes=0)
            while held is not None:
                match await request.channel.event():
                    case {"event": "enough"}:
                        return
        finally:
            if held is None:
                # Cancelled meanwhile: drop the memory that the thread has claimed, too.
                await asyncio.wait([taking])
                held = None if taking.exception() is not None else taking.result()
            if held is not None:
                await asyncio.to_thread(self._claims.drop, held)

    async def _tell(self, request: Request) -> None:
        """Report the capacity, and then each change of it, until the client has gone."""
        request.answer()
        changes = DiskChanges()
        enough = asyncio.create_task(request.channel.event(), name="quicksand-enough")
        before: Capacity | None = None
        first, longest = PAUSES_S
        pause, has_changed = first, False
        try:
            while not enough.done():
                changes.follow(await asyncio.to_thread(self._directories))
                now = await asyncio.to_thread(self.look)
                if now != before:
                    await request.channel.send(Stream.STDOUT, encode_capacity(now))
                pause = first if now != before or has_changed else min(2 * pause, longest)
                before = now
                has_changed = await _changes_within(changes, pause, enough)
        finally:
            enough.cancel()
            await asyncio.wait([enough])
            changes.close()
            if not enough.cancelled():
                enough.exception()
        request.channel.finish(Stream.STDOUT)

    def _directories(self) -> list[Path]:
        """Return the directories that change when sandboxes, claims or images do."""
        ours = self._paths
        found = [ours.runtime, ours.sandboxes, ours.images, self._claims.place]
        if ours.images.is_dir():
            found += [place for place in ours.images.iterdir() if place.is_dir()][:IMAGES_MAX]
        return [place for place in found if place.is_dir()]

    def look(self) -> Capacity:
        use, claims = self._claims.look()
        free = max(0, use.free - sum(claims.values()))
        images = {image.name for image in ImageStore(self._paths.images).list() if not image.errors}
        return Capacity(
            machine_id=machine_id(self._paths),
            cpus=cpus_for_sandboxes(),
            memory_bytes=use.budget,
            free_bytes=free - free % STEP,
            sandboxes=len(use.running),
            images=sorted(images)[:IMAGES_MAX],
            claims=sorted(claims)[:CLAIMS_MAX],
        )


async def _changes_within(
    changes: DiskChanges, seconds: float, enough: asyncio.Task[dict[str, Any]]
) -> bool:
    """Wait at most so long, and return whether something has changed on the disk. The wait also
    ends when the client has closed."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    waiting = asyncio.create_task(changes.wait(seconds), name="quicksand-changes")
    try:
        await asyncio.wait([waiting, enough], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        await asyncio.wait([waiting])
    return loop.time() - began < seconds
