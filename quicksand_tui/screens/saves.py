"""The screens of saves and of the trash: a long list, and the facts of one entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.widgets import Static

from quicksand_tui.actions.hints import CommandHint, save_hint, trash_hint
from quicksand_tui.actions.registry import Scope, find_action, in_scope
from quicksand_tui.actions.saves_reasons import job_to_cancel
from quicksand_tui.cockpit.lists import SAVES
from quicksand_tui.forms.prune import chosen_of, prune_form
from quicksand_tui.forms.saves import (
    export_form,
    export_of,
    import_form,
    import_of,
    restore,
    restore_form,
    restore_of,
)
from quicksand_tui.kit.base import ActionScreen, bindings_of, refuse_paste
from quicksand_tui.kit.doing import Doer
from quicksand_tui.kit.telling import tell
from quicksand_tui.model.saves import SaveView, TrashedView, by_machine
from quicksand_tui.model.text import TITLE_CELLS, clip, plain
from quicksand_tui.model.world import MachineView, Selection
from quicksand_tui.verbs.saves import bring_back, purge
from quicksand_tui.verbs.verdicts import verify
from quicksand_tui.views import losses
from quicksand_tui.views.saves import (
    TRASH_ORDERS,
    counts_text,
    describe_save,
    describe_trashed,
    empty_saves_text,
    empty_trash_text,
    jobs_text,
    plan_trash_columns,
)
from quicksand_tui.views.saves_machines import (
    Removed,
    Saved,
    arrange_removed,
    describe_head,
    is_head,
    listed_saves,
    listed_trash,
    marked_text,
    removed_row,
)
from quicksand_tui.widgets.bars import ActionBar, CommandLine
from quicksand_tui.widgets.browser import Browser, Listing
from quicksand_tui.widgets.details import Facts
from quicksand_tui.widgets.listed import Listed

if TYPE_CHECKING:
    from quicksand_tui.actions.registry import Action
    from quicksand_tui.forms.form import Values
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.doing import Handlers
    from quicksand_tui.kit.keys import Keys
    from quicksand_tui.model.specs import NewSpec
    from quicksand_tui.model.world import World
    from quicksand_tui.screens.dialogs import Dialogs
    from quicksand_tui.views.rows import Line


T = TypeVar("T", SaveView, TrashedView)


class BrowsingScreen(ActionScreen, Doer, Generic[T]):
    """A screen with a `Browser`, the facts of the selection, the command line, and the footer."""

    CSS_PATH = "saves.tcss"
    VERTICAL_BREAKPOINTS = [(0, "-low"), (17, "-usual"), (30, "-high")]  # noqa: RUF012
    AUTO_FOCUS = "LongTable"
    listing: ClassVar[Listing[Any]]

    def __init__(
        self,
        world: World,
        operations: Operations,
        dialogs: Dialogs,
        keys: Keys,
        *,
        everywhere: Handlers,
        begin_with: str = "",
        ascii_only: bool,
    ) -> None:
        """``everywhere`` are the actions that are the same on all screens; ``begin_with`` is the
        key under the cursor at first, if it is listed."""
        super().__init__()
        self._operations = operations
        self._dialogs = dialogs
        self._app_keys = keys
        self._everywhere = everywhere
        self._begin_with = begin_with
        self.world = world
        self._ascii = ascii_only
        self._counts = Static(id="counts", markup=False)
        self.browser: Browser[Any] = Browser(self.listing, ascii_only=ascii_only, id="browser")
        self._about = Facts(ascii_only=ascii_only, id="about")
        self._same = CommandHint(find_action("refresh", self.scope).command_for())
        self._command_line = CommandLine(self._same, ascii_only=ascii_only, id="command-line")
        self._actions = ActionBar(self.scope, id="actions")
        self._counted = ""

    @property
    def shows_saves(self) -> bool:
        return True

    def compose(self) -> ComposeResult:
        yield self._counts
        yield self.browser
        yield self._about
        yield self._command_line
        yield self._actions

    def on_mount(self) -> None:
        self._show()
        self.browser.table.select(self._begin_with)

    # Showing

    def things(self) -> Sequence[T | MachineView]:
        """Returns the things to list."""
        raise NotImplementedError

    def empty_text(self, query: str) -> str:
        """Returns the text shown instead of an empty list."""
        raise NotImplementedError

    def describe(self, thing: T) -> tuple[str, list[Line]]:
        """Returns a title and all facts of a thing."""
        raise NotImplementedError

    def hint(self, thing: T) -> CommandHint:
        """Returns the command that does the same as Enter, or that of the list."""
        return self._same

    def update_world(self, world: World) -> None:
        self.world = world
        if self.is_mounted:
            self._show()

    def _show(self) -> None:
        self.browser.show(self.things(), self.world, self.empty_text, self.world.saves.error)
        self._show_counts()
        self._show_selection()
        log = self._operations.log
        self._command_line.show_record(log[-1] if log else None)

    def _show_counts(self) -> None:
        jobs = jobs_text(self.world)
        mark = "read-only" if self.world.read_only else ""
        text = " · ".join(part for part in (mark, jobs, counts_text(self.world.saves)) if part)
        if text != self._counted:
            self._counted = text
            self._counts.update(Content(plain(text) if self._ascii else text), layout=False)

    @on(Browser.Moved)
    def _show_selection(self) -> None:
        chosen, found = self.chosen, self.browser.selected
        if isinstance(found, MachineView):
            title, lines = describe_head(found, self.world)
        else:
            title, lines = self.describe(chosen) if chosen is not None else ("", [])
        self._about.show_lines(title, lines)
        self._command_line.show_hint(self.hint(chosen) if chosen is not None else self._same)
        self._actions.show(self.world, self.selection)

    def on_descendant_focus(self) -> None:
        self._actions.show(self.world, self.selection)

    # Input

    def on_paste(self, event: events.Paste) -> None:
        tell(self, refuse_paste(event), severity="warning")

    def action_do(self, action_id: str, scope: str = "") -> None:
        if self.app.screen is not self:
            return  # keys are now meant for the dialog that is opening
        action = find_action(action_id, self.scope)
        if self._app_keys.refuse_text(action):
            return
        if action.careful:
            self._app_keys.carefully(lambda: self._carry_out(action))
        else:
            self._carry_out(action)

    def _carry_out(self, action: Action) -> None:
        if self.app.screen is not self:
            return
        reason = self._app_keys.why_not(action, self.world, self.selection)
        if reason is not None:
            tell(self, reason, severity="warning")
            return
        self.handlers_of(self.scope)[action.id]()

    # Actions of both screens

    def handlers_of(self, scope: Scope) -> Handlers:
        return {**self._everywhere, **self.handlers}

    def do_cancel(self) -> None:
        if (job := job_to_cancel(self.world, self.selection)) is not None:
            self._operations.cancel(job.sandbox_id)

    @property
    def chosen(self) -> T | None:
        """What the cursor is on, if that is no header of a machine."""
        found = self.browser.selected
        return None if found is None or isinstance(found, MachineView) else found

    @property
    def marked(self) -> tuple[T, ...]:
        """The marked things; headers cannot be marked."""
        return tuple(one for one in self.browser.marked if not isinstance(one, MachineView))

    @property
    def machine(self) -> str:
        """The name of the machine whose header or thing the cursor is on."""
        found = self.browser.selected
        if isinstance(found, MachineView):
            return found.name
        return "" if found is None else found.host

    def do_mark(self) -> None:
        self.browser.toggle_mark()

    def do_mark_all(self) -> None:
        self.browser.toggle_all()

    def do_filter(self) -> None:
        self.browser.open_filter()

    def do_order(self) -> None:
        self.browser.step_order()

    def do_back(self) -> None:
        if not self.browser.step_back():
            self.dismiss(None)

    def filter_by(self, words: str) -> bool:
        self.browser.filter_by(words)
        return True

    def copy(self, names: Sequence[str]) -> None:
        self.app.copy_to_clipboard("\n".join(names))
        what = names[0] if len(names) == 1 else f"{len(names)} names"
        tell(self, f"Copied {what}, if the terminal allows it")


class SavesScreen(BrowsingScreen[SaveView]):
    """Lists the saves that are found by name; its keys are the actions of `Scope.SAVES`."""

    scope = Scope.SAVES
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of(in_scope(Scope.SAVES))]
    listing = SAVES

    def __init__(
        self,
        world: World,
        operations: Operations,
        dialogs: Dialogs,
        keys: Keys,
        *,
        begin: Callable[[NewSpec], None],
        everywhere: Handlers,
        begin_with: str = "",
        ascii_only: bool,
    ) -> None:
        """``begin`` starts a sandbox from a save, and shows it on the main screen."""
        super().__init__(
            world,
            operations,
            dialogs,
            keys,
            everywhere=everywhere,
            begin_with=begin_with,
            ascii_only=ascii_only,
        )
        self._begin = begin
        self._listed = Listed(listed_saves, lambda world: (world.saves, world.machines))

    def things(self) -> Sequence[Saved]:
        return self._listed.of(self.world)

    def empty_text(self, query: str) -> str:
        return empty_saves_text(self.world.saves, query)

    def describe(self, thing: SaveView) -> tuple[str, list[Line]]:
        return clip(thing.name, TITLE_CELLS), describe_save(thing, self.world)

    def hint(self, thing: SaveView) -> CommandHint:
        return save_hint(thing) if not thing.trouble else super().hint(thing)

    @property
    def selection(self) -> Selection:
        return Selection(save=self.chosen, marked=self.marked, machine=self.machine)

    @on(Browser.Opened)
    def _opened(self) -> None:
        self.action_do("begin")

    # Actions, by the registry's ids

    def do_begin(self) -> None:
        if saves := self.selection.saves:
            self._dialogs.ask_for_new(None, self._begin, save=saves[0])

    def do_discard(self) -> None:
        self._dialogs.ask_to_discard(self.selection.saves)

    def do_prune(self) -> None:
        """Lists the old saves of a machine with their sizes, and asks before they go."""
        host = self.machine
        self._dialogs.ask(
            prune_form(host),
            lambda values: self._dialogs.ask_to_discard(chosen_of(values, self.world, host)),
        )

    def do_export(self) -> None:
        if not (saves := self.selection.saves):
            return
        save = saves[0]

        def take(values: Values) -> None:
            self._dialogs.save_operations.do(export_of(values, save), [save])

        self._dialogs.ask(export_form(save), take)

    def do_import(self) -> None:
        def take(values: Values) -> None:
            file = values["file"].rpartition("/")[2]
            self._dialogs.save_operations.do(import_of(values), name=file)

        self._dialogs.ask(import_form(), take)

    def do_verify(self) -> None:
        self._verify(deep=False)

    def do_verify_deep(self) -> None:
        self._verify(deep=True)

    def _verify(self, *, deep: bool) -> None:
        for host, saves in by_machine(self.selection.saves).items():
            keys, shown = [save.own_key for save in saves], [save.address for save in saves]
            verb = verify(keys, deep=deep, shown=shown, host=host)
            self._dialogs.save_operations.do(verb, saves)

    def do_copy(self) -> None:
        self.copy([save.address for save in self.selection.saves])


TRASH: Listing[Removed] = Listing(
    title="Trash",
    plan=plan_trash_columns,
    row=removed_row,
    arrange=arrange_removed,
    is_head=is_head,
    orders=TRASH_ORDERS,
    marked_text=marked_text,
    placeholder="words, !word",
    keys=lambda world: "",
)


class TrashScreen(BrowsingScreen[TrashedView]):
    """Lists the trash; its keys are the actions of `Scope.TRASH`."""

    scope = Scope.TRASH
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of(in_scope(Scope.TRASH))]
    listing = TRASH

    def __init__(
        self,
        world: World,
        operations: Operations,
        dialogs: Dialogs,
        keys: Keys,
        *,
        everywhere: Handlers,
        ascii_only: bool,
    ) -> None:
        super().__init__(
            world, operations, dialogs, keys, everywhere=everywhere, ascii_only=ascii_only
        )
        self._listed = Listed(listed_trash, lambda world: (world.saves, world.machines))

    def things(self) -> Sequence[Removed]:
        return self._listed.of(self.world)

    def empty_text(self, query: str) -> str:
        return empty_trash_text(self.world.saves, query)

    def describe(self, thing: TrashedView) -> tuple[str, list[Line]]:
        return clip(thing.name, TITLE_CELLS), describe_trashed(thing, self.world)

    def hint(self, thing: TrashedView) -> CommandHint:
        return trash_hint(thing)

    @property
    def selection(self) -> Selection:
        return Selection(trashed=self.chosen, marked_trash=self.marked, machine=self.machine)

    @on(Browser.Opened)
    def _opened(self) -> None:
        self.action_do("restore")

    # Actions, by the registry's ids

    def do_restore(self) -> None:
        trash = self.selection.trash
        there = self.world.sandboxes if trash[0].kind == "sandbox" else self.world.saves.saves
        names = {view.name for view in there}
        if len(trash) > 1 or trash[0].name not in names:
            self._restore(trash)
            return

        def take(values: Values) -> None:
            self._dialogs.save_operations.do(restore_of(values, trash[0]), trash)

        self._dialogs.ask(restore_form(trash[0]), take)

    def _restore(self, trash: Sequence[TrashedView]) -> None:
        """Brings things back under their names: in a job those of this machine, and each of others
        in one of its own."""
        begin = self._dialogs.save_operations
        if here := [found for found in trash if not found.host]:
            each = [bring_back([], shown=found.id).command_for() for found in here]
            places = [Path(found.key) for found in here]
            begin.do(bring_back(places), here, command="; ".join(each))
        for found in trash:
            if found.host:
                begin.do(restore(found), [found])

    def do_purge(self) -> None:
        trash = self.selection.trash
        one = clip(trash[0].name, TITLE_CELLS)
        self._dialogs.confirm(
            f"Remove {one if len(trash) == 1 else f'{len(trash)} things'} for good?",
            losses.of_trash(trash, self.world.taken),
            "Remove",
            lambda: self._purge(trash),
        )

    def _purge(self, trash: Sequence[TrashedView]) -> None:
        for host, found in by_machine(trash).items():
            verb = purge(
                [Path(one.own_key) for one in found],
                shown=[one.id for one in found],
                named=[one.short_name for one in found],
                host=host,
            )
            self._dialogs.save_operations.do(verb, found)

    def do_copy(self) -> None:
        self.copy([view.name for view in self.selection.trash])
