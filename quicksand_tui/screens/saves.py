"""All saves: start sandboxes from them, move, verify, delete them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import BindingType

from quicksand_tui import saves_forms
from quicksand_tui.actions import Scope, in_scope
from quicksand_tui.saved import SaveView
from quicksand_tui.saves_details import describe_save
from quicksand_tui.saves_view import (
    ORDERS,
    arrange,
    empty_saves_text,
    marked_text,
    plan_saves_columns,
    save_row,
)
from quicksand_tui.screens.base import bindings_of
from quicksand_tui.screens.browsing import BrowsingScreen
from quicksand_tui.snapshot import Selection
from quicksand_tui.text import TITLE_CELLS, clip
from quicksand_tui.widgets.browser import Browser, Listing

if TYPE_CHECKING:
    from quicksand_tui.form import Values
    from quicksand_tui.widgets.facts import Line

SAVES: Listing[SaveView] = Listing(
    title="Saves",
    plan=plan_saves_columns,
    row=save_row,
    arrange=arrange,
    orders=ORDERS,
    marked_text=marked_text,
    placeholder="words, !word, base:debian, problem",
)


class SavesScreen(BrowsingScreen[SaveView]):
    """The saves that are found by name. The registry's actions of `Scope.SAVES` are its keys."""

    scope = Scope.SAVES
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of(in_scope(Scope.SAVES))]
    listing = SAVES

    def things(self) -> Sequence[SaveView]:
        return self.snapshot.saves.saves

    def empty_text(self, query: str) -> str:
        return empty_saves_text(self.snapshot.saves, query)

    def describe(self, thing: SaveView) -> tuple[str, list[Line]]:
        return clip(thing.name, TITLE_CELLS), describe_save(thing, self.snapshot)

    @property
    def selection(self) -> Selection:
        return Selection(save=self.browser.selected, marked=self.browser.marked)

    @on(Browser.Opened)
    def _opened(self) -> None:
        self.action_do("begin")

    # Actions, by the registry's ids

    def do_begin(self) -> None:
        if saves := self.selection.saves:
            self.tui.dialogs.ask_for_new(None, self.tui.begin_from_save, save=saves[0].key)

    def do_discard(self) -> None:
        self.tui.dialogs.ask_to_discard(self.selection.saves)

    def do_export(self) -> None:
        if not (saves := self.selection.saves):
            return
        save = saves[0]

        def take(values: Values) -> None:
            self.tui.save_operations.export(save, saves_forms.export_spec(values))

        self.tui.dialogs.ask(saves_forms.export_form(save), take)

    def do_import(self) -> None:
        def take(values: Values) -> None:
            self.tui.save_operations.import_(saves_forms.import_spec(values))

        self.tui.dialogs.ask(saves_forms.import_form(), take)

    def do_verify(self) -> None:
        self.tui.save_operations.verify(self.selection.saves, deep=False)

    def do_verify_deep(self) -> None:
        self.tui.save_operations.verify(self.selection.saves, deep=True)

    def do_trash(self) -> None:
        self.tui.dialogs.open_trash()

    def do_copy(self) -> None:
        self.copy([save.address for save in self.selection.saves])
