"""Looks regularly, and at once when asked to, at all that may change outside the app: sandboxes,
saves, and the config."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from quicksand_driver.textual_private import driver_of
from textual.message import Message

from quicksand_tui.actions.all_actions import default_keymap, line_keys
from quicksand_tui.kit.base import tell
from quicksand_tui.model.jobs import OperationError
from quicksand_tui.model.text import error_text
from quicksand_tui.model.world import MachineState, World
from quicksand_tui.ui.themes import fitting_theme
from quicksand_tui.views.happenings import happenings, past

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App

    from quicksand_tui.cockpit.present_world import Present
    from quicksand_tui.door.service import EngineService
    from quicksand_tui.door.ssh_asking import AskUser
    from quicksand_tui.home.config_file import Settings
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.screens.dialogs import Dialogs
    from quicksand_tui.ui.key_routing import ScreenStack


LOOK_WAIT_S = 5.0
"""The most seconds to wait until a look at the disk is shown."""
SOON_S = 0.05
"""Seconds from a message of another machine to the look that shows it."""
REPAINT_EVERY_S = 10.0
"""Seconds after which the world is shown again even if unchanged, to update ages."""


class FirstLook(Message):
    """The first look at the disk has ended."""


class WorldWatch:
    """Reads the world. Lives on the UI's event loop; a thread reads."""

    def __init__(
        self,
        app: App[int],
        service: EngineService,
        settings: Settings,
        operations: Operations,
        present: Present,
        stack: ScreenStack,
        config_watch: ConfigWatch,
        *,
        clock: Callable[[], float],
        at_least_s: float,
    ) -> None:
        """``at_least_s`` are the least seconds between two looks; the config may ask for more."""
        self._app = app
        self._service = service
        self._settings = settings
        self._clock = clock
        self._at_least_s = at_least_s
        self._operations = operations
        self._present = present
        self._stack = stack
        self._config_watch = config_watch
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
        self._config_watch.look()
        before = replace(self._present.read, taken=world.taken)
        self._note_events(world)
        away = any(machine.state is not MachineState.THERE for machine in world.machines)
        silent = any(view.silent_since is not None for view in world.sandboxes)
        silent = silent or any(one.silent_since is not None for one in world.machines)
        # The time since a thing is away, or does not answer, is shown in seconds.
        stale = (
            world.taken - self.shown >= REPAINT_EVERY_S or away or silent or self._operations.jobs
        )
        self._present.read = world
        if world != before or stale or fresh:
            self.shown = world.taken
            self._stack.show()
        if not before.knows_images:
            self._app.post_message(FirstLook())
        for looker in lookers:
            if not looker.done():
                looker.set_result(None)

    def _note_events(self, world: World) -> None:
        """Keeps the events since the last look; at the first one, past events that the disk
        tells."""
        if self._has_past:
            self._present.events.extend(happenings(self._present.read, world))
        elif world.loaded and not world.error:
            self._has_past = True
            self._present.events.extend(past(world))

    async def _look_once(self, *, fresh: bool) -> World:
        """Looks at the disk. If the host lets it read nothing, the world stays as it was, and shows
        an error until a later look."""
        visible, network = self._stack.visible_sandboxes, self._stack.sandboxes_with_network
        try:
            return await asyncio.to_thread(self._look_at_disk, visible, network, fresh)
        except (OSError, OperationError) as error:
            self._fresh = self._fresh or fresh
            return replace(
                self._present.read, taken=self._clock(), loaded=True, error=error_text(error)
            )

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


LOOK_EVERY_S = 0.5
"""Seconds between two looks."""
"""The most seconds to wait until a look is shown."""


class SavesWatch:
    """Reads the saves while a screen shows them, and once for their number. Lives on the UI's event
    loop; a thread reads."""

    def __init__(
        self,
        service: EngineService,
        present: Present,
        stack: ScreenStack,
    ) -> None:
        self._present = present
        self._stack = stack
        self.is_running = False
        self._service = service
        self._again = asyncio.Event()
        self._fresh = False
        self._lookers: list[asyncio.Future[None]] = []
        """Futures that wait for a look that begins after them."""

    async def run(self) -> None:
        """Looks once, then regularly and when asked to, until no screen shows saves."""
        self.is_running = True
        loop = asyncio.get_running_loop()

        def told_there() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the app ends
                loop.call_soon_threadsafe(self._again.set)

        self._service.when_saves_told(told_there)
        try:
            while True:
                await self._look_once()
                if self._stack.shows_saves:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._again.wait(), LOOK_EVERY_S)
                elif not self._again.is_set():
                    return
        finally:
            self.is_running = False
            self._release(self._lookers)

    async def _look_once(self) -> None:
        fresh, self._fresh = self._fresh, False
        self._again.clear()
        lookers, self._lookers = self._lookers, []
        try:
            there = self._stack.shows_saves
            view = await asyncio.to_thread(self._service.read_saves, fresh=fresh, there=there)
        except (OSError, OperationError) as error:
            # The saves stay as they were until a later look.
            view = replace(self._present.saves, loaded=True, error=error_text(error))
        finally:
            self._release(lookers)
        if view != self._present.saves:
            self._present.saves = view
            self._stack.show()

    @staticmethod
    def _release(lookers: list[asyncio.Future[None]]) -> None:
        for looker in lookers:
            if not looker.done():
                looker.set_result(None)

    def refresh(self, *, fresh: bool = False) -> None:
        """Looks at once; ``fresh`` reads everything even if nothing seems to have changed."""
        self._fresh = self._fresh or fresh
        self._again.set()

    async def look(self) -> None:
        """Looks, and returns when the result is shown; at once if no screen shows saves."""
        if not self.is_running or not self._stack.shows_saves:
            return
        looker = asyncio.get_running_loop().create_future()
        self._lookers.append(looker)
        self._again.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(looker, LOOK_WAIT_S)


class ConfigWatch:
    """Gives the settings to all parts that use them, and reports problems in them."""

    def __init__(
        self,
        app: App[int],
        settings: Settings,
        keys: Keys,
        service: EngineService,
        stack: ScreenStack,
        dialogs: Dialogs,
    ) -> None:
        """``service`` is told of other machines."""
        self._service = service
        self._stack = stack
        self._dialogs = dialogs
        self._app = app
        self._settings = settings
        self._keys = keys

    def look(self) -> None:
        """Applies a change of the config, and reports it."""
        app, settings = self._app, self._settings
        theme = settings.config.theme
        words = settings.take_change(app.available_themes)
        if words is None:
            return
        self.use_keymap()
        self._service.meet(settings.config.hosts)
        if (chosen := settings.config.theme) != theme:
            app.theme = chosen or fitting_theme()
        self._stack.show()
        told = settings.report()
        if told is None:
            self._dialogs.show_config_report(None)
            tell(app, words)
        elif self._keys.panes.pane is None:
            self._dialogs.show_config_report(replace(told, lines=(*told.lines, "", words)))
        else:  # a dialog would interrupt typing into a shell
            tell(app, f"{told.summary}: {told.lines[0]}", severity="warning")

    def use_keymap(self) -> None:
        """Gives the keys to Textual, to the judgement of typing, and to the terminal's driver."""
        keymap = self._settings.keymap
        self._app.set_keymap(keymap.changes_from(default_keymap()))
        self._keys.hands.line_keys = line_keys(keymap)
        if (driver := driver_of(self._app)) is not None:
            driver.prefix = keymap.prefix.data
