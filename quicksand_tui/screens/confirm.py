"""A question before something is lost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Static

from quicksand_tui.kit.base import Dialog

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult

    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.key_handling import Hands
    from quicksand_tui.model.world import World

FRAME = 5
"""Rows of a dialog that are neither text nor buttons."""
USUAL_WIDTH = 56
"""Width in cells below which the buttons are stacked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The texts of a question."""

    title: str
    losses: tuple[str, ...]
    """The losses, one line each."""
    verb: str
    """The word on the button that confirms."""
    undo: str = "This cannot be undone."
    harder: str = ""
    """The word on a second button that does more; "" for none."""


CONFIRM = "ctrl+y"
"""A chord that every terminal sends, that no text holds and that is rare in shells."""
HARDER = "ctrl+g"


class Answer(StrEnum):
    YES = "yes"
    HARDER = "harder"
    SETTLED = "settled"
    """The question closed by itself, because it no longer applies."""


class ConfirmScreen(Dialog[Answer]):
    """Asks a question. Only a chord confirms, no letter, not Enter, and not the key that asked.
    Cancel has the focus."""

    CSS_PATH = "dialogs.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (USUAL_WIDTH, "-usual")]  # noqa: RUF012 - Textual's
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "scroll(1)", show=False),
        Binding("k,up", "scroll(-1)", show=False),
        Binding(CONFIRM, "confirm('yes')", "yes", show=False),
        Binding(HARDER, "confirm('harder')", show=False),
        Binding("n,q", "leave", "no", show=False),
    ]

    def __init__(
        self,
        question: Question,
        hands: Hands,
        *,
        jobs: Operations | None = None,
    ) -> None:
        """Ignores keys, except Escape, that were typed before anybody can have read the question
        (see `Hands.question`). A question about running ``jobs`` closes by itself as soon as there
        are none."""
        super().__init__()
        self._is_no_answer = hands.question()
        self._question = question
        self._jobs = jobs

    def compose(self) -> ComposeResult:
        question = self._question
        with Vertical(classes="dialog danger") as box:
            box.border_title = Content(question.title)
            with VerticalScroll(id="what", can_focus=False):
                yield Static(Content("\n".join(question.losses)), markup=False, id="losses")
                yield Static(Content(question.undo), markup=False, classes="note")
                yield Static(Content(self.keys_text), markup=False, classes="note")
            with Horizontal(classes="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yield _button(f"{question.verb} {_short(CONFIRM)}", Answer.YES)
                if question.harder:
                    yield _button(f"{question.harder} {_short(HARDER)}", Answer.HARDER)

    @property
    def keys_text(self) -> str:
        """The keys of the answers."""
        question = self._question
        words = [f"{CONFIRM}: {_began(question.verb)}"]
        words += [f"{HARDER}: {_began(question.harder)}"] if question.harder else []
        return ", ".join([*words, "esc: cancel"])

    def drops_key(self, key: events.Key) -> bool:
        return key.key != "escape" and self._is_no_answer(key)

    def on_mount(self) -> None:
        self.query_one("#cancel", Button).focus()

    def on_resize(self) -> None:
        """Limits the text so that the buttons stay visible."""
        buttons = self.query(Button)
        rows = len(buttons) if self.size.width < USUAL_WIDTH else 1
        room = self.size.height * 92 // 100 - rows - FRAME
        self.query_one("#what").styles.max_height = max(1, room)

    def update_world(self, world: World) -> None:
        self._close_if_settled()

    def on_screen_resume(self) -> None:
        self._close_if_settled()

    def _close_if_settled(self) -> None:
        if self._jobs is not None and not self._jobs.jobs and self.is_active:
            self.dismiss(Answer.SETTLED)

    def action_scroll(self, lines: int) -> None:
        self.query_one("#what").scroll_relative(y=lines, animate=False)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.dismiss(None if event.button.id == "cancel" else Answer(event.button.id or ""))

    def action_confirm(self, answer: str) -> None:
        if answer != Answer.HARDER or self._question.harder:
            self.dismiss(Answer(answer))


def _short(chord: str) -> str:
    """Returns the short form of a chord, such as "^Y"."""
    return chord.replace("ctrl+", "^").upper()


def _began(words: str) -> str:
    return words[:1].lower() + words[1:]


def _button(text: str, answer: Answer) -> Button:
    button = Button(text, id=answer.value, variant="error", compact=True)
    # Reached by the mouse or its chord only, never by Tab and Enter.
    button.can_focus = False
    return button
