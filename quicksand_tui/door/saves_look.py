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
from quicksand.base.paths import Paths, paths
from quicksand.disks.images.resolve import ImageResolver
from quicksand.life.sandbox_removal import SandboxTrash
from quicksand.records.registry import Registry
from quicksand.records.trash import TRASH, trash_dir
from quicksand.saves.census import Census, SaveInfo, list_trash
from quicksand.saves.finding import all_stores, known_stores, rank, workspaces_dir
from quicksand.saves.save_manifest import MANIFEST
from quicksand.things.save import SaveFacts, TrashFacts, Verification, freed_together, total_size

from quicksand_tui.model.shown_saves import NO_SAVES, SavesView
from quicksand_tui.model.text import LIMITS, error_text, harmless, sanitise

SLOW_EVERY_S = 10.0
"""The least seconds between periodic looks."""
SLOW_SHARE = 20
"""The pause before a periodic look, as a multiple of the duration of the last one."""

MANY_OBJECTS = 50_000
"""The number of new objects from which the garbage collector leaves them alone."""

PATH_LIMIT = 1000

Stamp = tuple[int, ...]
Found = tuple[str, Verification]
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
        addresses = _addresses(infos, self._paths)
        views = [harmless(SaveFacts, info, address=addresses[info.save.root]) for info in infos]
        told = [*(found.facts for found in trash), *(found.facts for found in removed)]
        trashed = [harmless(TrashFacts, facts) for facts in told]
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


def _verdict_of(save: SaveFacts, verdicts: Mapping[str, Found]) -> Verification | None:
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
        is_typed = sanitise(name, limit=LIMITS["name"]) == name
        if not is_typed or not (is_free or root.parent in offered):
            found[root] = sanitise(str(root), limit=PATH_LIMIT)
        elif is_free:
            found[root] = name
        else:
            is_hidden = root.parent != here and (here / name / MANIFEST).exists()
            found[root] = sanitise(str(root), limit=PATH_LIMIT) if is_hidden else f"./{name}"
    return found
