"""The tree of a sandbox's checkpoints, a part of the main screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from quicksand.things.status import HAS_MACHINE, Status
from textual import on
from textual.containers import Vertical
from textual.geometry import Region
from textual.message import Message
from textual.widgets import Static

from quicksand_tui.actions.all_actions import Scope, in_scope
from quicksand_tui.cockpit.part import Join, PartWidget, joined_line
from quicksand_tui.kit.key_handling import bindings_of
from quicksand_tui.model.amounts import size_text
from quicksand_tui.model.lanes import FOLD
from quicksand_tui.model.text import clip
from quicksand_tui.views.tree_lines import TreeLook, TreeRows, plan_tree_columns, tree_rows
from quicksand_tui.widgets.long_table import LongTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.strip import Strip

    from quicksand_tui.model.keymap import Keymap
    from quicksand_tui.model.shown_sandboxes import CheckpointTree, CheckpointView, SandboxView
    from quicksand_tui.model.world import World
    from quicksand_tui.views.tables import Column, Row

NAME_CELLS = 30

FRESH_S = 1.2
"""Seconds for which a new checkpoint stands out."""


class TreePanel(PartWidget, Vertical):
    """Shows the checkpoints of the selected sandbox, with a cursor."""

    scope = Scope.TREE
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of(in_scope(Scope.TREE))]

    class Moved(Message):
        """The cursor is on another checkpoint."""

    def __init__(self, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(classes="-empty", **options)
        self.ascii_only = ascii_only
        self.table = LongTable(self._plan, ascii_only=ascii_only)
        self._empty = Static(classes="empty", markup=False)
        self._sandbox: SandboxView | None = None
        self._tree = TreeRows()
        self._rows: dict[str, Row] = {}
        self._keys: list[str] = []
        self._now = 0.0
        self._opened: dict[str, set[str]] = {}
        """The open folds of automatic checkpoints, by sandbox."""
        self._turned = False
        self._fresh: frozenset[str] = frozenset()
        """Ids of checkpoints that were just made."""
        self._compared = ""
        """The id of the checkpoint whose screen is compared with another one's."""
        self._frame = ("", "", "")
        self._join: Callable[[], Join] = Join
        self._joined = Join()
        """The last way in which the first line was drawn."""

    def joins(self, join: Callable[[], Join]) -> None:
        """Has ``join`` called, which returns how the first line meets the box above."""
        self._join = join

    def join_changed(self) -> None:
        """Draws the first line again if it changes with the box above."""
        if (now := self._join()) != self._joined:
            self._joined = now
            self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        lines = super().render_lines(crop)
        join = self._join()
        if join.above is not None and crop.y == 0 and lines:
            whole = super().render_lines(Region(0, 0, self.outer_size.width, 1))[0]
            lines[0] = joined_line(whole, join, ascii_only=self.ascii_only).crop(crop.x, crop.right)
        return lines

    def compose(self) -> ComposeResult:
        yield self.table
        yield self._empty

    def _plan(self, width: int) -> tuple[Column, ...]:
        return plan_tree_columns(width, self._tree.needs)

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
        sandbox = self._sandbox
        if sandbox is None:
            found = TreeRows()
        else:
            look = TreeLook(
                now=self._now,
                opened=self._opened.get(sandbox.id, ()),
                turned=self._turned,
                fresh=self._fresh,
                ascii_only=self.ascii_only,
            )
            found = tree_rows(sandbox.tree, look)
        replan = found.needs != self._tree.needs
        self._tree = found
        self._rows = {row.key: row for row in found.rows}
        keys = list(self._rows)
        if keys != self._keys:
            self._keys = keys
        if replan:
            self.table.replan()
        self.table.show(self._keys, self._rows.__getitem__, (self._compared,))

    def show(self, world: World, sandbox: SandboxView | None) -> None:
        """Shows the tree of a sandbox. The cursor goes to its head when either has changed."""
        before, self._sandbox = self._sandbox, sandbox
        self._now = world.taken
        if before is not None and sandbox is not None and before.id == sandbox.id:
            self._light(before.tree, sandbox.tree)
        stands = None if sandbox is None else (sandbox.id, sandbox.tree.head)
        stood = None if before is None else (before.id, before.tree.head)
        self._show_rows()
        if stands != stood and sandbox is not None:
            self.table.select(sandbox.tree.head or "")
        self._draw_frame(world)

    def _light(self, before: CheckpointTree, now: CheckpointTree) -> None:
        """Has checkpoints that were just made stand out for a moment."""
        if before is now or self.app.animation_level == "none":
            return
        known = before.parents
        made = frozenset(view.id for view in now.checkpoints if view.id not in known)
        if made and known:
            self._fresh = made
            self.set_timer(FRESH_S, self._dim)

    def _dim(self) -> None:
        self._fresh = frozenset()
        self._show_rows()

    def _draw_frame(self, world: World) -> None:
        sandbox = self._sandbox
        title = "4 Tree"
        if sandbox is not None:
            title = tree_title(sandbox.tree, clip(sandbox.name, NAME_CELLS))
        below = ""
        if self.has_focus_within and self._keys:
            below = keys_text(sandbox, world.keymap)
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
        self.join_changed()

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
    def _opened_row(self, event: LongTable.Opened) -> None:
        event.stop()
        self.action_do("go")

    @on(LongTable.HeadClicked)
    def _head_clicked(self, event: LongTable.HeadClicked) -> None:
        event.stop()  # a tree has only one order

    # Folds and the order

    @property
    def on_fold(self) -> bool:
        """Whether the cursor is on automatic checkpoints that are not drawn."""
        return (self.table.selected_key or "").startswith(FOLD)

    def action_do(self, action_id: str) -> None:
        if action_id == "go" and self.on_fold:
            action_id = "unfold"
        super().action_do(action_id)

    def do_unfold(self) -> None:
        """Draws the automatic checkpoints that are folded under the cursor."""
        key, sandbox = self.table.selected_key, self._sandbox
        if key is None or sandbox is None:
            return
        fold = key if key.startswith(FOLD) else f"{FOLD}{key}"
        if fold not in self._tree.folded.counts:
            return
        self._opened.setdefault(sandbox.id, set()).add(fold)
        self._show_rows()
        first = next((k for k in self._keys if self._tree.folded.held_by.get(k) == fold), "")
        self.table.select(first)

    def do_fold(self) -> None:
        """Folds the automatic checkpoints under the cursor, or those that hang from it."""
        key, sandbox = self.table.selected_key, self._sandbox
        if key is None or sandbox is None:
            return
        fold = self._tree.folded.held_by.get(key, f"{FOLD}{key}")
        opened = self._opened.get(sandbox.id, set())
        if fold in opened:
            opened.discard(fold)
            self._show_rows()
            self.table.select(fold)

    def do_turn(self) -> None:
        """Draws the newest checkpoint first, or last."""
        key = self.table.selected_key
        self._turned = not self._turned
        self._show_rows()
        self.table.select(key or "")


SHARED_MIN = 100 << 10
"""The least bytes shared by checkpoints that are worth a word."""


def tree_title(tree: CheckpointTree, name: str) -> str:
    """Returns the title of the tree of the sandbox ``name``, with the count, the bytes that
    deleting all of them would free, and those that they share with others."""
    count = len(tree.checkpoints)
    words = [f"4 Tree of {name}"]
    if count:
        words.append(f"{count} checkpoint{'s' if count != 1 else ''}")
        if tree.own is not None:
            words.append(size_text(tree.own))
        if tree.shared >= SHARED_MIN:
            words.append(f"{size_text(tree.shared)} shared")
    return " · ".join(words)


def keys_text(sandbox: SandboxView | None, keymap: Keymap) -> str:
    """Returns the most useful keys on a checkpoint, with their effects."""
    if sandbox is None:
        return ""
    tree = Scope.TREE.value
    keys = f"{keymap.hint('note', tree)} note · {keymap.hint('clone', tree)} clone"
    if sandbox.state in HAS_MACHINE:
        return f"enter reverts, {keymap.hint('undo')} undoes it · {keys}"
    return f"enter starts it there · {keys}"


def nothing_text(world: World, sandbox: SandboxView | None) -> str:
    """Returns the text shown instead of an empty tree."""
    if sandbox is None:
        return "No sandbox is selected." if world.loaded and world.sandboxes else ""
    if sandbox.state is Status.BROKEN or sandbox.id.startswith("new:"):
        return ""
    key = world.keymap.hint("checkpoint")
    when = "" if sandbox.is_live else " while it runs"
    return f"No checkpoints yet.\n{key} takes one{when}: memory, processes, disk."
