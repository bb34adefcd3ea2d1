"""What the parts of the main screen share."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from quicksand_tui.text import plain

if TYPE_CHECKING:
    from quicksand_tui.actions import Scope
    from quicksand_tui.application import QuicksandApp


class Asked(Message):
    """A key behind the prefix was pressed: the screen carries the action out. What is typed behind
    it waits until then."""

    def __init__(self, scope: Scope, action_id: str) -> None:
        super().__init__()
        self.scope = scope
        self.action_id = action_id


class PartWidget(Widget):
    """A part with keys of its own: the registry's of ``scope``."""

    scope: ClassVar[Scope]
    ascii_only: bool = False

    @property
    def tui(self) -> QuicksandApp:
        return cast("QuicksandApp", self.app)

    def action_do(self, action_id: str) -> None:
        # At once: what is typed behind it may be meant for where it leads.
        self.tui.main.action_do(action_id, self.scope.value)

    def fit(self, text: str) -> Content:
        """Text as the terminal can show it; never markup."""
        return Content(plain(text) if self.ascii_only else text)
