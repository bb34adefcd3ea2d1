"""The lists of the main screen: sandboxes, saves, images; one of them at a time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical

from quicksand_tui.cockpit.layout import TABS_FROM
from quicksand_tui.saves_view import (
    ORDERS as SAVE_ORDERS,
)
from quicksand_tui.saves_view import (
    arrange,
    empty_saves_text,
    marked_text,
    plan_saves_columns,
    save_row,
)
from quicksand_tui.snapshot import Panel, Snapshot
from quicksand_tui.view import (
    IMAGE_ORDERS,
    NO_IMAGES_TEXT,
    ORDERS,
    arrange_images,
    arrange_sandboxes,
    empty_text,
    image_row,
    plan_image_columns,
    plan_sandbox_columns,
    sandbox_row,
)
from quicksand_tui.widgets.browser import Browser, Listing
from quicksand_tui.widgets.tab_bar import TabBar

if TYPE_CHECKING:
    from quicksand_tui.listed import ImageView, SandboxView
    from quicksand_tui.saved import SaveView

SANDBOXES: Listing[SandboxView] = Listing(
    title="Sandboxes",
    plan=plan_sandbox_columns,
    row=sandbox_row,
    arrange=arrange_sandboxes,
    orders=ORDERS,
    marked_text=lambda marked: f"{len(marked)} marked" if marked else "",
    placeholder="words, !word, state:running, image:debian",
)
SAVES: Listing[SaveView] = Listing(
    title="Saves",
    plan=plan_saves_columns,
    row=save_row,
    arrange=arrange,
    orders=SAVE_ORDERS,
    marked_text=marked_text,
    placeholder="words, !word, base:debian, problem",
)
IMAGES: Listing[ImageView] = Listing(
    title="Images",
    plan=plan_image_columns,
    row=image_row,
    arrange=arrange_images,
    orders=IMAGE_ORDERS,
    marked_text=lambda marked: "",
    placeholder="words, !word",
)


class Lists(Vertical):
    """Three `Browser`s, of which one is shown."""

    def __init__(self, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(**options)
        self.sandboxes = Browser(SANDBOXES, ascii_only=ascii_only, id="sandboxes")
        self.saves = Browser(SAVES, ascii_only=ascii_only, id="saves")
        self.images = Browser(IMAGES, ascii_only=ascii_only, id="images")
        self._tabs = TabBar(ascii_only=ascii_only, id="list-tabs")
        self.panel = Panel.SANDBOXES
        """Which one is shown."""

    def compose(self) -> ComposeResult:
        yield self._tabs
        yield self.sandboxes

    def complete(self) -> None:
        """Add what is not shown at first: it need not be there for the first paint."""
        if self.is_attached and not self.saves.is_attached:
            self.saves.display = self.images.display = False
            self.mount(self.saves, self.images)

    @property
    def browser(self) -> Browser[Any]:
        """The one that is shown."""
        shown: dict[Panel, Browser[Any]] = {
            Panel.SANDBOXES: self.sandboxes,
            Panel.SAVES: self.saves,
            Panel.IMAGES: self.images,
        }
        return shown[self.panel]

    def choose(self, panel: Panel) -> None:
        """Show another one."""
        self.complete()
        before, self.panel = self.browser, panel
        if self.browser is not before:
            # Shown first: the focus does not go to what cannot be seen.
            self.browser.display = True
            if before.has_focus_within:
                self.screen.set_focus(self.browser.table)
            before.display = False

    def show(self, snapshot: Snapshot) -> None:
        self.sandboxes.show(snapshot.sandboxes, snapshot, partial(empty_text, snapshot))
        if self.images.is_attached:
            self.images.show(snapshot.images, snapshot, lambda query: _no_images(snapshot, query))
        if self.panel is Panel.SAVES:
            self.saves.show(
                snapshot.saves.saves, snapshot, partial(empty_saves_text, snapshot.saves)
            )
        counts = {
            Panel.SANDBOXES: len(snapshot.sandboxes),
            Panel.SAVES: len(snapshot.saves.saves) if snapshot.saves.loaded else 0,
            Panel.IMAGES: len(snapshot.images),
        }
        labels = [
            (panel.value, f"{number} {panel.value.capitalize()}{_count(counts[panel])}")
            for number, panel in enumerate(Panel, 1)
        ]
        self._tabs.show(tuple(labels), self.panel.value)

    def on_resize(self) -> None:
        self._tabs.display = self.size.height >= TABS_FROM

    @on(TabBar.Chosen)
    def _tab_clicked(self, event: TabBar.Chosen) -> None:
        event.stop()
        self.screen.call_later(self.screen.run_action, f"panel('{event.tab}')")


def _count(number: int) -> str:
    return f" {number}" if number else ""


def _no_images(snapshot: Snapshot, query: str) -> str:
    if query and snapshot.images:
        return f"Nothing matches “{query}”.\nesc clears the filter."
    return NO_IMAGES_TEXT if snapshot.loaded else ""
