"""Looking at saves on disk: all of them, when something has changed that shows in a directory.

What no directory tells (a layer that a sandbox drops, a file that is damaged in place) a slower
look finds.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from quicksand.errors import QuicksandError
from quicksand.host.footprint import Footprint
from quicksand.host.paths import Paths, paths
from quicksand.saves.census import BaseState, Census, SaveInfo, list_trash
from quicksand.saves.manifest import SaveManifest
from quicksand.saves.store import TRASH, TRASH_KEPT_S, SaveStore, Trashed
from quicksand.saves.workspaces import known_stores, workspaces_dir

from quicksand_tui.all_saves import NO_SAVES, SavesView
from quicksand_tui.saved import SaveView, TrashedView, VerdictView, freed_together, total_size
from quicksand_tui.text import sanitise, size_text

SLOW_EVERY_S = 10.0
SLOW_SHARE = 20
"""A look that nothing seems to ask for waits for so many times what the last one took."""

MANY_OBJECTS = 50_000

NAME_LIMIT, NOTE_LIMIT, PATH_LIMIT = 200, 1000, 1000
VOLATILE_MAX = 20

Stamp = tuple[int, ...]
_Known = tuple[str, VerdictView]
"""Of which save (its id) something was found out, and what."""


class SavesReader:
    """Remembers the last look. Used by one thread at a time, but for `learn`."""

    def __init__(self) -> None:
        self._paths = paths()
        self._stamp: Stamp | None = None
        self._next = 0.0
        self._view = NO_SAVES
        self._verdicts: dict[str, _Known] = {}

    def learn(self, verdicts: Mapping[str, _Known]) -> None:
        """Keep in mind what verifying has found, by key."""
        self._verdicts = {**self._verdicts, **verdicts}

    def read(self, *, fresh: bool = False) -> SavesView:
        stamp, now = _stamp(self._paths), time.monotonic()
        view = self._view
        if fresh or stamp != self._stamp or now >= self._next:
            with _uncollected():
                view = self._look()
            # Taken before: what has changed during the look is looked at again.
            self._stamp, ended = stamp, time.monotonic()
            self._next = ended + max(SLOW_EVERY_S, SLOW_SHARE * (ended - now))
        view = _with_verdicts(view, self._verdicts)
        if view != self._view:
            self._view = view
        return self._view

    def _look(self) -> SavesView:
        try:
            infos = Census(self._paths).list()
            trash = list_trash(known_stores(self._paths))
        except (OSError, QuicksandError) as error:
            return SavesView(error=sanitise(str(error)) or "they cannot be read")
        own = SaveStore(self._paths.saves).root
        views: list[SaveView] = []
        taken: set[str] = set()
        for info in infos:
            views.append(_view(info, "user" if info.store.root == own else "workspace", taken))
            taken.add(info.name)
        trashed = [_trashed(found) for found in reversed(trash)]
        return SavesView(
            saves=tuple(views),
            trash=tuple(trashed),
            size=total_size(views),
            trash_frees=freed_together(trashed),
        )


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Nothing that is read here is garbage. Of thousands of saves, to look for it holds up all
    threads for a tenth of a second, again and again; also later, since they stay."""
    was_enabled, before = gc.isenabled(), gc.get_count()
    gc.disable()
    try:
        yield
    finally:
        if sum(gc.get_count()) - sum(before) > MANY_OBJECTS:
            gc.freeze()
        if was_enabled:
            gc.enable()


def _with_verdicts(view: SavesView, verdicts: Mapping[str, _Known]) -> SavesView:
    """The same object if they tell nothing new."""
    known = [(save, _verdict_of(save, verdicts)) for save in view.saves] if verdicts else []
    if all(save.verdict == verdict for save, verdict in known):
        return view
    return replace(view, saves=tuple(replace(s, verdict=verdict) for s, verdict in known))


def _verdict_of(save: SaveView, verdicts: Mapping[str, _Known]) -> VerdictView | None:
    id_, verdict = verdicts.get(save.key, ("", None))
    # Another save may have the name by now.
    return verdict if verdict is not None and id_ == save.id else None


def _stamp(places: Paths) -> Stamp:
    """What changes when a save or something that belongs to one comes or goes."""
    found = [places.sandboxes, places.images, workspaces_dir(places)]
    found += _entries(places.images)
    for store in known_stores(places):
        found += [store.root, store.root / TRASH]
    return tuple(number for path in found for number in _stat(path))


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


def _view(info: SaveInfo, place: str, taken: set[str]) -> SaveView:
    """``taken``: names that lead to saves before it."""
    manifest, root, base = info.save.manifest, info.save.root, info.base
    name = _fit(info.name)
    by_name = info.name not in taken and name == info.name
    view = SaveView(
        key=str(root),
        name=name,
        address=name if by_name else sanitise(str(root), limit=PATH_LIMIT),
        place=place,
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
        view = _with_manifest(view, manifest)
    return replace(view, words=_words(view))


def _with_manifest(view: SaveView, manifest: SaveManifest) -> SaveView:
    return replace(
        view,
        id=_fit(manifest.id),
        arch=_fit(manifest.arch),
        layers=None if manifest.layers is None else len(manifest.layers),
        machine=_machine(manifest),
        frozen=manifest.frozen,
        unsynced=manifest.unsynced,
        volatile=tuple(sanitise(path) for path in manifest.volatile[:VOLATILE_MAX]),
    )


def _machine(manifest: SaveManifest) -> str:
    config = manifest.config
    parts = [size_text(config.memory_bytes), f"{config.cpus} CPU{'s' if config.cpus != 1 else ''}"]
    parts.append(f"network {config.network_mode.value.replace('_', ' ')}")
    parts += [f"{forward.host or 'any'}→{forward.guest}" for forward in config.port_forwards]
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
        until=found.removed + TRASH_KEPT_S,
        own=footprint.own,
        shared=footprint.shared,
        shared_files=footprint.shared_files,
        note="" if manifest is None else sanitise(manifest.note, limit=NOTE_LIMIT),
        error=sanitise(found.save.error),
    )
