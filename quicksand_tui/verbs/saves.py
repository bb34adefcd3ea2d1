"""Keeps disks that outlive their sandbox: `save`, `saves rm`, `saves verify`, the trash."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quicksand_tui.model.amounts import pause_text, seconds_text
from quicksand_tui.model.jobs import Failure, JobVerb, OperationError
from quicksand_tui.model.remedies import hint_of, text_of
from quicksand_tui.model.specs import SaveSpec, Told
from quicksand_tui.model.text import sanitise
from quicksand_tui.verbs import engine
from quicksand_tui.verbs.commands import command_words
from quicksand_tui.verbs.record import HostVerb, Progress, Report, SandboxVerb, ignore
from quicksand_tui.verbs.saved import Saved, SavedThere, tell_saved
from quicksand_tui.verbs.stages import stage_text

if TYPE_CHECKING:
    from quicksand.base.errors import QuicksandError
    from quicksand.sandbox import Sandbox
    from quicksand.saves.save_removal import Removed
    from quicksand.saves.save_trash import Trashed
    from quicksand.saves.store import Save, SaveStore

    from quicksand_tui.model.keymap import Keymap

SHOWN_MAX = 200
"""How many lines a report shows."""

Bytes = Callable[[str, int, int], None]
"""Receives the stage, the bytes done, and the bytes in all."""


def bytes_to(report: Report) -> Bytes:
    """Returns the engine's callback for work that moves bytes."""

    def take(stage: str, done: int, total: int) -> None:
        report(Progress("", stage_text(stage), done=done, total=total))

    return take


# Saving


def save(
    spec: SaveSpec,
    *,
    store: Callable[[], SaveStore] | None = None,
    replace: bool = False,
    freeze: bool | None = None,
    delete_checkpoints: bool = False,
) -> SandboxVerb[Saved]:
    """Saves the disk of a sandbox, running or not, in ``store``, or among the user's own saves."""

    async def act(sandbox: Sandbox, report: Report) -> Saved:
        started = time.perf_counter()
        stop = threading.Event()
        options = engine.SaveOptions(
            note=spec.note,
            compress=spec.compress,
            replace=replace,
            freeze=freeze,
            delete_checkpoints=delete_checkpoints,
            progress=_until(stop, bytes_to(report)),
        )
        there = engine.SaveStore(engine.paths().saves) if store is None else store()
        made = await _to_the_end(sandbox.save_to(there, spec.name, options), stop)
        size = await asyncio.to_thread(lambda: engine.Footprint(made.root).size)
        return Saved(made, size, time.perf_counter() - started)

    return SandboxVerb(
        name="save",
        values={"note": spec.note, "compress": spec.compress, "save": spec.name or "SAVE"},
        job=JobVerb.SAVE,
        failed=f"{sanitise(spec.name)} was not saved",
        stage="saving its disk",
        act=act,
        spec=spec,
        tell=tell_saved,
        facts=lambda name, saved: {
            "sandbox": name,
            "path": str(saved.save.root),
            **saved.save.require().to_json(),
        },
        there=lambda told: SavedThere(spec.name or "", engine.SaveManifest.from_json(told.json)),
    )


def _until(stop: threading.Event, take: Bytes) -> Bytes:
    """Returns ``take`` until ``stop`` is set: the engine waits for its thread, which only an error
    raised there ends early."""

    def progress(stage: str, done: int, total: int) -> None:
        if stop.is_set():
            raise engine.Stopped
        take(stage, done, total)

    return progress


async def _to_the_end(saving: Any, stop: threading.Event) -> Save:
    """Waits for a save; when cancelled, for its end as well, after ``stop`` is set."""
    work: asyncio.Task[Save] = asyncio.create_task(saving, name="quicksand-save")
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        work.cancel()
        await engine.to_the_end(_ended(work))
        raise


async def _ended(work: asyncio.Task[Save]) -> None:
    await asyncio.wait((work,))
    if not work.cancelled():
        work.exception()  # retrieved and ignored: the cancellation is raised instead


# Removing, and bringing back


class Swept(NamedTuple):
    """What had been in the trash for long enough, and is deleted for good."""

    gone: Sequence[Trashed] = ()
    error: QuicksandError | None = None
    """Why the trash could not be swept."""


def sweep_trash() -> Swept:
    """Removes what has been in the trash for long enough. Blocks for I/O."""
    try:
        return Swept(engine.sweep(engine.paths()))
    except engine.QuicksandError as error:  # what was asked for has succeeded
        return Swept(error=error)


def _about(swept: Swept) -> tuple[str, ...]:
    """Returns lines that tell why the trash could not be swept, if it could not."""
    return () if swept.error is None else (f"The trash: {sanitise(text_of(swept.error))}",)


class Discarded(NamedTuple):
    """What became of the saves that were to be removed."""

    each: Sequence[Removed | QuicksandError]
    """In their order: what was removed, or why it could not be."""
    swept: Swept


def discard(
    saves: Sequence[str | Path],
    *,
    now: bool = False,
    shown: Sequence[str] = (),
    host: str = "",
    each: Callable[[Removed | QuicksandError], None] = ignore,
) -> HostVerb[Discarded]:
    """Moves saves, given by name or path, to the trash, or removes them for good with ``now``.
    Cancelling leaves those that are not yet removed. Commands call them ``shown``; ``host`` is the
    machine where they are. ``each`` gets what became of one as soon as that is sure, in another
    thread."""

    async def run(_: str, report: Report) -> Discarded:
        def work(check: Callable[[], None]) -> Discarded:
            done: list[Removed | QuicksandError] = []
            check()
            for removed in engine.remove_each(saves, engine.paths(), now=now):
                done.append(removed)
                each(removed)
                report(Progress("", "removing", len(done), len(saves)))
                check()
            return Discarded(done, sweep_trash())

        return await engine.in_stoppable_thread(work)

    def tell(_: str, discarded: Discarded | DoneThere, keymap: Keymap) -> Told:
        if isinstance(discarded, DoneThere):
            return told(discarded.names, ())
        failed = [found for found in discarded.each if isinstance(found, Exception)]
        _require_all(failed, len(saves), "removed")
        names = [found.info.name for found in discarded.each if not isinstance(found, Exception)]
        return told(names, _about(discarded.swept))

    def told(names: Sequence[str], lines: tuple[str, ...]) -> Told:
        where = "deleted for good" if now else "in the trash for a week: T shows it"
        return Told(summary=f"{names_of(names)} {are(names)} {where}", lines=lines)

    return HostVerb(
        name="saves rm",
        flags=("now",) if now else (),
        values={"names": shown},
        job=JobVerb.DISCARD,
        failed="Nothing was removed",
        run=run,
        spec=tuple(saves),
        tell=tell,
        host=host,
        words=lambda _: command_words("saves rm", now=now, names=map(str, saves)),
        there=lambda _: DoneThere(tuple(shown)),
    )


class DoneThere(NamedTuple):
    """What was done on another machine."""

    names: Sequence[str]
    """Those of what it was done to."""


class Restored(NamedTuple):
    """What came back from the trash."""

    names: Sequence[str]
    failed: Sequence[QuicksandError]
    swept: Swept


def bring_back(
    places: Sequence[str | Path],
    *,
    name: str = "",
    shown: str = "",
    named: str = "",
    host: str = "",
) -> HostVerb[Restored]:
    """Restores saves, given by name, id or path in the trash, and sandboxes, given by path; under
    ``name`` if one is given. A command calls a single one ``shown``, and on the machine ``host`` it
    is the one with this id, which was ``named`` so."""

    async def run(_: str, report: Report) -> Restored:
        sandboxes = engine.SandboxTrash(engine.Registry(engine.paths()))

        def restore(place: str | Path) -> str:
            if isinstance(place, Path) and place.parent == sandboxes.root:
                return sandboxes.restore(place.name, name or None).name
            wanted = place.name if isinstance(place, Path) else place
            return engine.restore_save(wanted, engine.paths(), new_name=name or None).name

        def work(check: Callable[[], None]) -> Restored:
            back: list[str] = []
            failed: list[QuicksandError] = []
            for place in places:
                check()
                try:
                    back.append(restore(place))
                except engine.QuicksandError as error:
                    failed.append(error)
                report(Progress("", "restoring", len(back) + len(failed), len(places)))
            return Restored(back, failed, sweep_trash() if back else Swept())

        return await engine.in_stoppable_thread(work)

    def tell(_: str, restored: Restored | DoneThere, keymap: Keymap) -> Told:
        if isinstance(restored, DoneThere):
            return Told(summary=f"{names_of(restored.names)} is restored")
        _require_all(restored.failed, len(places), "restored")
        back = restored.names
        return Told(
            summary=f"{names_of(back, 'things')} {are(back)} restored",
            lines=_about(restored.swept),
        )

    return HostVerb(
        name="restore",
        values={"new_name": name, "name": shown},
        job=JobVerb.RESTORE,
        failed="Nothing was restored",
        run=run,
        spec=tuple(places),
        tell=tell,
        host=host,
        words=lambda _: command_words("restore", new_name=name, name=shown),
        there=lambda _: DoneThere((name or named or shown,)),
    )


def purge(
    places: Sequence[Path],
    *,
    shown: Sequence[str] = (),
    named: Sequence[str] = (),
    host: str = "",
) -> HostVerb[Sequence[str]]:
    """Removes entries of the trash, given by path, for good. Commands call them ``shown``, and on
    the machine ``host`` they are those with these ids, which were ``named`` so."""

    async def run(_: str, report: Report) -> Sequence[str]:
        wanted = set(places)
        sandboxes = engine.SandboxTrash(engine.Registry(engine.paths()))

        def work() -> Sequence[str]:
            ids = [path.name for path in wanted if path.parent == sandboxes.root]
            names = [gone.name for gone in sandboxes.empty(ids)] if ids else []
            for store in engine.known_stores(engine.paths()):
                if doomed := [found for found in store.trash() if found.root in wanted]:
                    store.empty_trash([found.id for found in doomed])
                    names += [found.save.name for found in doomed]
            return names

        return await engine.in_thread_to_the_end(work)

    return HostVerb(
        name="trash",
        flags=("empty",),
        values={"ids": shown},
        job=JobVerb.DISCARD,
        failed="The trash is as it was",
        run=run,
        spec=tuple(places),
        tell=lambda _, names, keymap: Told(
            summary=f"{names_of(names, 'things')} {are(names)} deleted for good"
        ),
        host=host,
        words=lambda _: command_words("trash", empty=True, ids=shown),
        there=lambda _: tuple(named),
    )


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
    return text_of(error) or type(error).__name__


def time_text(seconds: float) -> str:
    """Returns a time that something took."""
    return pause_text(seconds) if seconds < 1 else seconds_text(seconds)
