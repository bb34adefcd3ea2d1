"""The other machines of the app, and the sandboxes and saves on each of them."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from quicksand.base.errors import RemoteError
from quicksand.base.typed_values import ForeignValueError
from quicksand.things.save import key_at

from quicksand_tui.door.far_host import FarHost
from quicksand_tui.door.far_lines import LEAVE, LOOK, WATCH_SAVES, Lines, SavesLearner
from quicksand_tui.door.saves_look import Found, with_verdicts
from quicksand_tui.model.remedy_words import text_of
from quicksand_tui.model.shown_sandboxes import split_host
from quicksand_tui.model.shown_saves import NO_SAVES, SavesView, all_together
from quicksand_tui.model.text import sanitise
from quicksand_tui.model.world import MachineState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from quicksand.remote.askpass import Askpass
    from quicksand.remote.peer_link import Channel
    from quicksand.things.save import Verification

    from quicksand_tui.model.world import World


LONG_LINE = 64 * 1024
"""Bytes from which a line is read in a thread, so that keys for guests need not wait."""

WORDS_MAX = 300
"""The most characters shown of why the saves of a machine are not known."""

TOO_OLD = "the quicksand-tui there cannot tell its saves: install the same version on both machines"


class FarSaves:
    """The saves of one machine."""

    def __init__(
        self,
        host: FarHost,
        *,
        changed: Callable[[], None],
        tasks: set[asyncio.Task[None]],
    ) -> None:
        """Calls ``changed`` when the view has changed. ``tasks`` are those of the engine's loop
        that are awaited when the app ends."""
        self.host = host
        self._changed = changed
        self._tasks = tasks
        self._told = NO_SAVES
        """The saves as the machine has told them."""
        self._verdicts: Mapping[str, Found] = {}
        self._shown: tuple[object, SavesView] = (None, NO_SAVES)
        """The view that `view` has made, behind the facts that it was made of."""
        self._task: asyncio.Task[None] | None = None
        self._channel: Channel | None = None

    @property
    def view(self) -> SavesView:
        """The saves as one machine's; the same object as before if nothing has changed. May be
        called by any thread."""
        is_away = self.host.view.state not in (MachineState.THERE, MachineState.CONNECTING)
        of = (self._told, self._verdicts, is_away)
        before, shown = self._shown
        if isinstance(before, tuple) and all(a is b for a, b in zip(of, before, strict=True)):
            return shown
        view = with_verdicts(self._told, self._verdicts)
        if is_away:
            view = replace(
                view,
                saves=tuple(replace(save, away=True) for save in view.saves),
                trash=tuple(replace(found, away=True) for found in view.trash),
            )
        self._shown = (of, view)
        return view

    def learn(self, verdicts: Mapping[str, Verification]) -> None:
        """Remembers the verdicts of verified saves, by their paths there."""
        ids = {save.path: save.id for save in self._told.saves}
        found = {
            key_at(path, self.host.name): (ids[path], verdict)
            for path, verdict in verdicts.items()
            if path in ids
        }
        self._verdicts = {**self._verdicts, **found}
        self._changed()

    # Asking

    def want(self, *, fresh: bool) -> None:
        """Follows the saves from now on; with ``fresh`` the machine reads everything anew."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"quicksand-saves-{self.host.name}")
            self._tasks.add(self._task)
            self._task.add_done_callback(self._tasks.discard)
        elif fresh and self._channel is not None:
            self._channel.tell(LOOK)
        elif fresh and self._told.error:
            self.leave()
            self.want(fresh=False)

    def leave(self) -> None:
        """Follows the saves no more; the known ones stay."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        """Follows the machine over each of its connections until it is cancelled."""
        connection = 0
        while True:
            connection = await self.host.next_connection(connection)
            try:
                if self.host.can(WATCH_SAVES):
                    await self._follow()
                else:
                    self._fail(TOO_OLD)
            except ForeignValueError as error:
                self._fail(f"what {self.host.name} tells of its saves makes no sense: {error}")
            except RemoteError as error:
                if self.host.connection == connection and not self.host.link.ended.is_set():
                    self._fail(text_of(error))

    async def _follow(self) -> None:
        """Follows the machine over one connection. Raises RemoteError, ForeignValueError."""
        self._channel = channel = self.host.link.open(WATCH_SAVES)
        learner, lines = SavesLearner(self.host.name), Lines()
        try:
            await channel.reply
            while data := (await channel.piece()).data:
                for line in lines.feed(data):
                    learner.skew = self.host.skew
                    if len(line) < LONG_LINE:
                        told = learner.learn(line)
                    else:
                        told = await asyncio.to_thread(learner.learn, line)
                    if told is not None:
                        self._told = told
                        self._changed()
        finally:
            self._channel = None
            channel.tell(LEAVE)
            channel.close()

    def _fail(self, why: str) -> None:
        """Notes why the saves are not known, or no longer; known ones stay."""
        error = sanitise(" · ".join(why.split("\n")), limit=WORDS_MAX)
        self._told = replace(self._told, loaded=True, error=error)
        self._changed()


class FarHosts:
    """Machines by name. Made and used by the UI's thread and the thread that reads; their work is
    done on the engine's loop."""

    def __init__(
        self,
        changed: Callable[[], None],
        *,
        saves_changed: Callable[[], None],
        tasks: set[asyncio.Task[None]],
        askpass: Callable[[], Askpass | None],
    ) -> None:
        """Calls ``changed``, on the engine's loop, when a machine has told something, and
        ``saves_changed`` when that is about saves. ``tasks`` are those of that loop that are
        awaited when the app ends. ``askpass`` is as in `FarHost`."""
        self._changed = changed
        self._saves_changed = saves_changed
        self._tasks = tasks
        self._askpass = askpass
        self._hosts: dict[str, FarHost] = {}
        self._saves: dict[str, FarSaves] = {}
        """The saves of machines, by name, once a screen has shown saves."""
        self._shown_saves: SavesView | None = None
        """The view that `joined_saves` has returned last."""
        self._running: dict[str, asyncio.Task[None]] = {}
        """Tasks by the names of their machines, on the engine's loop."""
        self._known_by: dict[str, tuple[str, str]] = {}
        """The address and the id of each machine."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def meet(
        self,
        addresses: Mapping[str, str],
        loop: asyncio.AbstractEventLoop,
        ids: Mapping[str, str],
    ) -> None:
        """Sets the machines, and drops those that are no longer among them. Before `want` no
        machine is connected to; machines that come later are at once. ``ids`` tell apart machines
        that have the same address one after the other."""
        self._loop = loop
        before = self._known_by
        self._known_by = {name: (addresses[name], ids.get(name, "")) for name in addresses}
        hosts = {}
        for name, address in addresses.items():
            known = self._hosts.get(name)
            same = known is not None and before.get(name) == self._known_by[name]
            hosts[name] = (
                known
                if same and known is not None
                else FarHost(name, address, changed=self._changed, askpass=self._askpass)
            )
        self._hosts = hosts
        if before:
            self._begin()

    def find(self, sandbox_id: str) -> tuple[FarHost, str] | None:
        """Returns the machine of a sandbox, and its id there; None if it is this machine's."""
        own, host = split_host(sandbox_id)
        found = self._hosts.get(host) if host else None
        return None if found is None else (found, own)

    def want(self, visible: Collection[str], *, fresh: bool) -> list[str]:
        """Tells the machines which of their sandboxes are visible; returns those of this machine.
        The first call begins to connect. Called in the thread that reads."""
        own: list[str] = []
        theirs: dict[str, list[str]] = {name: [] for name in self._hosts}
        for id_ in visible:
            if (there := self.find(id_)) is None:
                own.append(id_)
            else:
                theirs[there[0].name].append(there[1])
        self._begin()
        for name, ids in theirs.items():
            if (host := self._hosts.get(name)) is not None:
                self._do(partial(host.want, ids, fresh=fresh))
        return own

    def ask_again(self) -> None:
        """Has the machines tried again whose questions were left unanswered."""
        for host in self._hosts.values():
            self._do(host.ask_again)

    def joined(self, world: World, drained: Collection[str] = ()) -> World:
        """Returns the world of this machine with those of the others; ``drained`` names those that
        take nothing new."""
        hosts = list(self._hosts.values())
        return replace(
            world,
            machines=tuple(
                replace(host.view, is_drained=True) if host.name in drained else host.view
                for host in hosts
            ),
            sandboxes=(*world.sandboxes, *(view for host in hosts for view in host.sandboxes)),
            error=world.error or next((host.error for host in hosts if host.error), ""),
        )

    # Saves

    def want_saves(self, *, wanted: bool, fresh: bool) -> None:
        """Follows the saves of all machines from now on, or no more. Called in the thread that
        reads. Without this, no machine is asked for its saves."""
        if wanted or self._saves:
            self._do(partial(self._follow_saves, wanted=wanted, fresh=fresh))

    def joined_saves(self, own: SavesView) -> SavesView:
        """Returns the saves of this machine with those of the others; the same object as before if
        nothing has changed."""
        hosts, known = list(self._hosts.values()), self._saves
        if not hosts:
            return own
        parts = {"": own}
        for host in hosts:
            saves = known.get(host.name)
            is_same = saves is not None and saves.host is host
            parts[host.name] = saves.view if is_same and saves is not None else NO_SAVES
        before = None if self._shown_saves is None else self._shown_saves.parts
        if before is None or not _are_same(before, parts):
            self._shown_saves = all_together(parts)
        assert self._shown_saves is not None
        return self._shown_saves

    def note_verdicts(self, host: FarHost, verdicts: Mapping[str, Verification]) -> None:
        """Remembers the verdicts on saves of a machine. On the engine's loop."""
        if (saves := self._saves.get(host.name)) is not None:
            saves.learn(verdicts)

    # On the engine's loop

    def _follow_saves(self, *, wanted: bool, fresh: bool) -> None:
        hosts, before = self._hosts, self._saves
        for name, saves in before.items():
            if not wanted or hosts.get(name) is not saves.host:
                saves.leave()
        kept = {name: one for name, one in before.items() if hosts.get(name) is one.host}
        if wanted:
            for name, host in hosts.items():
                if name not in kept:
                    kept[name] = FarSaves(host, changed=self._saves_changed, tasks=self._tasks)
                kept[name].want(fresh=fresh)
        self._saves = kept

    def _begin(self) -> None:
        self._do(self._run_all)

    def _do(self, function: Callable[[], object]) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: the app ends
            self._loop.call_soon_threadsafe(function)

    def _run_all(self) -> None:
        hosts = self._hosts
        for name, task in list(self._running.items()):
            host = hosts.get(name)
            if host is None or task.get_name() != _task_name(host):
                task.cancel()
                del self._running[name]
        for name, host in hosts.items():
            if name not in self._running:
                task = asyncio.create_task(host.run(), name=_task_name(host))
                self._running[name] = task
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)


def _are_same(ones: Mapping[str, SavesView], others: Mapping[str, SavesView]) -> bool:
    """Whether two mappings have the same objects, in the same order."""
    return list(ones) == list(others) and all(ones[name] is others[name] for name in ones)


def _task_name(host: FarHost) -> str:
    return f"quicksand-host-{host.name}-{id(host)}"
