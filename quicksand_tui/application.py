"""The app's class: shows snapshots, runs operations, lends the terminal to shells."""

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

from quicksand_tui import outline, reasons
from quicksand_tui.actions import default_keymap
from quicksand_tui.cockpit.layout import Part
from quicksand_tui.dialogs import Dialogs
from quicksand_tui.operations import Operations
from quicksand_tui.pane_keys import PaneKeys
from quicksand_tui.panes.driver import CommandTyped, RawDriver, RawInput, TerminalAnswered
from quicksand_tui.probe import UNKNOWN
from quicksand_tui.remembered import Remembered
from quicksand_tui.saves_watch import SavesWatch
from quicksand_tui.screens.base import ActionScreen
from quicksand_tui.screens.main import MainScreen
from quicksand_tui.settings import Settings
from quicksand_tui.snapshot import Snapshot, State
from quicksand_tui.terminal_loan import Ended, FullShell, Loan
from quicksand_tui.theme_choice import ThemeChoice
from quicksand_tui.themes import THEMES, fitting_theme
from quicksand_tui.view import with_jobs
from quicksand_tui.widgets.line_input import LineInput

if TYPE_CHECKING:
    from quicksand_tui.command_history import CommandHistory
    from quicksand_tui.happenings import Happening
    from quicksand_tui.keymap import Prefix
    from quicksand_tui.listed import SandboxView
    from quicksand_tui.probing import Probe
    from quicksand_tui.saves_operations import SavesOperations
    from quicksand_tui.services import Service
    from quicksand_tui.specs import NewSpec

EVENTS_MAX = 1000
LOOK_WAIT_S = 5.0
REPAINT_EVERY_S = 10.0
"""Seconds after which ages are shown anew though nothing has changed."""
CLIPBOARD_MAX = 74_994
"""Bytes that are given to the terminal's clipboard (OSC 52): in base64 and with its frame, the
100,000 bytes that hterm takes, the least of those that state a limit."""
T = TypeVar("T")


class QuicksandApp(App[int]):
    """Holds the last snapshot and the jobs; everything shown derives from them."""

    TITLE = "quicksand"
    # Of a first screen Textual does not load the sheet; the others have theirs.
    CSS_PATH: ClassVar[list[Path]] = [  # type: ignore[assignment]
        Path(__file__).parent / "screens" / "main.tcss",
        Path(__file__).parent / "screens" / "looks.tcss",
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
        look_at_least_s: float = 0.0,
        theme: ThemeChoice | None = None,
        probe: Probe | None = None,
        count_saves_after_s: float | None = None,
    ) -> None:
        """``painted`` is called once, after the first paint; ``probe`` has the terminal. Without
        ``remembered``, what that keeps is forgotten when this ends. ``look_at_least_s``: seconds
        between two looks at the disk, if the config does not want more. ``count_saves_after_s``:
        seconds from the first look to that at the saves; None leaves it until they are opened."""
        # Without colours Textual is to write none at all, not greys, and no black on black.
        super().__init__(ansi_color=True if os.environ.get("NO_COLOR") is not None else None)
        self.service = service
        self.dialogs = Dialogs(self)
        self.full_shell = FullShell(self)
        self.pane_keys = PaneKeys(self)
        self.ascii = ascii_glyphs
        self.settings = settings or Settings()
        self._clock = clock
        self._look_at_least_s = look_at_least_s
        self._count_saves_after_s = count_saves_after_s
        self.probe = probe
        self.abilities = probe.abilities if probe is not None else UNKNOWN
        """What the terminal can do, as far as it has answered."""
        self.theme_choice = theme or ThemeChoice(wish=os.environ.get("TEXTUAL_THEME", ""))
        self.operations = Operations(
            service,
            run_worker=self._run_operation,
            changed=self._jobs_changed,
            advanced=self._show,
            done=self._operation_done,
            failed=self.dialogs.show_failure,
            tell=self._tell_outcome,
            look=self.look,
            clock=clock,
        )
        self.operations.keymap = self.settings.keymap
        self.operations.read_only = self.settings.read_only
        self.saves = SavesWatch(
            service,
            is_wanted=lambda: any(getattr(s, "shows_saves", False) for s in self.screen_stack),
            changed=self._show,
        )
        self._painted_first = painted
        self._world = Snapshot(taken=clock(), loaded=False)
        """As the service saw it; with the jobs it is what is shown."""
        self._painted = 0.0
        self._look_again = asyncio.Event()
        self._look_fresh = False
        self._lookers: list[asyncio.Future[None]] = []
        """Wait for a look that begins after they asked."""
        self.remembered = remembered or Remembered()
        self.events: deque[Happening] = deque(maxlen=EVENTS_MAX)
        """What has happened to sandboxes since this app looks, the latest last."""
        for known in THEMES:
            self.register_theme(known)
        self.settings.check(self.available_themes)
        wish = self.theme_choice.name
        if wish and wish not in self.available_themes:
            self.theme_choice.name = ""
            self.theme_choice.problem = f"There is no theme {wish!r}; the palette shows all (:)"
        self._theme_set = ""
        """The theme that is shown without the user having chosen it just now."""
        self._show_theme(self.theme_choice.name or fitting_theme(self.abilities))

    def get_default_screen(self) -> MainScreen:
        return MainScreen(self, self.snapshot, ascii_only=self.ascii)

    @property
    def main(self) -> MainScreen:
        screen = self.screen_stack[0]
        assert isinstance(screen, MainScreen)
        return screen

    @property
    def snapshot(self) -> Snapshot:
        """The world with what this app is doing to it."""
        world = replace(
            self._world,
            saves=self.saves.view,
            keymap=self.settings.keymap,
            read_only=self.settings.read_only,
        )
        return with_jobs(world, self.operations.jobs)

    @property
    def prefix(self) -> Prefix:
        """Of the panes."""
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
        # The first look loads the engine, so it waits until there is a screen to look at.
        self.call_after_refresh(self._watch)

    # Looks

    def _show_theme(self, name: str) -> None:
        self._theme_set = self.theme = name

    def _remember_looks(self) -> None:
        """For the outline that the next run begins with."""
        variables = self.get_css_variables()
        looks = outline.looks_of(variables, os.environ, plain=self.ascii)
        self.remember(outline.NAME, looks.to_json())

    def watch_theme(self, name: str) -> None:
        """Remember a theme that the user has chosen."""
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

    @on(TerminalAnswered)
    def _take_answer(self, event: TerminalAnswered) -> None:
        self.abilities = event.abilities
        if not self.theme_choice.name and event.abilities.background is not None:
            self._show_theme(fitting_theme(event.abilities))

    @on(Driver.SignalResume)
    def _draw_all_again(self) -> None:
        """Continued after a stop, the terminal shows nothing; Textual would draw changes only."""
        self.refresh(layout=True)

    @property
    def mouse_released(self) -> bool:
        """Whether the terminal has the mouse, to select text with it."""
        return isinstance(self._driver, RawDriver) and not self._driver.mouse

    def toggle_mouse(self) -> None:
        """Give the mouse to the terminal, or take it back."""
        driver = self._driver
        if not isinstance(driver, RawDriver):
            self.tell("This terminal has no mouse to give back", severity="warning")
            return
        driver.mouse = not driver.mouse
        again = f"{self.settings.keymap.hint('mouse')} again takes it back"
        self.tell(
            "The mouse is the app's again"
            if driver.mouse
            else f"The mouse is the terminal's: select and copy as there; {again}"
        )
        self._show()

    def refresh_css(self, animate: bool = True) -> None:
        """Before there is a screen, only what the sheets' variables are: Textual would parse all of
        them here, and then again with the screen."""
        if self.screen_stack:
            super().refresh_css(animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())
            self.stylesheet.update(self, animate=animate)

    def remember(self, name: str, value: object) -> None:
        """Have a value for the next run, too."""
        if self.remembered.put(name, value):
            writing = asyncio.to_thread(self.remembered.write, name)
            self.run_worker(writing, name="remember", group="remember")

    # The world

    @work(group="watch", exclusive=True)
    async def _watch(self) -> None:
        """Look at the disk now and then, and at once when asked to."""
        self._painted_first()
        self.main.complete()
        self._remember_looks()
        from quicksand_tui.happenings import happenings

        while True:
            fresh, self._look_fresh = self._look_fresh, False
            self._look_again.clear()
            lookers, self._lookers = self._lookers, []
            main = self.main
            visible, network = main.visible_sandboxes, main.sandboxes_with_network
            if self._batch_count:
                network = frozenset()  # a shell has the terminal
            world = await asyncio.to_thread(self._look_at_disk, visible, network, fresh)
            self._take_config()
            before = replace(self._world, taken=world.taken)
            self.events.extend(happenings(self._world, world))
            stale = world.taken - self._painted >= REPAINT_EVERY_S or self.operations.jobs
            self._world = world
            if world != before or stale or fresh:
                self._painted = world.taken
                self._show()
            if not before.loaded and self._count_saves_after_s is not None:
                self.set_timer(self._count_saves_after_s, self.watch_saves)
            for looker in lookers:
                if not looker.done():
                    looker.set_result(None)
            with contextlib.suppress(TimeoutError):
                every_s = max(self._look_at_least_s, self.settings.config.look_every_s)
                await asyncio.wait_for(self._look_again.wait(), every_s)

    def _look_at_disk(
        self, visible: frozenset[str], network: frozenset[str], fresh: bool
    ) -> Snapshot:
        self.settings.look()
        return self.service.read(visible=visible, network=network, fresh=fresh)

    def refresh_now(self, *, fresh: bool = False) -> None:
        """Look at the disk without waiting; ``fresh`` remembers nothing."""
        self._look_fresh = self._look_fresh or fresh
        self._look_again.set()
        self.saves.refresh(fresh=fresh)

    async def look(self) -> None:
        """Look at the disk, and return when it is shown."""
        looker = asyncio.get_running_loop().create_future()
        self._lookers.append(looker)
        self._look_again.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(looker, LOOK_WAIT_S)
        await self.saves.look()

    def _show(self) -> None:
        if not self.is_running or self._batch_count:
            return  # a shell has the terminal
        snapshot = self.snapshot
        for screen in self.screen_stack:
            if isinstance(screen, MainScreen):
                screen.show(snapshot)
            elif (update := getattr(screen, "update_snapshot", None)) is not None:
                update(snapshot)

    def _jobs_changed(self) -> None:
        if not self.is_running:
            return
        self._show()
        self.main.show_command(self.operations.log[-1] if self.operations.log else None)
        self.refresh_now()

    # The config

    def _take_config(self) -> None:
        """Let a change of the config count, and tell of it."""
        theme = self.settings.config.theme
        words = self.settings.take_change(self.available_themes)
        if words is None:
            return
        self._use_keymap()
        if (chosen := self.settings.config.theme) != theme:
            self.theme = chosen or fitting_theme()
        self._show()
        told = self.settings.report()
        if told is None:
            self.tell(words)
        elif self.pane_keys.pane is None:
            self.dialogs.show_report(replace(told, lines=(*told.lines, "", words)))
        else:  # whoever types there is not to be interrupted
            self.tell(f"{told.summary}: {told.lines[0]}", severity="warning")

    def _use_keymap(self) -> None:
        keymap = self.operations.keymap = self.settings.keymap
        self.set_keymap(keymap.changes_from(default_keymap()))
        if isinstance(self._driver, RawDriver):
            self._driver.prefix = keymap.prefix.data

    # Operations

    def _run_operation(self, operation: Coroutine[Any, Any, None], name: str) -> None:
        self.run_worker(operation, name=name, group="operations", exit_on_error=True)

    def _operation_done(self, what: str) -> None:
        # On the main screen the row and the command line tell it.
        if what and not isinstance(self.screen, MainScreen):
            self.tell(what)

    def _tell_outcome(self, what: str) -> None:
        # Some screens show it themselves, and where the toast would be they have their keys.
        if not getattr(self.screen, "shows_outcome", False):
            self.tell(what)

    def tell(self, text: str, *, severity: Any = "information") -> None:
        """A toast. Never markup."""
        self.notify(text, severity=severity, markup=False, timeout=4)

    def copy_to_clipboard(self, text: str) -> None:
        """Keep a text for pasting, and give it to the terminal unless it is too long for one."""
        if len(text.encode("utf-8", "replace")) <= CLIPBOARD_MAX:
            super().copy_to_clipboard(text)
        else:
            self._clipboard = text

    # Saves

    @cached_property
    def save_operations(self) -> SavesOperations:
        from quicksand_tui.saves_operations import SavesOperations

        return SavesOperations(
            self.service,
            self.operations,
            show=self.dialogs.show_report,
            changed=self.watch_saves,
            clock=self._clock,
        )

    def begin_from_save(self, spec: NewSpec) -> None:
        """Start a sandbox that begins with a save, and show it among the others."""
        self.go_to_main()
        self.main.create(spec)

    def watch_saves(self) -> None:
        """Look at the saves now, and as long as a screen wants them."""
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
        """Carry out an action of the shown screen, as its key does."""
        screen = self.screen
        if isinstance(screen, ActionScreen):
            screen.action_do(action_id)

    def open_tree(self, sandbox: SandboxView) -> None:
        """Go to the checkpoints of a sandbox."""
        self.go_to_main()
        self.main.show_sandbox(sandbox.id)
        self.main.go_to(Part.TREE)

    def go_to_main(self) -> None:
        while self.screen is not self.main:
            self.pop_screen()

    def filter_here(self, words: str) -> bool:
        """Filter what is shown; False if that has no filter."""
        filter_by = getattr(self.screen, "filter_by", None)
        if filter_by is not None:
            filter_by(words)
        return filter_by is not None

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        from quicksand_tui.palette import palette_commands

        return palette_commands(self, screen)

    # Shells in panes

    def refuses_shells(self) -> bool:
        """Whether shells are refused: what is typed into them changes things."""
        if self.settings.read_only:
            self.tell(reasons.READ_ONLY, severity="warning")
        return self.settings.read_only

    @on(RawInput)
    def _type_raw(self, event: RawInput) -> None:
        self.pane_keys.type(event.data)

    @on(CommandTyped)
    def _await_command(self) -> None:
        self.pane_keys.await_command()

    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    def _focus_moved(self) -> None:
        self.pane_keys.update()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Within a pane, ctrl+q and ctrl+p are the guest's."""
        if action in ("quit", "command_palette") and self.pane_keys.pane is not None:
            return False
        return super().check_action(action, parameters)

    def get_driver_class(self) -> type[Driver]:
        chosen = super().get_driver_class()
        return RawDriver if chosen.__name__ == "LinuxDriver" else chosen

    # Shells on the whole screen

    async def run_in_terminal(self, loan: Loan) -> Ended:
        """Give the terminal to another program until it ends; the app's loop goes on."""
        with self.batch_update(), self.suspend():
            return await loan.run()

    def on_key(self, event: events.Key) -> None:
        """What is typed behind a key that opens a form, a filter, the command line or a shell is
        meant for that, though it was sent to what had the focus before."""
        take_key = getattr(self.screen, "take_key", None)
        if take_key is not None:
            if take_key(event):
                event.prevent_default()
            return
        take_early = getattr(self.screen, "take_early", None)
        if take_early is not None and take_early(event):
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
        """Quit; with work under way, ask first."""
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
            undo="What can be is cancelled and undone; a stop goes on in the guest.",
            settled=(lambda: not self.operations.jobs, self._tell_settled),
        )

    def _tell_settled(self) -> None:
        """Not left by itself: whoever was about to cancel would type into another program."""
        self.tell(f"Nothing is under way any more: {self.settings.keymap.hint('quit')} leaves")

    def _handle_signals(self) -> None:
        """End as on quitting, with the terminal restored. The exit status is a shell's 128 + n."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                loop.add_signal_handler(number, self._end_by_signal, number)

    def _end_by_signal(self, number: int) -> None:
        if number == signal.SIGINT and self.full_shell.is_open:
            return  # it is the shell's
        self.full_shell.terminate()
        self.exit(128 + number, return_code=128 + number)

    @property
    def running_names(self) -> tuple[str, ...]:
        """What goes on after the app has ended."""
        return tuple(
            view.name
            for view in self._world.sandboxes
            if view.state in (State.RUNNING, State.PAUSED) and not view.discard
        )
