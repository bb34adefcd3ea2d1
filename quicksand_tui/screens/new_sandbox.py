"""The form of a new sandbox: checked as one types, and shown as a command."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button, Input, Label, Static

from quicksand_tui.screens.base import Dialog
from quicksand_tui.snapshot import NewSpec, Snapshot
from quicksand_tui.spec import NETWORK_NOTES, NETWORKS, find_problems, run_command, suggest_name
from quicksand_tui.text import plain, size_text
from quicksand_tui.widgets.choice import Choice

FIELDS = ("image", "name", "memory", "cpus", "network")
LABELS = {"cpus": "CPUs"}


class NewSandboxScreen(Dialog[NewSpec]):
    """Gives a checked `NewSpec`, or None. Enter starts from any field."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "start", show=False, priority=True),
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
    ]

    def __init__(
        self, snapshot: Snapshot, *, image: str | None = None, ascii_only: bool = False
    ) -> None:
        super().__init__()
        self._snapshot = snapshot
        self._ascii = ascii_only
        images = [found.name for found in snapshot.usable_images]
        chosen = image if image in images else ("debian" if "debian" in images else None)
        self._images = images
        self._image = chosen or (images[0] if images else "")
        self._suggested = suggest_name(self._image, snapshot)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog wide") as box:
            box.border_title = Content("New sandbox")
            keys = "enter starts · esc leaves"
            box.border_subtitle = Content(plain(keys) if self._ascii else keys)
            for field in FIELDS:
                with Horizontal(classes="field"):
                    yield Label(LABELS.get(field, field.capitalize()))
                    yield self._make_input(field)
                    yield Static(markup=False, classes="problem", id=f"problem-{field}")
            yield Static(markup=False, id="command")
            with Horizontal(classes="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button("Start", id="start", variant="success", compact=True)

    def _make_input(self, field: str) -> Widget:
        options: dict[str, Any] = {"id": field}
        if field == "image":
            return Choice(self._images, value=self._image, ascii_only=self._ascii, **options)
        if field == "network":
            return Choice(NETWORKS, value=NETWORKS[0], ascii_only=self._ascii, **options)
        value = {"name": self._suggested, "memory": "512M", "cpus": "1"}[field]
        return Input(value, compact=True, max_length=63, **options)

    def on_mount(self) -> None:
        self.query_one("#name", Input).focus()
        self._check()

    @property
    def spec(self) -> NewSpec:
        """What is typed now."""
        return NewSpec(
            image=self.query_one("#image", Choice).value,
            name=self.query_one("#name", Input).value.strip(),
            memory=self.query_one("#memory", Input).value.strip(),
            cpus=self.query_one("#cpus", Input).value.strip(),
            network=self.query_one("#network", Choice).value,
        )

    def update_snapshot(self, snapshot: Snapshot) -> None:
        """The world has changed: a name may be taken now."""
        self._snapshot = snapshot
        if self.is_mounted:
            self._check()

    def on_input_changed(self) -> None:
        self._check()

    def on_choice_changed(self, event: Choice.Changed) -> None:
        name = self.query_one("#name", Input)
        if event.choice.id == "image" and name.value == self._suggested:
            self._suggested = name.value = suggest_name(event.choice.value, self._snapshot)
        self._check()

    def _check(self) -> dict[str, str]:
        """Show what is wrong and the command; return the problems."""
        spec = self.spec
        problems = find_problems(spec, self._snapshot)
        for field in FIELDS:
            remark = self._remark(field, spec)
            shown = problems.get(field, remark)
            label = self.query_one(f"#problem-{field}", Static)
            label.update(Content(plain(shown) if self._ascii else shown))
            label.set_class(field not in problems, "-remark")
        command = Content.assemble(("$ ", ""), run_command(spec))
        self.query_one("#command", Static).update(command)
        self.query_one("#start", Button).disabled = bool(problems)
        return problems

    def _remark(self, field: str, spec: NewSpec) -> str:
        if field == "network":
            return NETWORK_NOTES.get(spec.network, "")
        free = self._snapshot.host.memory_free
        if field == "memory" and free is not None:
            return f"{size_text(free)} free"
        return ""

    def action_submit(self) -> None:
        if self.focused is not None and self.focused.id == "cancel":
            self.dismiss(None)
            return
        problems = self._check()
        for field in FIELDS:
            if field in problems:
                self.query_one(f"#{field}").focus()
                self.notify(f"{field}: {problems[field]}", severity="warning", markup=False)
                return
        self.dismiss(self.spec)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        if event.button.id == "cancel":
            self.dismiss(None)
        else:
            self.action_submit()
