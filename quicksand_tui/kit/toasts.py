"""Short messages to the user."""

from __future__ import annotations

from typing import Literal

from textual.app import App
from textual.widget import Widget

SHOWN_S = 4
"""Seconds that a message is shown."""


def tell(
    by: Widget | App[int],
    text: str,
    *,
    severity: Literal["information", "warning", "error"] = "information",
) -> None:
    """Shows a toast of plain text, not markup."""
    by.app.notify(text, severity=severity, markup=False, timeout=SHOWN_S)
