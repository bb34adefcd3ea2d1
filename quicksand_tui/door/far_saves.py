"""The saves and the trash of another machine, as the app sees them: it asks for them while a screen
shows saves, and then the machine tells their changes.

All runs on the engine's loop, unless said otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from quicksand.base.errors import RemoteError
from quicksand.base.typed_values import ForeignValueError
from quicksand.things.save import Verification, key_at

from quicksand_tui.door.far_lines import LEAVE, LOOK, WATCH_SAVES, Lines, SavesLearner
from quicksand_tui.door.saves_look import Found, with_verdicts
from quicksand_tui.model.remedy_words import text_of
from quicksand_tui.model.shown_saves import NO_SAVES, SavesView
from quicksand_tui.model.text import sanitise
from quicksand_tui.model.world import MachineState

if TYPE_CHECKING:
    from quicksand.remote.peer_link import Channel

    from quicksand_tui.door.far_host import FarHost

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
