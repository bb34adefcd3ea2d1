"""Carries out the actions of the tree of checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand.things.status import HAS_MACHINE

from quicksand_tui.actions.all_actions import Scope, find_action
from quicksand_tui.kit.doing import Doer
from quicksand_tui.kit.toasts import tell
from quicksand_tui.model.text import clip
from quicksand_tui.model.world import Selection
from quicksand_tui.verbs import checkpoints, launching
from quicksand_tui.views import losses
from quicksand_tui.views.main_layout import Tab

if TYPE_CHECKING:
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.base import ActionScreen
    from quicksand_tui.model.shown_sandboxes import CheckpointView, SandboxView
    from quicksand_tui.screens.dialogs import Dialogs
    from quicksand_tui.screens.navigation import Places

TITLE_CELLS = 30


class TreeActions(Doer):
    """Carries out the actions of `Scope.TREE`; the caller checks that they are possible."""

    scope = Scope.TREE

    def __init__(
        self, screen: ActionScreen, places: Places, operations: Operations, dialogs: Dialogs
    ) -> None:
        self._screen = screen
        self._places = places
        self._begin = operations
        self._dialogs = dialogs

    @property
    def _chosen(self) -> tuple[SandboxView, CheckpointView]:
        selection = self._screen.selection
        assert selection.sandbox is not None
        assert selection.checkpoint is not None
        return selection.sandbox, selection.checkpoint

    def do_go(self) -> None:
        """Goes back without asking, as the present state is kept; starts a stopped sandbox
        there."""
        sandbox, checkpoint = self._chosen
        if sandbox.state in HAS_MACHINE:
            self._begin.do(checkpoints.revert(checkpoint.named), sandbox)
            self._places.come_back()
            return
        reason = find_action("start").disabled_reason(
            self._screen.world, Selection(sandbox=sandbox)
        )
        if reason is not None:
            tell(self._screen, reason, severity="warning")
            return
        self._begin.do(launching.start(at=checkpoint.named), sandbox)

    def do_ask(self) -> None:
        """Asks before going back: `u` opens the tree, and may come twice."""
        self._dialogs.ask_to_return(*self._chosen, then=self.do_go)

    def do_remove(self) -> None:
        sandbox, checkpoint = self._chosen
        self._dialogs.confirm(
            f"Delete the checkpoint {clip(checkpoint.tag, TITLE_CELLS)}?",
            losses.of_checkpoint(sandbox, checkpoint, self._screen.world.taken),
            "Delete",
            lambda: self._begin.do(checkpoints.remove(checkpoint.named), sandbox),
        )

    def do_diff(self) -> None:
        sandbox, checkpoint = self._chosen
        marked = self._places.checkpoints.compared_of(sandbox)
        self._dialogs.open_diff(sandbox, checkpoint, marked, self._screen.handlers_of(Scope.MAIN))

    def do_compare(self) -> None:
        sandbox, checkpoint = self._chosen
        self._places.checkpoints.compare(checkpoint)
        if sandbox.has_display and self._places.area.tab not in (Tab.DETAILS, Tab.TREE):
            self._places.choose_tab(Tab.DETAILS)  # where the screens are

    def do_look(self) -> None:
        sandbox, checkpoint = self._chosen
        compared = self._places.checkpoints.compared_of(sandbox)
        self._dialogs.show_screens(sandbox, checkpoint, compared)

    def do_clone(self) -> None:
        sandbox, checkpoint = self._chosen
        about = f"{sandbox.name} at {checkpoint.tag}"
        self._dialogs.do_verb(launching.clone, sandbox, given={"at": checkpoint.named}, about=about)

    def do_note(self) -> None:
        sandbox, checkpoint = self._chosen
        self._dialogs.do_verb(
            checkpoints.write_note,
            sandbox,
            given={"tag": checkpoint.named},
            first={"note": checkpoint.note},
            about=checkpoint.tag,
        )

    def do_pin(self) -> None:
        sandbox, checkpoint = self._chosen
        verb = checkpoints.unpin if checkpoint.pinned else checkpoints.pin
        self._begin.do(verb(checkpoint.named), sandbox)

    def do_copy(self) -> None:
        _, checkpoint = self._chosen
        self._screen.app.copy_to_clipboard(checkpoint.name)
        tell(
            self._screen, f"Copied {clip(checkpoint.name, TITLE_CELLS)}, if the terminal allows it"
        )
