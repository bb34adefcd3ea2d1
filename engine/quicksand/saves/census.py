"""All saves at one moment: their sizes, the images below them, and the saves and sandboxes that
were made from them; so that some can be removed, kept in the trash for a week, and restored."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from quicksand.base.ageing import youngest
from quicksand.base.errors import QuicksandError, SaveError, SaveNotFoundError
from quicksand.base.footprint import Footprint
from quicksand.base.paths import Paths
from quicksand.base.remedies import Remedy, Words
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.resolve import ImageResolver
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Entry
from quicksand.records.trash import TRASH_KEPT_S
from quicksand.saves.finding import all_stores, find_save, known_stores, remember
from quicksand.saves.ownership import fits, is_own, mark_made
from quicksand.saves.portable import find_image
from quicksand.saves.resolving import confine, left_out_of
from quicksand.saves.save_manifest import MANIFEST, Base, Save, SaveManifest
from quicksand.saves.store import SaveStore, Trashed
from quicksand.things.frozen import frozen
from quicksand.things.save import BaseState, SaveFacts

PLACES = ("workspace", "user", "here")
"""Words for the stores in which saves are found by name, in their order."""


@frozen
class SaveInfo(SaveFacts):
    """A save in the census."""

    save: Save
    store: SaveStore


class Census:
    """All saves, images and sandboxes at one moment. Blocks for I/O."""

    def __init__(self, paths: Paths, cwd: Path | None = None) -> None:
        self.paths = paths
        self._images = ImageResolver(paths)
        self._stores = all_stores(paths, cwd)
        self._known = known_stores(paths, cwd)
        roots = (store.root for store in self._stores)
        self._places = dict(zip(roots, PLACES, strict=True))
        self._saves = [(store, save) for store in self._known for save in store.list()]
        self._sandboxes = Registry(paths).list()
        self._children: dict[str, list[str]] = {}
        for _, save in self._saves:
            if save.manifest is not None and save.manifest.parent is not None:
                self._children.setdefault(save.manifest.parent.id, []).append(save.name)
        self._lower = {save.root: self._find_lower(save, store) for store, save in self._saves}
        self._above: dict[Path, list[str]] = {}
        for _, save in self._saves:
            if (lower := self._lower[save.root]) is not None:
                self._above.setdefault(lower.root, []).append(save.name)
        self._states: dict[tuple[Base, Path], BaseState] = {}

    def list(self, *, everywhere: bool = False) -> Sequence[SaveInfo]:
        """The saves that can be found by name, those of the workspace first; with ``everywhere``
        those of all known workspaces. A damaged save is listed with its problem, not raised."""
        roots = {store.root for store in (self._known if everywhere else self._stores)}
        return [self.look_at(save, store) for store, save in self._saves if store.root in roots]

    def look_at(self, save: Save, store: SaveStore) -> SaveInfo:
        """Look at one save, as it is listed."""
        footprint, manifest = Footprint(save.root), save.manifest
        base = None if manifest is None else base_of(save)
        state, own = self._base_state(save), is_own(save.root, self.paths)
        info = SaveInfo(
            save=save,
            store=store,
            name=save.name,
            path=str(save.root),
            place=self._places.get(store.root, str(store.root)),
            is_own=own,
            is_readable=manifest is not None,
            own=footprint.own,
            shared=footprint.shared,
            shared_files=footprint.shared_files,
            created=created_at(save),
            base_state=state,
            children=self.children(save),
            above=self.above(save),
            sandboxes=self.sandboxes(save),
            problems=tuple(filter(None, (save.error, _base_problem(base, state)))),
        )
        return info if base is None else _with_manifest(info, save.require(), base)

    def _find_lower(self, save: Save, store: SaveStore) -> Save | None:
        """The save below ``save``, if that was made by the published packages and lies on one."""
        manifest = save.manifest
        if manifest is None or manifest.base is not None:
            return None
        # As `resuming` finds it: beside it or, unless an image has the name, by name.
        places = dict.fromkeys((store.root, *(near.root for near in self._stores)))
        is_image = self._images.has(manifest.config.image)
        for place in (store.root,) if is_image else places:
            for other_store, other in self._saves:
                if other_store.root == place and other.name == manifest.config.image:
                    # A save with the same name as its image lies on the image, not on itself.
                    return None if other.root == save.root else other
        return None

    def _base_state(self, save: Save) -> BaseState:
        seen: set[Path] = set()
        while (lower := self._lower.get(save.root)) is not None and save.root not in seen:
            seen.add(save.root)
            save = lower
        if save.manifest is None:
            return BaseState.UNKNOWN
        key = base_of(save), save.root.parent
        if key not in self._states:
            self._states[key] = base_state(key[0], self.paths, key[1])
        return self._states[key]

    def above(self, save: Save) -> tuple[str, ...]:
        """Names of the saves that lie on it."""
        return tuple(self._above.get(save.root, ()))

    def children(self, save: Save) -> tuple[str, ...]:
        """Names of the saves whose parent it is."""
        id_ = "" if save.manifest is None else save.manifest.id
        return tuple(self._children.get(id_, ())) if id_ else ()

    def sandboxes(self, save: Save, *, starting: bool = False) -> tuple[str, ...]:
        """Names of the sandboxes that started with it. With ``starting``, read anew, only those
        that are just starting from it and so still need it."""
        return tuple(
            entry.name
            for entry in (Registry(self.paths).list() if starting else self._sandboxes)
            if (_starts_with(entry, save) if starting else _began_with(entry, save))
        )


def _with_manifest(info: SaveInfo, manifest: SaveManifest, base: Base) -> SaveInfo:
    config = manifest.config if info.is_own else confine(manifest.config)
    return replace(
        info,
        id=manifest.id,
        arch=manifest.arch,
        layers=None if manifest.layers is None else len(manifest.layers),
        note=manifest.note,
        base=base.name,
        base_version=base.version,
        base_digest=base.digest,
        parent="" if manifest.parent is None else manifest.parent.name,
        parent_id="" if manifest.parent is None else manifest.parent.id,
        left_out=() if info.is_own else left_out_of(manifest.config),
        memory=config.memory_bytes,
        cpus=config.cpus,
        network=config.network_mode.value,
        ports=", ".join(forward.word for forward in config.port_forwards),
        frozen=manifest.frozen,
        unsynced=manifest.unsynced,
        volatile=manifest.volatile,
    )


def _began_with(entry: Entry, save: Save) -> bool:
    source = None if entry.record is None else entry.record.source
    if source is None:
        return False
    if source.id:
        return save.manifest is not None and source.id == save.manifest.id
    return source.path == str(save.root)


def _starts_with(entry: Entry, save: Save) -> bool:
    record = entry.record
    if record is None or record.source is None or record.committed:
        return False
    return _began_with(entry, save) or str(save.root) in record.source.below


def base_of(save: Save) -> Base:
    """The image below a save; if the save does not record it, that of its config. Raises SaveError
    if the save cannot be used."""
    manifest = save.require()
    return manifest.base or Base(name=manifest.config.image)


def base_state(base: Base, paths: Paths, near: Path) -> BaseState:
    """Whether an image is on this host; ``near`` is the directory of the save."""
    images = ImageStore(paths.images)
    if base.digest:
        if images.find_version(base.name, base.digest) or find_image(base.digest, paths, [near]):
            return BaseState.HERE
        return BaseState.MISSING if images.get(base.name) is None else BaseState.OTHER
    is_path = "/" in base.name and Path(base.name).exists()
    is_here = is_path or ("/" not in base.name and ImageResolver(paths).knows(base.name))
    return BaseState.HERE if is_here else BaseState.MISSING


def _base_problem(base: Base | None, state: BaseState) -> str:
    match state:
        case BaseState.OTHER:
            return f"its base {base} is not here, only another version of it"
        case BaseState.MISSING:
            return f"its base {base} is not here"
    return ""


def created_at(save: Save) -> float:
    """When a save was made (Unix time): by its manifest, else by its directory's last change."""
    if save.manifest is not None and save.manifest.created > 0:
        return save.manifest.created
    try:
        return save.root.stat().st_mtime
    except OSError:
        return 0.0


def freed_by(roots: Iterable[Path]) -> int:
    """Bytes that would be free if all these were deleted together."""
    return Footprint(*roots).own


def list_trash(stores: Iterable[SaveStore]) -> list[Trashed]:
    """The trash of all these stores, the most recently removed last."""
    return sorted(
        (found for store in stores for found in store.trash()), key=lambda found: found.removed
    )


def expire_trash(stores: Iterable[SaveStore], now: float) -> list[Trashed]:
    """Remove for good the entries that have been in the trash for longer than TRASH_KEPT_S before
    ``now`` (Unix time), and were found so a day earlier, too (base/ageing.py); returns them. Raises
    HostError, SaveError."""
    gone = []
    for store in stores:
        old = [found for found in store.trash() if found.was_save and _is_old(found, now)]
        if chosen := store.confirm([found.id for found in old], now):
            store.empty_trash(chosen)
            gone += [found for found in old if found.id in chosen]
    return gone


def _is_old(found: Trashed, now: float) -> bool:
    """Whether it may go at that Unix time: its age is not greater than that of its files."""
    if now - found.removed <= TRASH_KEPT_S:
        return False
    inside = [found.root / "trash.json", found.save.root / MANIFEST]
    return now - youngest(found.removed, inside, now) > TRASH_KEPT_S


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
