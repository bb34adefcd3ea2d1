"""The trash: what was removed or replaced, for a week."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import BindingType

from quicksand_tui import losses, saves_forms
from quicksand_tui.actions import Scope, in_scope
from quicksand_tui.saved import TrashedView
from quicksand_tui.saves_details import describe_trashed
from quicksand_tui.saves_view import (
    TRASH_ORDERS,
    arrange_trash,
    empty_trash_text,
    marked_text,
    plan_trash_columns,
    trash_row,
)
from quicksand_tui.screens.base import bindings_of
from quicksand_tui.screens.browsing import BrowsingScreen
from quicksand_tui.snapshot import Selection
from quicksand_tui.text import TITLE_CELLS, clip
from quicksand_tui.widgets.browser import Browser, Listing

if TYPE_CHECKING:
    from quicksand_tui.form import Values
    from quicksand_tui.widgets.facts import Line

TRASH: Listing[TrashedView] = Listing(
    title="Trash",
    plan=plan_trash_columns,
    row=trash_row,
    arrange=arrange_trash,
    orders=TRASH_ORDERS,
    marked_text=marked_text,
    placeholder="words, !word",
)


class TrashScreen(BrowsingScreen[TrashedView]):
    """The registry's actions of `Scope.TRASH` are its keys."""

    scope = Scope.TRASH
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of(in_scope(Scope.TRASH))]
    listing = TRASH

    def things(self) -> Sequence[TrashedView]:
        return self.snapshot.saves.trash

    def empty_text(self, query: str) -> str:
        return empty_trash_text(self.snapshot.saves, query)

    def describe(self, thing: TrashedView) -> tuple[str, list[Line]]:
        return clip(thing.name, TITLE_CELLS), describe_trashed(thing, self.snapshot)

    @property
    def selection(self) -> Selection:
        return Selection(trashed=self.browser.selected, marked_trash=self.browser.marked)

    @on(Browser.Opened)
    def _opened(self) -> None:
        self.action_do("restore")

    # Actions, by the registry's ids

    def do_restore(self) -> None:
        trash, begin = self.selection.trash, self.tui.save_operations
        names = {save.name for save in self.snapshot.saves.saves}
        if len(trash) > 1 or trash[0].name not in names:
            begin.restore(trash)
            return

        def take(values: Values) -> None:
            begin.restore(trash, values["name"])

        self.tui.dialogs.ask(saves_forms.restore_form(trash[0]), take)

    def do_purge(self) -> None:
        trash = self.selection.trash
        one = clip(trash[0].name, TITLE_CELLS)
        self.tui.dialogs.confirm(
            f"Remove {one if len(trash) == 1 else f'{len(trash)} saves'} for good?",
            losses.of_trash(trash, self.snapshot.taken),
            "Remove",
            lambda: self.tui.save_operations.purge(trash),
        )

    def do_copy(self) -> None:
        self.copy([found.name for found in self.selection.trash])
