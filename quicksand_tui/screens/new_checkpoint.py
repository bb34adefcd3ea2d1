"""The form of a checkpoint: a tag and a note, both may stay empty."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Input, Label, Static

from quicksand_tui.screens.base import Dialog
from quicksand_tui.snapshot import CheckpointSpec, SandboxView, Snapshot
from quicksand_tui.spec import checkpoint_command, find_tag_problem
from quicksand_tui.text import plain

TAG_MAX, NOTE_MAX = 128, 500
FIELDS = (("tag", "without one it is numbered", TAG_MAX), ("note", "what it is", NOTE_MAX))


class NewCheckpointScreen(Dialog[CheckpointSpec]):
    """Gives a checked `CheckpointSpec`, or None. Enter takes it from any field."""

    CSS_PATH = "dialogs.tcss"
    # No binding of Enter with priority: it would overtake letters that an input has yet to take.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
    ]

    def __init__(self, sandbox: SandboxView, *, ascii_only: bool = False) -> None:
        super().__init__()
        self._sandbox = sandbox
        self._ascii = ascii_only

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = self._text(f"Checkpoint of {self._sandbox.name}")
            box.border_subtitle = self._text("enter takes it · esc leaves")
            for field, hint, limit in FIELDS:
                with Horizontal(classes="field whole"):
                    yield Label(field.capitalize())
                    yield Input(placeholder=hint, compact=True, max_length=limit, id=field)
                if field == "tag":
                    yield Static(markup=False, id="tag-problem")
            yield Static(markup=False, id="command")
            with Horizontal(classes="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button("Take it", id="take", variant="success", compact=True)

    def on_mount(self) -> None:
        self.query_one("#tag", Input).focus()
        self._check()

    def _text(self, text: str) -> Content:
        return Content(plain(text) if self._ascii else text)

    @property
    def spec(self) -> CheckpointSpec:
        """What is typed now."""
        return CheckpointSpec(
            tag=self.query_one("#tag", Input).value.strip(),
            note=self.query_one("#note", Input).value.strip(),
        )

    def update_snapshot(self, snapshot: Snapshot) -> None:
        """The world has changed: a tag may be taken now."""
        self._sandbox = snapshot.sandbox(self._sandbox.id) or self._sandbox
        if self.is_mounted:
            self._check()

    def on_input_changed(self) -> None:
        self._check()

    def _check(self) -> str:
        """Show what is wrong and the command; return the problem."""
        spec = self.spec
        problem = find_tag_problem(spec.tag, self._sandbox.past)
        shown = self.query_one("#tag-problem", Static)
        shown.update(self._text(problem))
        shown.display = bool(problem)
        command = f"$ {checkpoint_command(self._sandbox.name, spec)}"
        self.query_one("#command", Static).update(self._text(command))
        self.query_one("#take", Button).disabled = bool(problem)
        return problem

    def on_input_submitted(self) -> None:
        if self._check():
            self.query_one("#tag", Input).focus()
        else:
            self.dismiss(self.spec)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        if event.button.id == "cancel":
            self.dismiss(None)
        else:
            self.on_input_submitted()
