"""A sandbox of another machine, over the connection that the app has there: its guest, screen and
log, and verbs, each of which is carried out once, whatever the connection does."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from quicksand.base.errors import QuicksandError, RemoteUnreachableError, StateError
from quicksand.display.place import open_screen
from quicksand.display.sought import not_running
from quicksand.guest import execution
from quicksand.guest.shell import Shell, ShellInfo, WatchedShell
from quicksand.hosted.relayed_screen import ScreenRelay
from quicksand.hosted.remote_host import RemoteHost
from quicksand.life.sandbox_stats import parse_processes, read_guest
from quicksand.remote.agents import agent_session
from quicksand.sandbox import Sandbox
from quicksand.things.sandbox_facts import GuestProcess, HostUsage, SandboxStats
from quicksand.things.status import Status

from quicksand_tui.door.engine_screen import OpenScreen
from quicksand_tui.door.far_lines import LEAVE, LOG
from quicksand_tui.door.service_protocol import LogKind
from quicksand_tui.door.terminal_place import FarRight
from quicksand_tui.model.jobs import Failure, OperationError
from quicksand_tui.model.remedy_words import text_of
from quicksand_tui.model.shown_sandboxes import at_host
from quicksand_tui.model.specs import NewSpec
from quicksand_tui.model.text import sanitise
from quicksand_tui.verbs.call import Progress

if TYPE_CHECKING:
    from quicksand.guest.agent.session import Session
    from quicksand.guest.execution import Command
    from quicksand.remote.connection import Way
    from quicksand.remote.peer_link import Link

    from quicksand_tui.door.far_host import FarHost
    from quicksand_tui.door.terminal_place import Guest, Right
    from quicksand_tui.verbs.call import Call, Report


KEPT_S = 600.0
"""Seconds for which a sandbox that is worked on is kept for a machine that is away."""


def open_there(host: FarHost, sandbox_id: str) -> Sandbox:
    """Opens a sandbox by its id there. The first call that is awaited looks for it."""
    return Sandbox.open(sandbox_id, host=RemoteHost.by(FarSharing(host)))


def patient(host: FarHost, tell: Callable[[str], None]) -> RemoteHost:
    """Returns the machine for work that goes on when a broken connection is there again. Calls
    ``tell`` with words for the wait and its end."""
    sharing = FarSharing(host)
    sharing.tell = tell
    found = RemoteHost.by(sharing)
    found.grace = KEPT_S
    return found


class FarSharing:
    """Implements `quicksand.remote.connection.Sharing`. `FarHost.run` makes the connection,
    and ends it."""

    def __init__(self, host: FarHost) -> None:
        self._host = host
        self.tell: Callable[[str], None] | None = None
        """If it is there, a machine that is away is waited for, and this gets words about it."""

    @property
    def destination(self) -> Way:
        return self._host.destination

    @property
    def generation(self) -> int:
        return self._host.generation

    def use(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    async def link(self) -> Link:
        """Returns the present connection, without waiting for one if somebody looks at the screen.
        Raises RemoteError."""
        tell, host = self.tell, self._host
        if tell is None:
            return self.present()
        while True:
            try:
                return self.present()
            except RemoteUnreachableError as error:
                await host.again(error, told=lambda _: tell(host.waiting_words))
                tell(f"{host.name} is back: it goes on")

    def present(self) -> Link:
        """Returns the present connection. Raises RemoteUnreachableError."""
        link = self._host.link
        if link.ended.is_set():
            raise RemoteUnreachableError(self._host.away_words)
        return link

    def can(self, capability: str) -> bool:
        return self._host.can(capability)

    def got_on(self) -> None:
        self._host.got_on()

    async def ended(self) -> None:
        """Does nothing: the connection does not end with its users."""


NOT_KNOWN = HostUsage(cpu_seconds=0.0, rss=0, disk=0, uptime_s=0.0)
"""Stands for a sandbox's use of another machine, which only that machine tells."""


class FarGuest:
    """Implements `door.reach.Guest` on a session with the guest's agent."""

    def __init__(self, host: FarHost, sandbox_id: str, session: Session) -> None:
        self._host = host
        self._id = sandbox_id
        self._session = session

    @property
    def is_running(self) -> bool:
        view = self._host.sandbox(self._id)
        return view is not None and not view.away and view.state is Status.RUNNING

    async def _opened(self) -> Session:
        return self._session

    async def shells(self) -> list[ShellInfo]:
        return await Shell.list(self._session)

    async def shell(
        self, *, columns: int, rows: int, cwd: str | None, env: Mapping[str, str], name: str
    ) -> Shell:
        return await Shell.open(
            self._session,
            None,
            columns=columns,
            rows=rows,
            cwd=cwd,
            user=None,
            env=env,
            name=name,
        )

    async def attach_shell(self, session: str, *, columns: int, rows: int) -> Shell:
        return await Shell.attach(self._session, session, columns=columns, rows=rows)

    async def watch_shell(self, session: str, *, replay: int) -> WatchedShell:
        return await WatchedShell.open(self._session, session, replay=replay)

    async def spawn(self, command: str, *, timeout: float | None) -> Command:
        params = execution.command_params(
            command,
            timeout=timeout,
            cwd=None,
            shell="/bin/sh",
            user=None,
            env=None,
            defaults=True,
        )
        return await execution.spawn(self._session, params, stdin=False, detach=False)

    async def stats(self) -> SandboxStats:
        return await read_guest(NOT_KNOWN, self._opened)

    async def processes(self) -> list[GuestProcess]:
        return parse_processes(await self._session.request("processes"))


@contextlib.asynccontextmanager
async def reach_there(host: FarHost, sandbox_id: str) -> AsyncIterator[Guest]:
    """Reaches a guest of another machine, by its id there. Raises RemoteError, AgentError."""
    async with agent_session(host.link, sandbox_id) as session:
        yield FarGuest(host, sandbox_id, session)


class PlaceThere:
    """Implements `door.terminal_place.SandboxPlace` for a sandbox of another machine. The far end's
    words and the connection tell its machine from others."""

    def __init__(self, host: FarHost, sandbox_id: str) -> None:
        self._host = host
        self._id = sandbox_id
        self._has_answered = False
        self._was_away = False

    @property
    def is_away(self) -> bool:
        self._was_away = not self._host.connection
        return self._was_away

    @property
    def again(self) -> str:
        return f"{self._host.name} is there again" if self._was_away else "the sandbox runs again"

    @property
    def machine(self) -> object:
        view = self._host.sandbox(self._id)
        return None if view is None else (view.run, view.origin)

    @property
    def mark(self) -> object:
        view = self._host.sandbox(self._id)
        if view is None or view.away or not view.is_live:
            return None
        return self._host.connection, view.run, view.origin

    async def runs(self) -> bool:
        view = self._host.sandbox(self._id)
        return view is not None and not view.away and view.state is Status.RUNNING

    async def starts(self) -> bool:
        view = self._host.sandbox(self._id)
        return view is not None and not view.away and view.state is Status.STARTING

    def reach(self) -> AbstractAsyncContextManager[Guest]:
        return reach_there(self._host, self._id)

    def right(self, session: str, attached: int) -> Right:
        self._has_answered = self._has_answered or not attached
        return FarRight(is_held=self._has_answered)

    def why_gone(self) -> QuicksandError | None:
        view = self._host.sandbox(self._id)
        if view is None:
            return StateError(f"{at_host(self._id, self._host.name)} was removed")
        if view.away:
            return RemoteUnreachableError(self._host.away_words)
        if not view.is_live:
            why = f": {view.error}" if view.error else ""
            return StateError(f"{view.name} is {view.state.value}{why}")
        return None


class ScreenThere:
    """Implements `door.screen_here.ScreenPlace`. The far end tells which machine it has now."""

    def __init__(self, host: FarHost, sandbox_id: str) -> None:
        self._host = host
        self._id = sandbox_id
        self._machine = PlaceThere(host, sandbox_id)

    @property
    def mark(self) -> object:
        return self._machine.mark

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[OpenScreen]:
        with contextlib.closing(open_there(self._host, self._id)) as sandbox:
            async with ScreenRelay.open(FarSharing(self._host), self._id) as relay:
                if relay.place is None:
                    raise not_running(at_host(self._id, self._host.name))
                async with open_screen(relay.place) as client:
                    yield OpenScreen(relay.place, client, sandbox)


T = TypeVar("T")


async def carry_out_there(host: FarHost, verb: Call[T], sandbox_id: str, report: Report) -> T:
    """Carries a verb out on a machine, as `Call.carry_out` does here; ``sandbox_id`` is an id
    there. Raises OperationError, and RemoteError if the machine is away, or if it is unknown
    whether the verb was done."""
    if verb.only_here or verb.run is not None:
        message = f"{verb.name} is not done on other machines from here"
        raise OperationError(Failure(title=sanitise(verb.failed), message=sanitise(message)))
    if not host.connection:
        # A machine that is away shows its last known state: nothing is begun with that. A machine
        # that goes away later is waited for.
        raise RemoteUnreachableError(host.away_words)

    def report_there(progress: Progress) -> None:
        report(replace(progress, sandbox_id=_id_of(progress, host, verb.spec)))

    way = patient(host, lambda words: report(Progress("", words)))
    return await verb.carry_out(sandbox_id, report_there, host=way)


def _id_of(progress: Progress, host: FarHost, spec: object) -> str:
    """Returns the id of the sandbox that is worked on; a new one has it as soon as it exists."""
    if isinstance(spec, NewSpec):
        name = at_host(spec.name, host.name)
        return next((view.id for view in host.sandboxes if view.name == name), "")
    return at_host(progress.sandbox_id, host.name) if progress.sandbox_id else ""


LINES = 2000
"""Lines of the past, at first."""

KEPT_MAX = 1024 * 1024
"""The most characters that wait to be read; the oldest are dropped."""

AGAIN_S = 1.0
"""Seconds between two looks whether a log that has ended goes on; they read only facts that the
machine has told already."""


class FarLog:
    """Implements `door.service_protocol.LogSource`."""

    def __init__(
        self,
        host: FarHost,
        sandbox_id: str,
        kind: LogKind,
        *,
        engine: asyncio.AbstractEventLoop,
        tasks: set[asyncio.Task[None]],
    ) -> None:
        self._host = host
        self._id = sandbox_id
        self._is_qemu = kind is LogKind.QEMU
        self._lines = LINES
        """The number of lines of the past that are wanted."""
        self._engine = engine
        self._tasks = tasks
        self._lock = threading.Lock()
        self._text = ""
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        engine.call_soon_threadsafe(self._begin)

    def read(self) -> str:
        with self._lock:
            text, self._text = self._text, ""
        return text

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the app ends
            self._engine.call_soon_threadsafe(self._end)

    # On the engine's loop

    def _begin(self) -> None:
        if not self._is_closed:
            self._task = asyncio.create_task(self._run(), name="quicksand-far-log")
            self._tasks.add(self._task)
            self._task.add_done_callback(self._tasks.discard)

    def _end(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()

    def _put(self, text: str) -> None:
        with self._lock:
            self._text = (self._text + text)[-KEPT_MAX:]

    async def _run(self) -> None:
        """Follows the log until it is cancelled; after a break it shows new lines only."""
        while True:
            mark = self._mark
            try:
                await self._follow()
            except QuicksandError as error:
                self._put(f"\n[{text_of(error).splitlines()[0]}]\n")
            while True:
                await asyncio.sleep(AGAIN_S)
                if self._mark != mark and self._host.connection:
                    break

    @property
    def _mark(self) -> object:
        """A value that changes when the log may go on."""
        view = self._host.sandbox(self._id)
        return self._host.connection, view.run if view is not None else ""

    async def _follow(self) -> None:
        link = self._host.link
        channel = link.open(LOG, sandbox=self._id, qemu=self._is_qemu, lines=self._lines)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            await channel.reply
            while data := (await channel.piece()).data:
                self._put(decoder.decode(data))
                self._lines = 0
        finally:
            channel.tell(LEAVE)
            channel.close()
