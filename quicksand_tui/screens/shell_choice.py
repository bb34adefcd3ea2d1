"""A choice between the terminals that exist in a sandbox and a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from quicksand_tui.kit.base import Dialog
from quicksand_tui.model.amounts import age_text
from quicksand_tui.model.text import plain, sanitise

if TYPE_CHECKING:
    from quicksand_tui.door.service_protocol import ShellView

NEW = ""
"""The result that stands for a new terminal."""


class ShellsScreen(Dialog[str]):
    """Returns the chosen session, `NEW` for a new terminal, or None."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "new", "new", show=False),
        Binding("j", "move(1)", show=False),
        Binding("k", "move(-1)", show=False),
        Binding("q", "leave", "back", show=False),
    ]

    def __init__(
        self, name: str, shells: tuple[ShellView, ...], *, now: float, ascii_only: bool
    ) -> None:
        super().__init__()
        self._sandbox_name = name
        self._shells = shells
        self._now = now
        self._ascii = ascii_only

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = self._text(f"Shell in {self._sandbox_name}")
            box.border_subtitle = self._text("enter opens · n a new one · esc leaves")
            options = [
                Option(
                    self._text(
                        f"Attach to {sanitise(shell.session)}: {shell.command}, "
                        f"{age_text(self._now - shell.created)} old{_shown(shell)}"
                    )
                )
                for shell in self._shells
            ]
            yield OptionList(*options, Option("Open a new one"), id="shells", markup=False)

    def _text(self, text: str) -> Content:
        return Content(plain(text) if self._ascii else text)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        at = event.option_index
        self.dismiss(self._shells[at].session if at < len(self._shells) else NEW)

    def action_new(self) -> None:
        self.dismiss(NEW)

    def action_move(self, by: int) -> None:
        options = self.query_one(OptionList)
        if by > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()


def _shown(shell: ShellView) -> str:
    """Says whether another client shows the terminal, as is possible in tmux."""
    return ", attached elsewhere too" if shell.clients else ""
