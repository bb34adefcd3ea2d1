"""The dialogs and screens that the app opens, and what is done with their answers.

Each class is loaded when it is first wanted: none is needed for the first paint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

from textual.screen import Screen

from quicksand_tui.actions import Scope
from quicksand_tui.text import TITLE_CELLS, clip

if TYPE_CHECKING:
    from quicksand_tui.application import QuicksandApp
    from quicksand_tui.failures import Failure
    from quicksand_tui.form import Form, Values
    from quicksand_tui.listed import SandboxView
    from quicksand_tui.past import CheckpointView
    from quicksand_tui.saved import SaveView
    from quicksand_tui.saves_spec import Told
    from quicksand_tui.specs import NewSpec

T = TypeVar("T")


class Dialogs:
    """Opens them over what is shown."""

    def __init__(self, app: QuicksandApp) -> None:
        self._app = app
        self.last_command = ""
        """That was last run in many sandboxes."""

    # What is told

    def show_failure(self, failure: Failure) -> None:
        from quicksand_tui.screens.failure import FailureScreen

        if self._app.is_running:
            self._app.push_screen(FailureScreen(failure))

    def show_report(self, told: Told) -> None:
        from quicksand_tui.screens.report import ReportScreen

        if self._app.is_running:
            self._app.push_screen(ReportScreen(told, ascii_only=self._app.ascii))

    # What is asked

    def confirm(
        self,
        title: str,
        losses: Iterable[str],
        verb: str,
        then: Callable[[], None],
        *,
        undo: str = "This cannot be undone.",
        harder: tuple[str, Callable[[], None]] | None = None,
        settled: tuple[Callable[[], bool], Callable[[], None]] | None = None,
    ) -> None:
        """Ask before something is lost; ``then`` runs after a yes, and what ``harder`` has beside
        its verb after the answer that does more. ``settled``: whether there is nothing to ask
        about any more, and what runs when the question closes for that."""
        from quicksand_tui.screens.confirm import Answer, ConfirmScreen, Question

        def take(answer: Answer | None) -> None:
            if answer is Answer.HARDER and harder is not None:
                harder[1]()
            elif answer is Answer.SETTLED and settled is not None:
                settled[1]()
            elif answer is Answer.YES:
                then()

        question = Question(
            title=title,
            losses=tuple(losses),
            verb=verb,
            undo=undo,
            harder=harder[0] if harder is not None else "",
        )
        is_settled = settled[0] if settled is not None else lambda: False
        self._app.push_screen(ConfirmScreen(question, is_settled), take)

    def ask(self, form: Form, then: Callable[[Values], None]) -> None:
        """Show a form; ``then`` is given what was typed, if it is taken."""
        from quicksand_tui.screens.form import FormScreen

        self._push_with_saves(
            FormScreen(form, self._app.snapshot, ascii_only=self._app.ascii),
            lambda values: then(values) if values is not None else None,
        )

    def ask_for_new(
        self, image: str | None, then: Callable[[NewSpec], None], *, save: str = ""
    ) -> None:
        """Show the form of a new sandbox, with an image chosen or the save of the key ``save``;
        ``then`` is given what is taken."""
        from quicksand_tui.last_used import NAME, recall_last
        from quicksand_tui.new_form import IMAGE, SAVE, last_of, new_form

        begin = f"{SAVE}{save}" if save else (f"{IMAGE}{image}" if image else "")
        last = recall_last(self._app.remembered)
        form, spec_of = new_form(self._app.snapshot, begin=begin, last=last)

        def take(values: Values) -> None:
            spec = spec_of(values)
            self._app.remember(NAME, asdict(last_of(spec)))
            then(spec)

        self.ask(form, take)

    def ask_for_checkpoint(self, sandbox: SandboxView) -> None:
        from quicksand_tui.past_forms import checkpoint_form, checkpoint_spec

        def take(values: Values) -> None:
            self._app.operations.checkpoint(sandbox, checkpoint_spec(values))

        self.ask(checkpoint_form(sandbox), take)

    def ask_for_clones(self, sandbox: SandboxView, made: CheckpointView | None) -> None:
        """Clones of the present, or of a checkpoint."""
        from quicksand_tui.past_forms import clone_form, clone_spec

        def take(values: Values) -> None:
            self._app.operations.clone(sandbox, clone_spec(values, made))

        self.ask(clone_form(sandbox, made), take)

    def ask_for_note(self, sandbox: SandboxView, made: CheckpointView) -> None:
        from quicksand_tui.past_forms import note_form

        def take(values: Values) -> None:
            self._app.operations.write_note(sandbox, made, values["note"])

        self.ask(note_form(sandbox, made), take)

    def ask_for_save(self, sandbox: SandboxView) -> None:
        from quicksand_tui.saves_forms import save_form, save_spec

        def take(values: Values) -> None:
            self._app.save_operations.save(sandbox, save_spec(values))

        self.ask(save_form(sandbox), take)

    def ask_to_discard(self, saves: tuple[SaveView, ...]) -> None:
        """Ask before saves are deleted: to the trash, or for good."""
        from quicksand_tui import losses

        begin, snapshot = self._app.save_operations, self._app.snapshot
        trash = snapshot.keymap.hint("trash", Scope.SAVES.value)
        one = f"the save {clip(saves[0].name, TITLE_CELLS)}"
        self.confirm(
            f"Delete {one if len(saves) == 1 else f'{len(saves)} saves'}?",
            losses.of_saves(saves, snapshot.taken),
            "To the trash",
            lambda: begin.discard(saves, now=False),
            undo=f"y: to the trash, out of which {trash} brings back for a week. D: for good.",
            harder=("For good", lambda: begin.discard(saves, now=True)),
        )

    # Screens

    def open_command_line(self, line: str = "") -> None:
        """Ask for a command, with ``line`` to begin with."""
        from quicksand_tui.palette import open_command_line

        open_command_line(self._app, line)

    def open_help(self, scope: Scope = Scope.MAIN) -> None:
        from quicksand_tui.screens.help import HelpScreen

        self._app.push_screen(HelpScreen(scope, ascii_only=self._app.ascii))

    def open_saves(self, begin_with: str = "") -> None:
        """The browser of saves, with the cursor on the one of the key ``begin_with``."""
        from quicksand_tui.screens.saves import SavesScreen

        snapshot, ascii_only = self._app.snapshot, self._app.ascii
        screen = SavesScreen(snapshot, begin_with=begin_with, ascii_only=ascii_only)
        self._push_with_saves(screen)

    def open_trash(self) -> None:
        from quicksand_tui.screens.trash import TrashScreen

        self._push_with_saves(TrashScreen(self._app.snapshot, ascii_only=self._app.ascii))

    def _push_with_saves(
        self, screen: Screen[T], then: Callable[[T | None], None] | None = None
    ) -> None:
        """Show a screen, and look at the saves while it or another one wants them."""
        self._app.push_screen(screen, then)
        if getattr(screen, "shows_saves", False):
            self._app.watch_saves()

    def open_commands(self) -> None:
        from quicksand_tui.screens.commands import CommandsScreen

        self._app.push_screen(CommandsScreen(self._app.operations.log, ascii_only=self._app.ascii))

    def open_run_many(self, views: tuple[SandboxView, ...]) -> None:
        """Ask for a command, and run it in all of these that run."""
        from quicksand_tui.screens.run_many import RunManyScreen

        if views:
            self._app.push_screen(
                RunManyScreen(
                    views,
                    self._app.snapshot,
                    command=self.last_command,
                    ascii_only=self._app.ascii,
                )
            )

    def open_jobs(self) -> None:
        from quicksand_tui.screens.jobs import JobsScreen

        self._app.push_screen(
            JobsScreen(self._app.operations, self._app.snapshot, ascii_only=self._app.ascii)
        )
