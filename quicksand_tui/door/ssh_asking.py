"""Has ssh, which the engine starts, ask its questions in the app."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from quicksand.base.paths import paths
from quicksand.remote.askpass import Askpass, Question

from quicksand_tui.model.specs import SshQuestion, SshQuestionKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any

    AskUser = Callable[[SshQuestion], Coroutine[Any, Any, str | None]]


def askpass_for(ask: AskUser, ui: asyncio.AbstractEventLoop) -> Askpass:
    """Returns the askpass of connections to other machines, to be opened and closed on the engine's
    loop. ``ask`` runs on the loop ``ui``; it is cancelled when ssh does not wait any more."""

    def ask_there(question: Question) -> Awaitable[str | None]:
        shown = SshQuestion(
            host=question.host,
            prompt=question.prompt,
            kind=SshQuestionKind(question.kind.value),
        )
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(ask(shown), ui))

    return Askpass(ask_there, paths().runtime)
