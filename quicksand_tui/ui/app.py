"""The app's class: it shows the world, runs operations, and lends the terminal to shells."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from textual import events, on, work
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.screen import Screen
from textual.signal import Signal

from quicksand_tui.actions import reasons
from quicksand_tui.actions.registry import default_keymap, line_keys
from quicksand_tui.home.config import Settings
from quicksand_tui.home.state import PaneMemory, Remembered, ThemeChoice
from quicksand_tui.jobs.operations import Operations
from quicksand_tui.model.jobs import OperationError
from quicksand_tui.model.sandboxes import State
from quicksand_tui.model.text import error_text
from quicksand_tui.model.world import World
from quicksand_tui.opening import outline
from quicksand_tui.opening.probe import UNKNOWN, in_multiplexer
from quicksand_tui.screens.base import ActionScreen, AppScreen
from quicksand_tui.screens.main import MainScreen
from quicksand_tui.ui.dialogs import Dialogs
from quicksand_tui.ui.hands import Burst, Hands
from quicksand_tui.ui.pane_keys import PaneKeys
from quicksand_tui.ui.saves_watch import SavesWatch
from quicksand_tui.ui.terminal_loan import FullShell
from quicksand_tui.ui.textual_private import (
    CommandTyped,
    RawDriver,
    RawInput,
    TerminalAnswered,
    TerminalTaken,
    driver_of,
    is_batching,
    keep_clipboard,
)
from quicksand_tui.ui.themes import THEMES, fitting_theme
from quicksand_tui.views.layout import Part
from quicksand_tui.views.rows import with_jobs
from quicksand_tui.widgets.inputs import LineInput

if TYPE_CHECKING:
    from quicksand_tui.actions.registry import Action
    from quicksand_tui.door.protocol import Service
    from quicksand_tui.home.state import CommandHistory
    from quicksand_tui.jobs.saves import SavesOperations
    from quicksand_tui.model.jobs import Failure
    from quicksand_tui.model.keymap import Prefix
    from quicksand_tui.model.sandboxes import SandboxView
    from quicksand_tui.model.specs import NewSpec
    from quicksand_tui.opening.probe import Probe
    from quicksand_tui.views.happenings import Happening


EVENTS_MAX = 1000
"""How many events of sandboxes are kept."""
LOOK_WAIT_S = 5.0
"""Seconds to wait at most for a look at the disk to be shown."""
REPAINT_EVERY_S = 10.0
"""Seconds after which the world is shown again even if unchanged, to update ages."""
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
        service: Service,
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
    ) -> None:
        """Calls ``painted`` once, after the first paint; ``probe`` owns the terminal until then.
        Without ``remembered`` and ``pane_memory``, nothing is kept for the next run.
        ``look_at_least_s`` are the least seconds between two looks at the disk; the config may ask
        for more. ``count_saves_after_s`` are the seconds from the first look to the first reading
        of saves; None waits until they are opened."""
        # With NO_COLOR, Textual must write no colours at all, instead of greys or black on black.
        super().__init__(ansi_color=True if os.environ.get("NO_COLOR") is not None else None)
        self.service = service
        self.dialogs = Dialogs(self)
        self.full_shell = FullShell(self)
        self.pane_keys = PaneKeys(self)
        self.hands = hands or Hands(self.set_timer)
        self.ascii = ascii_glyphs
        self.settings = settings or Settings()
        self._clock = clock
        self._look_at_least_s = look_at_least_s
        self._count_saves_after_s = count_saves_after_s
        self.probe = probe
        self.abilities = probe.abilities if probe is not None else UNKNOWN
        """The terminal's abilities, as far as it has answered."""
        self.in_multiplexer = in_multiplexer(os.environ)
        self.terminal_changed: Signal[None] = Signal(self, "terminal-changed")
        self.theme_choice = theme or ThemeChoice(wish=os.environ.get("TEXTUAL_THEME", ""))
        self.operations = Operations(service, self, clock=clock)
        self.operations.keymap = self.settings.keymap
        self.operations.read_only = self.settings.read_only
        self.saves = SavesWatch(
            service,
            is_wanted=lambda: any(screen.shows_saves for screen in self._screens),
            changed=self.show,
        )
        self._painted_first = painted
        self._world = World(taken=clock(), loaded=False)
        """The world as the service read it; `world` adds the jobs."""
        self._painted = 0.0
        self._look_again = asyncio.Event()
        self._look_fresh = False
        self._lookers: list[asyncio.Future[None]] = []
        """Futures that wait for a look that begins after them."""
        self.remembered = remembered or Remembered()
        self.pane_memory = pane_memory or PaneMemory()
        self.events: deque[Happening] = deque(maxlen=EVENTS_MAX)
        """What happened to sandboxes since the app started, the latest last."""
        for known in THEMES:
            self.register_theme(known)
        self.settings.check(self.available_themes)
        wish = self.theme_choice.name
        if wish and wish not in self.available_themes:
            self.theme_choice.name = ""
            self.theme_choice.problem = f"There is no theme {wish!r}; the palette shows all (:)"
        self._theme_set = ""
        """The theme that the app itself has set; another one is the user's choice."""
        self._show_theme(self.theme_choice.name or fitting_theme(self.abilities))

    def get_default_screen(self) -> MainScreen:
        return MainScreen(self, self.world, ascii_only=self.ascii)

    @property
    def main(self) -> MainScreen:
        screen = self.screen_stack[0]
        assert isinstance(screen, MainScreen)
        return screen

    @property
    def _screens(self) -> list[AppScreen[Any]]:
        """The app's own open screens; the palette is Textual's."""
        return [screen for screen in self.screen_stack if isinstance(screen, AppScreen)]

    @property
    def _shown(self) -> AppScreen[Any] | None:
        """The front screen, if it is the app's own. While the app ends there is none."""
        front = self.screen_stack[-1] if self.screen_stack else None
        return front if isinstance(front, AppScreen) else None

    @property
    def world(self) -> World:
        """The world as the user should see it, with running jobs."""
        world = replace(
            self._world,
            saves=self.saves.view,
            keymap=self.settings.keymap,
            read_only=self.settings.read_only,
            removed=self.operations.removed,
        )
        return with_jobs(world, self.operations.jobs)

    @property
    def prefix(self) -> Prefix:
        """The prefix key of the panes."""
        return self.settings.keymap.prefix

    def on_load(self) -> None:
        self._handle_signals()

    def on_mount(self) -> None:
        self.set_class(self.ascii, "-ascii")
        if self.theme_choice.problem:
            self.tell(self.theme_choice.problem, severity="warning")
        self._use_keymap()
        if (told := self.settings.report()) is not None:
            self.call_after_refresh(self.dialogs.show_report, told)
        # The first look loads the engine, so it comes after the first paint.
        self.call_after_refresh(self._watch)

    # Looks

    def _show_theme(self, name: str) -> None:
        self._theme_set = self.theme = name

    def _remember_looks(self) -> None:
        """Remembers the looks for the outline of the next run."""
        variables = self.get_css_variables()
        looks = outline.looks_of(variables, os.environ, plain=self.ascii)
        self.remember(outline.NAME, looks.to_json())

    def watch_theme(self, name: str) -> None:
        """Remembers a theme that the user has chosen."""
        if self.is_running:
            self._remember_looks()
        if name != self._theme_set:
            self._theme_set = name
            if self.is_running:
                self._remember_theme(name)

    @work(group="theme", exclusive=True)
    async def _remember_theme(self, name: str) -> None:
        try:
            await asyncio.to_thread(self.theme_choice.remember, name)
        except OSError as error:
            self.tell(
                f"The theme is not remembered: {error.filename}: {error.strerror}",
                severity="warning",
            )

    @on(TerminalTaken)
    def _take_terminal(self) -> None:
        self.terminal_changed.publish(None)

    @on(TerminalAnswered)
    def _take_answer(self, event: TerminalAnswered) -> None:
        self.abilities = event.abilities
        self.terminal_changed.publish(None)
        if not self.theme_choice.name and event.abilities.background is not None:
            self._show_theme(fitting_theme(event.abilities))

    @on(Driver.SignalResume)
    def _draw_all_again(self) -> None:
        """Redraws everything after a stop and continue, when the terminal has lost the screen."""
        self.refresh(layout=True)

    @property
    def mouse_released(self) -> bool:
        """Whether the terminal has the mouse, so that the user can select text with it."""
        driver = driver_of(self)
        return driver is not None and not driver.mouse

    def toggle_mouse(self) -> None:
        """Gives the mouse to the terminal, or takes it back."""
        driver = driver_of(self)
        if driver is None:
            self.tell("This terminal has no mouse to give back", severity="warning")
            return
        driver.mouse = not driver.mouse
        again = f"{self.settings.keymap.hint('mouse')} again takes it back"
        self.tell(
            "The mouse is the app's again"
            if driver.mouse
            else f"The mouse is the terminal's: select and copy as there; {again}"
        )
        self.show()

    def refresh_css(self, animate: bool = True) -> None:
        """Sets only the variables while there is no screen: Textual would parse all sheets now, and
        again with the screen."""
        if self.screen_stack:
            super().refresh_css(animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())
            self.stylesheet.update(self, animate=animate)

    def remember(self, name: str, value: object) -> None:
        """Keeps a value for the next run."""
        if self.remembered.put(name, value):
            writing = asyncio.to_thread(self.remembered.write, name)
            self.run_worker(writing, name="remember", group="remember")

    def remember_panes(self, sandbox_id: str, value: object) -> None:
        """Keeps the layout of a sandbox's panes for the next run; None forgets it."""
        if self.pane_memory.put(sandbox_id, value):
            known = frozenset(view.id for view in self.world.sandboxes)
            writing = asyncio.to_thread(self.pane_memory.write, sandbox_id, known)
            self.run_worker(writing, name="remember panes", group="remember")

    # The world

    @work(group="watch", exclusive=True)
    async def _watch(self) -> None:
        """Looks at the disk regularly, and at once when asked to."""
        self._painted_first()
        self.main.complete()
        self._remember_looks()
        from quicksand_tui.views.happenings import happenings

        while True:
            fresh, self._look_fresh = self._look_fresh, False
            self._look_again.clear()
            lookers, self._lookers = self._lookers, []
            main = self.main
            visible, network = main.visible_sandboxes, main.sandboxes_with_network
            if is_batching(self):
                network = frozenset()  # a shell has the terminal
            world = await self._look_once(visible, network, fresh)
            self._take_config()
            before = replace(self._world, taken=world.taken)
            self.events.extend(happenings(self._world, world))
            stale = world.taken - self._painted >= REPAINT_EVERY_S or self.operations.jobs
            self._world = world
            if world != before or stale or fresh:
                self._painted = world.taken
                self.show()
            if not before.loaded and self._count_saves_after_s is not None:
                self.set_timer(self._count_saves_after_s, self.watch_saves)
            for looker in lookers:
                if not looker.done():
                    looker.set_result(None)
            with contextlib.suppress(TimeoutError):
                every_s = max(self._look_at_least_s, self.settings.config.look_every_s)
                await asyncio.wait_for(self._look_again.wait(), every_s)

    async def _look_once(
        self, visible: frozenset[str], network: frozenset[str], fresh: bool
    ) -> World:
        """Looks at the disk. If the host lets it read nothing now, the world stays as it was, with
        an error that is shown, until a later look."""
        try:
            return await asyncio.to_thread(self._look_at_disk, visible, network, fresh)
        except (OSError, OperationError) as error:
            self._look_fresh = self._look_fresh or fresh
            why = error_text(error)
            return replace(self._world, taken=self._clock(), loaded=True, error=why)

    def _look_at_disk(self, visible: frozenset[str], network: frozenset[str], fresh: bool) -> World:
        self.settings.look()
        return self.service.read(visible=visible, network=network, fresh=fresh)

    def refresh_now(self, *, fresh: bool = False) -> None:
        """Looks at the disk at once; ``fresh`` reads everything anew."""
        self._look_fresh = self._look_fresh or fresh
        self._look_again.set()
        self.saves.refresh(fresh=fresh)

    async def look(self) -> None:
        """Looks at the disk, and returns when the result is shown, after `LOOK_WAIT_S` at most."""
        looker = asyncio.get_running_loop().create_future()
        self._lookers.append(looker)
        self._look_again.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(looker, LOOK_WAIT_S)
        await self.saves.look()

    def show(self) -> None:
        if not self.is_running or is_batching(self):
            return  # a shell has the terminal
        world = self.world
        for screen in self._screens:
            screen.update_world(world)

    def jobs_changed(self) -> None:
        if not self.is_running:
            return
        self.show()
        self.main.show_command(self.operations.log[-1] if self.operations.log else None)
        self.refresh_now()

    # The config

    def _take_config(self) -> None:
        """Applies a change of the config, and reports it."""
        theme = self.settings.config.theme
        words = self.settings.take_change(self.available_themes)
        if words is None:
            return
        self._use_keymap()
        if (chosen := self.settings.config.theme) != theme:
            self.theme = chosen or fitting_theme()
        self.show()
        told = self.settings.report()
        if told is None:
            self.tell(words)
        elif self.pane_keys.pane is None:
            self.dialogs.show_report(replace(told, lines=(*told.lines, "", words)))
        else:  # a dialog would interrupt typing into a shell
            self.tell(f"{told.summary}: {told.lines[0]}", severity="warning")

    def _use_keymap(self) -> None:
        keymap = self.operations.keymap = self.settings.keymap
        self.set_keymap(keymap.changes_from(default_keymap()))
        self.hands.line_keys = line_keys(keymap)
        if (driver := driver_of(self)) is not None:
            driver.prefix = keymap.prefix.data

    # Operations

    def run_operation(self, operation: Coroutine[Any, Any, None], name: str) -> None:
        self.run_worker(operation, name=name, group="operations", exit_on_error=True)

    def operation_done(self, what: str) -> None:
        # On the main screen, the row and the command line show it.
        if what and not isinstance(self._shown, MainScreen):
            self.tell(what)

    def tell_outcome(self, what: str) -> None:
        # Some screens show it themselves, and a toast would cover their keys.
        if self._shown is None or not self._shown.shows_outcome:
            self.tell(what)

    def show_failure(self, failure: Failure) -> None:
        self.dialogs.show_failure(failure)

    def tell(self, text: str, *, severity: Any = "information") -> None:
        """Shows a toast of plain text, not markup."""
        self.notify(text, severity=severity, markup=False, timeout=4)

    def copy_to_clipboard(self, text: str) -> None:
        """Keeps a text for pasting, and sends it to the terminal's clipboard unless it is too
        long."""
        if len(text.encode("utf-8", "replace")) <= CLIPBOARD_MAX:
            super().copy_to_clipboard(text)
        else:
            keep_clipboard(self, text)

    # Saves

    @cached_property
    def save_operations(self) -> SavesOperations:
        from quicksand_tui.jobs.saves import SavesOperations

        return SavesOperations(
            self.operations, show=self.dialogs.show_report, changed=self.watch_saves
        )

    def begin_from_save(self, spec: NewSpec) -> None:
        """Starts a sandbox from a save, and shows it on the main screen."""
        self.go_to_main()
        self.main.create(spec)

    def watch_saves(self) -> None:
        """Reads the saves now, and as long as a screen shows them."""
        if self.saves.is_running:
            self.saves.refresh()
        elif self.is_running:
            self.saves.is_running = True
            self.run_worker(self.saves.run(), name="saves", group="saves")

    # The command line

    @work(group="history", exit_on_error=False)
    async def remember_command(self, history: CommandHistory, line: str) -> None:
        await asyncio.to_thread(history.add, line)

    def do_here(self, action_id: str) -> None:
        """Carries out an action of the present screen, as its key does."""
        self.hands.meant()
        screen = self.screen
        if isinstance(screen, ActionScreen):
            screen.action_do(action_id)

    def open_tree(self, sandbox: SandboxView) -> None:
        """Goes to the checkpoints of a sandbox."""
        self.go_to_main()
        self.main.show_sandbox(sandbox.id)
        self.main.go_to(Part.TREE)

    def go_to_main(self) -> None:
        while self.screen is not self.main:
            self.pop_screen()

    def filter_here(self, words: str) -> bool:
        """Filters the present screen's list; returns False if it has none."""
        return self._shown is not None and self._shown.filter_by(words)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        from quicksand_tui.ui.palette import palette_commands

        return palette_commands(self, screen)

    # Keys

    async def on_event(self, event: events.Event) -> None:
        """Notes the timing of each key before anything else sees it, and drops unwanted ones."""
        if isinstance(event, events.Key) and not event.is_forwarded:
            self.hands.note(event)
            if self._shown is not None and self._shown.drops_key(event):
                return
        elif isinstance(event, events.MouseDown) and not event.is_forwarded:
            self.hands.meant()
        await super().on_event(event)

    def refuses_text(self, action: Action) -> bool:
        """Whether the last key belongs to text that nothing here takes; tells the user once. A text
        that begins with the key of ``action`` is taken by the line that it opens."""
        burst = self.hands.burst
        if action.takes_text and burst.opened.intersection(self.settings.keymap.keys_of(action)):
            return False
        if burst.is_text:
            self.tell_text(burst)
        return burst.is_text

    def tell_text(self, burst: Burst) -> None:
        """Tells the user, once per burst, that keys were ignored as text."""
        if not burst.told:
            burst.told = True
            hint = self.settings.keymap.hint
            self.tell(
                "That was typed text: here letters are keys, so nothing was done. "
                f"{hint('shell')} opens a shell, {hint('command')} takes commands",
                severity="warning",
            )

    # Shells in panes

    def refuses_shells(self) -> bool:
        """Whether shells are refused, because the app is read-only; tells the user."""
        if self.settings.read_only:
            self.tell(reasons.READ_ONLY, severity="warning")
        return self.settings.read_only

    @on(RawInput)
    def _type_raw(self, event: RawInput) -> None:
        self.hands.note_typed(len(event.data))
        self.pane_keys.type(event.data)

    @on(CommandTyped)
    def _await_command(self) -> None:
        self.pane_keys.await_command()

    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    def _focus_moved(self) -> None:
        self.pane_keys.update()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leaves Ctrl+Q and Ctrl+P to the guest while a pane has the focus."""
        if action in ("quit", "command_palette") and self.pane_keys.pane is not None:
            return False
        return super().check_action(action, parameters)

    def get_driver_class(self) -> type[Driver]:
        chosen = super().get_driver_class()
        return RawDriver if chosen.__name__ == "LinuxDriver" else chosen

    # Shells on the whole screen

    async def run_in_terminal(self, program: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Lends the terminal to another program until it ends; the app's loop keeps running."""
        with self.batch_update(), self.suspend():
            return await program()

    def on_key(self, event: events.Key) -> None:
        """Passes on keys typed after one that opens a form, a filter, the command line or a shell:
        they are meant for that, but were sent to the widget focused before."""
        if not self.screen_stack:
            return  # the app ends
        screen = self._shown
        if screen is not None and (taken := screen.take_key(event)) is not None:
            if taken:
                event.prevent_default()
            return
        if screen is not None and screen.take_early(event):
            pass
        elif isinstance(self.focused, LineInput) and self.focused.takes(event):
            self.focused.post_message(events.Key(event.key, event.character))
        else:
            return
        event.stop()
        event.prevent_default()

    # Leaving

    async def action_quit(self) -> None:
        self.leave()

    def leave(self) -> None:
        """Quits; asks first if jobs are running."""
        jobs = self.operations.jobs
        if not jobs:
            self.exit(0)
            return
        losses = tuple(f"{job.name}: its {job.verb.value} is under way" for job in jobs)
        self.dialogs.confirm(
            "Leave now?",
            losses,
            "Leave",
            lambda: self.exit(0),
            undo="Jobs are cancelled and undone where possible; a stop continues in the guest.",
            settled=(lambda: not self.operations.jobs, self._tell_settled),
        )

    def _tell_settled(self) -> None:
        """Tells that no job is running. The app does not quit by itself, since a user about to
        cancel would then type into another program."""
        self.tell(f"Nothing is under way any more: {self.settings.keymap.hint('quit')} leaves")

    def _handle_signals(self) -> None:
        """Makes SIGTERM, SIGHUP and SIGINT quit the app and restore the terminal; the exit status
        is 128 + n, as in a shell."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                loop.add_signal_handler(number, self._end_by_signal, number)

    def _end_by_signal(self, number: int) -> None:
        if number == signal.SIGINT and self.full_shell.is_open:
            return  # Ctrl-C is meant for the shell
        self.full_shell.terminate()
        self.exit(128 + number, return_code=128 + number)

    @property
    def running_names(self) -> tuple[str, ...]:
        """The names of the sandboxes that keep running after the app has ended."""
        return tuple(
            view.name
            for view in self._world.sandboxes
            if view.state in (State.RUNNING, State.PAUSED) and not view.discard
        )
