"""Carries out the actions that are the same on all screens, and those that need more of the app:
the `:` line, and leaving."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

from quicksand_driver.textual_private import driver_of

from quicksand_tui.actions.all_actions import Doer, Scope
from quicksand_tui.home.state import CommandHistory, StateFile, state_dir
from quicksand_tui.kit.base import Stale, tell
from quicksand_tui.ui import lazy_parts

if TYPE_CHECKING:
    from textual.app import App

    from quicksand_tui.actions.line import Target
    from quicksand_tui.cockpit.present_world import Present
    from quicksand_tui.door.service import EngineService
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.kit.outer_terminal import OuterTerminal
    from quicksand_tui.kit.remembered import Memory
    from quicksand_tui.screens.dialogs import Dialogs
    from quicksand_tui.screens.terminal_loan import FullShell
    from quicksand_tui.ui.key_routing import ScreenStack


HISTORY_FILE = "commands.json"


class Everywhere(Doer):
    """The actions of the whole app; they work on the selection of the front screen."""

    def __init__(
        self,
        app: App[int],
        stack: ScreenStack,
        operations: Operations,
        dialogs: Dialogs,
        keys: Keys,
        terminal: OuterTerminal,
        memory: Memory,
        leaving: Leaving,
        service: EngineService,
        present: Present,
        *,
        ascii_only: bool,
    ) -> None:
        self._app = app
        self._stack = stack
        self._operations = operations
        self._dialogs = dialogs
        self._keys = keys
        self._terminal = terminal
        self._memory = memory
        self._service = service
        self._leaving = leaving
        self._present = present
        self._ascii = ascii_only

    def do_jobs(self) -> None:
        self._dialogs.open_jobs()

    def do_refresh(self) -> None:
        self._service.ask_again()
        self._app.post_message(Stale())

    def do_commands(self) -> None:
        self._dialogs.open_commands()

    def do_command(self) -> None:
        self.open_line()

    def open_line(self, line: str = "") -> None:
        """Opens the `:` line for the selection of the front screen, with ``line`` in it."""
        screen, selection = self._stack.with_actions, self._stack.selection
        orders = lazy_parts.Orders(
            self._app, self._stack, self._operations, self._dialogs, self._keys
        )

        def take(target: Target | None) -> None:
            if target is not None:
                orders.carry_out(target, selection)

        asks = lazy_parts.CommandScreen(
            self._present.world,
            selection,
            lazy_parts.verbs_of(screen.scope if screen is not None else Scope.MAIN),
            self._memory,
            themes=self._app.available_themes,
            history=CommandHistory(StateFile(state_dir() / HISTORY_FILE)),
            line=line,
            ascii_only=self._ascii,
        )
        self._app.push_screen(asks, take)

    def do_suspend(self) -> None:
        self._app.action_suspend_process()

    def do_palette(self) -> None:
        self._app.action_command_palette()

    def do_quit(self) -> None:
        self._leaving.leave()

    def do_help(self) -> None:
        screen = self._stack.with_actions
        self._dialogs.open_help(screen.help_scope if screen is not None else Scope.MAIN)

    def do_saves(self) -> None:
        """Opens the saves, with the cursor on the selected one."""
        selected = self._stack.selection.save
        self._app.push_screen(
            lazy_parts.SavesScreen(
                self._present.world,
                self._operations,
                self._dialogs,
                self._keys,
                main=self._stack.main,
                everywhere=self,
                begin_with=selected.key if selected is not None else "",
                ascii_only=self._ascii,
            )
        )

    def do_trash(self) -> None:
        self._app.push_screen(
            lazy_parts.TrashScreen(
                self._present.world,
                self._operations,
                self._dialogs,
                self._keys,
                everywhere=self,
                ascii_only=self._ascii,
            )
        )

    def do_wall(self) -> None:
        """Opens the wall of the marked sandboxes, else of those that a filter lists, else of
        all."""
        main = self._stack.main
        self._app.push_screen(
            lazy_parts.WallScreen(
                self._present.world,
                self._service,
                self._dialogs,
                self._keys,
                only=main.chosen_sandboxes,
                main=main,
                everywhere=self,
                ascii_only=self._ascii,
            )
        )

    def do_redraw(self) -> None:
        """Draws the whole screen, whatever the terminal shows."""
        if (driver := driver_of(self._app)) is not None:
            driver.forget_shown()
        self._app.refresh(layout=True)

    def do_mouse(self) -> None:
        """Gives the mouse to the terminal, or takes it back."""
        if not self._terminal.toggle_mouse():
            tell(self._app, "This terminal has no mouse to give back", severity="warning")
            return
        again = f"{self._keys.here.hint('mouse')} again takes it back"
        tell(
            self._app,
            f"The mouse is the terminal's: select and copy as there; {again}"
            if self._terminal.has_mouse
            else "The mouse is the app's again",
        )
        self._stack.show()


class Leaving:
    """Quits the app, and asks first if something would be lost."""

    def __init__(
        self,
        app: App[int],
        operations: Operations,
        dialogs: Dialogs,
        keys: Keys,
        full_shell: FullShell,
    ) -> None:
        self._app = app
        self._operations = operations
        self._dialogs = dialogs
        self._keys = keys
        self._full_shell = full_shell

    def leave(self) -> None:
        """Quits; asks first if jobs are running."""
        jobs = self._operations.jobs
        if not jobs:
            self._app.exit(0)
            return
        losses = tuple(f"{job.name}: its {job.verb.value} is under way" for job in jobs)
        self._dialogs.confirm(
            "Leave now?",
            losses,
            "Leave",
            lambda: self._app.exit(0),
            undo="Jobs are cancelled and undone where possible; a stop continues in the guest.",
            settled=self._tell_settled,
        )

    def _tell_settled(self) -> None:
        """Tells that no job is running. The app does not quit by itself, since a user about to
        cancel would then type into another program."""
        tell(self._app, f"Nothing is under way any more: {self._keys.here.hint('quit')} leaves")

    def heed_signals(self) -> None:
        """Makes SIGTERM, SIGHUP and SIGINT quit the app and restore the terminal; the exit status
        is 128 + n, as in a shell."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                loop.add_signal_handler(number, self._end_by_signal, number)

    def _end_by_signal(self, number: int) -> None:
        if number == signal.SIGINT and self._full_shell.is_open:
            return  # Ctrl-C is meant for the shell
        self._full_shell.terminate()
        self._app.exit(128 + number, return_code=128 + number)
