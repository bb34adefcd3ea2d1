"""What there is to know about the selected sandbox or image."""

from __future__ import annotations

from typing import Any

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from quicksand_tui.snapshot import ImageView, Panel, SandboxView, Selection, Snapshot, State
from quicksand_tui.text import age_text, percent_text, plain, size_text
from quicksand_tui.view import MUTED, ROLES, state_text

TCG_WARNING = "no security boundary"
STYLES = {
    "muted": MUTED,
    "success": "$text-success",
    "warning": "$text-warning",
    "error": "$text-error",
    "": "",
}
LABEL_WIDTH = 9
TIPS = (
    ("n", "starts a sandbox from an image"),
    ("tab", "goes to the images"),
    (":", "searches all actions"),
    ("?", "shows all keys"),
)
"""Shown while there is nothing else to tell."""

Part = tuple[str, str]
"""A text and its role."""


class Details(VerticalScroll, can_focus=False):
    """A framed column of labelled lines."""

    def __init__(self, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(**options)
        self._text = Static(markup=False)
        self._ascii = ascii_only
        self._lines: list[tuple[str, list[Part]]] = []
        self._title = ""
        self._drawn = 0
        """How many lines are shown."""

    def compose(self) -> ComposeResult:
        yield self._text

    def show(self, snapshot: Snapshot, selection: Selection) -> None:
        title, lines = describe(snapshot, selection)
        if title != self._title:
            self._title = title
            self.border_title = Content(self._fit(title))
        if lines != self._lines:
            self._lines = lines
            self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        """Wrap the values beside their labels."""
        width = max(10, self.scrollable_content_region.width - LABEL_WIDTH)
        drawn: list[Content] = []
        for label, values in self._lines:
            parts = [(self._fit(text), STYLES[role]) for text, role in values]
            for number, piece in enumerate(Content.assemble(*parts).wrap(width)):
                head = label if number == 0 else ""
                drawn.append(Content.styled(f"{head:<{LABEL_WIDTH}}", STYLES["muted"]) + piece)
        # A layout of the whole screen is only needed for another number of lines.
        self._text.update(Content("\n").join(drawn), layout=len(drawn) != self._drawn)
        self._drawn = len(drawn)

    def _fit(self, text: str) -> str:
        return plain(text) if self._ascii else text


def describe(snapshot: Snapshot, selection: Selection) -> tuple[str, list[tuple[str, list[Part]]]]:
    """A title, and lines of a label and parts."""
    if selection.panel is Panel.IMAGES and selection.image is not None:
        return selection.image.name, _image_lines(selection.image, snapshot)
    if selection.sandbox is not None:
        return selection.sandbox.name, _sandbox_lines(selection.sandbox, snapshot)
    if snapshot.loaded and not snapshot.sandboxes:
        return "Details", [(key, [(meaning, "muted")]) for key, meaning in TIPS]
    return "Details", []


def _sandbox_lines(view: SandboxView, snapshot: Snapshot) -> list[tuple[str, list[Part]]]:
    lines: list[tuple[str, list[Part]]] = [("State", _state_parts(view, snapshot))]
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
    age = "" if view.created is None else f" · {age_text(snapshot.taken - view.created)} old"
    kept = " · removed when it stops" if view.discard else ""
    if not view.id.startswith("new:"):
        lines.append(("Id", [(view.id if view.id.isalnum() else "?", ""), (age + kept, "muted")]))
    if view.accel_reason:
        # Last, as it is long and always the same.
        lines.append(("Why " + view.accel.upper(), [(view.accel_reason, "muted")]))
    return lines


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
            parts.append((" · c cancels", "muted"))
    elif view.state is State.PAUSED:
        parts.append((" · P lets it go on", "muted"))
    elif view.started is not None:
        parts.append((f" for {age_text(snapshot.taken - view.started)}", ""))
    return parts


def _image_lines(image: ImageView, snapshot: Snapshot) -> list[tuple[str, list[Part]]]:
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
