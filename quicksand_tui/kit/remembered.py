"""Keeps the user's choices for the next run, and writes them in the background."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from quicksand_tui.home.state import PaneMemory, Remembered

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App

    from quicksand_tui.home.state import CommandHistory


class Memory:
    """The values remembered between runs."""

    def __init__(
        self,
        app: App[int],
        remembered: Remembered | None,
        panes: PaneMemory | None,
        known: Callable[[], frozenset[str]],
    ) -> None:
        """``known`` returns the ids of the existing sandboxes. Without ``remembered`` and
        ``panes``, nothing is kept for the next run."""
        self._app = app
        self.remembered = remembered or Remembered()
        self.panes = panes or PaneMemory()
        self._known = known

    def remember(self, name: str, value: object) -> None:
        """Keeps a value for the next run."""
        if self.remembered.put(name, value):
            writing = asyncio.to_thread(self.remembered.write, name)
            self._app.run_worker(writing, name="remember", group="remember")

    def remember_panes(self, sandbox_id: str, value: object) -> None:
        """Keeps the layout of a sandbox's panes for the next run; None forgets it."""
        if self.panes.put(sandbox_id, value):
            writing = asyncio.to_thread(self.panes.write, sandbox_id, self._known())
            self._app.run_worker(writing, name="remember panes", group="remember")

    def remember_command(self, history: CommandHistory, line: str) -> None:
        """Keeps a line of the `:` line."""
        writing = asyncio.to_thread(history.add, line)
        self._app.run_worker(writing, name="remember command", group="history", exit_on_error=False)
