"""The losses and gains of a revert to a checkpoint, in lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand.things.status import HAS_MACHINE

from quicksand_tui.model.amounts import age_text, size_text
from quicksand_tui.model.text import clip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quicksand_tui.model.losing import Losing
    from quicksand_tui.model.shown_checkpoints import CheckpointView
    from quicksand_tui.model.shown_sandboxes import Glance, SandboxView
    from quicksand_tui.views.overview import Shown
    from quicksand_tui.views.rows import Line, Words

COMMANDS = 3
"""The most commands that are named; the others are counted."""
NAME_CELLS = 30


def losing_lines(
    sandbox: SandboxView, checkpoint: CheckpointView, losing: Losing | None, now: float, undo: str
) -> list[Line]:
    """Returns the effects of choosing a checkpoint; ``losing`` is None until it is known. ``undo``
    is the key that undoes it."""
    is_live = sandbox.state in HAS_MACHINE
    lines: list[Line] = [("Lost", _lost(sandbox, checkpoint, losing))]
    if losing is not None and losing.places:
        where = ", ".join(f"{clip(place, NAME_CELLS)} {count}" for place, count in losing.places)
        lines.append(("", [(where, "muted")]))
    if losing is not None and is_live:
        if losing.ending:
            lines.append(("Ends", [(_named(losing.ending), "warning")]))
        if losing.staying:
            lines.append(("Resumes", [(_named(losing.staying), "")]))
    age = "" if not checkpoint.created else f" of {age_text(now - checkpoint.created)} ago"
    what = f"memory, programs and disk{age}" if checkpoint.has_memory else f"the disk{age}"
    lines.append(("Restores", [(what, "")]))
    if is_live and checkpoint.has_memory:
        lines.append(("Undo", [(f"{undo}: the present state is kept as a checkpoint", "muted")]))
    return lines


def shell_lines(shell: Glance | None) -> Iterator[Shown]:
    """Yields the last lines of a shell at the checkpoint."""
    if shell is None or not shell.lines:
        return
    yield [(f"Shell at that time: {clip(shell.title, NAME_CELLS)}", "heading")], []
    for line in shell.lines:
        yield [(line, ""), ("", "")], []


def _lost(sandbox: SandboxView, checkpoint: CheckpointView, losing: Losing | None) -> list[Words]:
    parts = []
    if checkpoint.id == sandbox.tree.head and sandbox.tree.changed:
        parts.append(f"{size_text(sandbox.tree.changed)} written since")
    if losing is None:
        return [(" · ".join([*parts, "reading the files …"]), "muted")]
    words = ((losing.added, "added"), (losing.changed, "changed"), (losing.removed, "removed"))
    counts = ", ".join(f"{count} {word}" for count, word in words if count)
    parts.append(f"files: {counts}" if counts else "no file differs")
    return [(" · ".join(parts), "" if counts else "muted")]


def _named(commands: tuple[str, ...]) -> str:
    shown = ", ".join(clip(command, NAME_CELLS) for command in commands[:COMMANDS])
    more = len(commands) - COMMANDS
    return f"{shown} and {more} more" if more > 0 else shown
