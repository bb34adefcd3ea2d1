"""Reads all saves when a directory has changed.

Changes that no directory's time shows (a sandbox drops a layer, a file is damaged in place) are
found by a slower, periodic look.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from quicksand.base.errors import QuicksandError
from quicksand.base.footprint import Footprint
from quicksand.base.paths import Paths, paths
from quicksand.disks.images.resolve import ImageResolver
from quicksand.life.sandbox_removal import SandboxTrash
from quicksand.records.config import SandboxConfig
from quicksand.records.registry import Registry
from quicksand.records.trash import TRASH, TRASH_KEPT_S, TrashedSandbox, trash_dir
from quicksand.saves.census import BaseState, Census, SaveInfo, list_trash
from quicksand.saves.finding import all_stores, rank
from quicksand.saves.links import workspaces_dir
from quicksand.saves.resolving import confine
from quicksand.saves.save_manifest import MANIFEST, SaveManifest
from quicksand.saves.save_trash import Trashed
from quicksand.saves.workspaces import known_stores

from quicksand_tui.model.amounts import size_text
from quicksand_tui.model.shown_saves import (
    NO_SAVES,
    SavesView,
    SaveView,
    TrashedView,
    VerdictView,
    freed_together,
    total_size,
)
from quicksand_tui.model.text import error_text, sanitise

SLOW_EVERY_S = 10.0
"""The least seconds between periodic looks."""
SLOW_SHARE = 20
"""The pause before a periodic look, as a multiple of the duration of the last one."""

MANY_OBJECTS = 50_000
"""The number of new objects from which the garbage collector leaves them alone."""

NAME_LIMIT, NOTE_LIMIT, PATH_LIMIT = 200, 1000, 1000
VOLATILE_MAX = 20

Stamp = tuple[int, ...]
Found = tuple[str, VerdictView]
"""The id of a verified save, and the verdict."""


class SavesReader:
    """Reads saves and remembers them. Used by one thread at a time, except `learn`."""

    def __init__(self) -> None:
        self._paths = paths()
        self._stamp: Stamp | None = None
        self._next = 0.0
        self._view = NO_SAVES
        self._verdicts: dict[str, Found] = {}

    def learn(self, verdicts: Mapping[str, Found]) -> None:
        """Remembers the verdicts of verified saves, by key."""
        self._verdicts = {**self._verdicts, **verdicts}

    def directories(self) -> set[Path]:
        """Returns the directories that change when a save comes or goes; in place of a missing
        directory, the one where it will be. Raises QuicksandError."""
        found = set()
        for path in _directories(self._paths):
            found.add(next(place for place in (path, *path.parents) if place.exists()))
        return found

    def read(self, *, fresh: bool = False) -> SavesView:
        """Returns the saves; the same object as before if nothing has changed. If they cannot be
        read now, they stay as they were, with an ``error``, and are read again the next time."""
        view = self._view
        try:
            stamp, now = _stamp(self._paths), time.monotonic()
            if fresh or stamp != self._stamp or now >= self._next:
                with _uncollected():
                    view = self._look()
                # The stamp from before the look, so that changes during it cause another look.
                self._stamp, ended = stamp, time.monotonic()
                self._next = ended + max(SLOW_EVERY_S, SLOW_SHARE * (ended - now))
        except (OSError, QuicksandError) as error:
            self._stamp = None
            view = replace(view, loaded=True, error=error_text(error))
        view = with_verdicts(view, self._verdicts)
        if view != self._view:
            self._view = view
        return self._view

    def _look(self) -> SavesView:
        """Reads everything. Raises OSError and QuicksandError."""
        infos = Census(self._paths).list()
        trash = list_trash(known_stores(self._paths))
        removed = SandboxTrash(Registry(self._paths)).list()
        names = ("workspace", "user", "here")
        stores = all_stores(self._paths)
        known = {store.root: name for name, store in zip(names, stores, strict=True)}
        addresses = _addresses(infos, self._paths)
        views = [
            _view(info, known.get(info.store.root, ""), addresses[info.save.root]) for info in infos
        ]
        trashed = [_trashed(found) for found in trash]
        trashed += [_trashed_sandbox(sandbox) for sandbox in removed]
        trashed.sort(key=lambda view: -view.removed)
        return SavesView(
            saves=tuple(views),
            trash=tuple(trashed),
            size=total_size(views),
            trash_frees=freed_together(trashed),
        )


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Suspends the garbage collector. A look makes no garbage, but with thousands of saves each
    collection stops all threads for a tenth of a second (measured). Many objects are frozen, so
    that later collections skip them."""
    was_enabled, before = gc.isenabled(), gc.get_count()
    gc.disable()
    try:
        yield
    finally:
        if sum(gc.get_count()) - sum(before) > MANY_OBJECTS:
            gc.freeze()
        if was_enabled:
            gc.enable()


def with_verdicts(view: SavesView, verdicts: Mapping[str, Found]) -> SavesView:
    """Returns the view with its verdicts; the same object if nothing is new."""
    known = [(save, _verdict_of(save, verdicts)) for save in view.saves] if verdicts else []
    if all(save.verdict == verdict for save, verdict in known):
        return view
    return replace(view, saves=tuple(replace(s, verdict=verdict) for s, verdict in known))


def _verdict_of(save: SaveView, verdicts: Mapping[str, Found]) -> VerdictView | None:
    id_, verdict = verdicts.get(save.key, ("", None))
    # Another save may have this path by now.
    return verdict if verdict is not None and id_ == save.id else None


def _stamp(places: Paths) -> Stamp:
    """Returns a stamp that changes when a save, or something it depends on, comes or goes."""
    return tuple(number for path in _directories(places) for number in _stat(path))


def _directories(places: Paths) -> list[Path]:
    found = [places.sandboxes, trash_dir(places), places.images, workspaces_dir(places)]
    found += _entries(places.images)
    for store in known_stores(places):
        found += [store.root, store.house / TRASH]
    return found


def _entries(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except OSError:
        return []


def _stat(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return (found.st_ino, found.st_mtime_ns)


def _addresses(infos: Sequence[SaveInfo], places: Paths) -> dict[Path, str]:
    """Returns the word for each save in commands: its name if that resolves to it, else a path."""
    images, here = ImageResolver(places), Path.cwd()
    offered = [here, *(store.root for store in all_stores(places)[:1])]
    found: dict[Path, str] = {}
    taken: set[str] = set()
    for info in sorted(infos, key=lambda i: rank(i.save.root, places, is_own=i.is_own)):
        name, root = info.name, info.save.root
        is_free = name not in taken and (info.is_own or not images.has(name))
        taken.add(name)
        if _fit(name) != name or not (is_free or root.parent in offered):
            found[root] = sanitise(str(root), limit=PATH_LIMIT)
        elif is_free:
            found[root] = name
        else:
            is_hidden = root.parent != here and (here / name / MANIFEST).exists()
            found[root] = sanitise(str(root), limit=PATH_LIMIT) if is_hidden else f"./{name}"
    return found


def _view(info: SaveInfo, place: str, address: str) -> SaveView:
    manifest, root, base = info.save.manifest, info.save.root, info.base
    view = SaveView(
        key=str(root),
        name=_fit(info.name),
        address=address,
        place=place,
        is_own=info.is_own,
        path=sanitise(str(root), limit=PATH_LIMIT),
        created=info.created or None,
        note=sanitise(info.note, limit=NOTE_LIMIT),
        own=info.own,
        shared=info.shared,
        shared_files=info.footprint.shared_files,
        parent="" if info.parent is None else _fit(info.parent.name),
        children=tuple(_fit(child) for child in info.children),
        above=tuple(_fit(other) for other in info.above),
        sandboxes=tuple(_fit(sandbox) for sandbox in info.sandboxes),
        trouble=_trouble(info),
        problems=tuple(sanitise(problem) for problem in info.problems),
    )
    if base is not None:
        version = f"{base.name} {base.version}".strip()
        view = replace(view, base=_fit(version), base_digest=_fit(base.digest[:12]))
    if manifest is not None:
        config = manifest.config if info.is_own else confine(manifest.config)
        view = _with_manifest(view, manifest, config)
        view = replace(view, left_out=sanitise("; ".join(info.left_out)))
    return replace(view, words=_words(view))


def _with_manifest(view: SaveView, manifest: SaveManifest, config: SandboxConfig) -> SaveView:
    """Adds the manifest's facts; ``config`` is that of a sandbox that starts from the save."""
    return replace(
        view,
        id=_fit(manifest.id),
        arch=_fit(manifest.arch),
        layers=None if manifest.layers is None else len(manifest.layers),
        machine=_machine(config),
        network=config.network_mode.value,
        ports=", ".join(forward.word for forward in config.port_forwards),
        frozen=manifest.frozen,
        unsynced=manifest.unsynced,
        volatile=tuple(sanitise(path) for path in manifest.volatile[:VOLATILE_MAX]),
    )


def _machine(config: SandboxConfig) -> str:
    parts = [size_text(config.memory_bytes), f"{config.cpus} CPU{'s' if config.cpus != 1 else ''}"]
    parts.append(f"network {config.network_mode.value.replace('_', ' ')}")
    parts += [forward.between("→") for forward in config.port_forwards]
    return _fit(" · ".join(parts))


def _fit(text: str) -> str:
    return sanitise(text, limit=NAME_LIMIT)


def _trouble(info: SaveInfo) -> str:
    if info.save.manifest is None:
        return "damaged"
    return "no base" if info.base_state in (BaseState.MISSING, BaseState.OTHER) else ""


def _words(view: SaveView) -> str:
    parts = (view.name, view.base, view.parent, view.note, view.place, view.trouble, view.id)
    return "\n".join((*parts, *view.sandboxes)).lower()


def _trashed(found: Trashed) -> TrashedView:
    footprint, manifest = Footprint(found.root), found.save.manifest
    return TrashedView(
        key=str(found.root),
        id=_fit(found.id),
        name=_fit(found.save.name),
        removed=found.removed,
        until=found.removed + TRASH_KEPT_S if found.was_save else None,
        own=footprint.own,
        shared=footprint.shared,
        shared_files=footprint.shared_files,
        note="" if manifest is None else sanitise(manifest.note, limit=NOTE_LIMIT),
        error=sanitise(found.save.error),
    )


def _trashed_sandbox(found: TrashedSandbox) -> TrashedView:
    footprint = found.footprint
    return TrashedView(
        key=str(found.root),
        id=_fit(found.id),
        name=_fit(found.name),
        removed=found.removed,
        until=found.until,
        kind="sandbox",
        own=footprint.own,
        shared=footprint.shared,
        shared_files=footprint.shared_files,
        note=sanitise(found.why, limit=NOTE_LIMIT),
        error="" if found.record is not None else "its record cannot be read",
    )
