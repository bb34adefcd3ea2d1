"""Looks at the disk regularly, and at once when asked to."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from quicksand_tui.model.jobs import OperationError
from quicksand_tui.model.text import error_text
from quicksand_tui.model.world import MachineState, World
from quicksand_tui.views.happenings import happenings, past

if TYPE_CHECKING:
    from collections.abc import Callable

    from quicksand_tui.door.service import EngineService
    from quicksand_tui.door.ssh_asking import AskUser
    from quicksand_tui.home.config_file import Settings
    from quicksand_tui.views.happenings import Happening

EVENTS_MAX = 1000
"""The most events of sandboxes that are kept."""
LOOK_WAIT_S = 5.0
"""The most seconds to wait until a look at the disk is shown."""
SOON_S = 0.05
"""Seconds from a message of another machine to the look that shows it."""
REPAINT_EVERY_S = 10.0
"""Seconds after which the world is shown again even if unchanged, to update ages."""


class WorldWatch:
    """Holds the last world read. Lives on the UI's event loop; a thread reads."""

    def __init__(
        self,
        service: EngineService,
        settings: Settings,
        *,
        clock: Callable[[], float],
        at_least_s: float,
        asks: Callable[[], tuple[frozenset[str], frozenset[str]]],
        moves: Callable[[], bool],
        looked: Callable[[], None],
        changed: Callable[[], None],
        loaded: Callable[[], None],
        seen: World | None = None,
    ) -> None:
        """``at_least_s`` are the least seconds between two looks; the config may ask for more.
        ``asks`` returns the ids of the sandboxes whose use of the CPU, and of those whose network
        is wanted; ``moves`` says whether the screen changes even if the disk does not. Calls
        ``looked`` after each look, ``changed`` when the world must be shown, and ``loaded`` after
        the first look. ``seen`` is the result of an earlier look."""
        self._service = service
        self._settings = settings
        self._clock = clock
        self._at_least_s = at_least_s
        self._asks = asks
        self._moves = moves
        self._looked = looked
        self._changed = changed
        self._loaded = loaded
        self.world = seen or World(taken=clock(), loaded=False)
        """The world as the service read it."""
        self.events: deque[Happening] = deque(maxlen=EVENTS_MAX)
        """The last events of sandboxes, the latest last."""
        self._has_past = False
        self.shown = 0.0
        """The time when the world was last shown."""
        self._again = asyncio.Event()
        self._soon = False
        self._fresh = False
        self._lookers: list[asyncio.Future[None]] = []
        """Futures that wait for a look that begins after them."""

    async def run(self, answer_ssh: AskUser) -> None:
        """Looks until it is cancelled. ``answer_ssh`` asks the user the questions of ssh on the way
        to other machines."""
        loop = asyncio.get_running_loop()

        def told_there() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the app ends
                loop.call_soon_threadsafe(self._look_soon)

        self._service.when_told(told_there)
        self._service.when_asked(answer_ssh, loop)
        while True:
            await self._turn()
            with contextlib.suppress(TimeoutError):
                every_s = max(self._at_least_s, self._settings.config.look_every_s)
                await asyncio.wait_for(self._again.wait(), every_s)

    def _look_soon(self) -> None:
        """Looks soon, since another machine has told something; it may tell more at once."""
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_later(SOON_S, self._again.set)

    async def _turn(self) -> None:
        fresh, self._fresh = self._fresh, False
        self._again.clear()
        self._soon = False
        lookers, self._lookers = self._lookers, []
        world = await self._look_once(fresh=fresh)
        self._looked()
        before = replace(self.world, taken=world.taken)
        self._note_events(world)
        away = any(machine.state is not MachineState.THERE for machine in world.machines)
        silent = any(view.silent_since is not None for view in world.sandboxes)
        silent = silent or any(one.silent_since is not None for one in world.machines)
        # The time since a thing is away, or does not answer, is shown in seconds.
        stale = world.taken - self.shown >= REPAINT_EVERY_S or away or silent or self._moves()
        self.world = world
        if world != before or stale or fresh:
            self.shown = world.taken
            self._changed()
        if not before.knows_images:
            self._loaded()
        for looker in lookers:
            if not looker.done():
                looker.set_result(None)

    def _note_events(self, world: World) -> None:
        """Keeps the events since the last look; at the first one, past events that the disk
        tells."""
        if self._has_past:
            self.events.extend(happenings(self.world, world))
        elif world.loaded and not world.error:
            self._has_past = True
            self.events.extend(past(world))

    async def _look_once(self, *, fresh: bool) -> World:
        """Looks at the disk. If the host lets it read nothing, the world stays as it was, and shows
        an error until a later look."""
        visible, network = self._asks()
        try:
            return await asyncio.to_thread(self._look_at_disk, visible, network, fresh)
        except (OSError, OperationError) as error:
            self._fresh = self._fresh or fresh
            return replace(self.world, taken=self._clock(), loaded=True, error=error_text(error))

    def _look_at_disk(self, visible: frozenset[str], network: frozenset[str], fresh: bool) -> World:
        self._settings.look()
        return self._service.read(visible=visible, network=network, fresh=fresh)

    def refresh(self, *, fresh: bool = False) -> None:
        """Looks at once; ``fresh`` reads everything anew."""
        self._fresh = self._fresh or fresh
        self._again.set()

    async def look(self) -> None:
        """Looks, and returns when the result is shown, after `LOOK_WAIT_S` at most."""
        looker = asyncio.get_running_loop().create_future()
        self._lookers.append(looker)
        self._again.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(looker, LOOK_WAIT_S)
