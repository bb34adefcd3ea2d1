"""A text input, and a choice between values on one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from quicksand_driver.textual_private import action_bound_to
from rich.cells import cell_len
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input

from quicksand_tui.model.text import clip, plain, sanitise
from quicksand_tui.views.tables import MUTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual import events

    from quicksand_tui.forms.form_fields import Option


class LineInput(Input):
    """An input that keeps the order of fast typing. Textual sends bound keys such as Backspace to
    the app and back, while later letters are already inserted; this input handles them at once.
    Keys behind one that may end it wait until the app has handled that, or it is gone (`Settled`).
    """

    ENDING: ClassVar = frozenset({"enter", "escape"})
    """Keys that may end it."""

    class Settled(Message):
        """All that a key has led to so far has come up to whoever gets this message."""

        def __init__(self, field: LineInput) -> None:
            super().__init__()
            self.field = field

    def takes(self, event: events.Key) -> bool:
        """Whether a key has an effect here. The app sees such a key only if it was on its way to
        another widget when this one got the focus."""
        return event.is_printable or action_bound_to(self, event.key) is not None

    async def _on_key(self, event: events.Key) -> None:
        await self._take_key(event)
        if event.key in self.ENDING:
            self.post_message(self.Settled(self))

    def on_unmount(self) -> None:
        # Its last `Settled` is lost if the input is removed before its parents have seen it.
        self.app.post_message(self.Settled(self))

    async def _take_key(self, event: events.Key) -> None:
        action = None if event.is_printable else action_bound_to(self, event.key)
        if action is None:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()
        await self.run_action(action)


FILTERED_FROM = 6
"""The number of options from which on the hint to filter shows."""
NOTE_CELLS = 6
"""The least room in cells in which a note is shown."""
TYPED_MAX = 40


class Choice(Widget, can_focus=True):
    """A choice on one line that, unlike a drop-down, leaves Enter to the form. If ``filtered``,
    typing selects among many options. Keys are handled here instead of bound, since later keys can
    overtake bound ones (see `LineInput`)."""

    DEFAULT_CSS = """
    Choice { padding: 0 1; background: $background; }
    Choice:focus { background: $accent 25%; }
    """
    STEPS = {"right": 1, "left": -1}  # noqa: RUF012 - never changed
    MORE_STEPS = {"space": 1, "l": 1, "h": -1}  # noqa: RUF012 - likewise

    class Changed(Message):
        """Another value was chosen."""

        def __init__(self, choice: Choice) -> None:
            super().__init__()
            self.choice = choice

    def __init__(
        self,
        options: Sequence[Option],
        *,
        value: str,
        ascii_only: bool,
        filtered: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self._options = tuple(options)
        self._ascii = ascii_only
        self._filtered = filtered
        self._typed = ""
        self._value = value
        if value not in {option.value for option in options}:
            self._value = options[0].value if options else ""

    # The value

    @property
    def value(self) -> str:
        """The value of the chosen option; "" if there is none."""
        return self._value

    @value.setter
    def value(self, value: str) -> None:
        if value != self._value and any(option.value == value for option in self._options):
            self._value = value
            self._typed = ""
            self.post_message(self.Changed(self))
            self.refresh()

    @property
    def _chosen(self) -> Option | None:
        return next((option for option in self._options if option.value == self._value), None)

    @property
    def _found(self) -> tuple[Option, ...]:
        """The options that match the filter."""
        words = self._typed.lower().split()
        return tuple(
            option
            for option in self._options
            if all(word in f"{option.label} {option.note}".lower() for word in words)
        )

    def offer(self, options: Sequence[Option]) -> None:
        """Replaces the options; the chosen one stays if it is among them."""
        if tuple(options) == self._options:
            return
        self._options = tuple(options)
        if self._chosen is None:
            self._value = options[0].value if options else ""
            self.post_message(self.Changed(self))
        self.refresh()

    def _choose(self, option: Option) -> None:
        if option.value != self._value:
            self._value = option.value
            self.post_message(self.Changed(self))
        self.refresh()

    def step(self, by: int) -> None:
        """Chooses the next option, or the previous one with ``by`` -1."""
        found = self._found
        if not found:
            return
        at = next((n for n, option in enumerate(found) if option.value == self._value), -by)
        self._choose(found[(at + by) % len(found)])

    def _type(self, text: str) -> None:
        self._typed = text.lstrip()[:TYPED_MAX]
        found = self._found
        if not found:
            self._value = ""
            self.post_message(self.Changed(self))
        elif self._chosen not in found:
            # A label that begins with the text comes before one that contains it.
            named = (o for o in found if o.label.lower().startswith(self._typed.lower()))
            self._choose(next(named, found[0]))
        self.refresh()

    # Input

    def on_key(self, event: events.Key) -> None:
        keys = self.STEPS if self._filtered else self.STEPS | self.MORE_STEPS
        if event.key in keys:
            self.step(keys[event.key])
        elif self._filtered and event.key == "backspace":
            self._type(self._typed[:-1])
        elif self._filtered and event.key == "ctrl+u":
            self._type("")
        elif self._filtered and event.is_printable and event.character:
            self._type(self._typed + event.character)
        else:
            return
        event.stop()
        event.prevent_default()

    def on_paste(self, event: events.Paste) -> None:
        if self._filtered:
            event.stop()
            self._type(self._typed + sanitise(event.text.partition("\n")[0], limit=TYPED_MAX))

    def on_blur(self) -> None:
        self._typed = ""

    def on_click(self, event: events.Click) -> None:
        self.step(-1 if event.x <= 2 else 1)

    # Drawing

    def render(self) -> Content:
        chosen = self._chosen
        found = self._found
        width = max(1, self.content_size.width)
        side = self._side_text(len(found)) if self._filtered else ""
        room = width - cell_len(side)
        text = clip(chosen.label if chosen else "none", max(1, room - 4))
        line = f"◂ {text} ▸" if len(found) > 1 else f"  {text}"
        left = room - cell_len(line) - 4
        note = clip(chosen.note, left) if chosen is not None and left >= NOTE_CELLS else ""
        note = f"  {note}" if note else ""
        pad = " " * max(0, room - cell_len(line + note))
        parts = [(line, ""), (note + pad + side, MUTED)]
        if not self._ascii:
            return Content.assemble(*parts)
        return Content.assemble(*((plain(part), style) for part, style in parts))

    def _side_text(self, found: int) -> str:
        total = len(self._options)
        if self._typed:
            return f"  “{self._typed}” {found} of {total}"
        if self.has_focus and total >= FILTERED_FROM:
            return f"  type to filter · {total}"
        return ""
