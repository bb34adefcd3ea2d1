"""What there is to know about the selected sandbox or image."""

from __future__ import annotations

from typing import Any

from textual.content import Content

from quicksand_tui.forest import FANCY, PLAIN
from quicksand_tui.past import NO_PAST
from quicksand_tui.snapshot import ImageView, Panel, SandboxView, Selection, Snapshot, State
from quicksand_tui.text import age_text, percent_text, plain, size_text
from quicksand_tui.tree_view import TreeLine, tree_lines
from quicksand_tui.view import ROLES, state_text
from quicksand_tui.widgets.facts import STYLES, Facts, Line, Part
from quicksand_tui.widgets.small_tree import draw_small_tree

TCG_WARNING = "no security boundary"
TIPS = (
    ("new", "starts a sandbox from an image"),
    ("", "goes to the images"),
    ("saves", "goes to the saves"),
    ("command", "takes commands"),
    ("help", "shows all keys"),
)
"""Actions, and what they do, shown while there is nothing else to tell; "" is Tab."""
TREE = "Tree"
BELOW_TREE = "Id"
"""The label of the first line that stands below the tree."""
TREE_MIN = 3
"""Lines of the tree that must be seen; else it comes right after the state."""


class Details(Facts):
    """Facts, with the tree of the selected sandbox's checkpoints among them."""

    def __init__(self, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(ascii_only=ascii_only, **options)
        self._tree: tuple[TreeLine, ...] = ()

    def show(self, snapshot: Snapshot, selection: Selection) -> None:
        title, lines = describe(snapshot, selection)
        sandbox = selection.sandbox if selection.panel is Panel.SANDBOXES else None
        past = NO_PAST if sandbox is None else sandbox.past
        tree = tree_lines(past, snapshot.taken, PLAIN if self._ascii else FANCY)
        if tree != self._tree:
            self._tree, self._lines = tree, []
        self.show_lines(title, lines)

    def _draw(self) -> None:
        """The tree goes below what fits with a few lines of it, or else right after the state."""
        if not self._tree:
            self._put(self._wrap(self._lines))
            return
        labels = [label for label, _ in self._lines]
        at = labels.index(BELOW_TREE) if BELOW_TREE in labels else len(labels)
        above = self._wrap(self._lines[:at])
        height = self.scrollable_content_region.height
        if height - len(above) < min(TREE_MIN, len(self._tree)):
            at = 2 if labels[1:2] == ["Why"] else 1
            above = self._wrap(self._lines[:at])
        tree = draw_small_tree(
            self._tree,
            width=self._value_width,
            room=max(TREE_MIN, height - len(above)),
            styles=STYLES,
        )
        if self._ascii:
            tree = [Content(plain(line.plain)) for line in tree]
        count = f"{len(tree)} of {len(self._tree)}" if len(tree) < len(self._tree) else ""
        below = self._wrap(self._lines[at:])
        self._put([*above, *self._label([TREE, count], tree), *below])


def describe(snapshot: Snapshot, selection: Selection) -> tuple[str, list[Line]]:
    """A title, and lines of a label and parts."""
    if selection.panel is Panel.IMAGES and selection.image is not None:
        return selection.image.name, _image_lines(selection.image, snapshot)
    if selection.sandbox is not None:
        return selection.sandbox.name, _sandbox_lines(selection.sandbox, snapshot)
    if snapshot.loaded and not snapshot.sandboxes:
        hint = snapshot.keymap.hint
        return "Details", [(hint(id_) if id_ else "tab", [(does, "muted")]) for id_, does in TIPS]
    return "Details", []


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
    if past.checkpoints or view.state is State.BROKEN or view.id.startswith("new:"):
        return []
    key = snapshot.keymap.hint("checkpoint")
    when = "" if view.is_live else " while it runs"
    return [(TREE, [(f"none yet: {key} takes one{when}", "muted")])]


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
        parts.append((f" · {snapshot.keymap.hint('resume')} lets it go on", "muted"))
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
