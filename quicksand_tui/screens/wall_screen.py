"""The wall: live tiles of many sandboxes at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from quicksand_driver.textual_private import forward
from textual import events, on
from textual.content import Content
from textual.widgets import Static

from quicksand_tui.actions.all_actions import Doer, Scope, find_action, in_scope
from quicksand_tui.cockpit.wall import WallView
from quicksand_tui.kit.key_handling import ActionScreen, bindings_of
from quicksand_tui.model.text import plain
from quicksand_tui.model.wall_plan import counts_text
from quicksand_tui.model.world import Selection
from quicksand_tui.widgets.bars import ActionBar

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.widget import Widget

    from quicksand_tui.actions.all_actions import Doer
    from quicksand_tui.door.service import EngineService
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.model.world import World
    from quicksand_tui.screens.dialogs import Dialogs
    from quicksand_tui.screens.main_screen import MainScreen

HELD_S = 1.0
"""The most seconds for which keys behind one that goes into a tile are held back."""

NOTHING_RUNS = "Nothing runs. {new} on the main screen starts a sandbox; esc goes back there."


class WallScreen(ActionScreen):
    """Shows tiles; its keys are the actions of `Scope.WALL`. Watching changes nothing in the
    guests, and other clients of their terminals do not notice it."""

    CSS_PATH = "wall.tcss"
    AUTO_FOCUS = "WallView"
    scope = Scope.WALL
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of(in_scope(Scope.WALL))]

    def __init__(
        self,
        world: World,
        service: EngineService,
        dialogs: Dialogs,
        keys: Keys,
        *,
        only: frozenset[str],
        main: MainScreen,
        everywhere: Doer,
        ascii_only: bool,
    ) -> None:
        """``only`` are the ids of the sandboxes that are shown, or none for all that run.
        The contents of a tile are on the ``main`` screen."""
        super().__init__(keys, everywhere)
        self.world = world
        self._dialogs = dialogs
        self._only = only
        self._main = main
        self._going: float | None = None
        """The time when a key that goes into a tile was read, until the key is carried out, in
        seconds of the monotonic clock."""
        self._held: list[events.Key] = []
        """Keys that were read behind it."""
        self._goal: Widget | None = None
        """The widget to which that key has led."""
        self._ascii = ascii_only
        self._marked: dict[str, None] = {}
        self._counts = Static(id="counts", markup=False)
        self._counted = ""
        self._empty = Static(classes="empty", markup=False)
        self.view = WallView(
            service,
            service.open_wall(),
            last_command_of=dialogs.last_command_of,
            ascii_only=ascii_only,
            id="wall",
        )
        self._actions = ActionBar(self.scope, id="actions")

    def compose(self) -> ComposeResult:
        yield self._counts
        yield self._empty
        yield self.view
        yield self._actions

    def on_mount(self) -> None:
        self._show()

    # Showing

    @property
    def _views(self) -> tuple[SandboxView, ...]:
        chosen = (view for view in self.world.sandboxes if view.is_live)
        return tuple(view for view in chosen if not self._only or view.id in self._only)

    @property
    def visible_sandboxes(self) -> frozenset[str]:
        return frozenset(view.id for view in self._views)

    @property
    def selection(self) -> Selection:
        """The sandbox of the tile under the cursor, and the marked ones."""
        key = self.view.cursor
        marked = tuple(view for view in self._views if view.id in self._marked)
        sandbox = self.world.sandbox(key.sandbox_id) if key is not None else None
        return Selection(sandbox=sandbox, marked_sandboxes=marked)

    def update_world(self, world: World) -> None:
        self.world = world
        if self.is_mounted:
            self._show()

    def _show(self) -> None:
        there = {view.id for view in self._views}
        self._marked = {id_: None for id_ in self._marked if id_ in there}
        self.set_class(not there, "-empty")
        hint = self.world.keymap.hint("new")
        self._empty.update(self._text(NOTHING_RUNS.format(new=hint)))
        self.view.show(self._views, tuple(self._marked))
        self._show_bars()

    @on(WallView.Moved)
    def _show_bars(self) -> None:
        view = self.view
        tiles = view.tiles
        text = counts_text(len(tiles.shown), len(view.places), view.first, tiles.calling)
        if self._only:
            text += " · only those marked or filtered"
        if self._marked:
            text += f" · {len(self._marked)} marked"
        if text != self._counted:
            self._counted = text
            self._counts.update(self._text(f"wall  {text}"))
        self._actions.show(self.world, self.selection)

    def _text(self, text: str) -> Content:
        return Content(plain(text) if self._ascii else text)

    def on_screen_resume(self) -> None:
        self.view.cover(False)

    def on_screen_suspend(self) -> None:
        self.view.cover(True)

    # Input

    @on(WallView.Opened)
    def _opened(self) -> None:
        self.action_do("enter")

    def drops_key(self, key: events.Key) -> bool:
        """Holds back keys behind one that goes into a tile: they are meant for the shell there, and
        would end with this screen."""
        if self._going is not None and key.time - self._going < HELD_S:
            self._held.append(key)
            return True
        enter = find_action("enter", self.scope)
        goes = key.key in self.world.keymap.keys_of(enter) and self.app.screen is self
        self._going = key.time if goes else None
        return False

    def _give_held(self) -> None:
        """Gives the held keys to the widget to which the tile has led, or to none."""
        held, self._held, self._going = self._held, [], None
        for key in held:
            if self._goal is None or self.app.focused is not self._goal:
                return
            if not self._main.take_early(key):
                forward(self.app, key)

    def action_do(self, action_id: str, scope: str = "") -> None:
        if self.app.screen is not self:
            return  # keys are now meant for the dialog that is opening
        try:
            super().action_do(action_id, scope)
        finally:
            self._give_held()

    def do_enter(self) -> None:
        if (key := self.view.cursor) is not None:
            self.dismiss(None)
            self._goal = self._main.open_tile(key)

    def do_mark(self) -> None:
        key = self.view.cursor
        if key is None:
            return
        if key.sandbox_id in self._marked:
            del self._marked[key.sandbox_id]
        else:
            self._marked[key.sandbox_id] = None
        self.view.action_step(1)
        self._show()

    def do_mark_all(self) -> None:
        ids = [view.id for view in self._views]
        self._marked = {} if len(self._marked) == len(ids) else dict.fromkeys(ids)
        self._show()

    def do_execute(self) -> None:
        self._dialogs.open_run_many(self.selection.sandboxes)

    def do_zoom(self) -> None:
        self.view.toggle_alone()

    def do_all(self) -> None:
        """Shows all sandboxes that run, instead of those marked or filtered."""
        self._only = frozenset()
        self._show()

    def do_back(self) -> None:
        self.dismiss(None)
