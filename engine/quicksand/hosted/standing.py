"""The sandboxes of another machine, by its own reports: the far end reports them with each change,
and the near end has a table that follows, and that is unknown while the machine is away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from quicksand.base.disk_changes import DiskChanges
from quicksand.base.error_text import printable
from quicksand.base.errors import (
    HostError,
    QuicksandError,
    RemoteError,
    RemoteRefusedError,
    RemoteUnreachableError,
    SandboxNotFoundError,
)
from quicksand.base.paths import Paths
from quicksand.base.processes import process_usage
from quicksand.guest.agent.wire import Stream
from quicksand.hosted.calling import ask, require_capability, send_json, told_to
from quicksand.hosted.codec import ForeignValueError, decode, encode
from quicksand.hosted.protocol import STANDING, STANDING_METHODS
from quicksand.hosted.remote_host import RemoteHost
from quicksand.hosted.remote_parts import lines_of
from quicksand.life.sandbox_removal import remove_sandbox
from quicksand.qemu.host_usage import qemu_memory
from quicksand.records.fleet_files import HEX32, machine_id
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Entry
from quicksand.remote.peer_link import Channel, Link, Request
from quicksand.things.status import HAS_MACHINE

LINE_MAX = 4 * 1024 * 1024
SANDBOXES_MAX = 10_000
TEXT_MAX = 200
"""The most characters of an id or a name."""
WHY_MAX = 300

LOOK_EVERY_S = 5.0
"""Seconds between two looks requested of the machine, which show whether it still answers."""
SILENT_S = 15.0
"""Seconds without an answer after which a machine counts as away. Its connection is kept: a busy
machine answers later."""
LOOK_MAX_S = 60.0
"""The most seconds to wait for a look after a change: as long as the connection may be silent."""
PAUSES_S = (1.0, 30.0)
"""The first and the longest pause in seconds between two attempts to connect; the pause doubles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingSandbox:
    """A sandbox of another machine."""

    id: str
    name: str
    status: str
    """A value of `Status`."""
    memory_bytes: int = 0
    """Bytes that it takes of its machine, without file-backed pages. 0 if it does not run."""
    cpu_seconds: float = 0.0
    """CPU seconds since its QEMU has started."""

    @property
    def is_live(self) -> bool:
        """Whether the sandbox's virtual machine runs."""
        return self.status in HAS_MACHINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One report: all sandboxes of a machine."""

    seen: int
    """The number of the last look that was requested before this report began."""
    machine_id: str
    """The id in its data directory, 32 hex digits, which stays the same under any name."""
    sandboxes: Sequence[StandingSandbox] = ()


def encode_told(told: Told) -> bytes:
    """Return its line."""
    return json.dumps(encode(told), separators=(",", ":")).encode() + b"\n"


def decode_told(line: bytes) -> Told:
    """Parse a report of another machine. Raises ForeignValueError."""
    try:
        found: Told = decode(json.loads(line), Told)
    except (ValueError, RecursionError) as error:
        raise ForeignValueError(f"no table of sandboxes: {error}") from None
    if not HEX32.fullmatch(found.machine_id):
        raise ForeignValueError("a table is of no machine")
    if len(found.sandboxes) > SANDBOXES_MAX:
        raise ForeignValueError("a table has too many sandboxes")
    for one in found.sandboxes:
        if not all(text.isprintable() and len(text) <= TEXT_MAX for text in (one.id, one.name)):
            raise ForeignValueError("a table names a sandbox that cannot be")
        if one.memory_bytes < 0 or not 0 <= one.cpu_seconds < 2**60:
            raise ForeignValueError("a table has figures that make no sense")
    return found


class StandingTable:
    """The sandboxes of one machine. It belongs to one event loop."""

    def __init__(self, remote: RemoteHost, changed: Callable[[], None]) -> None:
        """``changed`` is called when the machine has gone away, or has come back."""
        self.remote = remote
        self.sandboxes: Mapping[str, StandingSandbox] = MappingProxyType({})
        """The last reported sandboxes, by id."""
        self.machine_id = ""
        """The machine's id; "" until it has answered."""
        self.away: str | None = "it has not answered yet"
        """Why the present state is unknown; None while it is known."""
        self.heard = asyncio.Event()
        """Set once the machine has answered, or counts as away."""
        self._changed = changed
        self._channel: Channel | None = None
        self._asked = 0
        """Looks are numbered across all connections: a later look includes all earlier ones."""
        self._seen = 0
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Follow the machine until cancelled."""
        shared = self.remote.sharing()
        first, longest = PAUSES_S
        pause = first
        try:
            with shared.use():
                while True:
                    try:
                        await require_capability(shared, STANDING, to="be one of a fleet's API")
                        await self._follow(await shared.link())
                    except (RemoteError, HostError) as error:
                        pause = first if self.away is None else min(2 * pause, longest)
                        self._note(error)
                    await asyncio.sleep(pause)
        finally:
            self.away = self.away or "it is not followed any more"
            await shared.ended()

    async def _follow(self, link: Link) -> None:
        """Take its reports over one connection. Raises the error that ended it."""
        self._channel = channel = link.open(STANDING)
        asking = asyncio.create_task(self._ask_again_and_again(), name="quicksand-standing")
        try:
            await channel.reply
            async for line in lines_of(channel, self.remote.name, LINE_MAX):
                self._take(decode_told(line))
        except ForeignValueError as error:
            raise RemoteError(f"{self.remote.name} tells what makes no sense: {error}") from error
        finally:
            self._channel = None
            asking.cancel()
            await asyncio.wait([asking])
            channel.tell("enough")
            channel.close()
        raise RemoteUnreachableError(f"{self.remote.name} tells no more")

    async def _ask_again_and_again(self) -> None:
        while True:
            number = self._ask()
            if not await self._has_seen(number, SILENT_S):
                self._note(RemoteUnreachableError(f"it has not answered for {SILENT_S:g} s"))
                while self._seen < number:
                    await self._news.wait()
            await asyncio.sleep(LOOK_EVERY_S)

    def _ask(self) -> int:
        """Request a look, and return its number."""
        self._asked += 1
        if self._channel is not None:
            self._channel.tell("look", number=self._asked)
        return self._asked

    async def _has_seen(self, number: int, within_s: float) -> bool:
        """Wait until that look has been answered; return False if that takes too long."""
        try:
            async with asyncio.timeout(within_s):
                while self._seen < number:
                    await self._news.wait()
        except TimeoutError:
            return False
        return True

    def _take(self, told: Told) -> None:
        self._seen = max(self._seen, told.seen)
        self.machine_id = told.machine_id
        self.sandboxes = MappingProxyType({one.id: one for one in told.sandboxes})
        was_away, self.away = self.away, None
        self._tell_waiting()
        if was_away is not None:
            self._changed()

    def _note(self, error: QuicksandError) -> None:
        """Note why the machine is away."""
        was_away = self.away
        self.away = printable(" · ".join(str(error).split("\n")))[:WHY_MAX]
        is_new = was_away is None or not self.heard.is_set()
        self._tell_waiting()
        if is_new:
            self._changed()

    def _tell_waiting(self) -> None:
        self.heard.set()
        self._news.set()
        self._news = asyncio.Event()

    # For who changes something there

    async def look(self) -> None:
        """Wait until the table is no older than this call. Raises RemoteUnreachableError."""
        if not await self._has_seen(self._ask(), LOOK_MAX_S):
            why = self.away or "it is busy"
            raise RemoteUnreachableError(
                f"{self.remote.name} does not tell which sandboxes it has: {why}"
            )

    async def remove(self, id_or_name: str) -> None:
        """Have the sandbox with exactly that id or name removed there for good, in whatever state;
        do nothing if there is none. The call may be repeated. Raises RemoteError, HostError, and
        the errors of `remove_sandbox`."""
        shared = self.remote.sharing()
        with shared.use():
            await require_capability(shared, STANDING, to="remove sandboxes")
            await ask(shared, "remove", sandbox=id_or_name)


FIGURES_S = 15.0
"""Seconds between two readings of the sandboxes' memory and CPU time."""
LOOKS_S = (0.2, 0.4, 0.8, 1.6)
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
        pauses = iter(LOOKS_S)
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
                    pauses = iter(LOOKS_S)
                before = now
                if await changes.wait(next(pauses, FIGURES_S)) and looks.number == number:
                    pauses = iter(LOOKS_S)
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
