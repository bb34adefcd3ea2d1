"""The differences between two disks of a sandbox: a tree of paths, and the text of one."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from textual import events, on, work
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, Static

from quicksand_tui.actions.all_actions import Doer, Scope, in_scope
from quicksand_tui.actions.hints import CommandHint
from quicksand_tui.kit.base import tell
from quicksand_tui.kit.key_handling import ActionScreen, bindings_of
from quicksand_tui.model.diffs import DiffView, TextDiff
from quicksand_tui.model.jobs import OperationError
from quicksand_tui.model.text import clip, plain, sanitise
from quicksand_tui.model.world import Selection
from quicksand_tui.verbs.call import command_line
from quicksand_tui.views.diff_rows import (
    Branch,
    DiffLine,
    branch_text,
    diff_row,
    folded_at_first,
    freshness_text,
    grow,
    package_lines,
    packages_text,
    plan_diff_columns,
    tree_lines,
)
from quicksand_tui.views.tables import nothing_matches
from quicksand_tui.widgets.bars import ActionBar, CommandLine
from quicksand_tui.widgets.inputs import LineInput
from quicksand_tui.widgets.log_view import DiffText
from quicksand_tui.widgets.long_table import LongTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from quicksand_tui.actions.all_actions import Doer
    from quicksand_tui.door.service import EngineService
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.model.diffs import DiffSpec
    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.model.world import World
    from quicksand_tui.views.tables import Row

TICK_S = 0.2
"""Seconds between two looks at the progress of reading."""
PAUSE_S = 0.15
"""Seconds that the cursor rests on a path before its text is read."""
NARROW = 90
"""Columns below which the text takes the place of the tree."""
TITLE_CELLS = 60


class DiffScreen(ActionScreen):
    """Shows the differences; its keys are the actions of `Scope.DIFF`. Leaving it ends the
    reading."""

    scope = Scope.DIFF
    CSS_PATH = "diff.tcss"
    AUTO_FOCUS = "LongTable"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of(in_scope(Scope.DIFF))]

    def __init__(
        self,
        service: EngineService,
        sandbox: SandboxView,
        specs: Sequence[DiffSpec],
        world: World,
        keys: Keys,
        *,
        everywhere: Doer,
        ascii_only: bool,
    ) -> None:
        """Compares the disks of the first of ``specs``; a key goes to the next."""
        super().__init__(keys, everywhere)
        self.world = world
        self._service = service
        self._sandbox = sandbox
        self._specs = list(specs)
        self._ascii = ascii_only
        self._view: DiffView | None = None
        self._root = Branch("/", "/")
        self._folded: frozenset[str] = frozenset()
        self._lines: dict[str, DiffLine] = {}
        self._query = ""
        self._shown_path = ""
        """The path whose text is shown."""
        self._steps = 0
        self._reads = False
        """Disks are being read, and nothing is shown yet."""
        self._table = LongTable(plan_diff_columns, ascii_only=ascii_only)
        self._empty = Static(classes="empty", markup=False)
        self._tree = Vertical(self._table, self._empty, id="diff-tree", classes="-empty")
        self._text = DiffText(ascii_only=ascii_only, id="diff-text")
        self._command_line = CommandLine(self._hint, ascii_only=ascii_only, id="command-line")
        self._actions = ActionBar(self.scope, id="actions")

    def compose(self) -> ComposeResult:
        with Horizontal(id="diff-parts"):
            yield self._tree
            yield self._text
        yield self._command_line
        yield self._actions

    def on_mount(self) -> None:
        self.set_interval(TICK_S, self.show_progress)
        self.do_refresh()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < NARROW, "-narrow")
        self.call_after_refresh(self._frame)

    @property
    def _spec(self) -> DiffSpec:
        return self._specs[0]

    @property
    def _hint(self) -> CommandHint:
        spec = self._spec
        a, *more = spec.words
        b, name = more[0] if more else "", self._sandbox.name
        return CommandHint(command_line("diff", parent=spec.parent, name=name, a=a, b=b))

    @property
    def selection(self) -> Selection:
        return Selection(sandbox=self._sandbox)

    def update_world(self, world: World) -> None:
        self.world = world
        self._actions.show(world, self.selection)

    def on_descendant_focus(self) -> None:
        self._actions.show(self.world, self.selection)

    def _fit(self, text: str) -> Content:
        return Content(plain(text) if self._ascii else text)

    # Reading

    def do_refresh(self) -> None:
        """Reads both disks again."""
        self._view = None
        self._steps, self._reads = 0, True
        self._say(f"Reading {self._spec.title} …")
        self._read(self._spec)

    @work(exclusive=True, group="diff")
    async def _read(self, spec: DiffSpec) -> None:
        try:
            found = await self._service.ask(
                "They cannot be compared", lambda engine: engine.compare(spec, self._report)
            )
        except OperationError as error:
            self._reads = False
            hint = f"\n{error.failure.hint}" if error.failure.hint else ""
            self._say(f"✗ {error.failure.message}{hint}")
            return
        self._reads = False
        self._view = found
        self._folded = folded_at_first(await asyncio.to_thread(grow, found.paths))
        await self._arrange(self._query)

    def _report(self, steps: int) -> None:
        self._steps = steps  # on the engine's thread

    def show_progress(self) -> None:
        """Shows the progress of reading."""
        if self._reads and self._steps:
            steps = f"{self._steps:,}".replace(",", " ")
            self._say(f"Reading {self._spec.title} … {steps} entries\nesc leaves")

    def _say(self, text: str) -> None:
        """Shows a text instead of the tree."""
        self._lines = {}
        self._table.show([], diff_row_of({}), ())
        self._tree.add_class("-empty")
        self._empty.update(self._fit(text))
        self._frame()

    def _frame(self) -> None:
        view = self._view
        query = f" /{self._query}" if self._query else ""
        room = max(20, self._tree.size.width - 4)
        counts = (view.counts, view.short_counts, "") if view is not None else ("",)
        titles = [" ─ ".join(filter(None, (self._spec.title, count))) + query for count in counts]
        title = next((text for text in titles if cell_len(text) <= room), titles[-1])
        self._tree.border_title = self._fit(clip(title, room))
        below = freshness_text(view) if view is not None else ""
        self._tree.border_subtitle = self._fit(below)

    async def _arrange(self, query: str) -> None:
        """Shows the paths that match a query."""
        view = self._view
        if view is None:
            return
        self._root = await asyncio.to_thread(grow, view.paths, query)
        self._query = query
        self._show_tree()

    @work(exclusive=True, group="filter")
    async def _filter(self, query: str) -> None:
        await self._arrange(query)

    def _no_file_differs(self) -> str:
        if len(self._specs) < 2:
            return "No file differs."
        key = self._app_keys.map.hint("against", Scope.DIFF.value)
        return f"No file differs.\n{key} compares {self._specs[1].title}."

    def _show_tree(self) -> None:
        folded = frozenset() if self._query else self._folded
        databases = self._view.packages if self._view is not None else ()
        lines = (*package_lines(databases, self._query), *tree_lines(self._root, folded))
        self._lines = {line.key: line for line in lines}
        self._tree.set_class(not self._lines, "-empty")
        if not self._lines:
            text = nothing_matches(self._query) if self._query else self._no_file_differs()
            self._empty.update(self._fit(text))
        self._table.show(list(self._lines), diff_row_of(self._lines), ())
        self._frame()
        self._look()

    # The text of a path

    @property
    def _line(self) -> DiffLine | None:
        return self._lines.get(self._table.selected_key or "")

    @on(LongTable.Moved)
    def _moved(self, event: LongTable.Moved) -> None:
        event.stop()
        self._look()

    def _look(self) -> None:
        """Reads the text of the path under the cursor, if there is room for it."""
        if not self.has_class("-narrow") or self.has_class("-reading"):
            self._read_text(self._spec, self._line, PAUSE_S)

    @work(exclusive=True, group="text")
    async def _read_text(self, spec: DiffSpec, line: DiffLine | None, pause: float) -> None:
        path = line.leaf.path if line is not None and line.leaf is not None else ""
        if path == self._shown_path and path:
            return
        await asyncio.sleep(pause)
        if line is None or not path:
            self._put("", *_told_of(line))
            return
        try:
            found = await self._service.ask(
                "It cannot be compared", lambda engine: engine.compare_file(spec, path)
            )
        except OperationError as error:
            found = TextDiff(why=error.failure.message)
        self._put(path, path, found)

    def _put(self, path: str, title: str, found: TextDiff) -> None:
        self._shown_path = path
        self._text.border_title = self._fit(clip(sanitise(title), TITLE_CELLS))
        self._text.show(found.lines or (((" ", found.why),) if found.why else ()))

    # Input

    @on(LongTable.Opened)
    def _opened(self, event: LongTable.Opened) -> None:
        event.stop()
        self.action_do("open")

    def do_open(self) -> None:
        line = self._line
        if line is None:
            return
        if line.branch is not None:
            self._fold(line.branch.key, not line.is_folded)
            return
        self.add_class("-reading")
        self._read_text(self._spec, line, 0.0)
        self.set_focus(self._text)

    def do_unfold(self) -> None:
        line = self._line
        if line is not None and line.branch is not None and line.is_folded:
            self._fold(line.branch.key, False)
        else:
            self._table.action_move(1)

    def do_fold(self) -> None:
        line = self._line
        if line is None:
            return
        if line.branch is not None and not line.is_folded:
            self._fold(line.branch.key, True)
            return
        above = [
            key
            for key, other in self._lines.items()
            if other.branch is not None
            and other.depth < line.depth
            and line.path.startswith(f"{other.branch.key}/")
        ]
        if above:
            self._table.select(above[-1])

    def _fold(self, key: str, folds: bool) -> None:
        self._folded = self._folded | {key} if folds else self._folded - {key}
        self._show_tree()

    def do_fold_all(self) -> None:
        tops = {line.branch.key for line in self._lines.values() if line.branch is not None}
        self._folded = frozenset() if self._folded else frozenset(tops)
        self._show_tree()

    def do_against(self) -> None:
        self._specs = [*self._specs[1:], self._specs[0]]
        self._command_line.show_hint(self._hint)
        self._put("", "", TextDiff())
        self.do_refresh()

    def do_copy(self) -> None:
        if (line := self._line) is not None:
            path = sanitise(line.path)
            self.app.copy_to_clipboard(path)
            tell(self, f"Copied {clip(path, TITLE_CELLS)}, if the terminal allows it")

    def do_patch(self) -> None:
        line = self._line
        if line is not None:
            self._save_patch(self._spec, "/" if line.path == "/" else line.path)

    @work(group="patch")
    async def _save_patch(self, spec: DiffSpec, below: str) -> None:
        name = re.sub(r"[^\w.-]+", "-", f"{self._sandbox.name}-{'-'.join(spec.names)}")
        file = Path(f"{name[:80]}-{time.strftime('%Y%m%d-%H%M%S')}.patch")
        try:
            left = await self._service.ask(
                "There is no patch", lambda engine: engine.write_patch(spec, below, file)
            )
        except OperationError as error:
            tell(self, f"There is no patch: {error.failure.message}", severity="warning")
            return
        without = f", without {left} that no patch can have" if left else ""
        tell(self, f"{clip(sanitise(below), TITLE_CELLS)} saved as {file}{without}")

    def do_back(self) -> None:
        """Leaves the text, the filter, then the screen."""
        field = self._field
        if self._text.has_focus or self.has_class("-reading"):
            self.remove_class("-reading")
            self.set_focus(self._table)
        elif field is not None or self._query:
            self._close_field()
            self._filter("")
        else:
            self.dismiss(None)

    # The filter

    @property
    def _field(self) -> Input | None:
        return next(iter(self._tree.query(".filter").results(Input)), None)

    def filter_by(self, words: str) -> bool:
        self._close_field()
        self._filter(words)
        return True

    def do_filter(self) -> None:
        field = self._field
        if field is None:
            field = LineInput(
                self._query,
                classes="filter",
                select_on_focus=False,
                placeholder="words, !word, kind:a",
            )
            self._tree.mount(field)
        self.set_focus(field)

    def _close_field(self) -> None:
        if (field := self._field) is not None:
            self.set_focus(self._table)
            field.remove()

    @on(Input.Changed, ".filter")
    def _filter_live(self, event: Input.Changed) -> None:
        event.stop()
        if event.input is self._field and event.value != self._query:
            self._filter(event.value)

    @on(Input.Submitted, ".filter")
    def _filter_done(self, event: Input.Submitted) -> None:
        event.stop()
        self._close_field()


def _told_of(line: DiffLine | None) -> tuple[str, TextDiff]:
    """Returns the title and the text of a line that is no file."""
    if line is None:
        return "", TextDiff()
    if line.packages is not None:
        return f"packages in {line.packages.path}", packages_text(line.packages)
    if line.branch is not None:
        return line.branch.key, TextDiff(why=branch_text(line.branch))
    return "", TextDiff()


def diff_row_of(lines: dict[str, DiffLine]) -> Callable[[str], Row]:
    """Returns the function that makes the row of a key."""
    return lambda key: diff_row(lines[key])
