"""The questions of ssh, one at a time: a password, whether a host key is right, a key to be
touched."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from quicksand_driver.textual_private import is_batching
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from quicksand_tui.kit.base import Dialog
from quicksand_tui.kit.key_handling import ANSWER_AFTER_S
from quicksand_tui.model.specs import ANSWER_MAX, SshQuestionKind
from quicksand_tui.model.text import TITLE_CELLS, clip, plain
from quicksand_tui.widgets.inputs import LineInput

if TYPE_CHECKING:
    from textual import events
    from textual.app import App, ComposeResult

    from quicksand_tui.kit.key_handling import Hands, Keys
    from quicksand_tui.model.specs import SshQuestion


CONFIRM = "ctrl+y"
"""A chord that no text holds, as in other questions."""
SHOW = "ctrl+t"

KEYS = {
    SshQuestionKind.SECRET: f"enter answers · {SHOW} shows what you type · esc gives up",
    SshQuestionKind.CONFIRM: f"{CONFIRM}: yes · n: no · esc gives up",
    SshQuestionKind.NOTICE: "ssh waits for that · esc hides this",
}
WAITS = (
    "This came while you were typing elsewhere, so it takes no keys yet: "
    f"{CONFIRM} begins to answer."
)
OVER = "ssh does not wait for the answer any more: enter closes this."
TOO_LONG = f"That is longer than the {ANSWER_MAX} bytes that ssh takes."


class SecretInput(LineInput):
    """A field whose text leaves it by Enter only."""

    def __init__(self) -> None:
        super().__init__(password=True, compact=True, select_on_focus=False, id="answer")

    def action_copy(self) -> None:
        """Does nothing: the clipboard is everybody's."""

    def action_cut(self) -> None:
        """Does nothing: the clipboard is everybody's."""

    def clear_away(self) -> None:
        """Forgets the typed text."""
        with self.prevent(LineInput.Changed):
            self.value = ""


class SshQuestionScreen(Dialog[None]):
    """Asks ssh's question. Its answer is given to a function: others keep the result of a screen,
    and this may be a password.

    It comes by itself, so keys typed at that moment are for something else, and must not become an
    answer. And it goes when ssh does; but later keys must not get into a shell: if an answer was
    begun, the screen stays until it is closed.
    """

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(CONFIRM, "confirm", show=False),
        Binding(SHOW, "show", show=False),
        Binding("n", "refuse", show=False),
        Binding("enter", "submit", show=False),
    ]

    def __init__(
        self,
        asked: Asked,
        asker: SshQuestions,
        hands: Hands,
        *,
        waits: bool,
        ascii_only: bool,
    ) -> None:
        """``asked`` gets the answer, or None from a user who gives up; ``asker`` is told when the
        screen has gone, which may be later, or without an answer. Keys typed before anybody can
        have read the question are dropped (`Hands.question`). With ``waits``, no key is taken
        before `CONFIRM`: text was being typed elsewhere when this came."""
        super().__init__()
        question = asked.question
        self._question = question
        self._asked = asked
        self._is_waited_for = True
        self._asker = asker
        self._is_no_answer = hands.question()
        self._waits = waits and question.kind is not SshQuestionKind.NOTICE
        self._is_over = False
        self._ascii = ascii_only
        self._field = SecretInput()

    def compose(self) -> ComposeResult:
        question = self._question
        with Vertical(classes="dialog wide") as box:
            box.border_title = self._text(f"ssh to {clip(question.host, TITLE_CELLS)}")
            box.border_subtitle = self._text(KEYS[question.kind])
            with VerticalScroll(id="what", can_focus=False):
                yield Static(self._text(question.prompt), markup=False, id="prompt")
            if question.kind is SshQuestionKind.SECRET:
                with Horizontal(classes="field whole"):
                    yield self._field
                self._field.disabled = True
            yield Static(markup=False, classes="note", id="state")

    def on_mount(self) -> None:
        self._say(WAITS if self._waits else "")
        if not self._waits:
            # A paste that was under way is not the answer, either.
            self.set_timer(ANSWER_AFTER_S, self._begin)

    def _begin(self) -> None:
        self._waits = False
        if self._question.kind is SshQuestionKind.SECRET and not self._is_over:
            self._say("")
            self._field.disabled = False
            self.set_focus(self._field)

    def on_resize(self) -> None:
        self.query_one("#what").styles.max_height = max(1, self.size.height * 92 // 100 - 8)

    def drops_key(self, key: events.Key) -> bool:
        return self._is_no_answer(key)

    def answer(self, key: events.Key) -> None:
        """Shows nothing of a key, which may be one of a password."""

    def on_unmount(self) -> None:
        self._end(None)  # it may have been closed by something else
        self._asker.closed(self._asked)

    # Ends

    def let_go(self) -> None:
        """Ends the question: ssh does not wait any more."""
        self._is_waited_for = False
        if self._field.value:
            self._is_over = True
            self._field.clear_away()
            self._field.disabled = True
            self._say(OVER)
        else:
            self.dismiss(None)

    def _end(self, answer: str | None) -> None:
        self._field.clear_away()
        if self._is_waited_for:
            self._is_waited_for = False
            self._asked.settle(answer)

    def _leave_with(self, answer: str | None) -> None:
        self._end(answer)
        self.dismiss(None)

    # Keys

    def action_leave(self) -> None:
        self._leave_with(None)

    def action_confirm(self) -> None:
        if self._waits:
            self._begin()
            if self._question.kind is SshQuestionKind.CONFIRM:
                self._say("")
        elif self._question.kind is SshQuestionKind.CONFIRM:
            self._leave_with("yes")

    def action_refuse(self) -> None:
        if self._question.kind is SshQuestionKind.CONFIRM and not self._waits:
            self._leave_with("no")

    def action_show(self) -> None:
        self._field.password = not self._field.password

    def action_submit(self) -> None:
        if self._is_over:
            self.dismiss(None)

    def on_input_submitted(self, event: LineInput.Submitted) -> None:
        event.stop()
        if len(event.value.encode("utf-8", "surrogateescape")) > ANSWER_MAX:
            self._say(TOO_LONG)
        else:
            self._leave_with(event.value)

    def _say(self, words: str) -> None:
        state = self.query_one("#state", Static)
        state.update(self._text(words))
        state.display = bool(words)

    def _text(self, text: str) -> Content:
        return Content(plain(text) if self._ascii else text)


@dataclass(slots=True, eq=False)
class Asked:
    """A question of ssh that waits for its answer."""

    question: SshQuestion
    answer: asyncio.Future[str | None]
    screen: SshQuestionScreen | None = None

    def settle(self, answer: str | None) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


class SshQuestions:
    """Asks the user in a dialog over the present screen. Later questions wait."""

    def __init__(self, app: App[int], keys: Keys, *, ascii_only: bool) -> None:
        self._app = app
        self._keys = keys
        self._ascii = ascii_only
        self._waiting: deque[Asked] = deque()
        self._shown: Asked | None = None

    async def ask(self, question: SshQuestion) -> str | None:
        """Returns the answer, None if the user gives up or the app ends. Cancelled, it takes the
        question back."""
        asked = Asked(question, asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        self._app.call_later(self._show_next)
        try:
            return await asked.answer
        finally:
            if asked in self._waiting:
                self._waiting.remove(asked)
            elif asked.answer.cancelled():
                self._app.call_later(self._take_back, asked)

    def _show_next(self) -> None:
        if self._shown is not None or not self._waiting:
            return
        asked = self._shown = self._waiting.popleft()
        if not self._app.is_running or not self._app.screen_stack:
            asked.settle(None)
            self.closed(asked)
            return
        takes_text = self._keys.panes.pane is not None or isinstance(self._app.focused, Input)
        asked.screen = SshQuestionScreen(
            asked,
            self,
            self._keys.hands,
            waits=takes_text or is_batching(self._app),
            ascii_only=self._ascii,
        )
        self._app.push_screen(asked.screen)

    def _take_back(self, asked: Asked) -> None:
        if asked.screen is not None and asked.screen.is_attached:
            asked.screen.let_go()

    def closed(self, asked: Asked) -> None:
        """Shows the next question when the screen of this one has gone."""
        if self._shown is asked:
            self._shown = None
            self._app.call_later(self._show_next)
