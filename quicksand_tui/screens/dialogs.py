"""Opens dialogs, and handles their answers."""

from __future__ import annotations

from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from quicksand_tui.actions.all_actions import Scope
from quicksand_tui.model.diffs import diff_specs
from quicksand_tui.model.shown_saves import by_machine
from quicksand_tui.model.text import TITLE_CELLS, clip, sanitise
from quicksand_tui.model.wall_plan import LastCommand
from quicksand_tui.screens import lazy_screens
from quicksand_tui.verbs.packages import uninstall
from quicksand_tui.verbs.saves import discard
from quicksand_tui.views import losses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from quicksand.things.image_info import ImageInfo
    from quicksand.things.save import SaveFacts
    from textual.app import App

    from quicksand_tui.actions.all_actions import Doer
    from quicksand_tui.cockpit.present_world import Present
    from quicksand_tui.door.service import EngineService
    from quicksand_tui.forms.form_fields import Form, Values
    from quicksand_tui.home.config_file import Settings
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.jobs.run_many import RunMany
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.kit.remembered import Memory
    from quicksand_tui.model.jobs import Failure
    from quicksand_tui.model.shown_sandboxes import CheckpointView, SandboxView
    from quicksand_tui.model.specs import NewSpec, SshQuestion, Told
    from quicksand_tui.screens.confirm import Answer
    from quicksand_tui.screens.reports import ReportScreen
    from quicksand_tui.screens.ssh_question import SshQuestions
    from quicksand_tui.verbs.call import Call
    from quicksand_tui.verbs.verb import AnyVerb


class Dialogs:
    """Opens dialogs over the present screen, and begins the jobs that their answers ask for."""

    def __init__(
        self,
        app: App[int],
        service: EngineService,
        operations: Operations,
        keys: Keys,
        memory: Memory,
        present: Present,
        settings: Settings,
        *,
        ascii_only: bool,
    ) -> None:
        self._app = app
        self._service = service
        self._operations = operations
        operations.show_report = self.show_report
        self._keys = keys
        self._memory = memory
        self._present = present
        self._settings = settings
        self._ascii = ascii_only
        self._config_report: ReportScreen | None = None
        self._last_command = ""
        """The last command run in many sandboxes."""
        self._left_run: RunMany | None = None
        self._last_run: RunMany | None = None
        """A command that was running when its screen was left."""

    @cached_property
    def ssh_questions(self) -> SshQuestions:
        """The questions that ssh asks on the way to other machines."""
        return lazy_screens.SshQuestions(self._app, self._keys, ascii_only=self._ascii)

    async def answer_ssh(self, question: SshQuestion) -> str | None:
        """Returns the user's answer to a question of ssh, None if the user gives up."""
        return await self.ssh_questions.ask(question)

    # Messages

    def show_failure(self, failure: Failure) -> None:
        if self._app.is_running:
            self._app.push_screen(lazy_screens.FailureScreen(failure))

    def show_report(self, told: Told) -> None:
        if self._app.is_running:
            self._app.push_screen(lazy_screens.ReportScreen(told, ascii_only=self._ascii))

    def show_config_report(self, told: Told | None) -> None:
        """Shows the problems of the config in place of earlier ones; None if there are none."""
        if self._config_report is not None and self._app.screen is self._config_report:
            self._config_report.dismiss(None)
        self._config_report = None
        if told is not None and self._app.is_running:
            self._config_report = lazy_screens.ReportScreen(told, ascii_only=self._ascii)
            self._app.push_screen(self._config_report)

    def show_screens(
        self, sandbox: SandboxView, checkpoint: CheckpointView, compared: CheckpointView | None
    ) -> None:
        """Shows the screen at a checkpoint beside the present one, or another checkpoint's."""
        self._app.push_screen(
            lazy_screens.LookScreen(
                self._service, sandbox, checkpoint, compared, ascii_only=self._ascii
            )
        )

    def open_diff(
        self,
        sandbox: SandboxView,
        checkpoint: CheckpointView,
        other: CheckpointView | None,
        everywhere: Doer,
    ) -> None:
        """Shows the differences between a checkpoint and another one, or the present.
        ``everywhere`` carries out the actions that are the same on all screens."""
        self._app.push_screen(
            lazy_screens.DiffScreen(
                self._service,
                sandbox,
                diff_specs(sandbox, checkpoint, other),
                self._present.world,
                self._keys,
                everywhere=everywhere,
                ascii_only=self._ascii,
            )
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
        settled: Callable[[], None] | None = None,
    ) -> None:
        """Asks before something is lost; ``then`` runs after a yes. ``harder`` is the verb and the
        function of an answer that does more. With ``settled`` the question is about running jobs:
        that runs if it closes because there are none any more."""

        def take(answer: Answer | None) -> None:
            if answer is lazy_screens.Answer.HARDER and harder is not None:
                harder[1]()
            elif answer is lazy_screens.Answer.SETTLED and settled is not None:
                settled()
            elif answer is lazy_screens.Answer.YES:
                then()

        question = lazy_screens.Question(
            title=title,
            losses=tuple(losses),
            verb=verb,
            undo=undo,
            harder=harder[0] if harder is not None else "",
        )
        jobs = self._operations if settled is not None else None
        screen = lazy_screens.ConfirmScreen(question, self._keys.hands, jobs=jobs)
        self._app.push_screen(screen, take)

    def ask(self, form: Form, then: Callable[[Values], None]) -> None:
        """Shows a form; ``then`` gets the values if the user submits it."""
        self._app.push_screen(
            lazy_screens.FormScreen(form, self._present.world, ascii_only=self._ascii),
            lambda values: then(values) if values is not None else None,
        )

    def ask_for_new(
        self,
        image: str | None,
        then: Callable[[NewSpec], None],
        *,
        save: SaveFacts | None = None,
        host: str = "",
    ) -> None:
        """Shows the form of a new sandbox on the machine ``host`` with an image chosen, or on the
        machine of a ``save`` with that save chosen; ``then`` gets the result."""
        begin = f"{lazy_screens.IMAGE}{image}" if image else ""
        if save is not None:
            begin, host = f"{lazy_screens.SAVE}{save.key}", save.host
        last = lazy_screens.recall_last(self._memory.remembered)
        form, spec_of = lazy_screens.new_form(
            self._present.world,
            begin=begin,
            last=last,
            usual=self._settings.config.usual_machine,
            host=host,
        )

        def take(values: Values) -> None:
            spec = spec_of(values)
            self._memory.remember(lazy_screens.NAME, asdict(lazy_screens.last_of(spec)))
            then(self.with_usual(spec))

        self.ask(form, take)

    def with_usual(self, spec: NewSpec) -> NewSpec:
        """Returns the spec with the options of new machines if none is given."""
        return lazy_screens.with_usual(spec, self._settings.config.usual_machine)

    def ask_to_install(self, package: str = "") -> None:
        """Shows the form of an installation, with the name of a package if one is given; installs
        it if the user submits the form."""

        def take(values: Values) -> None:
            name = values["names"].rpartition("/")[2]
            self._operations.do_with_saves(lazy_screens.install_of(values), name=name)

        self.ask(lazy_screens.install_form(package), take)

    def ask_to_do(
        self, form: Form, verb_of: Callable[[Values], Call[Any]], sandbox: SandboxView
    ) -> None:
        """Shows a form for a verb; if the user submits it, the verb is done to the sandbox."""
        self.ask(form, lambda values: self._operations.do(verb_of(values), sandbox))

    def do_verb(
        self,
        verb: AnyVerb,
        sandbox: SandboxView,
        *,
        given: Mapping[str, object] | None = None,
        first: Mapping[str, str] | None = None,
        about: str = "",
    ) -> None:
        """Shows the form of a verb, if it has one, and does the verb to the sandbox. The keywords
        are those of `forms.verb_forms.form_of`."""
        if verb.form is None:
            self._operations.do(verb(**(given or {})), sandbox)
            return
        self.ask_to_do(
            lazy_screens.form_of(verb, sandbox, given=given, first=first, about=about),
            lambda values: lazy_screens.call_of(verb, values, given),
            sandbox,
        )

    def ask_to_discard(self, saves: tuple[SaveFacts, ...]) -> None:
        """Asks before deleting saves of any machines, to the trash or for good."""
        world = self._present.world

        def begin(*, now: bool) -> None:
            for host, of_one in by_machine(saves).items():
                keys, shown = [save.path for save in of_one], [save.address for save in of_one]
                verb = discard(keys, now=now, shown=shown, host=host)
                self._operations.do_with_saves(verb, of_one)

        trash = world.keymap.hint("trash", Scope.SAVES.value)
        one = f"the save {clip(saves[0].name, TITLE_CELLS)}"
        self.confirm(
            f"Delete {one if len(saves) == 1 else f'{len(saves)} saves'}?",
            losses.of_saves(saves, world.taken),
            "To the trash",
            lambda: begin(now=False),
            undo=f"In the trash they stay for a week: {trash} shows it.",
            harder=("For good", lambda: begin(now=True)),
        )

    def ask_to_return(
        self, sandbox: SandboxView, checkpoint: CheckpointView, *, then: Callable[[], None]
    ) -> None:
        """Asks before a sandbox is reverted to a checkpoint, or starts there."""
        world, tag = self._present.world, clip(checkpoint.tag, TITLE_CELLS)
        self.confirm(
            f"Revert to {tag}?" if sandbox.is_live else f"Start at {tag}?",
            losses.of_return(sandbox, checkpoint, world.taken),
            "Revert" if sandbox.is_live else "Start",
            then,
            undo=losses.way_back_from(world.keymap),
        )

    def ask_to_uninstall(self, image: ImageInfo) -> None:
        again = self._present.world.keymap.hint("install")
        self.confirm(
            f"Uninstall {clip(image.name, TITLE_CELLS)}?",
            ["its versions from packages; not if a sandbox or a save needs one"],
            "Uninstall",
            lambda: self._operations.do_with_saves(uninstall(image.name), name=image.name),
            undo=f"{again} fetches it again.",
        )

    # Screens

    def open_help(self, scope: Scope) -> None:
        self._app.push_screen(
            lazy_screens.HelpScreen(self._present.world, scope, ascii_only=self._ascii)
        )

    def open_commands(self) -> None:
        self._app.push_screen(
            lazy_screens.CommandsScreen(self._operations.log, ascii_only=self._ascii)
        )

    def last_command_of(self, sandbox_id: str) -> LastCommand | None:
        """Returns this sandbox's output of the last command in several sandboxes."""
        run = self._last_run.find(sandbox_id) if self._last_run is not None else None
        if self._last_run is None or run is None or run.output is None:
            return None
        output = run.output
        return LastCommand(sanitise(self._last_run.command), output.exit_code, output.lines)

    def open_run_many(self, views: tuple[SandboxView, ...]) -> None:
        """Opens the screen for a command in ``views``, or that of a command that was left
        running."""
        many = self._left_run
        # A command that has ended is shown once more, unless others have been marked since.
        if many is not None and (many.is_running or len(views) < 2 or _same(many.views, views)):
            views = many.views
        else:
            many = lazy_screens.RunMany(self._service, self._operations)
        if not views:
            return

        self._last_run = many

        def leave(_: None) -> None:
            self._last_command = many.command or self._last_command
            self._left_run = many if many.is_running else None

        self._app.push_screen(
            lazy_screens.RunManyScreen(
                many,
                views,
                self._present.world,
                self._keys,
                command=many.command or self._last_command,
                ascii_only=self._ascii,
            ),
            leave,
        )

    def open_jobs(self) -> None:
        self._app.push_screen(
            lazy_screens.JobsScreen(
                self._operations, self._keys, self._present.world, ascii_only=self._ascii
            )
        )


def _same(ones: tuple[SandboxView, ...], others: tuple[SandboxView, ...]) -> bool:
    """Whether these are the same sandboxes, perhaps in other states."""
    return {view.id for view in ones} == {view.id for view in others}
