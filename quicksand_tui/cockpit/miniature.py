"""A sandbox's small, live screen, below its overview."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand.things.status import HAS_MACHINE

from quicksand_tui.cockpit.desktop_view import DesktopView
from quicksand_tui.views.main_layout import Tab

if TYPE_CHECKING:
    from quicksand_tui.model.shown_sandboxes import SandboxView


class Miniature(DesktopView, can_focus=False):
    """Watches a screen without touching it, twice a second at most. Hidden, or below another
    screen of the app, it asks for no picture."""

    def show(self, sandbox: SandboxView | None) -> None:
        """Shows the screen of a sandbox; None hides it, and watches none."""
        shown = (
            sandbox is not None
            and sandbox.has_display
            and sandbox.state in HAS_MACHINE
            and not sandbox.away
        )
        self.display = shown
        self.watch_screen(sandbox.id if sandbox is not None and shown else "")
        self.adapt()

    def hide(self) -> None:
        self.show(None)

    @property
    def _only_watches(self) -> bool:
        return True

    def on_click(self) -> None:
        self.screen.call_later(self.screen.run_action, f"tab('{Tab.DESKTOP.value}')")
