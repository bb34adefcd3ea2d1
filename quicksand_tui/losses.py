"""What a question before a loss has to name: pure functions, one for each kind of loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quicksand_tui.saved import SaveView, TrashedView, freed_together
from quicksand_tui.saves_view import came_from_text
from quicksand_tui.text import age_text, clip, size_text

if TYPE_CHECKING:
    from quicksand_tui.listed import SandboxView
    from quicksand_tui.past import CheckpointView

NOTE_CELLS = 120
NAME_CELLS = 30
LISTED = 6
"""Of many things, so many are named."""


def of_kill(sandbox: SandboxView) -> list[str]:
    losses = [
        "Its machine ends as if the plug were pulled.",
        "What the guest has not yet written to its disk is lost.",
    ]
    if sandbox.discard:
        losses.append("It is removed with its disk, as it was started to be.")
    return losses


def of_kills(sandboxes: Sequence[SandboxView]) -> list[str]:
    return [
        *_listed([view.name for view in sandboxes]),
        "Their machines end as if the plug were pulled: what a guest has not yet written is lost.",
    ]


def of_deletes(sandboxes: Sequence[SandboxView]) -> list[str]:
    """Of deleting several, each with its disk and checkpoints."""
    running = sum(view.is_live for view in sandboxes)
    made = sum(len(view.past.checkpoints) for view in sandboxes)
    losses = _listed([f"{view.name}: its disk, {size_text(view.disk)}" for view in sandboxes])
    if running:
        losses.append(f"{running} of them run and will be killed.")
    if made:
        losses.append(f"{made} checkpoints are lost with them.")
    return losses


def of_delete(sandbox: SandboxView, now: float) -> list[str]:
    made = "" if sandbox.created is None else f", made {age_text(now - sandbox.created)} ago"
    losses = [f"Its disk is lost: {size_text(sandbox.disk)}{made}."]
    if sandbox.is_live:
        losses.insert(0, "It is running and will be killed.")
    if count := len(sandbox.past.checkpoints):
        losses.append(f"Its {count} checkpoints are lost." if count > 1 else "So is a checkpoint.")
    return losses


def of_checkpoint(sandbox: SandboxView, made: CheckpointView, now: float) -> list[str]:
    """Of deleting one checkpoint; what others need of it stays."""
    age = "" if made.created is None else f" {age_text(now - made.created)} ago"
    losses = [f"The way back to {sandbox.name} as it was{age} is lost."]
    if made.note:
        losses.append(f"Its note: {clip(made.note, NOTE_CELLS)}")
    if made == sandbox.past.undo_goes_to:
        losses.append("It is the one that undo goes back to.")
    if made.written:
        losses.append(f"Of its {size_text(made.written)}, what no other needs is freed.")
    if count := sandbox.past.descendants(made.id):
        stay = "s that follow it stay." if count > 1 else " that follows it stays."
        losses.append(f"The {f'{count} ' if count > 1 else ''}checkpoint{stay}")
    return losses


def of_saves(saves: Sequence[SaveView], now: float) -> list[str]:
    """Of deleting saves, to the trash or for good."""
    losses = _listed([_save_text(save, now) for save in saves])
    freed, shared = freed_together(saves), sum(save.shared for save in saves)
    stays = "; what is shared with others stays" if shared else ""
    losses.append(f"For good, that frees {size_text(freed)}{stays}.")
    if heirs := came_from_text(saves, but=saves):
        it = "it" if len(saves) == 1 else "them"
        losses.append(f"What came from {it} works without {it}: {heirs}.")
    return losses


def _save_text(save: SaveView, now: float) -> str:
    age = "" if save.created is None else f", made {age_text(now - save.created)} ago"
    note = f": {clip(save.note, NAME_CELLS)}" if save.note else ""
    return f"{clip(save.name, NAME_CELLS)}, {size_text(save.size)}{age}{note}"


def of_trash(trash: Sequence[TrashedView], now: float) -> list[str]:
    """Of removing for good what is in the trash."""
    losses = _listed(
        [
            f"{clip(found.name, NAME_CELLS)}, {size_text(found.own + found.shared)}, "
            f"removed {age_text(now - found.removed)} ago"
            for found in trash
        ]
    )
    return [*losses, f"That frees {size_text(freed_together(trash))}."]


def _listed(lines: list[str]) -> list[str]:
    more = len(lines) - LISTED
    return lines[:LISTED] + ([f"and {more} more"] if more > 0 else [])
