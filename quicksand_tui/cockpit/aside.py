"""The third column of a wide terminal: what has changed, and the last events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult
from textual.containers import Vertical

from quicksand_tui.widgets.details import Happened

if TYPE_CHECKING:
    from quicksand_tui.model.shown_sandboxes import Known, SandboxView
    from quicksand_tui.model.world import World


class Aside(Vertical):
    """Shows facts that do not change with the tab. It takes no focus."""

    def __init__(self, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(**options)
        self.happened = Happened(ascii_only=ascii_only, id="happened")

    def compose(self) -> ComposeResult:
        yield self.happened

    def show(self, world: World, sandbox: SandboxView | None, known: Known) -> None:
        self.happened.show(world, sandbox, known)
