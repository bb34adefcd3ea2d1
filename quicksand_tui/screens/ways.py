"""Short ways on the main screen: a jump to any row or pane, and back to the sandbox before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from quicksand_tui.actions.all_actions import Doer
from quicksand_tui.kit.base import tell
from quicksand_tui.model.wall_plan import Kind
from quicksand_tui.screens import lazy_screens
from quicksand_tui.views.main_layout import Part, Tab

if TYPE_CHECKING:
    from textual.screen import Screen
    from textual.widget import Widget

    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.model.wall_plan import TileKey
    from quicksand_tui.screens.jump import Target
    from quicksand_tui.screens.navigation import Places
    from quicksand_tui.widgets.long_table import LongTable

WAYS_IN = {
    Kind.SHELL: "shell",
    Kind.OUTPUT: "shell",
    Kind.DESKTOP: "desktop",
    Kind.CONSOLE: "log",
}
"""The actions that go into tiles."""
RECENT_MAX = 20
"""The number of sandboxes that are remembered."""


class Ways(Doer):
    """Leads the user around, and remembers the last sandboxes."""

    def __init__(
        self,
        screen: Screen[None],
        places: Places,
        *,
        do: Callable[[str], None],
        show_sandbox: Callable[[str], None],
        find_sandbox: Callable[[str], SandboxView | None],
    ) -> None:
        """``do`` carries out an action of the registry; ``find_sandbox`` returns the present state
        of a sandbox, by its id."""
        self._screen = screen
        self._places = places
        self._do = do
        self._show_sandbox = show_sandbox
        self._find = find_sandbox
        self._recent: list[str] = []
        """Ids of sandboxes, the latest first."""

    def used(self, sandbox: SandboxView | None) -> None:
        """Notes that the user worked with a sandbox."""
        if sandbox is not None and self._recent[:1] != [sandbox.id]:
            others = [id_ for id_ in self._recent if id_ != sandbox.id]
            self._recent = [sandbox.id, *others][:RECENT_MAX]

    def do_last(self) -> None:
        """Goes to the sandbox used before this one, and there to its shells if the user is in
        shells."""
        shown = self._places.lists.sandbox
        here = None if shown is None else shown.id
        before = (id_ for id_ in self._recent if id_ != here and self._find(id_) is not None)
        there = self._find(next(before, ""))
        if there is None:
            tell(self._screen, "There is no sandbox before: nothing was done in another one yet")
            return
        if here is not None:
            self.used(self._find(here))
        in_shells = self._places.in_shells
        self._show_sandbox(there.id)
        self.used(there)
        if in_shells:
            self._places.area.shells.open(there)

    def open_tile(self, key: TileKey) -> Widget | None:
        """Goes to the contents of a tile of the wall, and focuses them at once, or the widget that
        takes their keys until they are there. Returns that widget, if it has the focus."""
        shells = self._places.area.shells
        self._show_sandbox(key.sandbox_id)
        self._screen.set_focus(None)
        if key.kind is Kind.SHELL:
            shells.want(key.sandbox_id, f"{key.session} {key.birth}")
        self._do(WAYS_IN[key.kind])
        shells.want("", "")  # unless it was refused
        if (focused := self._screen.focused) is None:
            self._places.go_to(Part.LISTS)
            return None
        return focused if self._places.cockpit.part_of(focused) is Part.AREA else None

    def do_jump(self) -> None:
        self._screen.app.push_screen(
            lazy_screens.JumpScreen(lambda: list(self._targets()), self._screen)
        )

    def _targets(self) -> Iterator[Target]:
        places = self._places
        yield from self._rows(places.lists.browser.table, Part.LISTS)
        yield from self._rows(places.checkpoints.table, Part.TREE)
        area = places.area
        space = area.shells.workspace if area.tab is Tab.SHELLS else None
        if space is not None:
            for pane in space.panes:
                if pane.region.area:
                    # On the blank before its title, which stays legible.
                    yield lazy_screens.Target(
                        pane.region.x, pane.region.y - 1, partial(self._screen.set_focus, pane)
                    )
        elif area.can_focus_tab and area.region.area:
            go = partial(places.go_to, Part.AREA)
            yield lazy_screens.Target(area.region.x, area.region.y + 1, go)

    def _rows(self, table: LongTable, part: Part) -> Iterator[Target]:
        if not table.is_on_screen:
            return
        region = table.content_region
        for number, key in enumerate(table.visible_keys):
            go = partial(self._go_to_row, table, key, part)
            # Below the head of the table.
            yield lazy_screens.Target(region.x, region.y + 1 + number, go)

    def _go_to_row(self, table: LongTable, key: str, part: Part) -> None:
        self._places.go_to(part)
        table.select(key)
