"""Events of a guest's screen, as messages to its view; and keys for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_pixels import KEYS, Chord
from textual.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual import events

    from quicksand_tui.door.screen_messages import Drawn


class ScreenSeen(Message):
    """The terminal has drawn a picture."""

    def __init__(self, screen: int, number: int) -> None:
        super().__init__()
        self.screen = screen
        self.number = number


class ScreenDrawn(Message):
    """There is a picture."""

    def __init__(self, screen: int, picture: Drawn) -> None:
        super().__init__()
        self.screen = screen
        self.picture = picture


class ScreenGone(Message):
    """The screen is gone."""

    def __init__(self, screen: int, why: str) -> None:
        super().__init__()
        self.screen = screen
        self.why = why


class DesktopTold(Message):
    """The screen has a message for the user."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class ScreenEvents:
    """Posts the events of a screen as messages; called on the engine's loop."""

    def __init__(self, post: Callable[[Message], object], number: int) -> None:
        """``number`` tells this connection from earlier ones."""
        self._post = post
        self._number = number

    def drawn(self, picture: Drawn) -> None:
        self._post(ScreenDrawn(self._number, picture))

    def gone(self, why: str) -> None:
        self._post(ScreenGone(self._number, why))

    def told(self, message: str) -> None:
        self._post(DesktopTold(message))


def chord_of(event: events.Key) -> Chord | None:
    """Returns a key of Textual's as a chord; None if it has no equal."""
    if event.is_printable and event.character:
        return Chord(event.character)
    *modifiers, name = event.key.split("+")
    if name not in KEYS and len(name) != 1:
        return None
    return Chord(
        name, shift="shift" in modifiers, alt="alt" in modifiers, control="ctrl" in modifiers
    )
