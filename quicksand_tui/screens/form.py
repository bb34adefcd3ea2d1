"""A form that is checked while typing and shown as a command."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, ClassVar

from textual import events, work
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.suggester import Suggester
from textual.widgets import Button, Input, Label, Static

from quicksand_tui.forms.form_fields import Field, Form, Option, Values
from quicksand_tui.kit.base import Dialog
from quicksand_tui.model.text import clip, error_text, plain
from quicksand_tui.widgets.inputs import Choice, LineInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from textual.app import ComposeResult

    from quicksand_tui.model.world import World

REACTIONS_MAX = 8
"""The most times that fields may change each other in turn; a form that needs more is
contradictory."""

WAITS_S = 1.0
"""Seconds from an Enter to an Escape from which on somebody waits: who types both at once takes
nothing back."""

OFFERS_CELLS = 160
"""Cells of the continuations listed below a field: two lines or so."""


class FormScreen(Dialog[Values]):
    """Returns checked values, or None. Enter in any field submits them."""

    CSS_PATH = "dialogs.tcss"
    AUTO_FOCUS = ""
    # Keys that move on have priority, so that they come before later keys. Enter has none, since it
    # would overtake letters that an input has not yet taken.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", show=False),
        Binding("tab", "complete", show=False, priority=True),
        Binding("down", "move(1)", show=False, priority=True),
        Binding("up,shift+tab", "move(-1)", show=False, priority=True),
    ]

    def __init__(self, form: Form, world: World, *, ascii_only: bool = False) -> None:
        super().__init__()
        self._form = form
        self._snapshot = world
        self._ascii = ascii_only
        self._seen: Mapping[str, str] = {}
        """Problems that only a look at the host finds, by field."""
        self._offered: Mapping[str, str] = {}
        """The continuations of the typed texts, by field."""
        values = {field.id: field.value for field in form.fields}
        self._suggested = {
            field.id: field.suggest(world, values)
            for field in form.fields
            if field.suggest is not None
        }
        self._last: Values = values | self._suggested
        """The values when the form last followed changes."""
        self._was_refused = False
        self._early: list[events.Key] | None = []
        """Keys typed before a field had the focus; None once one has it."""
        self._behind: list[events.Key] | None = None
        """Keys typed behind an Enter of which it is not known yet whether it ends the form; None if
        there is no such Enter."""
        self._entered = 0.0
        """The time of that Enter, in seconds of the monotonic clock."""

    @property
    def shows_saves(self) -> bool:
        return self._form.shows_saves

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog wide form", can_focus=False) as box:
            box.border_title = self._text(self._form.title)
            box.border_subtitle = self._text(f"enter {self._form.does} · esc leaves")
            for field in self._form.fields:
                is_whole = not (field.choices or field.is_short)
                kind = "whole" if is_whole else "few"
                with Horizontal(classes=f"field {kind}", id=_row(field)):
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
            suggester=Continuation(field) if field.complete is not None else None,
            id=field.id,
        )

    def _options(self, field: Field, values: Values) -> tuple[Option, ...]:
        if field.options is not None:
            return field.options(self._snapshot, values)
        return tuple(Option(value=choice, label=choice) for choice in field.choices)

    def on_mount(self) -> None:
        self._follow()
        self._check()
        # After the keys that came while the form was built.
        self.call_later(self._begin_typing)

    def _begin_typing(self) -> None:
        first = self.query_one(f"#{self._form.first or self._form.fields[0].id}")
        self.set_focus(first)
        early, self._early = self._early or [], None
        for key in early:
            if not self.drops_key(key):
                first.post_message(events.Key(key.key, key.character))

    def take_early(self, key: events.Key) -> bool:
        """Keeps a key typed before a field has the focus; returns False once one has it."""
        if self._early is None:
            return False
        self._early.append(key)
        return True

    def drops_key(self, key: events.Key) -> bool:
        """Holds keys behind Enter: they are for this form only if it stays. An Escape leaves it
        nevertheless if it was not typed together with that Enter, but while one waits."""
        if self._behind is not None and (key.key != "escape" or key.time - self._entered < WAITS_S):
            self._behind.append(key)
            return True
        self._behind, self._entered = ([], key.time) if key.key == "enter" else (None, 0.0)
        return False

    async def _release_keys(self) -> None:
        behind, self._behind = self._behind or [], None
        for key in behind:
            await self.app.on_event(events.Key(key.key, key.character))

    async def on_unmount(self) -> None:
        await self._release_keys()

    def action_complete(self) -> None:
        """Takes the continuation offered behind the cursor; without one, moves on."""
        box = self.focused
        if isinstance(box, LineInput) and box.suggester is not None:
            before = box.value
            box.action_cursor_right()
            if box.value != before:
                return
        self.action_move(1)

    def action_move(self, by: int) -> None:
        """Moves the focus to the next field, or the previous one with ``by`` -1. Textual's own
        order is by places on the screen, and a field that was just shown has none yet."""
        chain = [
            widget
            for widget in self.query("Choice, LineInput, Button").results()
            if widget.focusable and all(node.display for node in widget.ancestors_with_self)
        ]
        at = chain.index(self.focused) if self.focused in chain else -max(by, 0)
        self.set_focus(chain[(at + by) % len(chain)])

    def _text(self, text: str) -> Content:
        return Content(plain(text) if self._ascii else text)

    # Values

    @property
    def _is_whole(self) -> bool:
        """Whether all fields are there: a message may come before they are, or after. When a screen
        or the app ends, its widgets go one by one."""
        is_ending = not self.app.is_running or self not in self.app.screen_stack
        return self.is_mounted and not is_ending and bool(self.query("#take"))

    def _control(self, field_id: str) -> Choice | LineInput:
        control = self.query_one(f"#{field_id}")
        assert isinstance(control, Choice | LineInput)
        return control

    @property
    def values(self) -> Values:
        """The present values by field."""
        return {field.id: _value_of(self._control(field.id)) for field in self._form.fields}

    def update_world(self, world: World) -> None:
        """Follows the world, in which a name may have been taken."""
        self._snapshot = world
        if self._is_whole and self._early is None:
            self._follow()
            self._show()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._take_change()

    def on_choice_changed(self, event: Choice.Changed) -> None:
        self._take_change()

    def _take_change(self) -> None:
        if self._is_whole and self._early is None and self.values != self._last:
            self._follow()
            self._check()

    def _follow(self) -> None:
        """Lets fields follow the changes of others."""
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
        self._offered = {}
        self._show()
        if self._form.look is not None:
            self._look(self._form.look, self.values)

    @work(group="look", exclusive=True)
    async def _look(self, look: Callable[[Values], Mapping[str, str]], values: Values) -> None:
        offered = await asyncio.to_thread(self._find_offers, values)
        seen = await asyncio.to_thread(self._see, look, values)
        if self._is_whole and values == self.values:
            self._seen, self._offered = seen, offered
            self._show()

    def _see(
        self, look: Callable[[Values], Mapping[str, str]], values: Values
    ) -> Mapping[str, str]:
        """Returns the problems that a look at the host finds. If the host cannot be looked at, that
        is a problem, until the next look: at a change, and at Enter. Waits for the disk."""
        try:
            return look(values)
        except OSError as error:
            return {self._form.first or self._form.fields[0].id: error_text(error)}

    def _find_offers(self, values: Values) -> Mapping[str, str]:
        """Returns the continuations of typed texts, in words. Waits for the disk."""
        offers = {}
        for field in self._form.fields:
            found: Sequence[str] = ()
            with contextlib.suppress(OSError):  # offers nothing
                found = field.complete(values[field.id]) if field.complete is not None else ()
            if found:
                offers[field.id] = clip(words_of(found), OFFERS_CELLS)
        return offers

    def _problems(self, values: Values) -> Mapping[str, str]:
        return {**self._seen, **self._form.problems(values, self._snapshot)}

    def _show(self) -> None:
        """Shows problems and the command."""
        values = self.values
        problems = self._problems(values)
        remarks = self._form.remarks(values, self._snapshot)
        for field in self._form.fields:
            text = problems.get(field.id, "")
            # An empty field is no mistake until the user has tried to submit.
            is_told = bool(text) and bool(values[field.id] or field.is_chosen or self._was_refused)
            remark, found = remarks.get(field.id, ""), self.query(f"#{_beside(field)}")
            if (offer := self._offered.get(field.id)) and not self._was_refused:
                is_told, remark = False, offer
            for beside in found.results(Static):
                beside.update(self._text(remark))
            below = self.query_one(f"#{_below(field)}", Static)
            # Without room beside the field, the remark goes below it.
            shown = text if is_told else remark if not found else ""
            row = self.query_one(f"#{_row(field)}")
            row.display = field.is_shown is None or field.is_shown(values)
            below.display = bool(shown) and row.display
            below.set_class(not is_told, "-remark")
            below.update(self._text(shown))
        self.query_one("#command", Static).update(self._text(f"$ {self._form.command(values)}"))
        self.query_one("#take", Button).disabled = bool(problems)

    @work(group="submit", exclusive=True)
    async def action_submit(self) -> None:
        try:
            await self._submit()
        finally:
            await self._release_keys()

    async def _submit(self) -> None:
        self._take_change()
        values = self.values
        if self._form.look is not None:
            self._seen = await asyncio.to_thread(self._see, self._form.look, values)
        if not self.is_current or not self._is_whole:
            return
        self._was_refused = True
        self._show()
        # A change by the mouse, while the host was asked, is not what Enter took.
        problems = self._problems(values)
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


class Continuation(Suggester):
    """Offers a continuation behind the cursor, once the next word is begun."""

    def __init__(self, field: Field) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._field = field

    async def get_suggestion(self, value: str) -> str | None:
        complete = self._field.complete
        if complete is None or value.endswith("/"):
            return None
        with contextlib.suppress(OSError):  # offers nothing
            return next(iter(await asyncio.to_thread(complete, value)), None)
        return None


def words_of(paths: Sequence[str]) -> str:
    """Returns the last names of paths that end with a slash."""
    return "  ".join(f"{path.rstrip('/').rpartition('/')[2]}/" for path in paths)


def _value_of(control: Choice | LineInput) -> str:
    # Spaces at the end of a chosen value are part of it.
    return control.value if isinstance(control, Choice) else control.value.strip()


def _row(field: Field) -> str:
    return f"row-{field.id}"


def _below(field: Field) -> str:
    return f"wrong-{field.id}"


def _beside(field: Field) -> str:
    return f"about-{field.id}"
