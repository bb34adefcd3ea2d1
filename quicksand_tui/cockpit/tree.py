"""The tree of a sandbox's checkpoints, a part of the main screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Static

from quicksand_tui.actions.registry import Scope, in_scope
from quicksand_tui.cockpit.base import PartWidget
from quicksand_tui.kit.base import bindings_of
from quicksand_tui.model.checkpoints import FANCY, PLAIN
from quicksand_tui.model.sandboxes import State
from quicksand_tui.model.text import clip
from quicksand_tui.views.rows import plan_tree_columns
from quicksand_tui.views.tree import tree_lines, tree_rows
from quicksand_tui.widgets.long_table import LongTable

if TYPE_CHECKING:
    from quicksand_tui.model.checkpoints import CheckpointView
    from quicksand_tui.model.keymap import Keymap
    from quicksand_tui.model.sandboxes import SandboxView
    from quicksand_tui.model.world import World
    from quicksand_tui.views.rows import Row

NAME_CELLS = 30


class TreePanel(PartWidget, Vertical):
    """Shows the checkpoints of the selected sandbox, with a cursor."""

    scope = Scope.TREE
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of(in_scope(Scope.TREE))]

    class Moved(Message):
        """The cursor is on another checkpoint."""

    def __init__(self, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(classes="-empty", **options)
        self.ascii_only = ascii_only
        self.table = LongTable(plan_tree_columns, ascii_only=ascii_only)
        self._empty = Static(classes="empty", markup=False)
        self._sandbox: SandboxView | None = None
        self._rows: dict[str, Row] = {}
        self._keys: list[str] = []
        self._compared = ""
        """The id of the checkpoint whose screen is compared with another one's."""
        self._frame = ("", "", "")

    def compose(self) -> ComposeResult:
        yield self.table
        yield self._empty

    def selected_of(self, sandbox: SandboxView | None) -> CheckpointView | None:
        """Returns the checkpoint under the cursor; None while the tree shows another sandbox."""
        shown = self._sandbox
        if shown is None or sandbox is None or shown.id != sandbox.id:
            return None
        return shown.tree.find(self.table.selected_key)

    def compared_of(self, sandbox: SandboxView | None) -> CheckpointView | None:
        """Returns the checkpoint that is compared with the one under the cursor."""
        if not self._compared or self.selected_of(sandbox) is None:
            return None
        assert sandbox is not None
        return sandbox.tree.find(self._compared)

    def compare(self, checkpoint: CheckpointView) -> None:
        """Compares a checkpoint with the one under the cursor from now on, or no longer."""
        self._compared = "" if checkpoint.id == self._compared else checkpoint.id
        self._show_rows()
        self.post_message(self.Moved())

    def _show_rows(self) -> None:
        self.table.show(self._keys, self._rows.__getitem__, (self._compared,))

    def show(self, world: World, sandbox: SandboxView | None) -> None:
        """Shows the tree of a sandbox. The cursor goes to its head when the sandbox or its head has
        changed."""
        before, self._sandbox = self._sandbox, sandbox
        self._rows = {} if sandbox is None else self._rows_of(sandbox, world.taken)
        keys = list(self._rows)
        stands = None if sandbox is None else (sandbox.id, sandbox.tree.head)
        stood = None if before is None else (before.id, before.tree.head)
        if keys != self._keys:
            self._keys = keys
        self._show_rows()
        if stands != stood and sandbox is not None:
            self.table.select(sandbox.tree.head or "")
        self._draw_frame(world)

    def _rows_of(self, sandbox: SandboxView, now: float) -> dict[str, Row]:
        lines = tree_lines(sandbox.tree, now, PLAIN if self.ascii_only else FANCY)
        return {row.key: row for row in tree_rows(lines)}

    def _draw_frame(self, world: World) -> None:
        sandbox = self._sandbox
        name = f" of {clip(sandbox.name, NAME_CELLS)}" if sandbox is not None else ""
        title = f"Checkpoints{name}"
        below = consequence(sandbox, world.keymap) if self.has_focus_within and self._keys else ""
        if sandbox is not None and sandbox.tree.error:
            below = f"its position is unknown: {sandbox.tree.error}"
        empty = "" if self._keys else nothing_text(world, sandbox)
        if (title, below, empty) == self._frame:
            return
        self._frame = (title, below, empty)
        self.set_class(not self._keys, "-empty")
        self._empty.update(self.fit(empty))
        self.border_title = self.fit(title)
        self._show_below()

    def _show_below(self) -> None:
        self.border_subtitle = self.fit(clip(self._frame[1], max(10, self.size.width - 4)))

    def on_resize(self) -> None:
        self._show_below()

    def focus_changed(self, world: World) -> None:
        """Redraws the frame, whose text depends on the focus."""
        self._draw_frame(world)

    @on(LongTable.Moved)
    def _moved(self, event: LongTable.Moved) -> None:
        event.stop()
        self.post_message(self.Moved())

    @on(LongTable.Opened)
    def _opened(self, event: LongTable.Opened) -> None:
        event.stop()
        self.action_do("go")

    @on(LongTable.HeadClicked)
    def _head_clicked(self, event: LongTable.HeadClicked) -> None:
        event.stop()  # a tree has only one order


def consequence(sandbox: SandboxView | None, keymap: Keymap) -> str:
    """Returns what Enter on a checkpoint does."""
    if sandbox is None:
        return ""
    if sandbox.state in (State.RUNNING, State.PAUSED):
        undo = keymap.hint("undo")
        return f"enter goes back, {undo} undoes it"
    return "enter starts it there"


def nothing_text(world: World, sandbox: SandboxView | None) -> str:
    """Returns the text shown instead of an empty tree."""
    if sandbox is None:
        return "No sandbox is selected." if world.loaded and world.sandboxes else ""
    if sandbox.state is State.BROKEN or sandbox.id.startswith("new:"):
        return ""
    key = world.keymap.hint("checkpoint")
    when = "" if sandbox.is_live else " while it runs"
    return f"No checkpoints yet.\n{key} takes one{when}: memory, processes, disk."
