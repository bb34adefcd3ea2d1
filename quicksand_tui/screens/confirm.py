"""A question before something is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Static

from quicksand_tui.screens.base import Dialog

if TYPE_CHECKING:
    from quicksand_tui.snapshot import Snapshot

FRAME = 5
"""Lines of a dialog that are neither text nor buttons."""
USUAL_WIDTH = 56
"""Cells below which the buttons are one below the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked."""

    title: str
    losses: tuple[str, ...]
    """What will be lost, one line each."""
    verb: str
    """The word on the button that does it."""
    undo: str = "This cannot be undone."
    harder: str = ""
    """The word on a second button, which does more; its key is D."""


class Answer(StrEnum):
    YES = "yes"
    HARDER = "harder"
    SETTLED = "settled"
    """Nobody answered: there is nothing to ask about any more."""


class ConfirmScreen(Dialog[Answer]):
    """Yes is the key y only: not Enter, and not the key that asked. Cancel has the focus."""

    CSS_PATH = "dialogs.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (USUAL_WIDTH, "-usual")]  # noqa: RUF012 - Textual's
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "scroll(1)", show=False),
        Binding("k,up", "scroll(-1)", show=False),
        Binding("y", "confirm('yes')", "yes", show=False),
        Binding("D", "confirm('harder')", show=False),
        Binding("n,q", "leave", "no", show=False),
    ]

    def __init__(self, question: Question, is_settled: Callable[[], bool] = lambda: False) -> None:
        """It closes by itself as soon as ``is_settled``."""
        super().__init__()
        self._question = question
        self._is_settled = is_settled

    def compose(self) -> ComposeResult:
        question = self._question
        with Vertical(classes="dialog danger") as box:
            box.border_title = Content(question.title)
            with VerticalScroll(id="what", can_focus=False):
                yield Static(Content("\n".join(question.losses)), markup=False, id="losses")
                yield Static(Content(question.undo), markup=False, classes="note")
            with Horizontal(classes="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yield _button(f"{question.verb} (y)", Answer.YES)
                if question.harder:
                    yield _button(f"{question.harder} (D)", Answer.HARDER)

    def on_mount(self) -> None:
        self.query_one("#cancel", Button).focus()

    def on_resize(self) -> None:
        """The buttons can always be seen, however much there is to say."""
        buttons = self.query(Button)
        rows = len(buttons) if self.size.width < USUAL_WIDTH else 1
        room = self.size.height * 92 // 100 - rows - FRAME
        self.query_one("#what").styles.max_height = max(1, room)

    def update_snapshot(self, snapshot: Snapshot) -> None:
        """The world has changed."""
        self._close_if_settled()

    def on_screen_resume(self) -> None:
        self._close_if_settled()

    def _close_if_settled(self) -> None:
        if self.is_active and self._is_settled():
            self.dismiss(Answer.SETTLED)

    def action_scroll(self, lines: int) -> None:
        self.query_one("#what").scroll_relative(y=lines, animate=False)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.dismiss(None if event.button.id == "cancel" else Answer(event.button.id or ""))

    def action_confirm(self, answer: str) -> None:
        if answer != Answer.HARDER or self._question.harder:
            self.dismiss(Answer(answer))


def _button(text: str, answer: Answer) -> Button:
    button = Button(text, id=answer.value, variant="error", compact=True)
    # By the mouse, or by its key: Tab and Enter must not get there.
    button.can_focus = False
    return button
