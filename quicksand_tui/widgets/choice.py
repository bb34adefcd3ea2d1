"""One of a few values on one line: left and right change it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from quicksand_tui.text import clip, plain


class Choice(Widget, can_focus=True):
    """A small replacement for a drop-down: nothing opens, Enter stays with the form."""

    DEFAULT_CSS = """
    Choice { padding: 0 1; background: $background; }
    Choice:focus { background: $accent 25%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,space,l", "step(1)", show=False),
        Binding("left,h", "step(-1)", show=False),
    ]

    index: reactive[int] = reactive(0)

    class Changed(Message):
        """Another value was chosen."""

        def __init__(self, choice: Choice) -> None:
            super().__init__()
            self.choice = choice

    def __init__(
        self, values: Sequence[str], *, value: str, ascii_only: bool, **options: Any
    ) -> None:
        super().__init__(**options)
        self._values = tuple(values) or ("",)
        self._ascii = ascii_only
        if value in self._values:
            self.set_reactive(Choice.index, self._values.index(value))

    @property
    def value(self) -> str:
        return self._values[self.index]

    def render(self) -> Content:
        text = clip(self.value or "none", max(1, self.size.width - 4))
        several = len(self._values) > 1
        line = f"◂ {text} ▸" if several else f"  {text}"
        return Content(plain(line) if self._ascii else line)

    def watch_index(self) -> None:
        self.post_message(self.Changed(self))

    def action_step(self, by: int) -> None:
        self.index = (self.index + by) % len(self._values)

    def on_click(self, event: events.Click) -> None:
        self.action_step(-1 if event.x <= 2 else 1)
