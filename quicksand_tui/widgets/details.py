"""What there is to know about the selected sandbox or image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.snapshot import Panel, Selection, Snapshot, State
from quicksand_tui.text import age_text, clip, pause_text, percent_text, size_text
from quicksand_tui.view import ROLES, state_text
from quicksand_tui.widgets.facts import Facts, Line, Part

if TYPE_CHECKING:
    from quicksand_tui.listed import ImageView, SandboxView
    from quicksand_tui.past import CheckpointView, PastView

TCG_WARNING = "no security boundary"
TIPS = (
    ("new", "starts a sandbox from an image"),
    ("", "goes to the next part"),
    ("saves", "goes to the saves"),
    ("command", "takes commands"),
    ("help", "shows all keys"),
)
"""Actions, and what they do, shown while there is nothing else to tell; "" is Tab."""
TITLE_CELLS = 60


class Details(Facts):
    """Facts of what the cursor is on."""

    def show(self, snapshot: Snapshot, selection: Selection) -> None:
        self.show_lines(*describe(snapshot, selection))


def describe(snapshot: Snapshot, selection: Selection) -> tuple[str, list[Line]]:
    """A title, and lines of a label and parts."""
    if selection.panel is Panel.IMAGES and selection.image is not None:
        return selection.image.name, _image_lines(selection.image, snapshot)
    if selection.panel is Panel.SAVES and selection.save is not None:
        from quicksand_tui.saves_details import describe_save

        return clip(selection.save.name, TITLE_CELLS), describe_save(selection.save, snapshot)
    if selection.panel is not Panel.SANDBOXES:
        return "Details", []
    return _describe_selected(snapshot, selection)


def _describe_selected(snapshot: Snapshot, selection: Selection) -> tuple[str, list[Line]]:
    made, sandbox = selection.checkpoint, selection.sandbox
    if made is not None and selection.in_tree:
        title = f"{clip(made.tag, TITLE_CELLS)}{' (automatic)' if made.auto else ''}"
        return title, describe_checkpoint(made, snapshot.taken)
    if sandbox is not None:
        return sandbox.name, _sandbox_lines(sandbox, snapshot)
    if snapshot.loaded and not snapshot.sandboxes:
        hint = snapshot.keymap.hint
        return "Details", [(hint(id_) if id_ else "tab", [(does, "muted")]) for id_, does in TIPS]
    return "Details", []


def describe_checkpoint(made: CheckpointView, now: float) -> list[Line]:
    """All there is to know about one."""
    if made.error:
        return [("State", [("✗ broken", "error")]), ("Why", [(made.error, "error")])]
    age = "" if made.created is None else f"{age_text(now - made.created)} ago"
    disk_only = made.tier == "disk"
    pause = "" if disk_only else f" · stood still for {pause_text(made.pause_s)}"
    cost = f"{pause} · {size_text(made.written)} written"
    lines: list[Line] = [("Taken", [(age, ""), (cost, "muted")])]
    if made.auto:
        by = "a start at a checkpoint" if disk_only else "a revert"
        lines.append(("By", [(f"{by}, so that it can be undone", "")]))
    if made.pinned:
        lines.append(("Pinned", [("it cannot be deleted", "")]))
    if made.own is not None:
        shared = f" · {size_text(made.shared)} shared with others" if made.shared else ""
        lines.append(("Size", [(f"{size_text(made.own)} its own", ""), (shared, "muted")]))
    if made.note:
        lines.append(("Note", [(made.note, "")]))
    if clip(made.tag, TITLE_CELLS) != made.tag:
        lines.append(("Tag", [(made.tag, "")]))  # the title has no room for it
    if made.tier_note:
        lines.append(("Tier", [(f"{made.tier}: {made.tier_note}", "warning")]))
    return lines


def _sandbox_lines(view: SandboxView, snapshot: Snapshot) -> list[Line]:
    lines: list[Line] = [("State", _state_parts(view, snapshot))]
    if view.error:
        lines.append(("Why", [(view.error, "error")]))
    if view.accel:
        slow = view.accel == "tcg"
        parts: list[Part] = [(view.accel.upper(), "warning" if slow else "success")]
        if slow:
            parts.append((f" – {TCG_WARNING}", "warning"))
        lines.append(("Runs on", parts))
    if view.image:
        machine = f"{view.image} · {size_text(view.memory_limit)}"
        if view.cpus is not None:
            machine += f" · {view.cpus} CPU{'s' if view.cpus != 1 else ''}"
        lines.append(("Machine", [(machine, "")]))
    if use := _use(view):
        lines.append(("Uses", [(use, "")]))
    if view.network:
        network: list[Part] = [(view.network.replace("_", " "), "")]
        network += [(f" · 127.0.0.1:{host} → {guest}", "") for host, guest in view.ports]
        lines.append(("Network", network))
    lines += _past_lines(view, snapshot)
    age = "" if view.created is None else f" · {age_text(snapshot.taken - view.created)} old"
    kept = " · removed when it stops" if view.discard else ""
    if not view.id.startswith("new:"):
        lines.append(("Id", [(view.id if view.id.isalnum() else "?", ""), (age + kept, "muted")]))
    if view.accel_reason:
        # Last, as it is long and always the same.
        lines.append(("Why " + view.accel.upper(), [(view.accel_reason, "muted")]))
    return lines


def _past_lines(view: SandboxView, snapshot: Snapshot) -> list[Line]:
    """What there is to say of its checkpoints besides their tree."""
    past = view.past
    if past.error:
        return [("Stands", [(f"nobody knows where: {past.error}", "error")])]
    if view.state is State.BROKEN or view.id.startswith("new:"):
        return []
    if past.checkpoints:
        return [("Tree", _past_parts(past))]
    key = snapshot.keymap.hint("checkpoint")
    when = "" if view.is_live else " while it runs"
    return [("Tree", [(f"none yet: {key} takes one{when}", "muted")])]


def _past_parts(past: PastView) -> list[Part]:
    count = len(past.checkpoints)
    parts: list[Part] = [(f"{count} checkpoint{'s' if count != 1 else ''}", "")]
    if (head := past.find(past.head)) is not None:
        parts.append((f" · on {clip(head.tag, TITLE_CELLS)}", "muted"))
    return parts


def _use(view: SandboxView) -> str:
    """What it takes of the host: columns that a narrow table does not have."""
    parts = []
    if view.cpu_percent is not None and view.is_live:
        parts.append(f"{percent_text(view.cpu_percent)} CPU")
    if view.memory_used is not None:
        parts.append(f"{size_text(view.memory_used)} RAM")
    if view.disk is not None:
        parts.append(f"{size_text(view.disk)} disk")
    return " · ".join(parts)


def _state_parts(view: SandboxView, snapshot: Snapshot) -> list[Part]:
    parts: list[Part] = [(state_text(view.state), ROLES[view.state])]
    job = snapshot.job(view.id)
    if job is not None:
        doing = "cancelling" if job.cancelling else job.progress
        parts.append((f" · {doing}" if doing else "", ""))
        parts.append((f" · {age_text(snapshot.taken - job.started)}", "muted"))
        if view.state is State.STARTING and not job.cancelling:
            parts.append((f" · {snapshot.keymap.hint('cancel')} cancels", "muted"))
    elif view.state is State.PAUSED:
        parts.append((f" · {snapshot.keymap.hint('pause')} lets it go on", "muted"))
    elif view.started is not None:
        parts.append((f" for {age_text(snapshot.taken - view.started)}", ""))
    return parts


def _image_lines(image: ImageView, snapshot: Snapshot) -> list[Line]:
    if image.error:
        return [
            ("State", [("✗ broken", "error")]),
            ("Why", [(image.error, "error")]),
        ]
    age = "" if image.created is None else f"{age_text(snapshot.taken - image.created)} old"
    made = " · ".join(part for part in (image.version, image.arch, age) if part)
    users = sum(1 for view in snapshot.sandboxes if view.image == image.name)
    return [
        ("Image", [(made or "–", "")]),
        ("Size", [(f"{size_text(image.size)} on disk", "")]),
        ("From", [("the store" if image.source == "store" else f"a {image.source}", "")]),
        ("Used by", [(f"{users} sandbox{'es' if users != 1 else ''}", "muted")]),
        ("", [("enter starts a sandbox from it", "muted")]),
    ]
