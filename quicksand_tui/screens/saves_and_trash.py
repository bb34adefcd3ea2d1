"""The screens of saves and of the trash."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from quicksand.things.save import SaveFacts, TrashFacts
from textual import on

from quicksand_tui.actions.all_actions import Scope, in_scope
from quicksand_tui.actions.hints import CommandHint, save_hint, trash_hint
from quicksand_tui.cockpit.lists import SAVES
from quicksand_tui.forms.save_forms import (
    chosen_of,
    export_form,
    export_of,
    import_form,
    import_of,
    prune_form,
    restore,
    restore_form,
    restore_of,
)
from quicksand_tui.kit.key_handling import bindings_of
from quicksand_tui.model.shown_saves import by_machine
from quicksand_tui.model.text import TITLE_CELLS, clip
from quicksand_tui.model.world import Selection
from quicksand_tui.screens.browsing import BrowsingScreen
from quicksand_tui.verbs.saves import bring_back, purge
from quicksand_tui.verbs.verdicts import verify
from quicksand_tui.views import losses
from quicksand_tui.views.machine_groups import is_head
from quicksand_tui.views.save_rows import (
    TRASH_ORDERS,
    Removed,
    Saved,
    arrange_removed,
    describe_save,
    describe_trashed,
    empty_saves_text,
    empty_trash_text,
    listed_saves,
    listed_trash,
    marked_text,
    plan_trash_columns,
    removed_row,
)
from quicksand_tui.widgets.browser import Browser, Listing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.binding import BindingType

    from quicksand_tui.actions.all_actions import Doer
    from quicksand_tui.forms.form_fields import Values
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.model.world import World
    from quicksand_tui.screens.dialogs import Dialogs
    from quicksand_tui.screens.main_screen import MainScreen
    from quicksand_tui.views.tables import Line


class SavesScreen(BrowsingScreen[SaveFacts]):
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
        main: MainScreen,
        everywhere: Doer,
        begin_with: str = "",
        ascii_only: bool,
    ) -> None:
        """A sandbox from a save is started on the ``main`` screen."""
        super().__init__(
            world,
            operations,
            dialogs,
            keys,
            everywhere=everywhere,
            begin_with=begin_with,
            ascii_only=ascii_only,
        )
        self._main = main

    @staticmethod
    def things(world: World) -> Sequence[Saved]:
        return listed_saves(world)

    def empty_text(self, query: str) -> str:
        return empty_saves_text(self.world.saves, query)

    def describe(self, thing: SaveFacts) -> tuple[str, list[Line]]:
        return clip(thing.name, TITLE_CELLS), describe_save(thing, self.world)

    def hint(self, thing: SaveFacts) -> CommandHint:
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
            self._dialogs.ask_for_new(None, self._main.create, save=saves[0])

    def do_discard(self) -> None:
        self._dialogs.ask_to_discard(self.selection.saves)

    def do_prune(self) -> None:
        """Lists the old saves of a machine with their sizes, and asks before deleting them."""
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
            self._operations.do_with_saves(export_of(values, save), [save])

        self._dialogs.ask(export_form(save), take)

    def do_import(self) -> None:
        def take(values: Values) -> None:
            file = values["file"].rpartition("/")[2]
            self._operations.do_with_saves(import_of(values), name=file)

        self._dialogs.ask(import_form(), take)

    def do_verify(self) -> None:
        self._verify(deep=False)

    def do_verify_deep(self) -> None:
        self._verify(deep=True)

    def _verify(self, *, deep: bool) -> None:
        for host, saves in by_machine(self.selection.saves).items():
            keys, shown = [save.path for save in saves], [save.address for save in saves]
            verb = verify(keys, deep=deep, shown=shown, host=host)
            self._operations.do_with_saves(verb, saves)

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


class TrashScreen(BrowsingScreen[TrashFacts]):
    """Lists the trash; its keys are the actions of `Scope.TRASH`."""

    scope = Scope.TRASH
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of(in_scope(Scope.TRASH))]
    listing = TRASH

    @staticmethod
    def things(world: World) -> Sequence[Removed]:
        return listed_trash(world)

    def empty_text(self, query: str) -> str:
        return empty_trash_text(self.world.saves, query)

    def describe(self, thing: TrashFacts) -> tuple[str, list[Line]]:
        return clip(thing.name, TITLE_CELLS), describe_trashed(thing, self.world)

    def hint(self, thing: TrashFacts) -> CommandHint:
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
            self._operations.do_with_saves(restore_of(values, trash[0]), trash)

        self._dialogs.ask(restore_form(trash[0]), take)

    def _restore(self, trash: Sequence[TrashFacts]) -> None:
        """Brings things back under their names: those of this machine in one job, each of others in
        a job of its own."""
        begin = self._operations.do_with_saves
        if here := [found for found in trash if not found.host]:
            each = [bring_back([], shown=found.id).command_for() for found in here]
            places = [Path(found.path) for found in here]
            begin(bring_back(places), here, command="; ".join(each))
        for found in trash:
            if found.host:
                begin(restore(found), [found])

    def do_purge(self) -> None:
        trash = self.selection.trash
        one = clip(trash[0].name, TITLE_CELLS)
        self._dialogs.confirm(
            f"Remove {one if len(trash) == 1 else f'{len(trash)} things'} for good?",
            losses.of_trash(trash, self.world.taken),
            "Remove",
            lambda: self._purge(trash),
        )

    def _purge(self, trash: Sequence[TrashFacts]) -> None:
        for host, found in by_machine(trash).items():
            verb = purge(
                [Path(one.path) for one in found],
                shown=[one.id for one in found],
                host=host,
            )
            self._operations.do_with_saves(verb, found)

    def do_copy(self) -> None:
        self.copy([view.name for view in self.selection.trash])
