"""The part below the overview: what going back to a checkpoint loses, screens of checkpoints, and
the screen as it is now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.cockpit import lazy_tabs
from quicksand_tui.model.world import Panel

if TYPE_CHECKING:
    from textual.widget import Widget

    from quicksand_tui.cockpit.miniature import Miniature
    from quicksand_tui.cockpit.revert_preview import Choice
    from quicksand_tui.cockpit.then_and_now import ThenAndNow
    from quicksand_tui.door.service import EngineService
    from quicksand_tui.home.config_file import Settings
    from quicksand_tui.kit.outer_terminal import OuterTerminal
    from quicksand_tui.model.losing import Losing
    from quicksand_tui.model.shown_sandboxes import Glance, Known
    from quicksand_tui.model.world import Selection, World

CHOICE_ROWS_MIN, SCREENS_ROWS_MIN, MINIATURE_ROWS_MIN = 14, 16, 26
"""Rows of the area below which the facts have all of it."""


class Below:
    """Mounts each of the parts below the overview when it is first needed."""

    def __init__(
        self,
        area: Widget,
        details: Widget,
        service: EngineService,
        settings: Settings,
        terminal: OuterTerminal,
        *,
        ascii_only: bool,
    ) -> None:
        self._area = area
        self._details = details
        self._service = service
        self._settings = settings
        self._terminal = terminal
        self._ascii = ascii_only
        self._choice: Choice | None = None
        self._screens: ThenAndNow | None = None
        self._miniature: Miniature | None = None

    def show(self, world: World, selection: Selection, known: Known, *, has_live: bool) -> None:
        """Shows the parts that belong to the selection; ``known`` is about its sandbox.
        ``has_live`` says whether its screen may be watched already."""
        self._show_choice(world, selection)
        self._show_screens(selection)
        self._show_miniature(selection, known, may=has_live)

    def hide(self) -> None:
        for part in (self._choice, self._screens, self._miniature):
            if part is not None:
                part.hide()

    def adapt(self) -> None:
        """Follows other screens that lie over this one now, or no longer."""
        if self._miniature is not None:
            self._miniature.adapt()

    def _show_choice(self, world: World, selection: Selection) -> None:
        """Shows the losses of going back to the selected checkpoint."""
        checkpoint = selection.checkpoint if selection.in_tree else None
        if self._choice is None:
            if checkpoint is None:
                return
            self._choice = lazy_tabs.Choice(
                self._ask_losing, self._ask_shell, ascii_only=self._ascii, id="choice"
            )
            self._area.mount(self._choice, after=self._details)
        has_room = self._area.size.height >= CHOICE_ROWS_MIN
        self._choice.show(world, selection.sandbox, checkpoint if has_room else None)

    async def _ask_losing(self, sandbox_id: str, checkpoint: str) -> Losing:
        return await self._service.ask(
            "It is not known", lambda engine: engine.losing(sandbox_id, checkpoint)
        )

    async def _ask_shell(self, sandbox_id: str, checkpoint: str) -> Glance | None:
        return await self._service.ask(
            "It is not known", lambda engine: engine.shell_then(sandbox_id, checkpoint)
        )

    def _show_screens(self, selection: Selection) -> None:
        """Shows the screen at the selected checkpoint beside that of another one or the present."""
        checkpoint = selection.checkpoint if selection.in_tree else None
        sandbox = selection.sandbox
        has_room = self._area.size.height >= SCREENS_ROWS_MIN
        if self._screens is None:
            if checkpoint is None or sandbox is None or not (sandbox.has_display and has_room):
                return
            self._screens = lazy_tabs.ThenAndNow(
                self._service, ascii_only=self._ascii, id="screens"
            )
            self._area.mount(self._screens)
        self._screens.show(sandbox, checkpoint if has_room else None, selection.compared)

    def _show_miniature(self, selection: Selection, known: Known, *, may: bool) -> None:
        """Shows the screen of a sandbox without an open shell (a shell's lines would replace
        it)."""
        sandbox = selection.sandbox
        wanted = (
            may
            and sandbox is not None
            and sandbox.has_display
            and selection.panel is Panel.SANDBOXES
            and not selection.in_tree
            and known.glance is None
            and self._area.size.height >= MINIATURE_ROWS_MIN
        )
        if self._miniature is None:
            if not wanted:
                return
            self._miniature = lazy_tabs.Miniature(
                self._service,
                self._settings,
                self._terminal,
                ascii_only=self._ascii,
                id="miniature",
            )
            self._miniature.border_title = "Desktop"
            self._area.mount(self._miniature, after=self._details)
        self._miniature.show(sandbox if wanted else None)
