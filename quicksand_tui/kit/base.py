"""The base classes of the app's screens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from quicksand_driver.textual_compositor import tell_sizes
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import ModalScreen, Screen, ScreenResultType

from quicksand_tui.model.keymap import key_text

if TYPE_CHECKING:
    from textual import events
    from textual.app import App
    from textual.widget import Widget

    from quicksand_tui.model.world import World


SHOWN_S = 4
"""Seconds that a message is shown."""


def tell(
    by: Widget | App[int],
    text: str,
    *,
    severity: Literal["information", "warning", "error"] = "information",
) -> None:
    """Shows a toast of plain text, not markup."""
    by.app.notify(text, severity=severity, markup=False, timeout=SHOWN_S)


def refuse_paste(event: events.Paste) -> str:
    """Stops a paste that no input took, whose letters would be commands. Returns a message."""
    event.stop()
    event.prevent_default()
    return "Pasting is refused here: the text would be taken for keys"


class Stale(Message):
    """Everything must be read anew: something else has changed it."""


class SavesShown(Message):
    """A screen shows saves now, so that they must be read."""


class AppScreen(Screen[ScreenResultType]):
    """A screen of the app, with default answers to all that the app asks of its screens."""

    shows_outcome = False
    """Whether the screen itself shows the outcome of jobs."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        tell_sizes(self)

    def on_mount(self) -> None:
        if self.shows_saves:
            self.post_message(SavesShown())

    @property
    def shows_saves(self) -> bool:
        """Whether the screen shows saves, so that they must be read."""
        return False

    @property
    def visible_sandboxes(self) -> frozenset[str]:
        """Ids of the sandboxes whose CPU and memory are visible."""
        return frozenset()

    def update_world(self, world: World) -> None:
        """Shows a changed world."""

    def filter_by(self, words: str) -> bool:
        """Filters the screen's list; returns False if there is none."""
        return False

    def drops_key(self, key: events.Key) -> bool:
        """Whether to ignore this key."""
        return False

    def take_key(self, event: events.Key) -> bool | None:
        """Takes a key that no widget took. Returns False if none may, None if another one may."""
        return None

    def take_early(self, key: events.Key) -> bool:
        """Takes a key meant for a widget that is just opening, but sent to the widget with the
        focus before; returns False if no widget is opening."""
        return False

    def answer(self, key: events.Key) -> None:
        """Answers a key that nothing here takes."""


class Dialog(ModalScreen[ScreenResultType], AppScreen[ScreenResultType]):
    """A modal screen. Escape closes it without a result."""

    # With priority: a key right behind it, which the widget with the focus would take before the
    # app has seen that Escape is none of it, is for the screen below.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back", show=False, priority=True)
    ]

    _answered = float("-inf")
    """The time, in seconds of the monotonic clock, when the last key was read that nothing took."""

    def action_leave(self) -> None:
        self.dismiss(None)

    @property
    def keys_text(self) -> str:
        """Its keys, as its frame shows them."""
        lines = (widget.border_subtitle for widget in self.query("*"))
        return next((str(line) for line in lines if line), "esc leaves")

    def answer(self, key: events.Key) -> None:
        """Says which keys have an effect here; once for a held key, and for a text."""
        if key.key in self.active_bindings:
            return
        before, self._answered = self._answered, key.time
        if key.time - before > SHOWN_S:
            tell(self, f"{key_text(key.key)} does nothing here: {self.keys_text}")

    def on_paste(self, event: events.Paste) -> None:
        self.notify(refuse_paste(event), severity="warning", markup=False)
