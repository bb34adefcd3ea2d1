"""A form: checked as one types, and shown as a command."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Input, Label, Static

from quicksand_tui.form import Field, Form, Option, Values
from quicksand_tui.screens.base import Dialog
from quicksand_tui.text import plain
from quicksand_tui.widgets.choice import Choice
from quicksand_tui.widgets.line_input import LineInput

if TYPE_CHECKING:
    from quicksand_tui.snapshot import Snapshot

REACTIONS_MAX = 8
"""Changes that follow from one another; a form that needs more contradicts itself."""


class FormScreen(Dialog[Values]):
    """Gives checked values, or None. Enter takes them from any field."""

    CSS_PATH = "dialogs.tcss"
    AUTO_FOCUS = ""
    # Moving on has priority, and so comes before what is typed behind it. Enter has not: it would
    # overtake letters that an input has yet to take.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", show=False),
        Binding("down,tab", "app.focus_next", show=False, priority=True),
        Binding("up,shift+tab", "app.focus_previous", show=False, priority=True),
    ]

    def __init__(self, form: Form, snapshot: Snapshot, *, ascii_only: bool = False) -> None:
        super().__init__()
        self._form = form
        self._snapshot = snapshot
        self._ascii = ascii_only
        self._seen: Mapping[str, str] = {}
        """What the host has told of the values."""
        values = {field.id: field.value for field in form.fields}
        self._suggested = {
            field.id: field.suggest(snapshot, values)
            for field in form.fields
            if field.suggest is not None
        }
        self._last: Values = values | self._suggested
        """What was typed when somebody last looked."""
        self._was_refused = False
        self._early: list[events.Key] | None = []
        """Keys that came before there was a field for them; None from then on."""
        self.shows_saves = form.shows_saves

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog wide form", can_focus=False) as box:
            box.border_title = self._text(self._form.title)
            box.border_subtitle = self._text(f"enter {self._form.does} · esc leaves")
            for field in self._form.fields:
                is_whole = not (field.choices or field.is_short)
                with Horizontal(classes="field whole" if is_whole else "field few"):
                    yield Label(field.label)
                    yield self._make_control(field)
                    if not is_whole:
                        yield Static(markup=False, classes="problem -remark", id=_beside(field))
                yield Static(markup=False, classes="below", id=_below(field))
            yield Static(markup=False, id="command")
            with Horizontal(classes="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button(self._form.button, id="take", variant="success", compact=True)

    def _make_control(self, field: Field) -> Choice | LineInput:
        if field.is_chosen:
            return Choice(
                self._options(field, self._last),
                value=field.value,
                ascii_only=self._ascii,
                filtered=field.options is not None and not field.is_short,
                id=field.id,
            )
        return LineInput(
            self._last[field.id],
            placeholder=plain(field.hint) if self._ascii else field.hint,
            compact=True,
            max_length=field.limit,
            id=field.id,
        )

    def _options(self, field: Field, values: Values) -> tuple[Option, ...]:
        if field.options is not None:
            return field.options(self._snapshot, values)
        return tuple(Option(value=choice, label=choice) for choice in field.choices)

    def on_mount(self) -> None:
        self._follow()
        self._check()
        # Behind the keys that came while this was made.
        self.call_later(self._begin_typing)

    def _begin_typing(self) -> None:
        first = self.query_one(f"#{self._form.first or self._form.fields[0].id}")
        self.set_focus(first)
        early, self._early = self._early or [], None
        for key in early:
            first.post_message(events.Key(key.key, key.character))

    def take_early(self, key: events.Key) -> bool:
        """Keep a key that was typed before there was a field for it; False if there is one."""
        if self._early is None:
            return False
        self._early.append(key)
        return True

    def _text(self, text: str) -> Content:
        return Content(plain(text) if self._ascii else text)

    # Values

    def _control(self, field_id: str) -> Choice | LineInput:
        control = self.query_one(f"#{field_id}")
        assert isinstance(control, Choice | LineInput)
        return control

    @property
    def values(self) -> Values:
        """What is typed now."""
        return {field.id: _value_of(self._control(field.id)) for field in self._form.fields}

    def update_snapshot(self, snapshot: Snapshot) -> None:
        """The world has changed: a name may be taken now."""
        self._snapshot = snapshot
        if self.is_mounted and self._early is None:
            self._follow()
            self._show()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._take_change()

    def on_choice_changed(self, event: Choice.Changed) -> None:
        self._take_change()

    def _take_change(self) -> None:
        if self._early is None and self.values != self._last:
            self._follow()
            self._check()

    def _follow(self) -> None:
        """Have the other fields follow what has changed in some."""
        for _ in range(REACTIONS_MAX):
            values = self.values
            for field_id, value in self._form.react(self._last, values).items():
                self._offer_options({**values, field_id: value})
                self._control(field_id).value = value
            self._last = values
            self._offer_options(self.values)
            self._suggest_anew()
            if self.values == self._last:
                return

    def _offer_options(self, values: Values) -> None:
        for field in self._form.fields:
            control = self._control(field.id)
            if field.options is not None and isinstance(control, Choice):
                control.offer(self._options(field, values))

    def _suggest_anew(self) -> None:
        for field in self._form.fields:
            if field.suggest is None:
                continue
            box, before = self._control(field.id), self._suggested[field.id]
            self._suggested[field.id] = field.suggest(self._snapshot, self.values)
            if box.value == before != self._suggested[field.id]:
                box.value = self._suggested[field.id]
                if isinstance(box, LineInput):
                    box.select_all()

    # Checks

    def _check(self) -> None:
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
        remarks = self._form.remarks(values, self._snapshot)
        for field in self._form.fields:
            text = problems.get(field.id, "")
            # Who has not begun to type has done nothing wrong.
            is_told = bool(text) and bool(values[field.id] or field.is_chosen or self._was_refused)
            below = self.query_one(f"#{_below(field)}", Static)
            below.display = is_told
            below.update(self._text(text))
            for beside in self.query(f"#{_beside(field)}").results(Static):
                beside.update(self._text(remarks.get(field.id, "")))
        self.query_one("#command", Static).update(self._text(f"$ {self._form.command(values)}"))
        self.query_one("#take", Button).disabled = bool(problems)
        return problems

    @work(group="submit", exclusive=True)
    async def action_submit(self) -> None:
        self._take_change()
        values = self.values
        if self._form.look is not None:
            self._seen = await asyncio.to_thread(self._form.look, values)
        if not self.is_current:
            return
        self._was_refused = True
        problems = self._show()
        if not problems:
            self.dismiss(values)
            return
        self._control(next(field.id for field in self._form.fields if field.id in problems)).focus()

    def on_input_submitted(self) -> None:
        self.action_submit()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        if event.button.id == "cancel":
            self.dismiss(None)
        else:
            self.action_submit()


def _value_of(control: Choice | LineInput) -> str:
    # Of what is chosen, spaces at the end are meant.
    return control.value if isinstance(control, Choice) else control.value.strip()


def _below(field: Field) -> str:
    return f"wrong-{field.id}"


def _beside(field: Field) -> str:
    return f"about-{field.id}"
