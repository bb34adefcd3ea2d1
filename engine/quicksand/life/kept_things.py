"""Stopped sandboxes, saves and the trash of a machine: what is done to them without a sandbox that
is open. Another machine has the same methods called (`hosted.far_things`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.errors import QuicksandError
from quicksand.base.paths import Paths
from quicksand.base.progress import Progress
from quicksand.base.threads import in_stoppable_thread, in_thread_to_the_end
from quicksand.life import machinery
from quicksand.records.registry import Registry
from quicksand.records.trash import RemovedSandbox
from quicksand.saves.census import (
    Census,
    Removed,
    choose_old,
    freed_together,
    list_trash,
    remove_all,
    remove_each,
    restore_save,
    sweep,
)
from quicksand.saves.finding import all_stores, find_save, known_stores
from quicksand.saves.save_manifest import Save, load_save
from quicksand.saves.verifying import Verdict, find_any, verify_saves


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """Things that had been in the trash for long enough, and are deleted for good."""

    gone: Sequence[str] = ()
    """Their names."""
    error: QuicksandError | None = None
    """The reason why the trash could not be swept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedSave:
    """A save that was removed."""

    name: str
    own: int
    """The bytes that only it occupied."""
    removed: float | None
    """The Unix time from which on it is in the trash; None if it is deleted for good."""
    children: Sequence[str] = ()
    """Saves that came from it."""
    sandboxes: Sequence[str] = ()
    """Sandboxes that came from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedSaves:
    """The fate of each save that was to be removed."""

    each: Sequence[RemovedSave | QuicksandError]
    """Each save that was removed, or the reason why it could not be, in their order."""
    swept: Swept


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedSave:
    """A save that is old enough to go."""

    name: str
    path: Path
    created: float
    """Unix time."""
    own: int
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedSaves:
    """Old saves that were moved to the trash, or would be."""

    saves: Sequence[PrunedSave]
    frees: int
    """The bytes that are free once they are gone for good."""
    swept: Swept = Swept()


@dataclass(frozen=True, slots=True, kw_only=True)
class InTrash:
    """The ids of the things in the trash that a name or an id means, the newest last."""

    sandboxes: Sequence[str]
    saves: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredSandbox:
    """A sandbox that is back from the trash, stopped."""

    id: str
    name: str
    instant: str
    """The id of the checkpoint that keeps its last instant; "" if it did not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredThings:
    """The things that came back from the trash."""

    names: Sequence[str]
    failed: Sequence[QuicksandError]
    swept: Swept


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result of verifying saves."""

    verdicts: Sequence[Verdict]
    size: int
    """Bytes read."""


class KeptThings:
    """The things of this machine that stand on its disk. Names and paths are this machine's."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    @property
    def _sandbox_trash(self) -> machinery.SandboxTrash:
        return machinery.SandboxTrash(Registry(self._paths))

    async def remove_sandbox(
        self, name: str, *, now: bool = False, stop: bool = False, why: str = ""
    ) -> RemovedSandbox:
        """Remove a sandbox, given by name or id, as `sandbox_removal.remove_sandbox`."""
        return await machinery.remove_sandbox(
            Registry(self._paths), name, now=now, stop=stop, why=why
        )

    async def find_in_trash(self, name: str) -> InTrash:
        """Find what a name or an id in the trash means."""

        def find() -> InTrash:
            removed = self._sandbox_trash.list()
            saves = list_trash(known_stores(self._paths))
            return InTrash(
                sandboxes=[found.id for found in removed if name in (found.id, found.name)],
                saves=[found.id for found in saves if name in (found.id, found.save.name)],
            )

        return await in_thread_to_the_end(find)

    async def restore_sandbox(self, name: str, *, new_name: str | None = None) -> RestoredSandbox:
        """Bring a sandbox back from the trash, given by its id there or its name, under another
        name if one is given. Raises as `SandboxTrash.restore`."""
        trash = self._sandbox_trash
        found = trash.find(name)
        entry = await in_thread_to_the_end(lambda: trash.restore(found.id, new_name))
        return RestoredSandbox(id=entry.id, name=entry.name, instant=found.instant)

    async def remove_saves(
        self,
        names: Sequence[str],
        *,
        now: bool = False,
        progress: Progress | None = None,
        each: Callable[[RemovedSave | QuicksandError], None] | None = None,
    ) -> RemovedSaves:
        """Move saves, given by names or paths, to the trash, or remove them for good with ``now``.
        A cancellation leaves those that are not yet removed. ``each`` gets the fate of one as soon
        as it is sure, in another thread."""

        def work(check: Callable[[], None]) -> RemovedSaves:
            done: list[RemovedSave | QuicksandError] = []
            check()
            for removed in remove_each(names, self._paths, now=now):
                done.append(removed if isinstance(removed, QuicksandError) else _of(removed))
                if each is not None:
                    each(done[-1])
                if progress is not None:
                    progress("removing", len(done), len(names))
                check()
            return RemovedSaves(each=done, swept=self._sweep())

        return await in_stoppable_thread(work)

    async def prune_saves(
        self, *, older_than_s: float | None, keep: int | None, dry_run: bool = False
    ) -> PrunedSaves:
        """Move the saves to the trash that are older than so many seconds, except the newest
        ``keep``; with ``dry_run`` only find them."""

        def work() -> PrunedSaves:
            old = choose_old(Census(self._paths).list(), older_than_s=older_than_s, keep=keep)
            frees = freed_together(old)
            if not dry_run:
                remove_all(old, self._paths)
            found = [
                PrunedSave(
                    name=one.name,
                    path=one.save.root,
                    created=one.created,
                    own=one.own,
                    note=one.note,
                )
                for one in old
            ]
            swept = Swept() if dry_run else self._sweep()
            return PrunedSaves(saves=found, frees=frees, swept=swept)

        return await in_thread_to_the_end(work)

    async def restore_things(
        self,
        wanted: Sequence[str],
        *,
        new_name: str | None = None,
        progress: Progress | None = None,
    ) -> RestoredThings:
        """Bring things back from the trash: saves, given by name or id, and anything given by its
        path there."""
        trash = self._sandbox_trash

        def restore(place: str) -> str:
            path = Path(place)
            if path.parent == trash.root:
                return trash.restore(path.name, new_name).name
            name = path.name if path.is_absolute() else place
            return restore_save(name, self._paths, new_name=new_name).name

        def work(check: Callable[[], None]) -> RestoredThings:
            back: list[str] = []
            failed: list[QuicksandError] = []
            for place in wanted:
                check()
                try:
                    back.append(restore(place))
                except QuicksandError as error:
                    failed.append(error)
                if progress is not None:
                    progress("restoring", len(back) + len(failed), len(wanted))
            return RestoredThings(
                names=back, failed=failed, swept=self._sweep() if back else Swept()
            )

        return await in_stoppable_thread(work)

    async def empty_trash(self, places: Sequence[Path]) -> Sequence[str]:
        """Remove entries of the trash, given by their paths, for good; return the names of those
        that were there."""
        wanted, trash = set(places), self._sandbox_trash

        def work() -> Sequence[str]:
            ids = [path.name for path in wanted if path.parent == trash.root]
            names = [gone.name for gone in trash.empty(ids)] if ids else []
            for store in known_stores(self._paths):
                if doomed := [found for found in store.trash() if found.root in wanted]:
                    store.empty_trash([found.id for found in doomed])
                    names += [found.save.name for found in doomed]
            return names

        return await in_thread_to_the_end(work)

    async def verify_saves(
        self,
        names: Sequence[str] = (),
        *,
        places: Sequence[Path] = (),
        deep: bool = False,
        progress: Progress | None = None,
    ) -> Verified:
        """Verify saves and snapshot files, given by names or paths, or the saves in these
        ``places``, which may be broken; without either, all saves that names find."""
        size = 0

        def find() -> list[Save]:
            if places:
                return [load_save(place) for place in places]
            if names:
                return [find_any(name, self._paths) for name in dict.fromkeys(names)]
            return [save for store in all_stores(self._paths) for save in store.list()]

        def report(done: int, total: int) -> None:
            nonlocal size
            size = total
            if progress is not None:
                progress("reading", done, total)

        if progress is not None:
            progress("looking", 0, 0)
        saves = await in_thread_to_the_end(find)
        verdicts = await verify_saves(saves, self._paths, deep=deep, progress=report)
        return Verified(verdicts=verdicts, size=size)

    async def rebase_save(
        self, name: str, *, onto: str | None = None, progress: Progress | None = None
    ) -> Save:
        """Move a save, given by name or path, to another image, by default to the newest version of
        its own, as `rebasing.rebase`."""

        def work() -> Save:
            save = find_save(name, self._paths)
            manifest = save.require()
            image = onto or (manifest.base.name if manifest.base else manifest.config.image)
            return machinery.rebase(save, image, self._paths, report=progress)

        return await in_thread_to_the_end(work)

    def _sweep(self) -> Swept:
        """Remove all that has been in the trash for long enough. Blocks."""
        try:
            gone = sweep(self._paths)
        except QuicksandError as error:  # the order itself has succeeded
            return Swept(error=error)
        return Swept(gone=[trashed.save.name for trashed in gone])


def _of(removed: Removed) -> RemovedSave:
    info, trashed = removed.info, removed.trashed
    return RemovedSave(
        name=info.name,
        own=info.own,
        removed=None if trashed is None else trashed.removed,
        children=info.children,
        sandboxes=info.sandboxes,
    )
