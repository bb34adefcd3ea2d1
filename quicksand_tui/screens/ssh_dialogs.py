"""The questions of ssh, shown one after the other."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.widgets import Input

from quicksand_tui.kit.textual_private import is_batching
from quicksand_tui.screens.ssh_question import SshQuestionScreen

if TYPE_CHECKING:
    from textual.app import App

    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.model.specs import SshQuestion


@dataclass(slots=True, eq=False)
class _Asked:
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
        self._waiting: deque[_Asked] = deque()
        self._shown: _Asked | None = None

    async def ask(self, question: SshQuestion) -> str | None:
        """Returns the answer, None if the user gives up or the app ends. Cancelled, it takes the
        question back."""
        asked = _Asked(question, asyncio.get_running_loop().create_future())
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
            self._next(asked)
            return
        takes_text = self._keys.panes.pane is not None or isinstance(self._app.focused, Input)
        asked.screen = SshQuestionScreen(
            asked.question,
            asked.settle,
            closed=lambda: self._next(asked),
            is_no_answer=self._keys.hands.question(),
            waits=takes_text or is_batching(self._app),
            ascii_only=self._ascii,
        )
        self._app.push_screen(asked.screen)

    def _take_back(self, asked: _Asked) -> None:
        if asked.screen is not None and asked.screen.is_attached:
            asked.screen.let_go()

    def _next(self, asked: _Asked) -> None:
        """Shows the next question when the screen of this one has gone."""
        if self._shown is asked:
            self._shown = None
            self._app.call_later(self._show_next)
