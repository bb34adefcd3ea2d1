"""The app's theme: the one that is shown, who chose it, and the memory of the choice."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from quicksand_tui.kit import outline
from quicksand_tui.kit.base import tell
from quicksand_tui.ui.themes import THEMES, fitting_theme

if TYPE_CHECKING:
    from textual.app import App

    from quicksand_tui.home.state import ThemeChoice
    from quicksand_tui.kit.remembered import Memory
    from quicksand_tui.kit.terminal_queries import TerminalAbilities


class AppLooks:
    """Shows the theme that the user has chosen, or else one that fits the terminal."""

    def __init__(
        self, app: App[int], choice: ThemeChoice, memory: Memory, *, ascii_only: bool
    ) -> None:
        self._app = app
        self._choice = choice
        self._memory = memory
        self._ascii = ascii_only
        self._set = ""
        """The theme that the app itself has set; another one is the user's choice."""

    @property
    def problem(self) -> str:
        """The reason why the user's choice is not shown; "" if it is."""
        return self._choice.problem

    @property
    def chosen(self) -> str:
        """The theme that the user has chosen; "" if it is the app's choice."""
        return self._choice.name

    def begin(self, abilities: TerminalAbilities) -> None:
        """Registers the app's themes, and shows the one that the user has chosen."""
        for known in THEMES:
            self._app.register_theme(known)
        wish = self._choice.name
        if wish and wish not in self._app.available_themes:
            self._choice.name = ""
            self._choice.problem = f"There is no theme {wish!r}; the palette shows all (:)"
        self._show(self._choice.name or fitting_theme(abilities))

    def fit(self, abilities: TerminalAbilities) -> None:
        """Shows a theme that fits the terminal's answers, unless the user has chosen one."""
        if not self._choice.name and abilities.background is not None:
            self._show(fitting_theme(abilities))

    def _show(self, name: str) -> None:
        self._set = self._app.theme = name

    def theme_changed(self, name: str) -> None:
        """Remembers a theme that the user has chosen."""
        is_running = self._app.is_running
        if is_running:
            self.remember_outline()
        if name != self._set:
            self._set = name
            if is_running:
                self._app.run_worker(self._remember(name), group="theme", exclusive=True)

    def remember_outline(self) -> None:
        """Remembers the looks for the outline of the next run."""
        variables = self._app.get_css_variables()
        looks = outline.looks_of(variables, os.environ, plain=self._ascii)
        self._memory.remember(outline.NAME, looks.to_json())

    async def _remember(self, name: str) -> None:
        try:
            await asyncio.to_thread(self._choice.remember, name)
        except OSError as error:
            tell(
                self._app,
                f"The theme is not remembered: {error.filename}: {error.strerror}",
                severity="warning",
            )
