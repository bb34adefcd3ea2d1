"""The commands that show the selection, or do the same as Enter does there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand.things.frozen import frozen
from quicksand.things.status import HAS_MACHINE, Status

from quicksand_tui.model.world import Panel
from quicksand_tui.verbs import checkpoints, launching, saves
from quicksand_tui.verbs.call import command_about, command_line, command_words, shown_command
from quicksand_tui.views.main_layout import Tab

if TYPE_CHECKING:
    from quicksand.things.save import SaveFacts, TrashFacts

    from quicksand_tui.model.shown_sandboxes import CheckpointView, SandboxView
    from quicksand_tui.model.world import Selection


ENTER = "same as enter"
SHOWS = "as a command"


@frozen(kw_only=False)
class CommandHint:
    """A command, and its relation to the contents of the screen."""

    command: str
    about: str = SHOWS


LISTS = {
    Panel.SANDBOXES: CommandHint(command_line("ps", everything=True)),
    Panel.SAVES: CommandHint(command_line("saves")),
    Panel.IMAGES: CommandHint(command_line("images")),
}

OPENED_BY = {
    Status.RUNNING: "shell",
    Status.PAUSED: "resume",
    Status.STOPPED: "start",
    Status.CRASHED: "start",
}
"""The verbs that do what Enter does, by state."""


def hint_for(selection: Selection, tab: Tab | None = None) -> CommandHint:
    """Returns the command for the selection. ``tab`` is the main area's if that has the focus."""
    found: CommandHint | None = None
    match selection.panel:
        case Panel.IMAGES if selection.image is not None and not selection.image.error:
            found = _enter(command_line("run", image=selection.image.name))
        case Panel.SAVES if selection.save is not None and not selection.save.trouble:
            found = save_hint(selection.save)
        case Panel.SANDBOXES if (sandbox := selection.sandbox) is not None:
            if selection.in_tree:
                found = _checkpoint_hint(sandbox, selection.checkpoint)
            elif tab is Tab.LOG:
                found = CommandHint(command_about("logs", sandbox.name, "follow"))
            elif tab is Tab.DESKTOP and sandbox.has_display:
                found = CommandHint(command_about("view", sandbox.name))
            elif tab is Tab.STATS:
                found = CommandHint(command_about("stats", sandbox.name))
            elif tab is Tab.MOUNTS:
                found = CommandHint(command_about("mounts", sandbox.name))
            elif sandbox.state in OPENED_BY:
                found = _enter(command_about(OPENED_BY[sandbox.state], sandbox.name))
    return found or LISTS[selection.panel]


def _enter(command: str) -> CommandHint:
    return CommandHint(command, ENTER)


def _checkpoint_hint(sandbox: SandboxView, checkpoint: CheckpointView | None) -> CommandHint:
    if checkpoint is None:
        return CommandHint(command_about("tree", sandbox.name))
    is_live = sandbox.state in HAS_MACHINE
    at = checkpoint.named
    call = checkpoints.revert(at) if is_live else launching.start(at=at)
    return _enter(call.command_for(sandbox.name))


def save_hint(save: SaveFacts) -> CommandHint:
    return _enter(shown_command(command_words("run", image=save.address), save.host))


def trash_hint(trashed: TrashFacts) -> CommandHint:
    verb = saves.bring_back([], shown=trashed.id, host=trashed.host)
    return _enter(verb.command_for())
