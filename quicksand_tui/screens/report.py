"""What there is to know after something was done."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from quicksand_tui.screens.base import Dialog
from quicksand_tui.text import plain

if TYPE_CHECKING:
    from quicksand_tui.saves_spec import Told


class ReportScreen(Dialog[None]):
    """Shows what was `Told`. Enter or escape closes it."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,q", "leave", "close", show=False),
        Binding("j", "scroll(1)", show=False),
        Binding("k", "scroll(-1)", show=False),
    ]

    def __init__(self, told: Told, *, ascii_only: bool) -> None:
        super().__init__()
        self._told = told
        self._ascii = ascii_only

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog wide", id="report") as box:
            box.border_title = self._text(self._told.summary)
            box.border_subtitle = self._text("enter closes")
            yield Static(self._text("\n".join(self._told.lines)), markup=False)

    def _text(self, text: str) -> Content:
        return Content(plain(text) if self._ascii else text)

    def action_scroll(self, lines: int) -> None:
        self.query_one("#report").scroll_relative(y=lines, animate=False)
