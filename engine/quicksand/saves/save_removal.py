"""Removes saves, keeps them in the trash for a week, restores them; chooses old ones."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.errors import QuicksandError, SaveError, SaveNotFoundError
from quicksand.base.paths import Paths
from quicksand.base.remedies import Remedy, Words
from quicksand.saves.census import Census, SaveInfo, expire_trash, freed_by
from quicksand.saves.finding import all_stores, find_save
from quicksand.saves.ownership import fits, mark_made
from quicksand.saves.save_trash import Trashed
from quicksand.saves.store import Save, SaveStore
from quicksand.saves.workspaces import known_stores, remember


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A save that was removed."""

    info: SaveInfo
    """The save as it was known before."""
    trashed: Trashed | None
    """Its entry in the trash; None if it is deleted for good."""


def find_stored(name: str | Path, paths: Paths, cwd: Path | None = None) -> tuple[SaveStore, Save]:
    """Return a save, by name or path, and its store. Raises SaveNotFoundError, SaveError if it is
    in no known store."""
    save = find_save(name, paths, cwd)
    for store in known_stores(paths, cwd):
        if save.root.parent.resolve() == store.root.resolve():
            return store, save
    raise SaveError(
        f"the save at {save.root} is in no known directory of saves",
        hint=f"remove {save.root} yourself if that is what you want",
    )


def remove_save(
    name: str | Path, paths: Paths, cwd: Path | None = None, *, now: bool = False
) -> Removed:
    """Move a save to the trash or, with ``now``, remove it for good. Saves and sandboxes made from
    it are not affected.

    Raises SaveNotFoundError, SaveError if a sandbox is just starting from it or another save lies
    on it, HostError.
    """
    store, save = find_stored(name, paths, cwd)
    return _remove(store, save, Census(paths, cwd), now=now)


def remove_each(
    names: Iterable[str | Path], paths: Paths, cwd: Path | None = None, *, now: bool = False
) -> Iterator[Removed | QuicksandError]:
    """Like `remove_save` for each of ``names``; yields the error of one that cannot be removed. All
    saves are read only once."""
    census: Census | None = None
    for name in names:
        try:
            store, save = find_stored(name, paths, cwd)
            if census is None or census.above(save):
                # The saves above it may have been removed meanwhile.
                census = Census(paths, cwd)
            yield _remove(store, save, census, now=now)
        except QuicksandError as error:
            yield error


def _remove(store: SaveStore, save: Save, census: Census, *, now: bool) -> Removed:
    if starting := census.sandboxes(save, starting=True):
        raise SaveError(
            f"the save {save.name!r} is needed: {', '.join(starting)} is just starting from it",
            hint="try again when that is done",
        )
    info = census.look_at(save, store)
    if info.above:
        raise SaveError(
            f"the save {save.name!r} is needed: {', '.join(info.above)} is based on it",
            hint="remove that first, or save a sandbox of it anew: then it has all its layers",
        )
    # The trash there belongs to this user.
    remember(store.root, census.paths)
    if now:
        store.delete(save.root.name)
        return Removed(info=info, trashed=None)
    return Removed(info=info, trashed=store.remove(save.root.name))


def restore_save(
    name_or_id: str, paths: Paths, cwd: Path | None = None, *, new_name: str | None = None
) -> Save:
    """Bring a save back from the trash: the one with that id there, or the most recently removed
    one with that name.

    Raises SaveNotFoundError, SaveError if the name is taken, ConfigError for a bad new name,
    HostError.
    """
    stores = known_stores(paths, cwd)
    found = [(trashed, store) for store in stores for trashed in store.trash()]
    wanted = [
        (trashed, store)
        for trashed, store in found
        if name_or_id in (trashed.id, trashed.save.name)
    ]
    if not wanted:
        raise _not_in_trash(name_or_id, [trashed for trashed, _ in found])
    # If several stores have the name, those in which names are looked for come first.
    near = {store.root for store in all_stores(paths, cwd)}
    chosen, store = max(wanted, key=lambda pair: (pair[1].root in near, pair[0].removed))
    was_own = fits(chosen.save.root, store.root / chosen.save.name, paths)
    restored = store.restore(chosen.id, new_name)
    remember(store.root, paths)
    if was_own:  # the old mark names the old path
        mark_made(restored.root, restored.root, paths)
    return restored


def _not_in_trash(name: str, trash: Iterable[Trashed]) -> SaveNotFoundError:
    names = sorted({trashed.save.name for trashed in trash})
    hint: str | Words = "it is empty"
    if close := difflib.get_close_matches(name, names, n=1):
        hint = f"did you mean {close[0]!r}?"
    elif names:
        lists = Remedy("list_trashed_saves")
        there = ", ".join(map(repr, names))
        hint = Words(lists, " lists what is in it", python=f"there are {there}")
    return SaveNotFoundError(f"there is no save {name!r} in the trash", hint=hint)


def choose_old(
    saves: Sequence[SaveInfo],
    *,
    older_than_s: float | None = None,
    keep: int | None = None,
    now: float | None = None,
) -> list[SaveInfo]:
    """The saves older than ``older_than_s`` seconds, except the newest ``keep``; the oldest first.
    Saves that cannot be read or on which others lie are left out."""
    now = time.time() if now is None else now
    usable = [info for info in saves if info.save.manifest is not None]
    ordered = sorted(usable, key=lambda info: (info.created, info.name), reverse=True)
    old = [info for info in ordered[keep or 0 :] if not info.above]
    if older_than_s is not None:
        old = [info for info in old if now - info.created > older_than_s]
    return old[::-1]


def remove_all(saves: Sequence[SaveInfo], paths: Paths) -> None:
    """Move these saves to the trash. Raises HostError, SaveError, SaveNotFoundError."""
    for info in saves:
        remember(info.store.root, paths)
        info.store.remove(info.save.root.name)


def freed_together(saves: Iterable[SaveInfo]) -> int:
    """Bytes that would be free if all these were removed for good."""
    return freed_by(info.save.root for info in saves)


def sweep(paths: Paths, cwd: Path | None = None) -> list[Trashed]:
    """Remove for good the entries that have been in the trash for a week; commands that change
    saves call this. Returns these entries. Raises HostError, SaveError."""
    return expire_trash(known_stores(paths, cwd), time.time())
