"""Carries out the actions that are the same on all screens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.actions.all_actions import Doer, Scope
from quicksand_tui.kit.base import tell
from quicksand_tui.kit.textual_private import driver_of
from quicksand_tui.ui import lazy_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App

    from quicksand_tui.door.service import EngineService
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.kit.outer_terminal import OuterTerminal
    from quicksand_tui.model.world import World
    from quicksand_tui.screens.dialogs import Dialogs
    from quicksand_tui.ui.colon_line import ColonLine
    from quicksand_tui.ui.stack import ScreenStack


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
        colon_line: ColonLine,
        service: EngineService,
        *,
        world: Callable[[], World],
        refresh: Callable[[], None],
        show: Callable[[], None],
        leave: Callable[[], None],
        ascii_only: bool,
    ) -> None:
        """``refresh`` looks at the disk anew, ``show`` shows the world again, and ``leave`` quits,
        if need be after a question."""
        self._app = app
        self._stack = stack
        self._operations = operations
        self._dialogs = dialogs
        self._keys = keys
        self._terminal = terminal
        self._colon_line = colon_line
        self._service = service
        self._world = world
        self._refresh = refresh
        self._show = show
        self._leave = leave
        self._ascii = ascii_only

    def do_jobs(self) -> None:
        self._dialogs.open_jobs()

    def do_refresh(self) -> None:
        self._service.ask_again()
        self._refresh()

    def do_commands(self) -> None:
        self._dialogs.open_commands()

    def do_command(self) -> None:
        self._colon_line.open()

    def do_suspend(self) -> None:
        self._app.action_suspend_process()

    def do_palette(self) -> None:
        self._app.action_command_palette()

    def do_quit(self) -> None:
        self._leave()

    def do_help(self) -> None:
        screen = self._stack.with_actions
        self._dialogs.open_help(screen.help_scope if screen is not None else Scope.MAIN)

    def do_saves(self) -> None:
        """Opens the saves, with the cursor on the selected one."""
        selected = self._stack.selection.save
        self._app.push_screen(
            lazy_parts.SavesScreen(
                self._world(),
                self._operations,
                self._dialogs,
                self._keys,
                begin=self._stack.create,
                everywhere=self.handlers,
                begin_with=selected.key if selected is not None else "",
                ascii_only=self._ascii,
            )
        )

    def do_trash(self) -> None:
        self._app.push_screen(
            lazy_parts.TrashScreen(
                self._world(),
                self._operations,
                self._dialogs,
                self._keys,
                everywhere=self.handlers,
                ascii_only=self._ascii,
            )
        )

    def do_wall(self) -> None:
        """Opens the wall of the marked sandboxes, else of those that a filter lists, else of
        all."""
        main = self._stack.main
        self._app.push_screen(
            lazy_parts.WallScreen(
                self._world(),
                self._service,
                self._dialogs,
                self._keys,
                only=main.chosen_sandboxes,
                open_tile=main.open_tile,
                take_early=main.take_early,
                everywhere=self.handlers,
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
        self._show()
