"""Commands that do the same as what the user does in the app, or could do with what is selected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quicksand_tui.actions.commands import command_about, command_line
from quicksand_tui.model.sandboxes import State
from quicksand_tui.model.world import Panel
from quicksand_tui.views.layout import Tab

if TYPE_CHECKING:
    from quicksand_tui.model.checkpoints import CheckpointView
    from quicksand_tui.model.sandboxes import MountView, SandboxView
    from quicksand_tui.model.saves import SaveView, TrashedView
    from quicksand_tui.model.specs import (
        CheckpointSpec,
        CloneSpec,
        ExportSpec,
        ImportSpec,
        MountSpec,
        SaveSpec,
    )
    from quicksand_tui.model.world import Selection


@dataclass(frozen=True, slots=True)
class CommandRecord:
    """A line of the command log: the command that does the same as an action."""

    command: str
    outcome: str = "running"
    """ "running", "done", "failed" or "cancelled"."""
    seconds: float | None = None
    about: frozenset[str] = frozenset()
    """The ids of the sandboxes that it is about; none if it is about saves or images."""


ENTER = "as enter does"
SHOWS = "shows the same"


@dataclass(frozen=True, slots=True)
class CommandHint:
    """A command, and how it relates to what is on the screen."""

    command: str
    about: str = SHOWS


LISTS = {
    Panel.SANDBOXES: CommandHint(command_line("ps", everything=True)),
    Panel.SAVES: CommandHint(command_line("saves")),
    Panel.IMAGES: CommandHint(command_line("images")),
}

OPENED_BY = {
    State.RUNNING: "shell",
    State.PAUSED: "resume",
    State.STOPPED: "start",
    State.CRASHED: "start",
}
"""The verbs that do what Enter does, by state."""


def hint_for(selection: Selection, tab: Tab | None = None) -> CommandHint:
    """Returns the command for what is selected. ``tab`` is that of the main area if it has the
    focus."""
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
                found = CommandHint(command_line("logs", follow=True, name=sandbox.name))
            elif tab is Tab.DESKTOP and sandbox.has_display:
                found = CommandHint(command_line("view", name=sandbox.name))
            elif tab is Tab.STATS:
                found = CommandHint(command_line("stats", names=[sandbox.name]))
            elif tab is Tab.MOUNTS:
                found = CommandHint(command_line("mounts", names=[sandbox.name]))
            elif sandbox.state in OPENED_BY:
                found = _enter(command_about(OPENED_BY[sandbox.state], sandbox.name))
    return found or LISTS[selection.panel]


def _enter(command: str) -> CommandHint:
    return CommandHint(command, ENTER)


def _checkpoint_hint(sandbox: SandboxView, checkpoint: CheckpointView | None) -> CommandHint:
    if checkpoint is None:
        return CommandHint(command_line("tree", name=sandbox.name))
    if sandbox.state in (State.RUNNING, State.PAUSED):
        return _enter(command_line("revert", name=sandbox.name, tag=checkpoint.name))
    return _enter(command_line("start", names=[sandbox.name], at=checkpoint.name))


def save_hint(save: SaveView) -> CommandHint:
    return _enter(command_line("run", image=save.address))


def trash_hint(trashed: TrashedView) -> CommandHint:
    return _enter(command_line("restore", name=trashed.id))


def checkpoint_command(sandbox: str, spec: CheckpointSpec) -> str:
    return command_line("checkpoint", name=sandbox, note=spec.note, tag=spec.tag)


def clone_command(sandbox: str, spec: CloneSpec, checkpoint: CheckpointView | None = None) -> str:
    """Returns the command that makes clones: of ``checkpoint``, or of the present for None."""
    count = spec.count if spec.count != 1 else None
    at = checkpoint.name if checkpoint is not None else None
    return command_line("clone", name=sandbox, count=count, at=at, mounts=spec.mounts)


def mount_command(sandbox: str, spec: MountSpec) -> str:
    mode = ":ro" if spec.readonly else ":protect" if spec.protect else ""
    where = f"{spec.host or 'HOST'}:{spec.guest or 'GUEST'}{mode}"
    return command_line("mount", name=sandbox, mount=where)


def unmount_command(sandbox: str, mount: MountView, *, force: bool) -> str:
    return command_line("unmount", force=force, name=sandbox, guest=mount.guest)


def save_command(sandbox: str, spec: SaveSpec) -> str:
    return command_line(
        "save", name=sandbox, note=spec.note, compress=spec.compress, save=spec.name or "SAVE"
    )


def export_command(save: SaveView, spec: ExportSpec) -> str:
    return command_line(
        "export",
        full=spec.full,
        compress=spec.compress,
        name=save.address,
        file=spec.file or "FILE",
    )


def import_command(spec: ImportSpec) -> str:
    return command_line("import", name=spec.name, file=spec.file or "FILE")


def verify_command(saves: Sequence[SaveView], *, deep: bool) -> str:
    return command_line("saves verify", deep=deep, names=[save.address for save in saves])


def discard_command(saves: Sequence[SaveView], *, now: bool) -> str:
    return command_line("saves rm", now=now, names=[save.address for save in saves])


def restore_command(trashed: TrashedView, name: str = "") -> str:
    return command_line("restore", new_name=name, name=trashed.id)


def purge_command(trash: Sequence[TrashedView]) -> str:
    return command_line("trash", empty=True, ids=[found.id for found in trash])
