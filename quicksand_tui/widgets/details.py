"""A panel of labelled lines, and the facts of the selection in it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from quicksand_tui.model.amounts import age_text, pause_text, percent_text, size_text
from quicksand_tui.model.sandboxes import State
from quicksand_tui.model.text import clip, plain
from quicksand_tui.model.world import Panel, Selection, World
from quicksand_tui.views.mounts import mount_words, told_words
from quicksand_tui.views.rows import MUTED, ROLES, Line, Words, state_text
from quicksand_tui.views.saves import describe_save

if TYPE_CHECKING:
    from quicksand_tui.model.checkpoints import CheckpointTree, CheckpointView
    from quicksand_tui.model.sandboxes import ImageView, SandboxView


STYLES = {
    "muted": MUTED,
    "success": "$text-success",
    "warning": "$text-warning",
    "error": "$text-error",
    "": "",
}
LABEL_WIDTH = 9


class Facts(VerticalScroll, can_focus=False):
    """A panel of lines with a label and a value; long values wrap beside the label."""

    def __init__(self, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(**options)
        self._text = Static(markup=False)
        self._ascii = ascii_only
        self._lines: list[Line] = []
        self._title = ""
        self._drawn = 0

    def compose(self) -> ComposeResult:
        yield self._text

    def show_lines(self, title: str, lines: list[Line]) -> None:
        if title != self._title:
            self._title = title
            self.border_title = Content(self._fit(title))
        if lines != self._lines:
            self._lines = lines
            self._draw()

    def on_resize(self) -> None:
        self._draw()

    @property
    def _value_width(self) -> int:
        """Width of the values in cells."""
        return max(10, self.scrollable_content_region.width - LABEL_WIDTH)

    def _wrap(self, lines: Sequence[Line]) -> list[Content]:
        drawn: list[Content] = []
        for label, values in lines:
            parts = [(self._fit(text), STYLES[role]) for text, role in values]
            drawn += self._label([label], Content.assemble(*parts).wrap(self._value_width))
        return drawn

    def _label(self, labels: Sequence[str], pieces: Sequence[Content]) -> list[Content]:
        """Returns the pieces as lines, with the labels beside the first ones."""
        return [
            Content.styled(f"{head:<{LABEL_WIDTH}}", STYLES["muted"]) + piece
            for head, piece in zip_longest(labels[: len(pieces)], pieces, fillvalue="")
        ]

    def _draw(self) -> None:
        self._put(self._wrap(self._lines))

    def _put(self, drawn: list[Content]) -> None:
        # The screen needs a new layout only if the number of lines has changed.
        self._text.update(Content("\n").join(drawn), layout=len(drawn) != self._drawn)
        self._drawn = len(drawn)

    def _fit(self, text: str) -> str:
        return plain(text) if self._ascii else text


TCG_WARNING = "no security boundary"
TIPS = (
    ("new", "starts a sandbox from an image"),
    ("", "goes to the next part"),
    ("saves", "goes to the saves"),
    ("command", "takes commands"),
    ("help", "shows all keys"),
)
"""Actions and what they do, shown while there are no sandboxes; "" is Tab."""
TITLE_CELLS = 60


class Details(Facts):
    """The facts of the row under the cursor."""

    def show(self, world: World, selection: Selection) -> None:
        self.show_lines(*describe(world, selection))


def describe(world: World, selection: Selection) -> tuple[str, list[Line]]:
    """Returns a title and lines for the selection."""
    if selection.panel is Panel.IMAGES and selection.image is not None:
        return selection.image.name, _image_lines(selection.image, world)
    if selection.panel is Panel.SAVES and selection.save is not None:
        return clip(selection.save.name, TITLE_CELLS), describe_save(selection.save, world)
    if selection.panel is not Panel.SANDBOXES:
        return "Details", []
    return _describe_selected(world, selection)


def _describe_selected(world: World, selection: Selection) -> tuple[str, list[Line]]:
    checkpoint, sandbox = selection.checkpoint, selection.sandbox
    if checkpoint is not None and selection.in_tree:
        title = f"{clip(checkpoint.tag, TITLE_CELLS)}{' (automatic)' if checkpoint.auto else ''}"
        return title, describe_checkpoint(checkpoint, world.taken)
    if sandbox is not None:
        return sandbox.name, _sandbox_lines(sandbox, world)
    if world.loaded and not world.sandboxes:
        hint = world.keymap.hint
        return "Details", [(hint(id_) if id_ else "tab", [(does, "muted")]) for id_, does in TIPS]
    return "Details", []


def describe_checkpoint(checkpoint: CheckpointView, now: float) -> list[Line]:
    """Returns all facts of a checkpoint, with its age at ``now`` (Unix time)."""
    if checkpoint.error:
        return [("State", [("✗ broken", "error")]), ("Why", [(checkpoint.error, "error")])]
    age = "" if checkpoint.created is None else f"{age_text(now - checkpoint.created)} ago"
    pause = f" · stood still for {pause_text(checkpoint.pause_s)}" if checkpoint.has_memory else ""
    cost = f"{pause} · {size_text(checkpoint.written)} written"
    lines: list[Line] = [("Taken", [(age, ""), (cost, "muted")])]
    if checkpoint.auto:
        by = "a revert" if checkpoint.has_memory else "a start at a checkpoint"
        lines.append(("By", [(f"{by}, so that it can be undone", "")]))
    if checkpoint.pinned:
        lines.append(("Pinned", [("it cannot be deleted", "")]))
    if checkpoint.own is not None:
        shared = (
            f" · {size_text(checkpoint.shared)} shared with others" if checkpoint.shared else ""
        )
        lines.append(("Size", [(f"{size_text(checkpoint.own)} its own", ""), (shared, "muted")]))
    if checkpoint.note:
        lines.append(("Note", [(checkpoint.note, "")]))
    if clip(checkpoint.tag, TITLE_CELLS) != checkpoint.tag:
        lines.append(("Tag", [(checkpoint.tag, "")]))  # the title has no room for it
    if checkpoint.tier_note:
        lines.append(("Tier", [(f"{checkpoint.tier}: {checkpoint.tier_note}", "warning")]))
    return lines


def _sandbox_lines(view: SandboxView, world: World) -> list[Line]:
    lines: list[Line] = [("State", _state_parts(view, world))]
    if view.error:
        lines.append(("Why", [(view.error, "error")]))
    if view.accel:
        slow = view.accel == "tcg"
        parts: list[Words] = [(view.accel.upper(), "warning" if slow else "success")]
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
        network: list[Words] = [(view.network.replace("_", " "), "")]
        network += [(f" · 127.0.0.1:{host} → {guest}", "") for host, guest in view.ports]
        lines.append(("Network", network))
    lines += _mount_lines(view)
    lines += _tree_lines(view, world)
    age = "" if view.created is None else f" · {age_text(world.taken - view.created)} old"
    kept = " · removed when it stops" if view.discard else ""
    if not view.id.startswith("new:"):
        lines.append(("Id", [(view.id if view.id.isalnum() else "?", ""), (age + kept, "muted")]))
    if view.accel_reason:
        # Last, because it is long and always the same.
        lines.append(("Why " + view.accel.upper(), [(view.accel_reason, "muted")]))
    return lines


def _mount_lines(view: SandboxView) -> list[Line]:
    if not view.mounts:
        return []
    lines = [line for mount in view.mounts for line in (mount_words(mount), told_words(mount))]
    shown = [line for line in lines if line]
    return list(zip(["Mounts", *[""] * (len(shown) - 1)], shown, strict=True))


def _tree_lines(view: SandboxView, world: World) -> list[Line]:
    """Returns a summary of the sandbox's checkpoints."""
    tree = view.tree
    if tree.error:
        return [("Tree", [(f"its position is unknown: {tree.error}", "error")])]
    if view.state is State.BROKEN or view.id.startswith("new:"):
        return []
    if tree.checkpoints:
        return [("Tree", _tree_parts(tree))]
    key = world.keymap.hint("checkpoint")
    when = "" if view.is_live else " while it runs"
    return [("Tree", [(f"none yet: {key} takes one{when}", "muted")])]


def _tree_parts(tree: CheckpointTree) -> list[Words]:
    count = len(tree.checkpoints)
    parts: list[Words] = [(f"{count} checkpoint{'s' if count != 1 else ''}", "")]
    if (head := tree.find(tree.head)) is not None:
        parts.append((f" · on {clip(head.tag, TITLE_CELLS)}", "muted"))
        if tree.changed is not None:
            since = f"{size_text(tree.changed)} written since" if tree.changed else "disk unchanged"
            parts.append((f" · {since}", "muted"))
    return parts


def _use(view: SandboxView) -> str:
    """Returns what it uses of the host, which a narrow table has no columns for."""
    parts = []
    if view.cpu_percent is not None and view.is_live:
        parts.append(f"{percent_text(view.cpu_percent)} CPU")
    if view.memory_used is not None:
        parts.append(f"{size_text(view.memory_used)} RAM")
    if view.disk is not None:
        parts.append(f"{size_text(view.disk)} disk")
    return " · ".join(parts)


def _state_parts(view: SandboxView, world: World) -> list[Words]:
    parts: list[Words] = [(state_text(view.state), ROLES[view.state])]
    job = world.job(view.id)
    if job is not None:
        doing = "cancelling" if job.cancelling else job.progress
        parts.append((f" · {doing}" if doing else "", ""))
        parts.append((f" · {age_text(world.taken - job.started)}", "muted"))
        if view.state is State.STARTING and not job.cancelling:
            parts.append((f" · {world.keymap.hint('cancel')} cancels", "muted"))
    elif view.state is State.PAUSED:
        parts.append((f" · {world.keymap.hint('pause')} lets it go on", "muted"))
    elif view.started is not None:
        parts.append((f" for {age_text(world.taken - view.started)}", ""))
    return parts


def _image_lines(image: ImageView, world: World) -> list[Line]:
    if image.error:
        return [
            ("State", [("✗ broken", "error")]),
            ("Why", [(image.error, "error")]),
        ]
    if not image.is_built:
        return [
            ("State", [("not built yet", "")]),
            ("", [("enter starts a sandbox from it: the first builds it", "muted")]),
        ]
    age = "" if image.created is None else f"{age_text(world.taken - image.created)} old"
    build = " · ".join(part for part in (image.version, image.arch, age) if part)
    users = sum(1 for view in world.sandboxes if view.image == image.name)
    return [
        ("Image", [(build or "–", "")]),
        ("Size", [(f"{size_text(image.size)} on disk", "")]),
        ("From", [("the store" if image.source == "store" else f"a {image.source}", "")]),
        ("Used by", [(f"{users} sandbox{'es' if users != 1 else ''}", "muted")]),
        ("", [("enter starts a sandbox from it", "muted")]),
    ]
