"""One other machine, as the app sees it: the connection to it, which is made anew after it broke,
and the facts that the machine tells.

All runs on the engine's loop, unless said otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from quicksand.base.errors import (
    ConfigError,
    FleetError,
    HostError,
    QuicksandError,
    RemoteError,
    RemoteProtocolError,
    RemoteUnansweredError,
    RemoteUnreachableError,
)
from quicksand.base.typed_values import ForeignValueError
from quicksand.remote.connection import Connection
from quicksand.remote.destination import Destination, NodeDestination, parse_address
from quicksand.remote.hello import WATCH

from quicksand_tui.door.far_lines import FarWorld, Learner, Lines
from quicksand_tui.model.remedy_words import hint_of, text_of
from quicksand_tui.model.shown_sandboxes import SandboxView, at_host
from quicksand_tui.model.text import sanitise
from quicksand_tui.model.world import MachineState, MachineView

if TYPE_CHECKING:
    from quicksand.remote.askpass import Askpass
    from quicksand.remote.peer_link import Link

PAUSES_S = (1.0, 30.0)
"""The first and the longest pause between two attempts to connect, in seconds; each is twice as
long as the one before."""

SETTLE_S = 0.05

GIVE_UP_S = 300.0
"""Seconds for which work that is under way waits for its machine."""

SKEW_S = 5.0
"""Seconds by which clocks may differ, and messages be late, before ages are corrected."""

WORDS_MAX = 300
"""The most characters shown of why a machine is away."""

ASK_S = 4.0
"""Seconds of a machine's silence after which it is asked, over the present connection: its signs of
life come every 15 s."""

ANSWER_S = 3.0
"""Seconds for its answer after which the silence is shown."""

VISIBLE_MAX = 2000
"""The most sandboxes whose use of the CPU is asked for at a time."""


class FarHost:
    """A machine of the config. `view` and `sandboxes` may be read by any thread."""

    def __init__(
        self,
        name: str,
        address: str,
        *,
        changed: Callable[[], None],
        askpass: Callable[[], Askpass | None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Calls ``changed`` when the view or the sandboxes have changed. ``askpass`` makes the
        object that asks the user for passwords; None if nobody is asked."""
        self.name = name
        self._address = address
        self._changed = changed
        self._askpass = askpass
        self._clock = clock
        self.view = MachineView(
            name=sanitise(name),
            address=sanitise(address, limit=WORDS_MAX),
            state=MachineState.CONNECTING,
            since=clock(),
        )
        self.sandboxes: tuple[SandboxView, ...] = ()
        self.error = ""
        """The reason why some of its sandboxes could not be read there."""
        self._connection: Connection | None = None
        self._welcomes = 0
        """The number of connections so far, which tells one from the next."""
        self.generation = 0
        """Grows when the machine no longer knows the work begun there."""
        self._met: asyncio.Event = asyncio.Event()
        """Set while a connection is there."""
        self._moved: asyncio.Event = asyncio.Event()
        """Set, and replaced, when the connection or the machine's state has changed."""
        self._hopeless: RemoteError | None = None
        """The reason why it makes no sense to wait for the machine."""
        self._wake = asyncio.Event()
        self._asked_again = asyncio.Event()
        self._visible: tuple[str, ...] = ()
        self._fresh = False
        self._tell_wishes: Callable[[], None] = lambda: None
        self._pause = 0.0
        """Seconds before the next attempt to connect."""
        self.skew = 0.0
        """Seconds by which our clock is ahead of the machine's, as far as that can be seen."""

    # For others

    @property
    def destination(self) -> Destination | NodeDestination:
        return self._live.destination

    @property
    def link(self) -> Link:
        """The present connection. Raises RemoteUnreachableError if the machine is away."""
        if not self._met.is_set():
            raise RemoteUnreachableError(self.away_words)
        return self._live.link

    @property
    def connection(self) -> int:
        """Tells the present connection from others; 0 if the machine is away."""
        return self._welcomes if self._met.is_set() else 0

    @property
    def _live(self) -> Connection:
        if self._connection is None:
            raise RemoteUnreachableError(self.away_words)
        return self._connection

    @property
    def waiting_words(self) -> str:
        """The words for work that waits for the machine."""
        if self.view.state is MachineState.UNANSWERED:
            return f"{self.name} is away until its question is answered"
        return f"{self.name} is away: waiting for it, {GIVE_UP_S / 60:g} min at most"

    @property
    def away_words(self) -> str:
        """Words that say that the machine is away, and why."""
        why = f": {self.view.why}" if self.view.why else ""
        return f"{self.name} is away{why}"

    async def again(self, error: RemoteError, *, told: Callable[[RemoteError], None]) -> None:
        """Waits for the next connection, which this object makes for all callers. ``told`` gets
        ``error`` at each change meanwhile. Raises the reason why the machine is given up."""
        before = self._welcomes
        try:
            async with asyncio.timeout(GIVE_UP_S):
                while True:
                    if self._met.is_set() and (
                        self._welcomes != before or not self.link.ended.is_set()
                    ):
                        return
                    if self._hopeless is not None:
                        raise self._hopeless
                    told(error)
                    await self._moved.wait()
        except TimeoutError:
            raise error from None

    def _move(self) -> None:
        """Wakes those that wait for the machine."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def next_connection(self, before: int) -> int:
        """Waits for another connection than ``before``, and returns its number."""
        while True:
            await self._met.wait()
            if self._welcomes != before:
                return self._welcomes
            await self._live.link.ended.wait()
            await asyncio.sleep(SETTLE_S)  # until the new connection is noted

    def can(self, capability: str) -> bool:
        """Returns whether the machine has said that it has a capability."""
        return self._connection is not None and self._connection.can(capability)

    def got_on(self) -> None:
        """Does nothing: `run` decides how long it waits."""

    def sandbox(self, sandbox_id: str) -> SandboxView | None:
        """Returns a sandbox by its id of that machine."""
        wanted = at_host(sandbox_id, self.name)
        return next((view for view in self.sandboxes if view.id == wanted), None)

    def want(self, visible: Collection[str], *, fresh: bool) -> None:
        """Sets the visible sandboxes, by their ids on that machine. With ``fresh`` the machine
        reads everything anew, and a machine that is away is tried at once."""
        wanted = tuple(sorted(visible)[:VISIBLE_MAX])
        if fresh:
            self._wake.set()
        if wanted != self._visible or fresh:
            self._visible, self._fresh = wanted, fresh
            self._tell_wishes()

    def ask_again(self) -> None:
        """Connects once more if the user has left a question of ssh unanswered."""
        self._asked_again.set()

    # The connection

    async def run(self) -> None:
        """Connects, again and again, until it is cancelled."""
        try:
            await self._run()
        finally:
            if self._hopeless is None:
                self._hopeless = RemoteError(f"{self.name} was left")
            self._move()

    async def _run(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            try:
                destination = parse_address(self._address)
                askpass = self._askpass()
                if askpass is not None:
                    await stack.enter_async_context(askpass)
            except (ConfigError, FleetError, HostError, OSError) as error:
                self._note(MachineState.UNFIT, error)
                return
            await self._stay(Connection(destination, asks=False, askpass=askpass))

    async def _stay(self, connection: Connection) -> None:
        """Keeps up a connection."""
        self._connection = connection
        first, longest = PAUSES_S
        try:
            while True:
                try:
                    await self._talk(connection)
                except RemoteUnansweredError as error:
                    self._asked_again.clear()
                    self._note(MachineState.UNANSWERED, error)
                    await self._asked_again.wait()
                except (RemoteUnreachableError, OSError) as error:
                    self._note(MachineState.AWAY, error)
                except (RemoteError, HostError) as error:
                    self._note(MachineState.UNFIT, error)
                finally:
                    self._met.clear()
                    self._tell_wishes = lambda: None
                self._pause = min(max(2 * self._pause, first), longest)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause):
                        await self._wake.wait()
                self._wake.clear()
        finally:
            await connection.close()

    async def _talk(self, connection: Connection) -> None:
        """Follows the machine over one connection. Raises the error that ended it."""
        welcome = await connection.open(resume=self._welcomes > 0)
        if not connection.can(WATCH):
            version = welcome.version or "an unknown version"
            raise RemoteError(
                f"quicksand-tui {version} there cannot tell what happens",
                hint="install the same version on both machines",
            )
        self.generation += not welcome.resumed
        self._welcomes += 1
        self._hopeless = None
        self._met.set()
        self._move()
        await self._follow(connection.link)

    async def _follow(self, link: Link) -> None:
        channel = link.open("watch")
        await channel.reply
        learner, lines = Learner(), Lines()

        def tell_wishes() -> None:
            fresh, self._fresh = self._fresh, False
            channel.tell("look", visible=list(self._visible), fresh=fresh)

        self._tell_wishes = tell_wishes
        tell_wishes()
        minding = asyncio.create_task(self._mind(link), name="quicksand-mind")
        try:
            while data := (await channel.piece()).data:
                for line in lines.feed(data):
                    self._take(await _learn(learner, line))
        except ForeignValueError as error:
            broken = RemoteProtocolError(f"what {self.name} tells makes no sense: {error}")
            link.end(broken)
            raise broken from error
        finally:
            minding.cancel()
            await asyncio.wait((minding,))
        raise RemoteUnreachableError(f"{self.name} tells no more")

    async def _mind(self, link: Link) -> None:
        """Notes when the machine falls silent, and when it is heard again, until the connection
        ends. One question at a time is on its way."""
        with contextlib.suppress(RemoteError):
            while True:
                await asyncio.sleep(max(0.0, ASK_S - link.silent_s))
                if link.silent_s < ASK_S:
                    continue
                asked = link.open("ping")
                try:
                    await asyncio.wait((asked.reply,), timeout=ANSWER_S)
                    if not asked.reply.done() and link.silent_s >= ASK_S + ANSWER_S:
                        self._note_silence(self._clock() - link.silent_s)
                    await asyncio.wait((asked.reply,))
                finally:
                    asked.close()
                self._note_silence(None)

    # Showing

    def _note_silence(self, since: float | None) -> None:
        """Shows the Unix time since when the machine has not answered; None if it answers."""
        before = self.view.silent_since
        if since == before:
            return
        self.view = replace(self.view, silent_since=since)
        self.sandboxes = tuple(
            replace(view, silent_since=since) if view.silent_since in (None, before) else view
            for view in self.sandboxes
        )
        self._changed()

    def _take(self, world: FarWorld) -> None:
        self._note_silence(None)
        now = self._clock()
        self._pause = 0.0
        skew = now - world.now
        if abs(skew - self.skew) > SKEW_S:
            self.skew = 0.0 if abs(skew) <= SKEW_S else skew
        state = MachineState.THERE
        if state is not self.view.state:
            self.view = replace(self.view, state=state, since=now, why="", hint="")
        if (world.images, world.host) != (self.view.images, self.view.host):
            self.view = replace(self.view, images=world.images, host=world.host)
        self.error = world.error
        known = {view.id: view for view in self.sandboxes}
        self.sandboxes = tuple(
            self._view(view, known.get(at_host(view.id, self.name)))
            for view in world.sandboxes.values()
        )
        self._changed()

    def _view(self, view: SandboxView, known: SandboxView | None) -> SandboxView:
        """Returns a sandbox as one of all machines'; the same object as before if it is
        unchanged."""
        now = replace(
            view,
            id=at_host(view.id, self.name),
            name=at_host(view.name, self.name),
            host=self.name,
        )
        now = _shifted(now, self.skew) if self.skew else now
        if known is not None and known == now and known.history == now.history:
            return known
        return now

    def _note(self, state: MachineState, error: Exception) -> None:
        """Notes that the machine is away, or cannot be used; its last known state is kept."""
        if isinstance(error, QuicksandError):
            why, hint = text_of(error), hint_of(error)
        else:
            why, hint = getattr(error, "strerror", None) or str(error), ""
        # The further lines are output of ssh and the machine.
        why = sanitise(" · ".join(why.split("\n")), limit=WORDS_MAX)
        self._hopeless = RemoteError(why) if state is MachineState.UNFIT else None
        self._note_silence(None)
        since = self.view.since if state is self.view.state else self._clock()
        self.view = replace(
            self.view, state=state, since=since, why=why, hint=sanitise(hint, limit=WORDS_MAX)
        )
        self.sandboxes = tuple(
            view if view.away else replace(view, away=True) for view in self.sandboxes
        )
        self._move()
        self._changed()


def _shifted(view: SandboxView, seconds: float) -> SandboxView:
    """Returns a sandbox with its times by our clock."""

    def ours(time: float | None) -> float | None:
        return None if time is None else time + seconds

    made = tuple(
        replace(one, created=one.created and one.created + seconds) for one in view.tree.checkpoints
    )
    return replace(
        view,
        created=ours(view.created),
        started=ours(view.started),
        silent_since=ours(view.silent_since),
        tree=replace(view.tree, checkpoints=made),
    )


LONG_LINE = 64 * 1024
"""Bytes from which a line is read in a thread, so that keys for guests need not wait."""


async def _learn(learner: Learner, line: bytes) -> FarWorld:
    if len(line) < LONG_LINE:
        return learner.learn(line)
    return await asyncio.to_thread(learner.learn, line)
