"""The losses that a confirmation names before an action, and those that a revert would bring."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand.things.save import SaveFacts, TrashFacts, freed_together
from quicksand.things.status import HAS_MACHINE

from quicksand_tui.model.amounts import age_text, size_text
from quicksand_tui.model.text import clip, sanitise
from quicksand_tui.views.save_rows import came_from_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from quicksand.things.mount_facts import MountFacts

    from quicksand_tui.model.diffs import Losing
    from quicksand_tui.model.keymap import Keymap
    from quicksand_tui.model.shown_sandboxes import CheckpointView, Glance, SandboxView
    from quicksand_tui.views.overview import Shown
    from quicksand_tui.views.tables import Line, Words


NOTE_CELLS = 120
NAME_CELLS = 30
LISTED = 6
"""The number of things that are named; the others are counted."""


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
    """Returns the losses of deleting several sandboxes: of each, its disk and checkpoints."""
    losses = _listed([f"{view.name}: {_what(view)}" for view in sandboxes])
    checkpoints = sum(len(view.tree.checkpoints) for view in sandboxes)
    losses.append(f"Together {_what_of(sum(view.disk or 0 for view in sandboxes), checkpoints)}.")
    if running := sum(view.is_live for view in sandboxes):
        losses.append(f"{running} of them run and are ended.")
    if gone := sum(view.discard for view in sandboxes):
        losses.append(f"{gone} of them were started to be discarded: these are deleted for good.")
    return losses


def of_delete(sandbox: SandboxView, now: float) -> list[str]:
    age = "" if sandbox.created is None else f", made {age_text(now - sandbox.created)} ago"
    where = "is deleted for good" if sandbox.discard else "goes to the trash for a week"
    losses = [f"It {where}: {_what(sandbox)}{age}."]
    if sandbox.discard:
        losses.insert(0, "It was started to be discarded when it stops.")
    elif sandbox.is_live:
        losses.insert(0, "It is stopped at once, and its last state is kept.")
    return losses


def _what(sandbox: SandboxView) -> str:
    """Returns the disk and the checkpoints of a sandbox in words."""
    return _what_of(sandbox.disk, len(sandbox.tree.checkpoints))


def _what_of(disk: int | None, checkpoints: int) -> str:
    kept = f", {checkpoints} checkpoint{'s' if checkpoints > 1 else ''}" if checkpoints else ""
    return f"{size_text(disk)} of disk{kept}"


def way_back(sandboxes: Sequence[SandboxView], keymap: Keymap) -> str:
    """Returns the way to undo deleting these."""
    if all(view.discard for view in sandboxes):
        return "This cannot be undone."
    it = "it" if len(sandboxes) == 1 else "them"
    return f"{keymap.hint('undo')} restores {it}, {keymap.hint('trash')} shows the trash."


def of_checkpoint(sandbox: SandboxView, checkpoint: CheckpointView, now: float) -> list[str]:
    """Returns the losses of deleting a checkpoint; layers that others need stay."""
    age = "" if not checkpoint.created else f" {age_text(now - checkpoint.created)} ago"
    losses = [f"{sandbox.name} can no longer be reverted to what it was{age}."]
    if checkpoint.note:
        losses.append(f"Its note: {clip(checkpoint.note, NOTE_CELLS)}")
    if checkpoint == sandbox.tree.undo_goes_to:
        losses.append("It is the one that undo reverts to.")
    if checkpoint.is_measured:
        stays = "; what others share stays" if checkpoint.shared else ""
        losses.append(f"Deleting it frees {size_text(checkpoint.size)}{stays}.")
    elif checkpoint.bytes_written:
        losses.append(
            f"Of its {size_text(checkpoint.bytes_written)}, what no other needs is freed."
        )
    if count := sandbox.tree.descendants(checkpoint.id):
        stay = "s that follow it stay." if count > 1 else " that follows it stays."
        losses.append(f"The {f'{count} ' if count > 1 else ''}checkpoint{stay}")
    return losses


def of_return(sandbox: SandboxView, checkpoint: CheckpointView, now: float) -> list[str]:
    """Returns the state that going back to a checkpoint leaves behind."""
    age = "" if not checkpoint.created else f" {age_text(now - checkpoint.created)} ago"
    tag = clip(checkpoint.tag, NAME_CELLS)
    if sandbox.is_live:
        what = f"Memory, processes and disk of {sandbox.name}"
        lines = [f"{what} become what they were at {tag}{age}."]
    else:
        lines = [f"{sandbox.name} starts as it was at {tag}{age}."]
    if checkpoint.note:
        lines.append(f"Its note: {clip(checkpoint.note, NOTE_CELLS)}")
    return lines


def way_back_from(keymap: Keymap) -> str:
    """Returns the way to undo going to a checkpoint."""
    return f"The present state is kept as a checkpoint: {keymap.hint('undo')} reverts to it."


def of_unmount(mount: MountFacts) -> list[str]:
    return [
        f"{clip(mount.host, NOTE_CELLS)} is gone from the sandbox at once.",
        "Programs there that use it get errors; what they had not yet written to it is lost.",
    ]


def of_saves(saves: Sequence[SaveFacts], now: float) -> list[str]:
    """Returns the losses of deleting saves."""
    losses = _listed([_save_text(save, now) for save in saves])
    freed, shared = freed_together(saves), sum(save.shared for save in saves)
    stays = "; what others share stays" if shared else ""
    losses.append(f"Deleting for good frees {size_text(freed)}{stays}.")
    if heirs := came_from_text(saves, but=saves):
        it = "it" if len(saves) == 1 else "them"
        losses.append(f"What came from {it} works without {it}: {heirs}.")
    return losses


def _save_text(save: SaveFacts, now: float) -> str:
    age = "" if save.created is None else f", made {age_text(now - save.created)} ago"
    note = f": {clip(save.note, NAME_CELLS)}" if save.note else ""
    return f"{clip(save.name, NAME_CELLS)}, {size_text(save.size)}{age}{note}"


def of_trash(trash: Sequence[TrashFacts], now: float) -> list[str]:
    """Returns the losses of removing these from the trash."""
    losses = _listed(
        [
            f"{clip(view.name, NAME_CELLS)}, {size_text(view.own + view.shared)}, "
            f"removed {age_text(now - view.removed)} ago"
            for view in trash
        ]
    )
    return [*losses, f"That frees {size_text(freed_together(trash))}."]


def _listed(lines: list[str]) -> list[str]:
    more = len(lines) - LISTED
    return lines[:LISTED] + ([f"and {more} more"] if more > 0 else [])


def losses_of_stop(
    chosen: Sequence[SandboxView], *, with_shells: Collection[str], hidden: Collection[str]
) -> tuple[str, ...]:
    """Returns the losses to confirm before stopping these; nothing if they stop at once.

    ``with_shells`` are the ids of sandboxes with a shell open in this app, ``hidden`` those that
    the filter hides.
    """
    if len(chosen) == 1 and chosen[0].id not in hidden:
        return ("The shells that are open in it end.",) if chosen[0].id in with_shells else ()
    # The most surprising losses come first, since only the first are named.
    surprising = sorted(
        chosen, key=lambda view: (view.id not in hidden, view.id not in with_shells)
    )
    lines = []
    for view in surprising[:LISTED]:
        notes = ["hidden by the filter"] * (view.id in hidden)
        notes += ["its open shells end"] * (view.id in with_shells)
        lines.append(": ".join(filter(None, (clip(view.name, NAME_CELLS), ", ".join(notes)))))
    if more := surprising[LISTED:]:
        lines.append(f"and {len(more)} more{_of_more(more, with_shells, hidden)}")
    return tuple(lines)


def _of_more(
    more: Sequence[SandboxView], with_shells: Collection[str], hidden: Collection[str]
) -> str:
    """Returns the numbers of unnamed sandboxes that are hidden or have shells."""
    unseen = sum(view.id in hidden for view in more)
    typed = sum(view.id in with_shells for view in more)
    words = [f"{unseen} hidden"] if unseen else []
    words += [f"{typed} with open shells"] if typed else []
    return f": {', '.join(words)}" if words else ""


PREVIEW_LINES = 6
PREVIEW_WIDTH = 100
"""The most characters of a line that are shown."""


def of_paste(text: str) -> tuple[str, ...]:
    """Returns the first lines of a paste."""
    lines = text.splitlines()
    shown = [sanitise(line.expandtabs(8), limit=PREVIEW_WIDTH) for line in lines[:PREVIEW_LINES]]
    if len(lines) > PREVIEW_LINES:
        shown.append(f"and {len(lines) - PREVIEW_LINES} more lines, {size_text(len(text))}")
    return tuple(shown)


COMMANDS = 3
"""The most commands that are named; the others are counted."""


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
