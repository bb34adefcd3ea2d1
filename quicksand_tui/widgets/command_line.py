"""The last action, as the command that does the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from textual.content import Content
from textual.widgets import Static

from quicksand_tui.text import clip, plain
from quicksand_tui.view import MUTED

if TYPE_CHECKING:
    from quicksand_tui.command_record import CommandRecord

OUTCOMES = {
    "running": ("…", MUTED),
    "done": ("✓", "$text-success"),
    "failed": ("✗ failed", "$text-error"),
    "cancelled": ("○ cancelled", "$text-warning"),
}
FIRST = "quicksand-tui ps -a"


class CommandLine(Static):
    """One line of the command log. Always there, so that nothing moves when it is first needed."""

    def __init__(self, *, ascii_only: bool, first: str = FIRST, **options: Any) -> None:
        """``first`` is shown before anything was done: a command that shows the same."""
        before = Content.styled(f"$ {first}  shows the same", MUTED)
        super().__init__(before, markup=False, **options)
        self._ascii = ascii_only
        self._shown: CommandRecord | None = None

    def show(self, record: CommandRecord | None) -> None:
        if record is None or record == self._shown:
            return
        self._shown = record
        if room := self.content_size.width:
            # A long command must not hide how it ended.
            ending = command_content(replace(record, command="")).cell_length
            record = replace(record, command=clip(record.command, room - ending))
        line = command_content(record)
        self.update(Content(plain(line.plain)) if self._ascii else line, layout=False)


def command_content(record: CommandRecord) -> Content:
    """A command with how it ended."""
    word, style = OUTCOMES[record.outcome]
    seconds = "" if record.seconds is None else f" {record.seconds:.1f} s"
    return Content.assemble(("$ ", MUTED), record.command, "  ", (word, style), (seconds, MUTED))
