"""The app's class: it shows the world, runs operations, and lends the terminal to shells."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from quicksand_driver.textual_private import (
    CommandTyped,
    RawDriver,
    RawInput,
    TerminalAnswered,
    TerminalTaken,
    end_with,
    keep_clipboard,
)
from textual import events, on, work
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.driver import Driver

from quicksand_tui.cockpit.area import Area
from quicksand_tui.cockpit.present_world import Present
from quicksand_tui.door.failures import describe_fault
from quicksand_tui.home.config_file import Settings
from quicksand_tui.home.state import PaneMemory, Remembered, ThemeChoice
from quicksand_tui.jobs.operations import Operations
from quicksand_tui.kit.base import SavesShown, Stale, tell
from quicksand_tui.kit.key_handling import Keys
from quicksand_tui.kit.outer_terminal import OuterTerminal
from quicksand_tui.kit.remembered import Memory
from quicksand_tui.model.world import World
from quicksand_tui.screens.dialogs import Dialogs
from quicksand_tui.screens.main_screen import MainScreen
from quicksand_tui.screens.terminal_loan import FullShell
from quicksand_tui.ui import lazy_parts
from quicksand_tui.ui.everywhere import Everywhere, Leaving
from quicksand_tui.ui.key_routing import KeyRouting, ScreenStack
from quicksand_tui.ui.themes import AppLooks
from quicksand_tui.ui.world_watch import ConfigWatch, FirstLook, SavesWatch, WorldWatch
from quicksand_tui.widgets.inputs import LineInput

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from quicksand_driver.probe import Probe
    from textual.screen import Screen

    from quicksand_tui.door.service import EngineService
    from quicksand_tui.kit.key_handling import Hands
    from quicksand_tui.model.jobs import Failure
    from quicksand_tui.model.keymap import Prefix


CLIPBOARD_MAX = 74_994
"""The most bytes for the terminal's clipboard (OSC 52). In base64 and with the sequence around it,
that is 100,000 bytes, the limit of hterm and the smallest that a terminal documents."""
T = TypeVar("T")


class QuicksandApp(App[int]):
    """Holds the last world and the jobs; everything shown derives from them."""

    TITLE = "quicksand"
    # Textual does not load the style sheet of the first screen; other screens name theirs.
    CSS_PATH: ClassVar[list[Path]] = [  # type: ignore[assignment]
        Path(__file__).parents[1] / "screens" / "main.tcss",
        Path(__file__).parents[1] / "screens" / "looks.tcss",
    ]
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "quit", show=False, priority=True),
    ]

    def __init__(
        self,
        service: EngineService,
        *,
        clock: Callable[[], float] = time.time,
        ascii_glyphs: bool = False,
        settings: Settings | None = None,
        painted: Callable[[], None] = lambda: None,
        remembered: Remembered | None = None,
        pane_memory: PaneMemory | None = None,
        look_at_least_s: float = 0.0,
        theme: ThemeChoice | None = None,
        probe: Probe | None = None,
        count_saves_after_s: float | None = None,
        hands: Hands | None = None,
        seen: World | None = None,
    ) -> None:
        """Calls ``painted`` once, after the first paint; ``probe`` owns the terminal until then.
        Without ``remembered`` and ``pane_memory``, nothing is kept for the next run.
        ``look_at_least_s`` are the least seconds between two looks at the disk; the config may ask
        for more. ``count_saves_after_s`` are the seconds from the first look to the first reading
        of saves; None waits until they are opened."""
        # With NO_COLOR, Textual must write no colours at all, instead of greys or black on black.
        super().__init__(ansi_color=True if os.environ.get("NO_COLOR") is not None else None)
        self.service = service
        self.ascii = ascii_glyphs
        self.settings = settings or Settings()
        self._count_saves_after_s = count_saves_after_s
        self.probe = probe
        self.terminal = OuterTerminal(self, probe)
        self.keys = Keys(self, self.settings, hands)
        self.memory = Memory(
            self,
            remembered,
            pane_memory,
            known=lambda: frozenset(view.id for view in self.world.sandboxes),
        )
        wished = theme or ThemeChoice(wish=os.environ.get("TEXTUAL_THEME", ""))
        self.looks = AppLooks(self, wished, self.memory, ascii_only=ascii_glyphs)
        self.operations = self._make_operations(clock)
        read = seen or World(taken=clock(), loaded=False)
        self.present = Present(self.settings, self.operations, read)
        self.stack = ScreenStack(self, self.present)
        self.dialogs = self._make_dialogs()
        self.config_watch = ConfigWatch(
            self, self.settings, self.keys, service, self.stack, self.dialogs
        )
        self.world_watch = self._make_world_watch(clock, look_at_least_s)
        self.saves = SavesWatch(service, self.present, self.stack)
        self.key_routing = KeyRouting(self, self.stack, self.keys)
        self.full_shell = FullShell(
            self, service, self.operations, self.dialogs, self.present, ascii_only=ascii_glyphs
        )
        self._leaving = Leaving(self, self.operations, self.dialogs, self.keys, self.full_shell)
        self.everywhere = self._make_everywhere()
        self._painted_first = painted
        self.service.when_faulty(self._tell_fault)
        end_with(self, _words_of)
        self.looks.begin(self.terminal.abilities)
        self.settings.check(self.available_themes)

    def _make_operations(self, clock: Callable[[], float]) -> Operations:
        operations = Operations(self.service, self, clock=clock)
        operations.hints = lambda: self.keys.here
        operations.read_only = self.settings.read_only
        operations.saves_changed = self.watch_saves
        return operations

    def _make_dialogs(self) -> Dialogs:
        return Dialogs(
            self,
            self.service,
            self.operations,
            self.keys,
            self.memory,
            self.present,
            self.settings,
            ascii_only=self.ascii,
        )

    def _make_world_watch(self, clock: Callable[[], float], at_least_s: float) -> WorldWatch:
        return WorldWatch(
            self,
            self.service,
            self.settings,
            self.operations,
            self.present,
            self.stack,
            self.config_watch,
            clock=clock,
            at_least_s=at_least_s,
        )

    def _make_everywhere(self) -> Everywhere:
        return Everywhere(
            self,
            self.stack,
            self.operations,
            self.dialogs,
            self.keys,
            self.terminal,
            self.memory,
            self._leaving,
            self.service,
            self.present,
            ascii_only=self.ascii,
        )

    def get_default_screen(self) -> MainScreen:
        area = Area(
            self.service,
            self.settings,
            self.operations,
            self.keys,
            self.terminal,
            self.memory,
            confirm=self.dialogs.confirm,
            world=lambda: self.world,
            events=lambda: self.present.events,
            ascii_only=self.ascii,
            id="area",
        )
        return MainScreen(
            self.present,
            area,
            self.operations,
            self.dialogs,
            self.keys,
            self.terminal,
            self.memory,
            self.full_shell,
            everywhere=self.everywhere,
            rows=self.size.height,
            ascii_only=self.ascii,
        )

    @property
    def main(self) -> MainScreen:
        return self.stack.main

    @property
    def world(self) -> World:
        """The world as it is shown to the user, with running jobs."""
        return self.present.world

    @property
    def prefix(self) -> Prefix:
        return self.settings.keymap.prefix  # panes ask for it

    def on_load(self) -> None:
        asyncio.get_running_loop().set_exception_handler(self.service.unhandled)
        self._leaving.heed_signals()

    def on_mount(self) -> None:
        self.set_class(self.ascii, "-ascii")
        if self.looks.problem:
            tell(self, self.looks.problem, severity="warning")
        self.config_watch.use_keymap()
        if (told := self.settings.report()) is not None:
            self.call_after_refresh(self.dialogs.show_config_report, told)
        # This look loads much of the engine, so it comes after the first paint.
        self.call_after_refresh(self._watch)

    def _tell_fault(self, failure: Failure) -> None:
        """May be called on any thread."""
        self.call_later(tell, self, f"{failure.message}: {failure.hint}", severity="error")

    # Looks

    def watch_theme(self, name: str) -> None:
        self.looks.theme_changed(name)

    @on(TerminalTaken)
    def _take_terminal(self) -> None:
        self.terminal.changed.publish(None)

    @on(TerminalAnswered)
    def _take_answer(self, event: TerminalAnswered) -> None:
        self.terminal.take(event.abilities)
        self.looks.fit(event.abilities)

    @on(Driver.SignalResume)
    def _draw_all_again(self) -> None:
        self.refresh(layout=True)  # the terminal has lost the screen

    def refresh_css(self, animate: bool = True) -> None:
        """Sets only the variables while there is no screen: Textual would parse all sheets now, and
        again with the screen."""
        if self.screen_stack:
            super().refresh_css(animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())
            self.stylesheet.update(self, animate=animate)

    # The world

    @work(group="watch", exclusive=True)
    async def _watch(self) -> None:
        self._painted_first()
        self.main.complete(self.service.opens_on)
        self.looks.remember_outline()
        await self.world_watch.run(self.dialogs.answer_ssh)

    @on(FirstLook)
    def _count_saves(self) -> None:
        if (after_s := self._count_saves_after_s) is not None:
            self.set_timer(after_s, self.watch_saves)
            self.run_worker(lazy_parts.stay_fit(self), name="whole", group="whole")

    def refresh_now(self, *, fresh: bool = False) -> None:
        """Looks at the disk at once; ``fresh`` reads everything anew."""
        self.world_watch.refresh(fresh=fresh)
        self.saves.refresh(fresh=fresh)

    @on(Stale)
    def _read_anew(self) -> None:
        self.refresh_now(fresh=True)

    async def look(self) -> None:
        """Looks at the disk, and returns when the result is shown, or too late."""
        await self.world_watch.look()
        await self.saves.look()

    def show(self) -> None:
        self.stack.show()

    def jobs_changed(self) -> None:
        if not self.is_running:
            return
        self.show()
        self.main.show_command(self.operations.log[-1] if self.operations.log else None)
        self.refresh_now()

    # Operations

    def run_operation(self, operation: Coroutine[Any, Any, None], name: str) -> None:
        self.run_worker(operation, name=name, group="operations", exit_on_error=True)

    def operation_done(self, what: str) -> None:
        if what and not isinstance(self.stack.front, MainScreen):  # which shows it itself
            tell(self, what)

    def tell_outcome(self, what: str) -> None:
        if self.stack.front is None or not self.stack.front.shows_outcome:
            tell(self, what)

    def show_failure(self, failure: Failure) -> None:
        self.dialogs.show_failure(failure)

    def copy_to_clipboard(self, text: str) -> None:
        """Keeps a text for pasting, also in the terminal's clipboard unless it is too long."""
        if len(text.encode("utf-8", "replace")) <= CLIPBOARD_MAX:
            super().copy_to_clipboard(text)
        else:
            keep_clipboard(self, text)

    # Saves

    @on(SavesShown)
    def watch_saves(self) -> None:
        """Reads the saves now, and as long as a screen shows them."""
        if self.saves.is_running:
            self.saves.refresh()
        elif self.is_running:
            self.saves.is_running = True
            self.run_worker(self.saves.run(), name="saves", group="saves")

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        return lazy_parts.palette_commands(
            screen,
            self.world,
            self.keys,
            change_theme=self.action_change_theme,
            open_line=self.everywhere.open_line,
        )

    # Keys

    async def on_event(self, event: events.Event) -> None:
        """Notes the timing of each key before anything else sees it, and drops unwanted ones."""
        if isinstance(event, events.Key) and not event.is_forwarded:
            if not self.key_routing.drops(event):
                focused = self.focused
                await super().on_event(event)
                self.key_routing.sent(event, focused)
            return
        if isinstance(event, events.MouseDown) and not event.is_forwarded:
            self.keys.hands.meant()
        await super().on_event(event)

    # Shells in panes

    @on(LineInput.Settled)
    async def _settle(self, event: LineInput.Settled) -> None:
        await self.key_routing.settled(event.field)

    @on(RawInput)
    async def _type_raw(self, event: RawInput) -> None:
        await self.key_routing.settle()  # what was read before
        self.keys.hands.note_typed(len(event.data))
        self.keys.panes.type(event.data)

    @on(CommandTyped)
    def _await_command(self) -> None:
        self.keys.panes.await_command()

    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    def _focus_moved(self) -> None:
        self.keys.panes.update()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leaves Ctrl+Q and Ctrl+P to the guest while a pane has the focus."""
        if action in ("quit", "command_palette") and self.keys.panes.pane is not None:
            return False
        return super().check_action(action, parameters)

    def get_driver_class(self) -> type[Driver]:
        chosen = super().get_driver_class()
        return RawDriver if chosen.__name__ == "LinuxDriver" else chosen

    def on_key(self, event: events.Key) -> None:
        self.key_routing.route(event)

    # Leaving

    async def action_quit(self) -> None:
        self._leaving.leave()


def _words_of(error: BaseException) -> str:
    """Writes an exception that nobody has handled to the log, and returns the app's last words."""
    failure = describe_fault("", error)
    return f"{failure.message}\nhint: {failure.hint}"
