"""The app's own themes, and the choice among them by the config, the terminal and the user. Glyphs
and words also tell the state, so colours are never needed."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from quicksand_driver.terminal_queries import UNKNOWN, TerminalAbilities
from textual.theme import BUILTIN_THEMES, Theme

from quicksand_tui.kit import outline
from quicksand_tui.kit.base import tell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual.app import App

    from quicksand_tui.home.state import ThemeChoice
    from quicksand_tui.kit.remembered import Memory


def _variables(ground: str, bar: str, hover: str, active: str) -> dict[str, str]:
    """Returns the colours of scroll bars and selected text."""
    return {
        "input-selection-background": active,
        "input-selection-foreground": ground,
        "scrollbar": bar,
        "scrollbar-hover": hover,
        "scrollbar-active": active,
        "scrollbar-background": ground,
        "scrollbar-background-hover": ground,
        "scrollbar-background-active": ground,
        "scrollbar-corner-color": ground,
    }


DARK_THEME = Theme(
    name="quicksand",
    primary="#c9a66b",
    secondary="#8aa1b4",
    accent="#d9b26f",
    foreground="#d6d3cc",
    background="#16181b",
    surface="#22252a",
    panel="#2a2e34",
    success="#8fb573",
    warning="#d9a441",
    error="#d9685f",
    dark=True,
    variables={
        "border": "#3a3f46",
        "foreground-muted": "#a5a19a",
        **_variables("#16181b", "#3a3f46", "#5a616b", "#d9b26f"),
    },
)
LIGHT_THEME = Theme(
    name="quicksand-light",
    primary="#7a5c26",
    secondary="#4d6478",
    accent="#9a6a12",
    foreground="#2b2a27",
    background="#faf8f3",
    surface="#f0ece2",
    panel="#e6e1d4",
    success="#3f6d26",
    warning="#9a6200",
    error="#b3372c",
    dark=False,
    variables={
        "border": "#c9c2b2",
        "foreground-muted": "#5f5d57",
        **_variables("#faf8f3", "#c9c2b2", "#a89f8b", "#855a0c"),
    },
)


CONTRAST_THEME = Theme(
    name="quicksand-contrast",
    primary="#ffd75f",
    secondary="#87d7ff",
    accent="#ffd75f",
    foreground="#ffffff",
    background="#000000",
    surface="#0a0a0a",
    panel="#1c1c1c",
    success="#87ff87",
    warning="#ffd75f",
    error="#ff9c94",
    dark=True,
    variables={
        "border": "#9e9e9e",
        "text-muted": "#d8d8d8",
        "foreground-muted": "#d8d8d8",
        **_variables("#000000", "#9e9e9e", "#d0d0d0", "#ffd75f"),
    },
)
CONTRAST_LIGHT_THEME = Theme(
    name="quicksand-contrast-light",
    primary="#00308f",
    secondary="#004b5c",
    accent="#00308f",
    foreground="#000000",
    background="#ffffff",
    surface="#f7f7f7",
    panel="#eeeeee",
    success="#0a4a0a",
    warning="#5a3600",
    error="#7a0000",
    dark=False,
    variables={
        "border": "#5f5f5f",
        "text-muted": "#303030",
        "foreground-muted": "#303030",
        **_variables("#ffffff", "#5f5f5f", "#303030", "#00308f"),
    },
)
COLOUR_BLIND_THEME = Theme(
    # Blue, yellow and orange of Okabe and Ito's palette ("Color Universal Design", 2008), which
    # people with any kind of colour vision tell apart.
    name="quicksand-colour-blind",
    primary="#56b4e9",
    secondary="#cc79a7",
    accent="#56b4e9",
    foreground="#dcdcdc",
    background="#14171c",
    surface="#20242b",
    panel="#282d36",
    success="#56b4e9",
    warning="#f0e442",
    error="#e8742a",
    dark=True,
    variables={
        "border": "#3c434e",
        "foreground-muted": "#a3a8af",
        "text-success": "#6cbdec",
        "text-warning": "#f0e442",
        "text-error": "#f0843e",
        **_variables("#14171c", "#3c434e", "#5c6675", "#56b4e9"),
    },
)
ANSI_THEME = Theme(
    # The terminal's own sixteen colours, on its own ground, dark or light.
    name="quicksand-ansi",
    ansi=True,
    primary="ansi_blue",
    secondary="ansi_cyan",
    accent="ansi_magenta",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    success="ansi_green",
    warning="ansi_yellow",
    error="ansi_red",
    variables={
        "ansi-background": "ansi_default",
        "ansi-foreground": "ansi_default",
        "border": "ansi_bright_black",
        "border-blurred": "ansi_bright_black",
        **_variables("ansi_default", "ansi_bright_black", "ansi_blue", "ansi_magenta"),
    },
)

THEMES = (
    DARK_THEME,
    LIGHT_THEME,
    CONTRAST_THEME,
    CONTRAST_LIGHT_THEME,
    COLOUR_BLIND_THEME,
    ANSI_THEME,
)


def fitting_theme(
    abilities: TerminalAbilities = UNKNOWN, environ: Mapping[str, str] = os.environ
) -> str:
    """Returns the light theme if the terminal is light, by its answer or by COLORFGBG
    ("foreground;background", as rxvt, konsole and others set it); otherwise the dark theme."""
    is_light = abilities.is_light
    if is_light is None:
        is_light = environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
    return LIGHT_THEME.name if is_light else DARK_THEME.name


def theme_names() -> frozenset[str]:
    """Returns the names of all themes, our own and Textual's."""
    own = {found.name for found in globals().values() if isinstance(found, Theme)}
    return frozenset({*BUILTIN_THEMES, *own})


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
