"""The screen at a checkpoint, as large as the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content

from quicksand_tui.cockpit.checkpoint_previews import ThenAndNow
from quicksand_tui.kit.base import Dialog
from quicksand_tui.model.text import plain

if TYPE_CHECKING:
    from quicksand_tui.door.service import EngineService
    from quicksand_tui.model.shown_sandboxes import CheckpointView, SandboxView


class LookScreen(Dialog[None]):
    """Shows the screen at a checkpoint beside the present one, or that of another checkpoint. Small
    terminals have no room for it below the checkpoint's facts."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,q,o,space", "leave", "close", show=False),
    ]

    def __init__(
        self,
        service: EngineService,
        sandbox: SandboxView,
        checkpoint: CheckpointView,
        compared: CheckpointView | None,
        *,
        ascii_only: bool,
    ) -> None:
        super().__init__()
        self._shown = (sandbox, checkpoint, compared)
        self._ascii = ascii_only
        self._screens = ThenAndNow(service, ascii_only=ascii_only)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="look") as box:
            title = f"{self._shown[0].name} · esc closes"
            box.border_title = Content(plain(title) if self._ascii else title)
            yield self._screens

    def on_mount(self) -> None:
        self._screens.show(*self._shown)
