"""A question before something is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Static

from quicksand_tui.screens.base import Dialog


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked."""

    title: str
    losses: tuple[str, ...]
    """What will be lost, one line each."""
    verb: str
    """The word on the button that does it."""
    undo: str = "This cannot be undone."


class ConfirmScreen(Dialog[bool]):
    """Yes is the key y only: not Enter, and not the key that asked. Cancel has the focus."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "confirm", "yes", show=False),
        Binding("n,q", "leave", "no", show=False),
    ]

    def __init__(self, question: Question) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        question = self._question
        with Vertical(classes="dialog danger") as box:
            box.border_title = Content(question.title)
            yield Static(Content("\n".join(question.losses)), markup=False, id="losses")
            yield Static(Content(question.undo), markup=False, classes="note")
            with Horizontal(classes="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yes = Button(f"{question.verb} (y)", id="yes", variant="error", compact=True)
                # By the mouse, or by y: Tab and Enter must not get there.
                yes.can_focus = False
                yield yes

    def on_mount(self) -> None:
        self.query_one("#cancel", Button).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.dismiss(event.button.id == "yes")

    def action_confirm(self) -> None:
        self.dismiss(True)
