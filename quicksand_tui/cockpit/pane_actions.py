"""The actions of the keys after the prefix, on the panes of a sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on

from quicksand_tui.actions.all_actions import Scope
from quicksand_tui.cockpit.part import PrefixedPart
from quicksand_tui.kit.base import tell
from quicksand_tui.panes.content import LinkState
from quicksand_tui.panes.messages import PaneAsksToPaste, PaneCopied
from quicksand_tui.panes.splits import Side, Way
from quicksand_tui.views import losses

if TYPE_CHECKING:
    from quicksand_tui.cockpit.part import Confirm
    from quicksand_tui.panes.pane import Pane
    from quicksand_tui.panes.workspace import Workspace


class PaneActions(PrefixedPart):
    """Arranges, copies from and pastes into the panes of the visible workspace."""

    scope = Scope.PANES
    _confirm: Confirm

    @property
    def workspace(self) -> Workspace | None:
        """The visible workspace."""
        raise NotImplementedError

    @property
    def pane(self) -> Pane | None:
        """The pane that has the focus, or had it last."""
        raise NotImplementedError

    def _behind_prefix(self, action_id: str) -> str:
        """Returns the prefix and the key of an action."""
        key = self._app_keys.map.hint(action_id, Scope.PANES.value)
        return f"{self._app_keys.prefix.text} {key}"

    @on(PaneCopied)
    def _copied(self, event: PaneCopied) -> None:
        event.stop()
        tell(self, f"Copied {event.size}; {self._behind_prefix('paste')} pastes")

    @on(PaneAsksToPaste)
    def _ask_before_paste(self, event: PaneAsksToPaste) -> None:
        event.stop()
        self._confirm(
            f"Paste {len(event.text.splitlines())} lines?",
            losses.of_paste(event.text),
            "Paste",
            lambda: event.pane.paste_now(event.text),
            undo="This program cannot tell pasted lines from typed ones: a shell runs each.",
        )

    # Actions, by the registry's ids

    def do_split_beside(self) -> None:
        self._split(Way.BESIDE)

    def do_split_below(self) -> None:
        self._split(Way.BELOW)

    def _split(self, way: Way) -> None:
        pane = self.pane
        if pane is not None and pane.status.state is LinkState.DELETED:
            tell(self, pane.status.text, severity="warning")
        elif self.workspace is not None and not self.workspace.split(way):
            tell(self, "There is no room for another pane here", severity="warning")

    def do_next(self) -> None:
        if self.workspace is not None:
            self.workspace.go_on()

    def do_before(self) -> None:
        if self.workspace is not None:
            self.workspace.go_on(-1)

    def do_go_left(self) -> None:
        self._go(Side.LEFT)

    def do_go_right(self) -> None:
        self._go(Side.RIGHT)

    def do_go_up(self) -> None:
        self._go(Side.UP)

    def do_go_down(self) -> None:
        self._go(Side.DOWN)

    def _go(self, side: Side) -> None:
        if self.workspace is not None:
            self.workspace.go(side)

    def do_line_left(self) -> None:
        self._move_line(Side.LEFT)

    def do_line_right(self) -> None:
        self._move_line(Side.RIGHT)

    def do_line_up(self) -> None:
        self._move_line(Side.UP)

    def do_line_down(self) -> None:
        self._move_line(Side.DOWN)

    def _move_line(self, side: Side) -> None:
        if self.workspace is not None:
            self.workspace.move_line(side)

    def do_copy_mode(self) -> None:
        if (pane := self.pane) is not None:
            pane.copying.begin()

    def do_page_back(self) -> None:
        if (pane := self.pane) is not None:
            pane.copying.begin(by_mouse=True).press("pageup")
            pane.copying.changed()

    def do_paste(self) -> None:
        if (pane := self.pane) is None:
            return
        if self.app.clipboard:
            pane.paste(self.app.clipboard)
        else:
            tell(
                self,
                f"Nothing was copied yet: {self._behind_prefix('copy_mode')} and v, "
                "or drag with the mouse",
            )

    def do_swap_before(self) -> None:
        if self.workspace is not None:
            self.workspace.swap(-1)

    def do_swap_next(self) -> None:
        if self.workspace is not None:
            self.workspace.swap(1)

    def do_even(self) -> None:
        if self.workspace is not None:
            self.workspace.even_out()

    def do_broadcast(self) -> None:
        if self.workspace is not None:
            self.workspace.toggle_broadcast()
