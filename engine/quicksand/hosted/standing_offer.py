"""The far end: reports this machine's sandboxes, with each change, and removes one on request."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from quicksand.base.disk_changes import DiskChanges
from quicksand.base.errors import RemoteError, RemoteRefusedError, SandboxNotFoundError
from quicksand.base.paths import Paths
from quicksand.base.processes import process_usage
from quicksand.guest.agent.wire import Stream
from quicksand.hosted.answers import send_json, told_to
from quicksand.hosted.protocol import STANDING, STANDING_METHODS
from quicksand.hosted.standing import StandingSandbox, Told, encode_told
from quicksand.life.sandbox_removal import remove_sandbox
from quicksand.qemu.host_usage import qemu_memory
from quicksand.records.fleet_files import machine_id
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Entry
from quicksand.remote.peer_link import Request

FIGURES_S = 15.0
"""Seconds between two readings of the sandboxes' memory and CPU time."""
PAUSES_S = (0.2, 0.4, 0.8, 1.6)
"""Seconds after a change until the next looks: the end of a process leaves no trace in a
directory."""


class Standing:
    """This machine, as seen by watchers of its sandboxes (an `Offer` of `remote.serving`)."""

    capability = STANDING
    methods = STANDING_METHODS
    is_empty = True

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._registry = Registry(paths)

    def away(self) -> None: ...

    def back(self) -> None: ...

    async def leave(self) -> None: ...

    async def settle(self) -> None: ...

    async def answer(self, request: Request, _: Callable[[], Awaitable[None]]) -> None:
        """Answer one of ``methods``."""
        if request.method == "remove":
            with told_to(request):
                await self._remove(request.params.get("sandbox"))
                await send_json(request, None)
        else:
            await self._tell(request)

    async def _remove(self, wanted: object) -> None:
        if not isinstance(wanted, str):
            raise RemoteRefusedError("sandbox is no text", code="bad_request")
        for entry in await asyncio.to_thread(self._registry.list):
            # Prefixes of ids are not accepted: nobody is there to see which sandbox was meant.
            if wanted in (entry.id, entry.name):
                with contextlib.suppress(SandboxNotFoundError):
                    await remove_sandbox(self._registry, entry.id, now=True, stop=True)

    async def _tell(self, request: Request) -> None:
        """Report all sandboxes, and again after each change, until the client has gone."""
        ours = await asyncio.to_thread(machine_id, self._paths)
        request.answer()
        changes = DiskChanges()
        looks = _Looks(request, changes)
        figures = _Figures()
        before: Told | None = None
        pauses = iter(PAUSES_S)
        try:
            while not looks.are_over:
                changes.follow([self._paths.runtime, self._paths.sandboxes])
                number = looks.number
                entries = await asyncio.to_thread(self._registry.list)
                now = Told(
                    seen=number,
                    machine_id=ours,
                    sandboxes=await asyncio.to_thread(figures.of, entries),
                )
                if now != before:
                    await request.channel.send(Stream.STDOUT, encode_told(now))
                if before is None or [*map(_state, now.sandboxes)] != [
                    *map(_state, before.sandboxes)
                ]:
                    pauses = iter(PAUSES_S)
                before = now
                if await changes.wait(next(pauses, FIGURES_S)) and looks.number == number:
                    pauses = iter(PAUSES_S)
        finally:
            await looks.end()
            changes.close()
        request.channel.finish(Stream.STDOUT)


def _state(one: StandingSandbox) -> tuple[str, str, str]:
    return one.id, one.name, one.status


class _Looks:
    """The looks that a client requests."""

    def __init__(self, request: Request, changes: DiskChanges) -> None:
        """Each request ends a wait for ``changes``."""
        self.number = 0
        """The number of the last look that the client has requested."""
        self.are_over = False
        self._changes = changes
        self._channel = request.channel
        self._task = asyncio.create_task(self._hear(), name="quicksand-looks")

    async def _hear(self) -> None:
        with contextlib.suppress(RemoteError):
            while True:
                match await self._channel.event():
                    case {"event": "look", "number": int(number)}:
                        self.number = max(self.number, number)
                        self._changes.note()
                    case {"event": "enough"}:
                        break
        self.are_over = True
        self._changes.note()

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


class _Figures:
    """The sandboxes' memory and CPU time, read only now and then."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[float, StandingSandbox]] = {}
        """By id: the time of the last reading, and its result."""

    def of(self, entries: list[Entry]) -> tuple[StandingSandbox, ...]:
        """Return the report on sandboxes. Blocks."""
        now = time.monotonic()
        known, self._read = self._read, {}
        found = []
        for entry in entries:
            plain = StandingSandbox(id=entry.id, name=entry.name, status=entry.status.value)
            if entry.run is not None:
                at, earlier = known.get(entry.id, (float("-inf"), plain))
                if now - at >= FIGURES_S:
                    at = now
                    seconds, _ = process_usage(entry.run.qemu_pid)
                    memory, _ = qemu_memory(entry.run.qemu_pid, entry.run.qemu_command)
                    earlier = replace(plain, memory_bytes=memory, cpu_seconds=seconds)
                self._read[entry.id] = at, earlier
                plain = replace(earlier, name=plain.name, status=plain.status)
            found.append(plain)
        return tuple(found)
