"""All there is to know about a save, in labelled lines: pure functions, no widgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.saves_view import (
    NAME_CELLS,
    came_from_text,
    count_text,
    job_text,
    left_text,
    names_text,
    trouble_of,
)
from quicksand_tui.text import age_text, clip, size_text

if TYPE_CHECKING:
    from quicksand_tui.saved import SaveView, TrashedView
    from quicksand_tui.snapshot import Snapshot
    from quicksand_tui.widgets.facts import Line, Part


def describe_save(view: SaveView, snapshot: Snapshot) -> list[Line]:
    """All there is to know about one save; first what matters for deleting it."""
    lines = _state_lines(view, snapshot)
    stays = f" · {size_text(view.shared)} that others share stay" if view.shared else ""
    lines.append(("Deleting", [(f"frees {size_text(view.own)}", ""), (stays, "muted")]))
    if view.above:
        lines.append(("Needed", [(f"by {names_text(view.above)}, which lies on it", "warning")]))
    if view.base:
        digest = f" · {view.base_digest}" if view.base_digest else ""
        lines.append(("Lies on", [(view.base, ""), (digest, "muted")]))
    if view.note:
        lines.append(("Note", [(view.note, "")]))
    if descent := _descent(view):
        lines.append(("Descent", descent))
    if view.machine:
        lines.append(("Gives", [(view.machine, "")]))
    if view.unsynced:
        what = "what its guest had not yet written to its disk: it was paused, or did not answer"
        lines.append(("Lacks", [(what, "warning")]))
    if view.volatile:
        what = f"{names_text(view.volatile)}: only in the guest's memory then"
        lines.append(("Lacks", [(what, "muted")]))
    id_ = f" · {view.id}" if view.id else ""
    lines.append(("Lies in", [(f"{view.path}{id_}", "muted")]))
    return lines


def _state_lines(view: SaveView, snapshot: Snapshot) -> list[Line]:
    job = snapshot.job_about(view.key)
    cancel = snapshot.keymap.hint("cancel", "saves")
    trouble, problems = trouble_of(view)
    verdict = view.verdict
    parts: list[Part]
    if trouble:
        parts = [(f"✗ {trouble}", "error")]
    elif verdict is not None and verdict.deep:
        parts = [("✓ whole", "success")]
    else:
        parts = [("● kept", "success")]
    parts.append((_made_text(view, snapshot.taken), "muted"))
    if verdict is not None:
        how = "every byte was read" if verdict.deep else "looked at from outside"
        parts.append((f" · {how} {age_text(snapshot.taken - verdict.when)} ago", "muted"))
    if job is not None:
        parts.append((f" · {job_text(job)} · {cancel} cancels", "warning"))
    return [("State", parts), *(("Why", [(problem, "error")]) for problem in problems)]


def _made_text(view: SaveView, now: float) -> str:
    parts = [] if view.created is None else [f"{age_text(now - view.created)} old"]
    parts += [view.arch] if view.arch else []
    parts += [count_text(view.layers, "layer")] if view.layers is not None else []
    parts += ["file system at rest"] if view.frozen else []
    return "".join(f" · {part}" for part in parts)


def _descent(view: SaveView) -> list[Part]:
    """What it came from, and what came from it."""
    before = f"from the save {clip(view.parent, NAME_CELLS)}" if view.parent else ""
    heirs = came_from_text([view])
    after = f"led to {heirs}" if heirs else ""
    free = " · works without it" if heirs else ""
    return (
        [(" · ".join(filter(None, (before, after))), ""), (free, "muted")]
        if (before or after)
        else []
    )


def describe_trashed(view: TrashedView, snapshot: Snapshot) -> list[Line]:
    now = snapshot.taken
    lines: list[Line] = []
    if view.error:
        lines += [("State", [("✗ damaged", "error")]), ("Why", [(view.error, "error")])]
    left = f"{left_text(view, now)} more for sure"
    lines += [
        ("Removed", [(f"{age_text(now - view.removed)} ago", ""), (f" · stays {left}", "muted")]),
        ("Frees", [(f"{size_text(view.own)} when it is gone for good", "")]),
    ]
    if view.note:
        lines.append(("Note", [(view.note, "")]))
    lines.append(("Id", [(view.id, "muted")]))
    return lines
