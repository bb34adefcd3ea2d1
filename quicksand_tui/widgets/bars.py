"""Bars of one line: the footer, the command line, the tabs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quicksand.things.status import Status
from rich.cells import cell_len
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from quicksand_tui.actions.all_actions import PREFIXED, Action, Scope, in_scope
from quicksand_tui.model.amounts import seconds_text
from quicksand_tui.model.keymap import NO_KEYS
from quicksand_tui.model.text import clip, plain
from quicksand_tui.views.main_layout import NO_EDGE, Edge
from quicksand_tui.views.tables import MUTED
from quicksand_tui.widgets.inputs import LineInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual import events

    from quicksand_tui.actions.hints import CommandHint
    from quicksand_tui.model.jobs import CommandRecord
    from quicksand_tui.model.world import Selection, World


FIELD_KEYS = (("enter", "done"), ("esc", "clears"))
"""The keys shown while a filter or a search takes letters."""
COPY_KEYS = (("v", "select"), ("y", "copy"), ("/", "search"), ("q", "leave"))
"""The most used keys of copy mode."""


class ActionBar(Static):
    """The footer: the actions that are possible now, as many as fit, which can be clicked."""

    LAST = ("help", "quit", "back")
    """Actions that are always shown, at the end."""

    def __init__(
        self, scope: Scope, *, labels: dict[str, str] | None = None, **options: Any
    ) -> None:
        """``labels`` replaces labels of the registry, by action."""
        super().__init__(markup=False, **options)
        self._scope = scope
        self._labels = labels or {}
        self._possible: tuple[Action, ...] = ()
        self._paused = False
        """All selected sandboxes are paused."""
        self._held: tuple[tuple[str, str], ...] = ()
        """Keys and labels of a focused widget that takes all letters; they replace the actions."""
        self._keymap = NO_KEYS
        self._behind_prefix = self._prefixed = False
        """Its keys count after the prefix only; and the prefix was typed."""
        self._places: list[tuple[int, int, str]] = []
        """The actions shown: (first cell, cell after the last, action)."""

    def show(
        self,
        world: World,
        selection: Selection,
        scope: Scope | None = None,
        *,
        prefixed: bool = False,
    ) -> None:
        """Shows the actions of ``scope`` first, then those of the bar's own whose keys are free.
        While the key after the prefix is awaited (``prefixed``), the whole bar says so."""
        actions = list(in_scope(scope or self._scope))
        if scope not in (None, self._scope, *PREFIXED):
            taken = {key for action in actions for key in action.keys}
            actions += [a for a in in_scope(self._scope) if not taken.intersection(a.keys)]
        paused = {view.state for view in selection.sandboxes} == {Status.PAUSED}
        held = self._keys_of_focused()
        possible = tuple(
            action
            for action in actions
            if (action.footer or (paused and action.label_if_paused))
            and world.keymap.keys_of(action)
            and action.disabled_reason(world, selection) is None
        )
        now = (possible, paused, held, scope in PREFIXED, prefixed)
        before = (self._possible, self._paused, self._held, self._behind_prefix, self._prefixed)
        if now != before or world.keymap is not self._keymap:
            self._possible, self._paused, self._held, self._behind_prefix, self._prefixed = now
            self._keymap = world.keymap
            self._draw()

    def _keys_of_focused(self) -> tuple[tuple[str, str], ...]:
        focused = self.screen.focused if self.is_attached else None
        if isinstance(focused, LineInput):
            return FIELD_KEYS
        # A pane, whose class is not imported here: it loads with the first pane.
        return COPY_KEYS if getattr(focused, "copy_mode", None) is not None else ()

    def on_resize(self) -> None:
        self._draw()

    def _label_of(self, action: Action) -> str:
        if self._paused and action.label_if_paused:
            return action.label_if_paused
        return self._labels.get(action.id, action.label)

    def _draw(self) -> None:
        if self._held:
            self._places = []
            self.update(Content.assemble(*(p for k in self._held for p in _parts(*k))))
            return
        shown = [replace(action, label=self._label_of(action)) for action in self._possible]
        key_of = self._keymap.first_of
        last = [a for a in shown if a.id in self.LAST]
        lead = f" {self._keymap.prefix.text} " if self._behind_prefix else ""
        if self._prefixed:
            lead += "… "
        room = self.size.width - cell_len(lead) - sum(_width(key_of(a), a.label) for a in last)
        kept = []
        for action in (a for a in shown if a.id not in self.LAST):
            room -= _width(key_of(action), action.label)
            if room < 0:
                break
            kept.append(action)
        parts = [(lead, "bold reverse")] if lead else []
        self._places, begin = [], cell_len(lead)
        for action in (*kept, *last):
            key = key_of(action)
            parts += _parts(key, action.label)
            width = _width(key, action.label)
            self._places.append((begin, begin + width, self._what(action)))
            begin += width
        line = Content.assemble(*parts)
        if self._prefixed:  # as plain as tmux's status line, with colours or without
            rest = " " * max(0, self.size.width - line.cell_length)
            line = Content.styled(f"{line.plain}{rest}", "bold reverse")
        self.update(line)

    async def on_click(self, event: events.Click) -> None:
        place = event.get_content_offset(self)
        for begin, end, action_id in self._places:
            if place is not None and begin <= place.x < end:
                await self.screen.run_action(f"do({action_id})")

    def _what(self, action: Action) -> str:
        """Returns the arguments of the screen's ``do`` action."""
        if action.scope is self._scope:
            return f"'{action.id}'"
        return f"'{action.id}', '{action.scope.value}'"


def _parts(key: str, label: str) -> list[tuple[str, str]]:
    return [(f" {key}", "bold $text-accent"), (f" {label} ", "")]


def _width(key: str, label: str) -> int:
    return cell_len(key) + cell_len(label) + 3


OUTCOMES = {
    "running": ("…", MUTED),
    "done": ("✓", "$text-success"),
    "failed": ("✗ failed", "$text-error"),
    "cancelled": ("○ cancelled", "$text-warning"),
}


class CommandLine(Static):
    """Shows the running command; or the last one, until the selection changes; or the command of
    the selection. It is always visible, so that nothing moves."""

    def __init__(self, hint: CommandHint, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(_hint_content(hint), markup=False, **options)
        self._ascii = ascii_only
        self._record: CommandRecord | None = None
        self._hint = self._ended_at = hint
        self._shown: CommandRecord | CommandHint = hint

    def show_record(self, record: CommandRecord | None) -> None:
        """Shows the last command with its state."""
        if record is not None and record != self._record:
            self._record, self._ended_at = record, self._hint
        self._show()

    def show_hint(self, hint: CommandHint) -> None:
        self._hint = hint
        self._show()

    def _show(self) -> None:
        record = self._record
        if record is not None and record.outcome != "running" and self._hint != self._ended_at:
            record = self._record = None
        shown = record or self._hint
        if shown == self._shown:
            return
        self._shown = shown
        if record is not None:
            self._show_record(record)
            return
        line = _hint_content(self._hint)
        self.update(Content(plain(line.plain)) if self._ascii else line, layout=False)

    def _show_record(self, record: CommandRecord) -> None:
        if room := self.content_size.width:
            # A long command must not push its outcome off the line.
            ending = command_content(replace(record, command="")).cell_length
            record = replace(record, command=clip(record.command, room - ending))
        line = command_content(record)
        self.update(Content(plain(line.plain)) if self._ascii else line, layout=False)


def _hint_content(hint: CommandHint) -> Content:
    return Content.styled(f"$ {hint.command}  {hint.about}", MUTED)


def command_content(record: CommandRecord) -> Content:
    """Returns a command with its outcome."""
    word, style = OUTCOMES[record.outcome]
    seconds = "" if record.seconds is None else f" {seconds_text(record.seconds)}"
    return Content.assemble(("$ ", MUTED), record.command, "  ", (word, style), (seconds, MUTED))


TITLE_LEAST = 8
"""Cells below which a longer title is left out."""
TITLE_AROUND = 3
"""Cells around a title: a dash and two blanks."""


class TabBar(Widget):
    """Tabs that can be clicked, a title, and a text at the end, in the first line of a box's
    frame."""

    class Chosen(Message):
        """A tab was clicked."""

        def __init__(self, bar: TabBar, tab: str) -> None:
            super().__init__()
            self.bar = bar
            self.tab = tab

        @property
        def control(self) -> TabBar:
            return self.bar

    def __init__(self, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(**options)
        self._ascii = ascii_only
        self._tabs: Sequence[tuple[str, str]] = ()
        self._active = ""
        self._leads: Sequence[str] = ()
        self._style = ""
        self._title = ""
        self._edge = NO_EDGE
        self._places: list[tuple[int, int, str]] = []
        """The tabs shown: (first cell, cell after the last, tab)."""

    def show(
        self,
        tabs: Sequence[tuple[str, str]],
        active: str,
        leads: Sequence[str] = (),
        style: str = "",
        *,
        title: str = "",
        edge: Edge = NO_EDGE,
    ) -> None:
        """Shows ``tabs``, each a name and a label, and the first of ``leads`` that fits, or the
        last of them cut; ``title`` if there is room beside. ``edge`` is the line under them."""
        now = (tabs, active, leads, style, title, edge)
        before = (self._tabs, self._active, self._leads, self._style, self._title, self._edge)
        if now != before:
            self._tabs, self._active, self._leads, self._style, self._title, self._edge = now
            self.refresh()

    def render(self) -> Content:
        """Returns the parts that fit: the width is known at drawing, in the first frame, too."""
        left, dash, right = self._edge.line(ascii_only=self._ascii)
        frame = "$accent" if self._edge.heavy else "$border"
        parts: list[tuple[str, str]] = [(left, frame)]
        self._places, at = [], 1
        for name, label in self._tabs:
            # Brackets mark the active tab without colours.
            text = f"[{label}]" if name == self._active else f" {label} "
            style = "bold $text-accent" if name == self._active else MUTED
            parts.append((self._fit(text), style))
            self._places.append((at, at + cell_len(text), name))
            at += cell_len(text)
        # A line without a frame needs nothing at its right end.
        tail = f"{dash}{right}" if self._edge.framed else right
        room = self.size.width - at - len(tail) - 2
        lead = ""
        if self._leads and room >= 4:
            # A title names the contents; the longest lead that leaves room for it goes beside.
            beside = cell_len(self._title) + TITLE_AROUND if self._title else 0
            fitting = [lead for lead in self._leads if cell_len(lead) <= room]
            both = (lead for lead in fitting if cell_len(lead) <= room - beside)
            fitted = next(both, next(iter(fitting), self._leads[-1]))
            lead = self._fit(f" {clip(fitted, room)} ")
        left_over = self.size.width - at - cell_len(lead) - len(tail)
        room = left_over - TITLE_AROUND
        title = self._fit(f" {clip(self._title, room)} ") if room > 0 else ""
        if self._title and room >= min(TITLE_LEAST, cell_len(self._title)):
            parts += [(dash, frame), (title, "bold $text-muted")]
            left_over -= 1 + cell_len(title)
        parts += [(dash * left_over, frame), (lead, self._style), (tail, frame)]
        return Content.assemble(*parts)

    def _fit(self, text: str) -> str:
        return plain(text) if self._ascii else text

    def on_click(self, event: events.Click) -> None:
        place = event.get_content_offset(self)
        for begin, end, name in self._places:
            if place is not None and begin <= place.x < end:
                self.post_message(self.Chosen(self, name))
