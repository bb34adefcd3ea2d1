"""The verbs that move sandboxes to the trash, and bring them back: `rm`, `trash`, `restore`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from quicksand_tui.model.jobs import JobVerb
from quicksand_tui.model.shown_sandboxes import RemovedView
from quicksand_tui.model.text import sanitise
from quicksand_tui.verbs import lazy_engine
from quicksand_tui.verbs.call import Call, Progress, Relayed, Report
from quicksand_tui.verbs.launching import NAME_LIMIT, let_go_on
from quicksand_tui.verbs.parameters import EMPTY, JSON, MAYBE_SANDBOXES, NEW_NAME, NOW
from quicksand_tui.verbs.verb import Kind, argument, command, flag

if TYPE_CHECKING:
    from quicksand.life.sandbox_removal import RemovedSandbox

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

    async def run(name: str, _: Report) -> RemovedSandbox:
        return await lazy_engine.remove_sandbox(
            lazy_engine.Registry(lazy_engine.paths()), name, now=now, stop=stop, why=why
        )

    return Call(
        verb=RM,
        values={"force": forced},
        job=JobVerb.DELETE,
        doing="removing",
        failed="The sandbox was not deleted",
        run=run,
        tell=_tell_removed,
        there=_removed_there,
    )


def _removed_there(told: Relayed) -> RemovedView:
    """Returns the view of a removal there; what the app has seen before tells enough."""
    view = told.sandbox
    if view is None:
        raise LookupError("the sandbox was not known")
    return RemovedView(
        id=view.id,
        name=view.name,
        in_trash=not view.discard,
        goes_on=view.is_live and not view.discard,
    )


def shown_removal(removed: RemovedSandbox | RemovedView) -> RemovedView:
    """Returns a removed sandbox of any machine as the app shows it."""
    return removed if isinstance(removed, RemovedView) else removed_view(removed)


def removed_view(removed: RemovedSandbox) -> RemovedView:
    """Returns a removed sandbox of the engine as the app shows it."""
    trashed = removed.trashed
    return RemovedView(
        id=removed.id,
        name=sanitise(removed.name, limit=NAME_LIMIT),
        in_trash=trashed is not None,
        goes_on=trashed is not None and bool(trashed.instant),
        not_kept=sanitise(removed.not_kept),
    )


def _tell_removed(name: str, removed: RemovedSandbox | RemovedView, keymap: Keymap) -> str:
    view = shown_removal(removed)
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

    async def run(name: str, report: Report) -> Back:
        trash = lazy_engine.SandboxTrash(lazy_engine.Registry(lazy_engine.paths()))
        found = trash.find(name)
        report(Progress(found.id, "restoring"))
        entry = await lazy_engine.in_thread_to_the_end(lambda: trash.restore(found.id, new_name))
        if start:
            report(Progress(found.id, "resuming"))
            sandbox = lazy_engine.Sandbox.open(entry.id)
            try:
                await let_go_on(sandbox, found.instant or None)
            finally:
                sandbox.close()
        return Back(entry.id, entry.name, found.instant, start)

    return Call(
        verb=RESTORE,
        values={"start": start, "new_name": new_name},
        job=JobVerb.START,
        failed="The sandbox was not restored",
        run=run,
        tell=lambda name, back, keymap: f"{name} is restored{' and running' if back.runs else ''}",
        there=lambda told: Back("", "", "", start),
    )
