"""The footer: what can be done now, and the key for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.widgets import Static

from quicksand_tui.actions import Action, Scope, in_scope
from quicksand_tui.keymap import NO_KEYS
from quicksand_tui.snapshot import State
from quicksand_tui.widgets.line_input import LineInput

if TYPE_CHECKING:
    from quicksand_tui.snapshot import Selection, Snapshot

FIELD_KEYS = (("enter", "done"), ("esc", "clears"))
"""While letters go to a filter or a search."""
COPY_KEYS = (("v", "select"), ("y", "copy"), ("/", "search"), ("q", "leave"))
"""Of copy mode, those that are wanted most."""


class ActionBar(Static):
    """The registry's actions that are possible now, as many as fit; they can be clicked."""

    LAST = ("help", "quit", "back")
    """Always shown, at the end."""

    def __init__(
        self, scope: Scope, *, labels: dict[str, str] | None = None, **options: Any
    ) -> None:
        """``labels`` replace the registry's where a screen can be more exact, by action."""
        super().__init__(markup=False, **options)
        self._scope = scope
        self._labels = labels or {}
        self._possible: tuple[Action, ...] = ()
        self._paused = False
        """What is selected is paused."""
        self._held: tuple[tuple[str, str], ...] = ()
        """Keys and words of what has the focus and takes all letters; nothing else is shown."""
        self._keymap = NO_KEYS
        self._places: list[tuple[int, int, str]] = []
        """(first cell, cell after the last, action) of what is shown."""

    def show(self, snapshot: Snapshot, selection: Selection, scope: Scope | None = None) -> None:
        """``scope``: whose keys count first now; those of the bar's own that they leave follow."""
        actions = list(in_scope(scope or self._scope))
        if scope not in (None, self._scope, Scope.PANES):
            taken = {key for action in actions for key in action.keys}
            actions += [a for a in in_scope(self._scope) if not taken.intersection(a.keys)]
        paused = {view.state for view in selection.sandboxes} == {State.PAUSED}
        held = self._keys_of_focused()
        possible = tuple(
            action
            for action in actions
            if (action.footer or (paused and action.label_if_paused))
            and snapshot.keymap.keys_of(action)
            and action.disabled_reason(snapshot, selection) is None
        )
        now = (possible, paused, held)
        if now != (self._possible, self._paused, self._held) or (
            snapshot.keymap is not self._keymap
        ):
            self._possible, self._paused, self._held = now
            self._keymap = snapshot.keymap
            self._draw()

    def _keys_of_focused(self) -> tuple[tuple[str, str], ...]:
        focused = self.screen.focused if self.is_attached else None
        if isinstance(focused, LineInput):
            return FIELD_KEYS
        # A pane: its class is loaded with the first one.
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
        room = self.size.width - sum(_width(key_of(a), a.label) for a in last)
        kept = []
        for action in (a for a in shown if a.id not in self.LAST):
            room -= _width(key_of(action), action.label)
            if room < 0:
                break
            kept.append(action)
        parts: list[tuple[str, str]] = []
        self._places, begin = [], 0
        for action in (*kept, *last):
            key = key_of(action)
            parts += _parts(key, action.label)
            width = _width(key, action.label)
            self._places.append((begin, begin + width, self._what(action)))
            begin += width
        self.update(Content.assemble(*parts))

    async def on_click(self, event: events.Click) -> None:
        place = event.get_content_offset(self)
        for begin, end, action_id in self._places:
            if place is not None and begin <= place.x < end:
                await self.screen.run_action(f"do({action_id})")

    def _what(self, action: Action) -> str:
        """The arguments of the screen's ``do``."""
        if action.scope is self._scope:
            return f"'{action.id}'"
        return f"'{action.id}', '{action.scope.value}'"


def _parts(key: str, label: str) -> list[tuple[str, str]]:
    return [(f" {key}", "bold $text-accent"), (f" {label} ", "")]


def _width(key: str, label: str) -> int:
    return cell_len(key) + cell_len(label) + 3
