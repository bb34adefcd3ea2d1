"""The verbs of disks that outlive their sandbox: `save`, `saves`, and of saves in the trash."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from quicksand.things.fact import Named
from quicksand.things.status import CAN_BE_COPIED

from quicksand_tui.model.amounts import pause_text, seconds_text, size_text
from quicksand_tui.model.jobs import Failure, JobVerb, OperationError
from quicksand_tui.model.remedy_words import hint_of, text_of
from quicksand_tui.model.shown_sandboxes import split_host
from quicksand_tui.model.specs import Told
from quicksand_tui.model.text import clean, sanitise
from quicksand_tui.verbs.call import Call, Progress, Report, Table, stage_text, steps_to, things_of
from quicksand_tui.verbs.parameters import (
    DRY_RUN,
    EMPTY,
    EVERYWHERE,
    FETCHED,
    JSON,
    NEW_NAME,
    NOW,
    SANDBOX,
    SENT,
)
from quicksand_tui.verbs.trashing import RESTORE, TRASH
from quicksand_tui.verbs.verb import Asked, Form, Kind, argument, command, flag, option, part, verb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quicksand.base.errors import QuicksandError
    from quicksand.hosted.remote_host import RemoteHost
    from quicksand.life.kept_things import RemovedSave, RemovedSaves, RestoredThings, Swept
    from quicksand.sandbox import Sandbox
    from quicksand.saves.save_manifest import Save, SaveManifest

    from quicksand_tui.model.keymap import Keymap


VOLATILE_SHOWN = 5
UNSYNCED = (
    "not in it: what the guest had not yet written to its disk, since it was paused or did not "
    "answer; `quicksand-tui resume` lets it, then save again"
)
"""The loss told when a save or a snapshot could not be synced first."""


class Saved(NamedTuple):
    """A save that was made."""

    save: Save
    size: int
    """Its allocated bytes, as in the list of saves; the lengths of its sparse files are larger."""
    seconds: float


def tell_saved(name: str, saved: Saved, keymap: Keymap) -> Told:
    """Returns words about a save that was made, and about all that is not in it."""
    manifest = saved.save.require()
    if split_host(name)[1]:
        summary = f"{sanitise(saved.save.name)} is saved on the machine of {name}"
    else:
        summary = f"{sanitise(saved.save.name)} is saved: {size_text(saved.size)}"
    if manifest.unsynced:
        summary += (
            "; what its guest had not yet written to its disk is missing: resume it, save again"
        )
    if not manifest.volatile:
        return Told(summary=summary)
    shown = [sanitise(path) for path in manifest.volatile[:VOLATILE_SHOWN]]
    more = len(manifest.volatile) - len(shown)
    names = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
    return Told(summary=f"{summary}; not in it, since only in the guest's memory: {names}")


def lines_of_saved(manifest: SaveManifest) -> Iterator[str]:
    """Yields the command's words about all that is not in a save."""
    if manifest.unsynced:
        yield UNSYNCED
    if manifest.volatile:
        some = ", ".join(clean(path) for path in manifest.volatile[:VOLATILE_SHOWN])
        more = len(manifest.volatile) - VOLATILE_SHOWN
        more_text = f" and {more} more" if more > 0 else ""
        yield f"not in it, since only in the guest's memory: {some}{more_text}"


SHOWN_MAX = 200
"""The most lines that a report shows."""

Bytes = Callable[[str, int, int], None]
"""Takes the stage, the bytes done, and the bytes in all."""


def bytes_to(report: Report) -> Bytes:
    """Returns the engine's callback for work that moves bytes."""

    def take(stage: str, done: int, total: int) -> None:
        report(Progress("", stage_text(stage), done=done, total=total))

    return take


# Saving


@verb("save",
    SANDBOX,
    argument("save", Kind.NEW_SAVE, "SAVE", on_line=True, asked=Asked("Name")),
    option("-m --note", Kind.TEXT, "NOTE", "Add a note to it.", default="", on_line=True,
           asked=Asked("Note", hint="optional", limit=500)),
    flag("--compress", "Merge all layers into one and compress it.", asked=Asked("Compress",
         remarks=("shares its layers; takes hardly any space",
         "smaller, but slower, and shares no data"))),
    flag("--replace", "Move a save that has this name to the trash."),
    flag("--freeze/--no-freeze",
         "Freeze the guest's file system for the instant.  [default: if it is quick]"),
    flag("--delete-checkpoints", "Delete the sandbox's checkpoints."),
    option("--workspace", Kind.DIRECTORY, "DIR", "Save to DIR/SAVE, not among your own saves."),
    JSON, summary="Save a sandbox's disk, so that new ones can start from it.",
    states=CAN_BE_COPIED,
    form=Form("Save the disk of {}", "Save", "saves"))  # fmt: skip
def save(
    save: str,
    *,
    note: str = "",
    compress: bool = False,
    replace: bool = False,
    freeze: bool | None = None,
    delete_checkpoints: bool = False,
    workspace: Path | None = None,
) -> Call[Saved]:
    """Save the disk of the sandbox NAME, running or stopped, as SAVE.

    A running sandbox keeps running. `quicksand-tui run SAVE` starts any number of sandboxes from
    that disk; the save itself never changes. It holds no memory and no processes: `checkpoint`
    keeps those.
    """

    async def act(sandbox: Sandbox, report: Report) -> Saved:
        started = time.perf_counter()
        made = await sandbox.save_to(
            save,
            workspace=workspace,
            note=note,
            compress=compress,
            replace=replace,
            freeze=freeze,
            delete_checkpoints=delete_checkpoints,
            progress=bytes_to(report),
        )
        return Saved(made.save, made.size, time.perf_counter() - started)

    return Call(
        job=JobVerb.SAVE,
        failed=f"{sanitise(save)} was not saved",
        stage="saving its disk",
        act=act,
        tell=tell_saved,
        facts=lambda name, saved: {
            "sandbox": name,
            "path": str(saved.save.root),
            **saved.save.require().to_json(),
        },
        lines=_table_of_saved,
        said=lambda _, saved: lines_of_saved(saved.save.require()),
    )


def _table_of_saved(_: str, saved: Saved) -> Table:
    layers = len(saved.save.require().layers or ())
    size, took = size_text(saved.size, wide=True), seconds_text(saved.seconds, 2)
    return Table(("SAVE", "SIZE", "LAYERS", "TIME"), [(saved.save.name, size, layers, took)])


# Removing, and bringing back


def _about(swept: Swept) -> tuple[str, ...]:
    """Returns lines about why the trash could not be swept; none if it could."""
    return () if swept.error is None else (f"The trash: {sanitise(text_of(swept.error))}",)


@verb("saves rm", argument("names", Kind.SAVE, "NAME...", repeatable=True), NOW)
def discard(
    saves: Sequence[str | Path],
    *,
    now: bool = False,
    shown: Sequence[str] = (),
    host: str = "",
    each: Callable[[RemovedSave | QuicksandError], None] | None = None,
) -> Call[RemovedSaves]:
    """Moves saves, given by name or path, to the trash, or removes them for good with ``now``.
    Cancelling leaves those that are not yet removed. Commands call them ``shown``; ``host`` is the
    machine where they are. ``each`` gets what became of one as soon as that is sure, in another
    thread."""

    async def anywhere(_: str, report: Report, host: RemoteHost | None) -> RemovedSaves:
        return await things_of(host).remove_saves(
            [*map(str, saves)], now=now, progress=steps_to(report), each=each
        )

    def tell(_: str, removed: RemovedSaves, keymap: Keymap) -> Told:
        failed = [found for found in removed.each if isinstance(found, Exception)]
        _require_all(failed, len(saves), "removed")
        names = [found.name for found in removed.each if not isinstance(found, Exception)]
        where = "deleted for good" if now else "in the trash for a week: T shows it"
        return Told(summary=f"{names_of(names)} {are(names)} {where}", lines=_about(removed.swept))

    return Call(
        values={"names": named(saves, shown)},
        job=JobVerb.DISCARD,
        failed="Nothing was removed",
        anywhere=anywhere,
        spec=tuple(saves),
        tell=tell,
        host=host,
    )


def bring_back(
    places: Sequence[str | Path], *, name: str = "", shown: str = "", host: str = ""
) -> Call[RestoredThings]:
    """Restores saves, given by name, id or path in the trash, and sandboxes, given by path; under
    ``name`` if one is given. For a single one, commands use the word ``shown``; ``host`` is the
    machine where they are."""

    async def anywhere(_: str, report: Report, host: RemoteHost | None) -> RestoredThings:
        return await things_of(host).restore_things(
            [*map(str, places)], new_name=name or None, progress=steps_to(report)
        )

    def tell(_: str, restored: RestoredThings, keymap: Keymap) -> Told:
        _require_all(restored.failed, len(places), "restored")
        back = restored.names
        return Told(
            summary=f"{names_of(back, 'things')} {are(back)} restored",
            lines=_about(restored.swept),
        )

    return Call(
        verb=RESTORE,
        values={"new_name": name, "name": shown},
        job=JobVerb.RESTORE,
        failed="Nothing was restored",
        anywhere=anywhere,
        spec=tuple(places),
        tell=tell,
        host=host,
    )


def purge(
    places: Sequence[Path], *, shown: Sequence[str] = (), host: str = ""
) -> Call[Sequence[str]]:
    """Removes entries of the trash, given by path, for good. Commands call them ``shown``;
    ``host`` is the machine where they are."""

    async def anywhere(_: str, report: Report, host: RemoteHost | None) -> Sequence[str]:
        return await things_of(host).empty_trash(places)

    return Call(
        verb=TRASH,
        values={"empty": True, "ids": shown},
        job=JobVerb.DISCARD,
        failed="The trash is as it was",
        anywhere=anywhere,
        spec=tuple(places),
        tell=lambda _, names, keymap: Told(
            summary=f"{names_of(names, 'things')} {are(names)} deleted for good"
        ),
        host=host,
    )


def named(things: Sequence[str | Path], shown: Sequence[str]) -> list[str]:
    """Returns things with the words for them in commands."""
    return [Named(str(one), name) for one, name in zip(things, shown, strict=False)]


def names_of(names: Sequence[str], things: str = "saves") -> str:
    """Returns the name of a single thing, or the number of several."""
    return sanitise(names[0], limit=60) if len(names) == 1 else f"{len(names)} {things}"


def are(things: Sequence[object]) -> str:
    return "is" if len(things) == 1 else "are"


def _require_all(failed: Sequence[QuicksandError], count: int, done: str) -> None:
    """Raises OperationError with the reasons if any save failed."""
    if not failed:
        return
    first, *others = failed
    title = f"{len(failed)} of {count} saves were not {done}" if count > 1 else f"It was not {done}"
    raise OperationError(
        Failure(
            title=title,
            message=sanitise(_message(first)),
            hint=sanitise(hint_of(first)),
            log=tuple(sanitise(_message(error)) for error in others[:SHOWN_MAX]),
        )
    )


def _message(error: Exception) -> str:
    return text_of(error) or "it failed without saying why"


def time_text(seconds: float) -> str:
    """Returns the words for a duration."""
    return pause_text(seconds) if seconds < 1 else seconds_text(seconds)


# Verbs that only read, or are only commands

# fmt: off
SAVES = command("saves", ".keeping.saves_trash", "List, remove, verify, send and fetch saves.",
    EVERYWHERE, JSON,
    reads=True)

SAVES_LIST = part("saves list", EVERYWHERE, JSON, reads=True)
SAVES_RESTORE = part("saves restore", argument("name", Kind.TRASHED_SAVE, "NAME"), NEW_NAME)
SAVES_PRUNE = part("saves prune",
    option("--older-than", Kind.NUMBER, "DAYS",
           "Remove only saves that are older than this.", least=0),
    option("--keep", Kind.COUNT, "N", "Keep the newest N of all saves.", least=0),
    DRY_RUN, JSON)
SAVES_REBASE = part("saves rebase", argument("name", Kind.SAVE),
    option("--onto", Kind.TEXT, "IMAGE",
           "Use this image.  [default: its own image's newest version]"),
    JSON)
SAVES_SEND = part("saves send", *SENT, JSON)
SAVES_FETCH = part("saves fetch", *FETCHED, JSON)
SAVES_TRASH = part("saves trash",
    argument("ids", Kind.TEXT, "[ID]...", repeatable=True, required=False), EMPTY,
    JSON, reads=True)
# fmt: on
