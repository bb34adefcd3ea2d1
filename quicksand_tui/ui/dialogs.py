"""Opens dialogs and screens, and handles their answers.

Each class is imported on first use, since the first paint needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

from quicksand_tui.actions.registry import Scope
from quicksand_tui.model.text import TITLE_CELLS, clip

if TYPE_CHECKING:
    from quicksand_tui.forms.form import Form, Values
    from quicksand_tui.jobs.run_many import RunMany
    from quicksand_tui.model.checkpoints import CheckpointView
    from quicksand_tui.model.jobs import Failure
    from quicksand_tui.model.sandboxes import SandboxView
    from quicksand_tui.model.saves import SaveView
    from quicksand_tui.model.specs import NewSpec, Told
    from quicksand_tui.screens.base import AppScreen
    from quicksand_tui.ui.host import Host


T = TypeVar("T")


class Dialogs:
    """Opens dialogs and screens over the present one."""

    def __init__(self, app: Host) -> None:
        self._app = app
        self.last_command = ""
        """The last command run in many sandboxes."""
        self._left_run: RunMany | None = None
        """A command that was running when its screen was left."""

    # Messages

    def show_failure(self, failure: Failure) -> None:
        from quicksand_tui.screens.reports import FailureScreen

        if self._app.is_running:
            self._app.push_screen(FailureScreen(failure))

    def show_report(self, told: Told) -> None:
        from quicksand_tui.screens.reports import ReportScreen

        if self._app.is_running:
            self._app.push_screen(ReportScreen(told, ascii_only=self._app.ascii))

    def show_screens(
        self, sandbox: SandboxView, checkpoint: CheckpointView, compared: CheckpointView | None
    ) -> None:
        """Shows the screen at a checkpoint beside the present one, or that of another."""
        from quicksand_tui.screens.look import LookScreen

        app = self._app
        app.push_screen(
            LookScreen(app.service, sandbox, checkpoint, compared, ascii_only=app.ascii)
        )

    # Questions

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
        """Asks before something is lost; ``then`` runs after a yes. ``harder`` is the verb and the
        function of an answer that does more. ``settled`` says whether the question no longer
        applies, and what runs when it closes for that reason."""
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
        is_no_answer = self._app.hands.question()
        self._app.push_screen(ConfirmScreen(question, is_settled, is_no_answer), take)

    def ask(self, form: Form, then: Callable[[Values], None]) -> None:
        """Shows a form; ``then`` gets the values if the user submits it."""
        from quicksand_tui.screens.form import FormScreen

        self._push_with_saves(
            FormScreen(form, self._app.world, ascii_only=self._app.ascii),
            lambda values: then(values) if values is not None else None,
        )

    def ask_for_new(
        self, image: str | None, then: Callable[[NewSpec], None], *, save: str = ""
    ) -> None:
        """Shows the form of a new sandbox, with an image or the save of key ``save`` chosen;
        ``then`` gets the result."""
        from quicksand_tui.forms.sandbox import IMAGE, NAME, SAVE, last_of, new_form, recall_last

        begin = f"{SAVE}{save}" if save else (f"{IMAGE}{image}" if image else "")
        last = recall_last(self._app.remembered)
        form, spec_of = new_form(self._app.world, begin=begin, last=last)

        def take(values: Values) -> None:
            spec = spec_of(values)
            self._app.remember(NAME, asdict(last_of(spec)))
            then(spec)

        self.ask(form, take)

    def ask_for_checkpoint(self, sandbox: SandboxView) -> None:
        from quicksand_tui.forms.checkpoints import checkpoint_form, checkpoint_spec

        def take(values: Values) -> None:
            self._app.operations.checkpoint(sandbox, checkpoint_spec(values))

        self.ask(checkpoint_form(sandbox), take)

    def ask_for_clones(self, sandbox: SandboxView, checkpoint: CheckpointView | None) -> None:
        """Asks for clones of the present state, or of a checkpoint."""
        from quicksand_tui.forms.checkpoints import clone_form, clone_spec

        def take(values: Values) -> None:
            self._app.operations.clone(sandbox, clone_spec(values, checkpoint))

        self.ask(clone_form(sandbox, checkpoint), take)

    def ask_for_mount(self, sandbox: SandboxView) -> None:
        from quicksand_tui.forms.mounts import mount_form, mount_spec

        def take(values: Values) -> None:
            self._app.operations.mount(sandbox, mount_spec(values))

        self.ask(mount_form(sandbox), take)

    def ask_for_note(self, sandbox: SandboxView, checkpoint: CheckpointView) -> None:
        from quicksand_tui.forms.checkpoints import note_form

        def take(values: Values) -> None:
            self._app.operations.write_note(sandbox, checkpoint, values["note"])

        self.ask(note_form(sandbox, checkpoint), take)

    def ask_for_save(self, sandbox: SandboxView) -> None:
        from quicksand_tui.forms.saves import save_form, save_spec

        def take(values: Values) -> None:
            self._app.save_operations.save(sandbox, save_spec(values))

        self.ask(save_form(sandbox), take)

    def ask_to_discard(self, saves: tuple[SaveView, ...]) -> None:
        """Asks before deleting saves: to the trash, or for good."""
        from quicksand_tui.views import losses

        begin, world = self._app.save_operations, self._app.world
        trash = world.keymap.hint("trash", Scope.SAVES.value)
        one = f"the save {clip(saves[0].name, TITLE_CELLS)}"
        self.confirm(
            f"Delete {one if len(saves) == 1 else f'{len(saves)} saves'}?",
            losses.of_saves(saves, world.taken),
            "To the trash",
            lambda: begin.discard(saves, now=False),
            undo=f"In the trash they stay for a week: {trash} shows it.",
            harder=("For good", lambda: begin.discard(saves, now=True)),
        )

    # Screens

    def open_command_line(self, line: str = "") -> None:
        """Opens the `:` line with ``line`` in it."""
        from quicksand_tui.ui.palette import open_command_line

        open_command_line(self._app, line)

    def open_help(self, scope: Scope = Scope.MAIN) -> None:
        from quicksand_tui.screens.help import HelpScreen

        self._app.push_screen(HelpScreen(scope, ascii_only=self._app.ascii))

    def open_saves(self, begin_with: str = "") -> None:
        """Opens the saves, with the cursor on the one of key ``begin_with``."""
        from quicksand_tui.screens.saves import SavesScreen

        world, ascii_only = self._app.world, self._app.ascii
        screen = SavesScreen(world, begin_with=begin_with, ascii_only=ascii_only)
        self._push_with_saves(screen)

    def open_trash(self) -> None:
        from quicksand_tui.screens.saves import TrashScreen

        self._push_with_saves(TrashScreen(self._app.world, ascii_only=self._app.ascii))

    def _push_with_saves(
        self, screen: AppScreen[T], then: Callable[[T | None], None] | None = None
    ) -> None:
        """Shows a screen; reads the saves while a screen shows them."""
        self._app.push_screen(screen, then)
        if screen.shows_saves:
            self._app.watch_saves()

    def open_commands(self) -> None:
        from quicksand_tui.screens.reports import CommandsScreen

        self._app.push_screen(CommandsScreen(self._app.operations.log, ascii_only=self._app.ascii))

    def open_run_many(self, views: tuple[SandboxView, ...]) -> None:
        """Opens the screen for a command in ``views``, or that of one that was left running."""
        from quicksand_tui.jobs.run_many import RunMany
        from quicksand_tui.screens.run_many import RunManyScreen

        app = self._app
        many = self._left_run
        if many is not None and (many.is_running or _same(many.views, views)):
            views = many.views
        else:
            # What has ended is shown by the log; another command is for what is chosen now.
            many = RunMany(app.service, app.operations)
        if not views:
            return

        def leave(_: None) -> None:
            self._left_run = many if many.is_running else None

        app.push_screen(
            RunManyScreen(
                many,
                views,
                app.world,
                command=many.command or self.last_command,
                ascii_only=app.ascii,
            ),
            leave,
        )

    def open_jobs(self) -> None:
        from quicksand_tui.screens.jobs import JobsScreen

        self._app.push_screen(
            JobsScreen(self._app.operations, self._app.world, ascii_only=self._app.ascii)
        )


def _same(ones: tuple[SandboxView, ...], others: tuple[SandboxView, ...]) -> bool:
    """Whether these are the same sandboxes, as they may be by now."""
    return {view.id for view in ones} == {view.id for view in others}
