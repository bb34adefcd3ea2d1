"""The engine's verbs for saves, carried out on its loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand_tui.door.protocol import Progress, Report
from quicksand_tui.model.amounts import pause_text, seconds_text, size_text
from quicksand_tui.model.jobs import Failure, OperationError
from quicksand_tui.model.remedies import hint_of, text_of
from quicksand_tui.model.saves import VerdictView
from quicksand_tui.model.specs import ExportSpec, ImportSpec, SaveSpec, Told
from quicksand_tui.model.text import sanitise

if TYPE_CHECKING:
    from quicksand.saves.bundle.receiving import Imported
    from quicksand.saves.manifest import SaveManifest
    from quicksand.saves.save_removal import Removed
    from quicksand.saves.verifying import Verdict


SHOWN_MAX = 200
"""How many lines a report shows."""
VOLATILE_SHOWN = 5

STAGES = {"copy": "copying", "compress": "compressing"}

Bytes = Callable[[str, int, int], None]
"""Receives the stage, the bytes done, and the bytes in all."""


def _bytes(report: Report) -> Bytes:
    def say(stage: str, done: int, total: int) -> None:
        report(Progress("", STAGES.get(stage, stage), done=done, total=total))

    return say


# Saving


async def save(sandbox_id: str, spec: SaveSpec, report: Report) -> Told:
    from quicksand.base.footprint import Footprint
    from quicksand.base.paths import paths
    from quicksand.base.threads import Stopped, to_the_end
    from quicksand.sandbox import Sandbox
    from quicksand.saves.saving import SaveOptions
    from quicksand.saves.store import SaveStore

    stop = threading.Event()
    say = _bytes(report)

    def progress(stage: str, done: int, total: int) -> None:
        # The engine waits for its thread, which only an error raised here ends early.
        if stop.is_set():
            raise Stopped
        say(stage, done, total)

    options = SaveOptions(note=spec.note, compress=spec.compress, replace=False, progress=progress)
    sandbox = Sandbox.open(sandbox_id)
    work = asyncio.create_task(
        sandbox.save_to(SaveStore(paths().saves), spec.name, options), name="quicksand-save"
    )
    try:
        saved = await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        work.cancel()
        await to_the_end(_ended(work))
        raise
    finally:
        sandbox.close()
    size = await asyncio.to_thread(lambda: Footprint(saved.root).size)
    return _saved(saved.name, saved.require(), size)


async def _ended(work: asyncio.Task[object]) -> None:
    await asyncio.wait((work,))
    if not work.cancelled():
        work.exception()  # retrieved and ignored: the cancellation is raised instead


def _saved(name: str, manifest: SaveManifest, size: int) -> Told:
    """Reports a save. ``size`` is its allocated bytes, as in the list of saves; the lengths of its
    sparse files are larger."""
    summary = f"{sanitise(name)} is saved: {size_text(size)}"
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


# Removing, and bringing back


async def delete(keys: Sequence[str], report: Report, *, now: bool) -> Told:
    from quicksand.base.paths import paths
    from quicksand.base.threads import in_stoppable_thread
    from quicksand.saves.save_removal import Removed, remove_each, sweep

    def work(check: Callable[[], None]) -> list[Removed | Exception]:
        done: list[Removed | Exception] = []
        check()
        for removed in remove_each([Path(key) for key in keys], paths(), now=now):
            done.append(removed)
            report(Progress("", "removing", len(done), len(keys)))
            check()
        sweep(paths())
        return done

    done = await in_stoppable_thread(work)
    removed = [found for found in done if isinstance(found, Removed)]
    failed = [found for found in done if not isinstance(found, Removed)]
    _require_all(failed, len(keys), "removed")
    return Told(summary=_removed(removed, now=now))


def _removed(removed: Sequence[Removed], *, now: bool) -> str:
    what = _names([found.info.name for found in removed])
    if now:
        return f"{what} {_is(removed)} gone for good"
    return f"{what} {_is(removed)} in the trash for a week: T shows it"


def _names(names: Sequence[str], things: str = "saves") -> str:
    """Returns the name of a single thing, or the number of several."""
    return sanitise(names[0], limit=60) if len(names) == 1 else f"{len(names)} {things}"


def _is(things: Sequence[object]) -> str:
    return "is" if len(things) == 1 else "are"


def _require_all(failed: Sequence[Exception], count: int, done: str) -> None:
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


async def restore(keys: Sequence[str], report: Report, *, name: str = "") -> Told:
    from quicksand.base.errors import QuicksandError
    from quicksand.base.paths import paths
    from quicksand.base.threads import in_stoppable_thread
    from quicksand.life.sandbox_trash import SandboxTrash
    from quicksand.records.registry import Registry
    from quicksand.saves.save_removal import restore_save, sweep

    sandboxes = SandboxTrash(Registry(paths()))

    def bring_back(root: Path) -> str:
        if root.parent == sandboxes.root:
            return sandboxes.restore(root.name, name or None).name
        return restore_save(root.name, paths(), new_name=name or None).name

    def work(check: Callable[[], None]) -> tuple[list[str], list[Exception]]:
        back: list[str] = []
        failed: list[Exception] = []
        for key in keys:
            check()
            try:
                back.append(bring_back(Path(key)))
            except QuicksandError as error:
                failed.append(error)
            report(Progress("", "bringing back", len(back) + len(failed), len(keys)))
        sweep(paths())
        return back, failed

    back, failed = await in_stoppable_thread(work)
    _require_all(failed, len(keys), "brought back")
    return Told(summary=f"{_names(back, 'things')} {_is(back)} back")


async def purge(keys: Sequence[str]) -> Told:
    from quicksand.base.paths import paths
    from quicksand.base.threads import in_thread_to_the_end
    from quicksand.life.sandbox_trash import SandboxTrash
    from quicksand.records.registry import Registry
    from quicksand.saves.workspaces import known_stores

    wanted = {Path(key) for key in keys}
    sandboxes = SandboxTrash(Registry(paths()))

    def work() -> list[str]:
        ids = [path.name for path in wanted if path.parent == sandboxes.root]
        names = [gone.name for gone in sandboxes.empty(ids)]
        for store in known_stores(paths()):
            if doomed := [found for found in store.trash() if found.root in wanted]:
                store.empty_trash([found.id for found in doomed])
                names += [found.save.name for found in doomed]
        return names

    names = await in_thread_to_the_end(work)
    return Told(summary=f"{_names(names, 'things')} {_is(names)} gone for good")


# Files that move


async def export(key: str, spec: ExportSpec, report: Report) -> Told:
    from quicksand import saves
    from quicksand.base.errors import PathError

    target = Path(spec.file).expanduser().absolute()
    if not spec.replace and target.exists():
        raise PathError(f"there is {target} already", hint="choose another name, or replace it")
    started = time.monotonic()
    done = await saves.export(
        Path(key), target, full=spec.full, compress=spec.compress, progress=_bytes(report)
    )
    size, spent = target.stat().st_size, time.monotonic() - started
    summary = f"{sanitise(done.name, limit=60)} is in {sanitise(str(target))}: {size_text(size)}"
    if not done.full:
        return Told(summary=f"{summary}; whoever imports it needs {sanitise(done.base)}")
    return Told(summary=f"{summary} in {_seconds(spent)}")


def _seconds(seconds: float) -> str:
    return pause_text(seconds) if seconds < 1 else seconds_text(seconds)


async def import_bundle(spec: ImportSpec, report: Report) -> Told:
    from quicksand import saves

    source = Path(spec.file).expanduser().absolute()
    done = await saves.import_(source, name=spec.name or None, progress=_bytes(report))
    return _imported(done)


def _imported(done: Imported) -> Told:
    name, kind = sanitise(done.name, limit=200), str(done.kind.value)
    what = {"save": "save", "tree": "sandbox", "image": "image"}.get(kind, kind)
    lines = [f"It is the {what} {name}: {size_text(done.size)} were in the file."]
    if done.checkpoints:
        lines.append(f"It has {done.checkpoints} checkpoints; it can be started at each.")
    if done.base:
        came = "came with it" if done.image_added else "was here"
        lines.append(f"The image below it, {sanitise(done.base)}, {came}.")
    lines += [f"Know that {sanitise(note)}" for note in done.notes[:SHOWN_MAX]]
    return Told(summary=f"{name} is imported", lines=tuple(lines))


# Verifying


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result of verifying saves."""

    verdicts: Mapping[str, tuple[str, VerdictView]]
    """By key: the id of the save, and its verdict."""
    size: int
    """Bytes read."""
    seconds: float

    def tell(self) -> Told:
        """Returns the report. Raises OperationError if a save is damaged."""
        found = [verdict for _, verdict in self.verdicts.values()]
        what = _names([Path(key).name for key in self.verdicts])
        if bad := list(self._problems()):
            count = sum(bool(verdict.problems) for verdict in found)
            several = f"{count} of {len(found)} saves are not whole"
            raise OperationError(
                Failure(
                    title=several if len(found) > 1 else f"{what} is not whole",
                    message=bad[0],
                    hint="saves that share its layers may be damaged too: * and F read them all",
                    log=tuple(bad[1:SHOWN_MAX]),
                )
            )
        if all(verdict.deep for verdict in found):
            read = f"{size_text(self.size)} read in {_seconds(self.seconds)}"
            return Told(summary=f"{what} {_is(found)} whole: {read}")
        outside = "fine as seen from outside; F reads every byte"
        return Told(summary=f"{what} {_is(found)} {outside}")

    def _problems(self) -> Iterator[str]:
        for key, (_, verdict) in self.verdicts.items():
            for problem in verdict.problems:
                yield f"{sanitise(Path(key).name, limit=60)}: {problem}"


async def verify(keys: Sequence[str], report: Report, *, deep: bool) -> Verified:
    """Checks saves from outside, or with ``deep`` every byte; the result holds the problems."""
    from quicksand.base.paths import paths
    from quicksand.saves.looking import load_save
    from quicksand.saves.verifying import verify_saves

    started, size = time.monotonic(), 0

    def progress(done: int, total: int) -> None:
        nonlocal size
        size = total
        report(Progress("", "reading", done=done, total=total))

    report(Progress("", "looking"))
    saves = await asyncio.to_thread(lambda: [load_save(Path(key)) for key in keys])
    verdicts = await verify_saves(saves, paths(), deep=deep, progress=progress)
    return Verified(
        verdicts={
            key: (_id_of(verdict), _verdict(verdict, time.time()))
            for key, verdict in zip(keys, verdicts, strict=True)
        },
        size=size,
        seconds=time.monotonic() - started,
    )


def _id_of(verdict: Verdict) -> str:
    manifest = verdict.save.manifest
    return "" if manifest is None else sanitise(manifest.id, limit=200)


def _verdict(verdict: Verdict, when: float) -> VerdictView:
    problems = (f"{file}: {text}" for file, text in verdict.problems.items())
    return VerdictView(
        deep=verdict.deep, when=when, problems=tuple(sanitise(text) for text in problems)
    )
