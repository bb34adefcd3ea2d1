"""The common part of the screens of saves and of the trash: a long list, and one entry's facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from quicksand.things.save import SaveFacts, TrashFacts
from textual import on
from textual.content import Content
from textual.widgets import Static

from quicksand_tui.actions.all_actions import Doer, find_action
from quicksand_tui.actions.hints import CommandHint
from quicksand_tui.actions.reasons import job_to_cancel
from quicksand_tui.kit.base import tell
from quicksand_tui.kit.key_handling import ActionScreen
from quicksand_tui.model.text import plain
from quicksand_tui.model.world import MachineView
from quicksand_tui.views.job_rows import jobs_text
from quicksand_tui.views.save_rows import counts_text, describe_head
from quicksand_tui.widgets.bars import ActionBar, CommandLine
from quicksand_tui.widgets.browser import Browser, Listed, Listing
from quicksand_tui.widgets.details import Facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult

    from quicksand_tui.actions.all_actions import Doer
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.model.world import World
    from quicksand_tui.screens.dialogs import Dialogs
    from quicksand_tui.views.tables import Line


T = TypeVar("T", SaveFacts, TrashFacts)


class BrowsingScreen(ActionScreen, Generic[T]):
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
        everywhere: Doer,
        begin_with: str = "",
        ascii_only: bool,
    ) -> None:
        """``begin_with`` is the key of the row under the cursor at first, if it is listed."""
        super().__init__(keys, everywhere)
        self._operations = operations
        self._dialogs = dialogs
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
        self._listed: Listed[Any] = Listed(self.things, lambda world: (world.saves, world.machines))

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

    @staticmethod
    def things(world: World) -> Sequence[T | MachineView]:
        """Returns the saves and machines to list."""
        raise NotImplementedError

    def empty_text(self, query: str) -> str:
        """Returns the text shown instead of an empty list."""
        raise NotImplementedError

    def describe(self, thing: T) -> tuple[str, list[Line]]:
        """Returns a title and all facts of a thing."""
        raise NotImplementedError

    def hint(self, thing: T) -> CommandHint:
        """Returns the command that does the same as Enter, or the command of the list."""
        return self._same

    def update_world(self, world: World) -> None:
        self.world = world
        if self.is_mounted:
            self._show()

    def _show(self) -> None:
        things, saves = self._listed.of(self.world), self.world.saves
        self.browser.show(things, self.world, self.empty_text, saves.error)
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

    # Actions of both screens

    def do_cancel(self) -> None:
        if (job := job_to_cancel(self.world, self.selection)) is not None:
            self._operations.cancel(job.sandbox_id)

    @property
    def chosen(self) -> T | None:
        """The entry under the cursor, if that is no header of a machine."""
        found = self.browser.selected
        return None if found is None or isinstance(found, MachineView) else found

    @property
    def marked(self) -> tuple[T, ...]:
        """The marked things; headers cannot be marked."""
        return tuple(one for one in self.browser.marked if not isinstance(one, MachineView))

    @property
    def machine(self) -> str:
        """The name of the machine whose header or thing is under the cursor."""
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
