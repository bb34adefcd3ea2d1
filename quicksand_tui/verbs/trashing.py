"""The verbs that move sandboxes to the trash, and bring them back: `rm`, `trash`, `restore`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from quicksand_tui.model.jobs import JobVerb
from quicksand_tui.model.shown_sandboxes import RemovedView, at_host
from quicksand_tui.model.text import sanitise
from quicksand_tui.verbs import lazy_engine
from quicksand_tui.verbs.call import Call, Progress, Report, things_of
from quicksand_tui.verbs.launching import NAME_LIMIT, let_go_on
from quicksand_tui.verbs.parameters import EMPTY, JSON, MAYBE_SANDBOXES, NEW_NAME, NOW
from quicksand_tui.verbs.verb import Kind, argument, command, flag

if TYPE_CHECKING:
    from quicksand.hosted.remote_host import RemoteHost
    from quicksand.records.trash import RemovedSandbox

    from quicksand_tui.model.keymap import Keymap


# fmt: off
RM = command("rm", ".keeping.saves_trash",
    "Move sandboxes to the trash, which keeps them for a week.",
    MAYBE_SANDBOXES,
    flag("--force -f", "End running sandboxes first."),
    NOW,
    flag("--all-stopped", "Remove all stopped and crashed sandboxes."))

TRASH = command("trash", ".keeping.saves_trash", "List the trash: removed sandboxes and saves.",
    argument("ids", Kind.TRASHED, "[ID]...", repeatable=True, required=False),
    EMPTY, JSON,
    reads=True)

RESTORE = command("restore", ".keeping.saves_trash", "Restore a sandbox or a save from the trash.",
    argument("name", Kind.TRASHED, "NAME"),
    NEW_NAME,
    flag("--start", "Start it; one that was running continues where it was."))
# fmt: on


def remove(
    *, stop: bool = False, now: bool = False, forced: bool = False, why: str = ""
) -> Call[RemovedSandbox]:
    """Moves a sandbox to the trash, or removes it for good with ``now``; one that is marked
    ``discard`` goes for good in any case. With ``stop`` a running one is ended first, and its state
    kept in a checkpoint; the command says so if ``forced``. ``why`` is the reason for the trash to
    tell."""

    async def anywhere(name: str, _: Report, host: RemoteHost | None) -> RemovedSandbox:
        return await things_of(host).remove_sandbox(name, now=now, stop=stop, why=why)

    return Call(
        verb=RM,
        values={"force": forced},
        job=JobVerb.DELETE,
        doing="removing",
        failed="The sandbox was not deleted",
        anywhere=anywhere,
        tell=_tell_removed,
    )


def removed_view(removed: RemovedSandbox, host: str = "") -> RemovedView:
    """Returns a removed sandbox of a machine, by default this one, as the app shows it."""
    trashed = removed.trashed
    return RemovedView(
        id=at_host(removed.id, host),
        name=at_host(sanitise(removed.name, limit=NAME_LIMIT), host),
        in_trash=trashed is not None,
        goes_on=trashed is not None and bool(trashed.instant),
        not_kept=sanitise(removed.not_kept),
    )


def _tell_removed(name: str, removed: RemovedSandbox, keymap: Keymap) -> str:
    view = removed_view(removed)
    if not view.in_trash:
        return f"{name} is deleted for good"
    lost = f"; only its disk is kept: {view.not_kept}" if view.not_kept else ""
    return f"{name} is in the trash (undo: {keymap.hint('undo')}){lost}"


class Back(NamedTuple):
    """A sandbox that is back from the trash."""

    id: str
    name: str
    instant: str
    """The id of the checkpoint that keeps its last instant; "" if it did not run."""
    runs: bool


def bring_back(*, new_name: str | None = None, start: bool = False) -> Call[Back]:
    """Restores a sandbox from the trash, under another name if one is given. With ``start`` it goes
    on where it was, or boots if it did not run."""

    async def anywhere(name: str, report: Report, host: RemoteHost | None) -> Back:
        report(Progress("", "restoring"))
        back = await things_of(host).restore_sandbox(name, new_name=new_name)
        report(Progress(back.id, "resuming" if start else "restoring"))
        if start:
            sandbox = lazy_engine.Sandbox.open(back.id, host=host)
            try:
                await sandbox.look()
                await let_go_on(sandbox, back.instant or None)
            finally:
                sandbox.close()
        return Back(back.id, back.name, back.instant, start)

    return Call(
        verb=RESTORE,
        values={"start": start, "new_name": new_name},
        job=JobVerb.START,
        failed="The sandbox was not restored",
        anywhere=anywhere,
        tell=lambda name, back, keymap: f"{name} is restored{' and running' if back.runs else ''}",
    )
