"""The app's own colours: one dark and one light theme."""

from __future__ import annotations

import os

from textual.theme import Theme

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
        "scrollbar": "#3a3f46",
        "scrollbar-hover": "#5a616b",
        "scrollbar-active": "#d9b26f",
        "scrollbar-background": "#16181b",
        "scrollbar-background-hover": "#16181b",
        "scrollbar-background-active": "#16181b",
        "scrollbar-corner-color": "#16181b",
    },
)
LIGHT_THEME = Theme(
    name="quicksand-light",
    primary="#8a6a2f",
    secondary="#4d6478",
    accent="#9a6a12",
    foreground="#2b2a27",
    background="#faf8f3",
    surface="#f0ece2",
    panel="#e6e1d4",
    success="#4a7a2e",
    warning="#9a6200",
    error="#b3372c",
    dark=False,
    variables={
        "border": "#c9c2b2",
        "scrollbar": "#c9c2b2",
        "scrollbar-hover": "#a89f8b",
        "scrollbar-active": "#9a6a12",
        "scrollbar-background": "#faf8f3",
        "scrollbar-background-hover": "#faf8f3",
        "scrollbar-background-active": "#faf8f3",
        "scrollbar-corner-color": "#faf8f3",
    },
)


def fitting_theme() -> str:
    """The light theme where the terminal says that it is light: "foreground;background", as rxvt,
    konsole and others do."""
    ground = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT_THEME.name if ground in ("7", "15") else DARK_THEME.name
