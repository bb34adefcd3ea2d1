"""What a question before a loss has to name: pure functions, one for each kind of loss."""

from __future__ import annotations

from quicksand_tui.past import CheckpointView
from quicksand_tui.snapshot import SandboxView
from quicksand_tui.text import age_text, clip, size_text

NOTE_CELLS = 120


def of_kill(sandbox: SandboxView) -> list[str]:
    losses = [
        "Its machine ends as if the plug were pulled.",
        "What the guest has not yet written to its disk is lost.",
    ]
    if sandbox.discard:
        losses.append("It is removed with its disk, as it was started to be.")
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
    if children := sandbox.past.children(made.id):
        stay = "s that follow it stay." if children > 1 else " that follows it stays."
        losses.append(f"The {f'{children} ' if children > 1 else ''}checkpoint{stay}")
    return losses
