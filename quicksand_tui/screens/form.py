"""A form: checked as one types, and shown as a command."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Input, Label, Static

from quicksand_tui.form import Field, Form, Values
from quicksand_tui.screens.base import Dialog
from quicksand_tui.snapshot import Snapshot
from quicksand_tui.text import plain
from quicksand_tui.widgets.choice import Choice


class FormScreen(Dialog[Values]):
    """Gives checked values, or None. Enter takes them from any field."""

    CSS_PATH = "dialogs.tcss"
    # No binding of Enter with priority: it would overtake letters that an input has yet to take.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", show=False),
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
    ]

    def __init__(self, form: Form, snapshot: Snapshot, *, ascii_only: bool = False) -> None:
        super().__init__()
        self._form = form
        self._snapshot = snapshot
        self._ascii = ascii_only
        self._seen: Mapping[str, str] = {}
        """What the disk has told of the values."""
        self._suggested = {
            field.id: field.suggest(snapshot) for field in form.fields if field.suggest is not None
        }
        self.shows_saves = form.shows_saves

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog wide") as box:
            box.border_title = self._text(self._form.title)
            box.border_subtitle = self._text(f"enter {self._form.does} · esc leaves")
            for field in self._form.fields:
                with Horizontal(classes="field few" if field.choices else "field whole"):
                    yield Label(field.label)
                    if field.choices:
                        yield Choice(
                            field.choices,
                            value=field.value,
                            ascii_only=self._ascii,
                            id=field.id,
                        )
                    else:
                        yield Input(
                            self._suggested.get(field.id, field.value),
                            placeholder=field.hint,
                            compact=True,
                            max_length=field.limit,
                            id=field.id,
                        )
                    if field.choices:
                        yield Static(markup=False, classes="problem -remark", id=_below(field))
                if not field.choices:
                    yield Static(markup=False, classes="below", id=_below(field))
            yield Static(markup=False, id="command")
            with Horizontal(classes="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button(self._form.button, id="take", variant="success", compact=True)

    def on_mount(self) -> None:
        self._suggest_anew()
        self.query_one(f"#{self._form.fields[0].id}").focus()
        self._changed()

    def _text(self, text: str) -> Content:
        return Content(plain(text) if self._ascii else text)

    @property
    def values(self) -> Values:
        """What is typed now."""
        return {
            field.id: (
                self.query_one(f"#{field.id}", Choice).value
                if field.choices
                else self.query_one(f"#{field.id}", Input).value.strip()
            )
            for field in self._form.fields
        }

    def update_snapshot(self, snapshot: Snapshot) -> None:
        """The world has changed: a name may be taken now."""
        self._snapshot = snapshot
        if self.is_mounted:
            self._suggest_anew()
            self._show()

    def _suggest_anew(self) -> None:
        for field in self._form.fields:
            if field.suggest is None:
                continue
            box, before = self.query_one(f"#{field.id}", Input), self._suggested[field.id]
            self._suggested[field.id] = field.suggest(self._snapshot)
            if box.value == before != self._suggested[field.id]:
                box.value = self._suggested[field.id]
                box.select_all()

    def on_input_changed(self) -> None:
        self._changed()

    def on_choice_changed(self) -> None:
        self._changed()

    def _changed(self) -> None:
        self._seen = {}
        self._show()
        if self._form.look is not None:
            self._look(self.values)

    @work(group="look", exclusive=True)
    async def _look(self, values: Values) -> None:
        assert self._form.look is not None
        seen = await asyncio.to_thread(self._form.look, values)
        if self.is_mounted and values == self.values:
            self._seen = seen
            self._show()

    def _show(self) -> Mapping[str, str]:
        """Show what is wrong and the command; return the problems."""
        values = self.values
        problems = {**self._seen, **self._form.problems(values, self._snapshot)}
        remarks = self._form.remarks(values)
        for field in self._form.fields:
            shown = self.query_one(f"#{_below(field)}", Static)
            text = problems.get(field.id, "")
            if field.choices:
                text = remarks.get(field.id, "")
            else:
                # Who has not begun to type has done nothing wrong.
                shown.display = bool(text and values[field.id])
            shown.update(self._text(text))
        self.query_one("#command", Static).update(self._text(f"$ {self._form.command(values)}"))
        self.query_one("#take", Button).disabled = bool(problems)
        return problems

    @work(group="submit", exclusive=True)
    async def action_submit(self) -> None:
        values = self.values
        if self._form.look is not None:
            self._seen = await asyncio.to_thread(self._form.look, values)
        if not self.is_current:
            return
        problems = self._show()
        if not problems:
            self.dismiss(values)
            return
        self.query_one(f"#{next(iter(problems))}").focus()

    def on_input_submitted(self) -> None:
        self.action_submit()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        if event.button.id == "cancel":
            self.dismiss(None)
        else:
            self.action_submit()


def _below(field: Field) -> str:
    return f"about-{field.id}"
