"""The last action, as the command that does the same."""

from __future__ import annotations

from typing import Any

from textual.content import Content
from textual.widgets import Static

from quicksand_tui.snapshot import CommandRecord
from quicksand_tui.text import plain
from quicksand_tui.view import MUTED

OUTCOMES = {
    "running": ("…", MUTED),
    "done": ("✓", "$text-success"),
    "failed": ("✗ failed", "$text-error"),
    "cancelled": ("○ cancelled", "$text-warning"),
}


class CommandLine(Static):
    """One line of the command log."""

    def __init__(self, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(markup=False, **options)
        self._ascii = ascii_only

    def show(self, record: CommandRecord | None) -> None:
        self.display = record is not None
        if record is None:
            return
        word, style = OUTCOMES[record.outcome]
        seconds = "" if record.seconds is None else f" {record.seconds:.1f} s"
        line = Content.assemble(
            ("$ ", MUTED), record.command, "  ", (word, style), (seconds, MUTED)
        )
        self.update(Content(plain(line.plain)) if self._ascii else line)
