"""The lists of the main screen: sandboxes, saves and images, one at a time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from quicksand.things.save import SaveFacts
from textual import on
from textual.containers import Vertical

from quicksand_tui.model.shown_sandboxes import SandboxView
from quicksand_tui.model.world import MACHINE_KEY, MachineView, Panel, World
from quicksand_tui.views.counts import empty_text
from quicksand_tui.views.machine_groups import Listed as Sandboxed
from quicksand_tui.views.machine_groups import arrange_listed, is_head, listed, listed_row
from quicksand_tui.views.sandbox_rows import (
    IMAGE_ORDERS,
    NO_IMAGES_TEXT,
    ORDERS,
    SEARCHED,
    arrange_images,
    image_row,
    list_needs,
    plan_image_columns,
    plan_sandbox_columns,
    sandbox_keys,
)
from quicksand_tui.views.save_rows import ORDERS as SAVE_ORDERS
from quicksand_tui.views.save_rows import (
    Saved,
    arrange_saves,
    empty_saves_text,
    listed_saves,
    marked_text,
    plan_saves_columns,
    saved_row,
)
from quicksand_tui.views.tables import nothing_matches
from quicksand_tui.widgets.browser import Browser, Listed, Listing, Title

if TYPE_CHECKING:
    from quicksand.things.image_info import ImageInfo
    from textual.app import ComposeResult


SANDBOXES: Listing[Sandboxed] = Listing(
    title="Sandboxes",
    plan=plan_sandbox_columns,
    needs=list_needs,
    still=("state",),
    keys=sandbox_keys,
    row=listed_row,
    arrange=arrange_listed,
    is_head=is_head,
    orders=ORDERS,
    marked_text=lambda marked: f"{len(marked)} marked" if marked else "",
    placeholder="words, !word, ~wd, state:running, age:>1d",
    searched=SEARCHED,
)
SAVES: Listing[Saved] = Listing(
    title="Saves",
    plan=plan_saves_columns,
    keys=lambda world: f"enter starts from it · {world.keymap.hint('saves')} manages them",
    row=saved_row,
    arrange=arrange_saves,
    is_head=is_head,
    orders=SAVE_ORDERS,
    marked_text=marked_text,
    placeholder="words, !word, base:debian, problem",
)
IMAGES: Listing[ImageInfo] = Listing(
    title="Images",
    plan=plan_image_columns,
    keys=lambda world: f"enter starts from it · {world.keymap.hint('install')} installs one",
    row=image_row,
    arrange=arrange_images,
    orders=IMAGE_ORDERS,
    marked_text=lambda marked: "",
    placeholder="words, !word",
)


class Lists(Vertical):
    """Three `Browser`s, one of which is visible."""

    def __init__(self, *, ascii_only: bool, is_empty: bool, **options: Any) -> None:
        """``is_empty`` says that the first frame has no sandbox."""
        super().__init__(**options)
        self.sandboxes = Browser(
            SANDBOXES, ascii_only=ascii_only, is_empty=is_empty, id="sandboxes"
        )
        self.saves = Browser(SAVES, ascii_only=ascii_only, id="saves")
        self.images = Browser(IMAGES, ascii_only=ascii_only, id="images")
        self.panel = Panel.SANDBOXES
        """The visible list."""
        self._there: tuple[SandboxView, ...] = ()
        self._listed = Listed(listed, lambda world: (world.sandboxes, world.machines))
        self._listed_saves = Listed(listed_saves, lambda world: (world.saves, world.machines))
        self._wanted = ""
        """The name of a sandbox that the cursor goes to as soon as it appears."""

    def compose(self) -> ComposeResult:
        yield self.sandboxes

    def complete(self, machine: str = "") -> None:
        """Mounts the lists that the first paint does not need, and puts the cursor on the header of
        a ``machine``, if one is named."""
        if machine:
            self.sandboxes.table.select(f"{MACHINE_KEY}{machine}")
        if self.is_attached and not self.saves.is_attached:
            self.saves.display = self.images.display = False
            self.mount(self.saves, self.images)

    @property
    def browser(self) -> Browser[Any]:
        """The visible list's widget."""
        shown: dict[Panel, Browser[Any]] = {
            Panel.SANDBOXES: self.sandboxes,
            Panel.SAVES: self.saves,
            Panel.IMAGES: self.images,
        }
        return shown[self.panel]

    def choose(self, panel: Panel) -> None:
        self.complete()
        before, self.panel = self.browser, panel
        if self.browser is not before:
            # Shown first, since a hidden widget cannot get the focus.
            self.browser.display = True
            if before.has_focus_within:
                self.screen.set_focus(self.browser.table)
            before.display = False

    def show(self, world: World) -> None:
        things = self._listed.of(world)
        self.sandboxes.show(things, world, partial(empty_text, world), world.error)
        if self.images.is_attached:
            self.images.show(
                world.images, world, lambda query: _no_images(world, query), world.images_error
            )
        if self.panel is Panel.SAVES:
            saves = world.saves
            kept = self._listed_saves.of(world)
            self.saves.show(kept, world, partial(empty_saves_text, saves), saves.error)
        counts = {
            Panel.SANDBOXES: len(world.sandboxes),
            Panel.SAVES: len(world.saves.saves) if world.saves.loaded else 0,
            Panel.IMAGES: len(world.images),
        }
        titles = tuple(
            Title(
                panel.value,
                f"{number} {panel.value.capitalize()}"
                + ("" if panel is self.panel else _count(counts[panel])),
                active=panel is self.panel,
            )
            for number, panel in enumerate(Panel, 1)
        )
        self.browser.show_titles(titles)
        self._there = world.sandboxes
        self._go_to_wanted()

    @property
    def save(self) -> SaveFacts | None:
        """The save under the cursor."""
        chosen = self.saves.selected
        return chosen if isinstance(chosen, SaveFacts) else None

    @property
    def saves_of(self) -> str | None:
        """The name of the machine whose header is under the cursor in the list of saves."""
        chosen = self.saves.selected
        return chosen.name if isinstance(chosen, MachineView) else None

    @property
    def sandbox(self) -> SandboxView | None:
        """The sandbox under the cursor, as last seen."""
        chosen = self.sandboxes.selected
        return chosen if isinstance(chosen, SandboxView) else None

    @property
    def marked(self) -> tuple[SandboxView, ...]:
        """The marked sandboxes."""
        return tuple(one for one in self.sandboxes.marked if isinstance(one, SandboxView))

    @property
    def machine(self) -> str:
        """The name of the machine whose header or sandbox is under the cursor."""
        chosen = self.sandboxes.selected
        if isinstance(chosen, MachineView):
            return chosen.name
        return chosen.host if isinstance(chosen, SandboxView) else ""

    @property
    def rows_wanted(self) -> int:
        """The number of rows that the visible list can use."""
        return self.browser.rows_wanted

    def want(self, name: str) -> None:
        """Puts the cursor on the sandbox called ``name``, now or when it appears."""
        self._wanted = name
        self._go_to_wanted()

    def _go_to_wanted(self) -> None:
        for view in self._there:
            if self._wanted and view.name == self._wanted:
                if self.sandboxes.table.select(view.id) and not view.id.startswith("new:"):
                    self._wanted = ""
                return

    @on(Browser.TitleClicked)
    def _title_clicked(self, event: Browser.TitleClicked) -> None:
        event.stop()
        self.screen.call_later(self.screen.run_action, f"panel('{event.name}')")


def _count(number: int) -> str:
    return f" {number}" if number else ""


def _no_images(world: World, query: str) -> str:
    if query and world.images:
        return nothing_matches(query)
    if world.images_error:
        return f"The images cannot be read.\n{world.images_error}"
    return NO_IMAGES_TEXT if world.knows_images else ""
