"""Measures the disk space of sandboxes, saves, images, and files that can be made again."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from quicksand.base.files import is_locked
from quicksand.base.footprint import Footprint
from quicksand.base.paths import Paths
from quicksand.life.sandbox_removal import SandboxTrash
from quicksand.life.spare_names import name_of
from quicksand.records.fleet_files import NODE_HOME, fleet_dir, nodes_dir, nodes_of
from quicksand.records.layout import elsewhere
from quicksand.records.registry import Registry
from quicksand.saves.finding import known_stores
from quicksand.saves.save_places import WORKSPACE
from quicksand.warm.spares.spare import list_spares
from quicksand.warm.templates import list_templates, templates_dir

BUILDING = re.compile(r"\.building-(.+)-[0-9a-f]{8}")
"""The pattern of a build's directory (quicksand_images/build.py), with the name of the image."""


class UsageKind(StrEnum):
    """The kinds of things that occupy space, in the order in which they are shown."""

    SANDBOX = "sandboxes"
    SPARE = "spares"
    """Spares, which wait for the next start (quicksand/warm/spares)."""
    SAVE = "saves"
    TRASH = "trash"
    """Sandboxes and saves that were removed but can be brought back."""
    IMAGE = "images"
    TEMPLATE = "templates"
    CACHE = "caches"
    QEMU = "qemu"
    NODE = "local nodes"
    """Data directories of a fleet's nodes on this machine."""
    OTHER = "other files"
    """Records, keys, tools, and whatever else is in the data directory."""
    MAKING = "being made"
    """Images that are being built or imported, and other work whose process holds its lock."""
    LEFTOVER = "leftovers"
    """Files that were being made or removed when the process that did it died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing that occupies space."""

    kind: UsageKind
    name: str
    path: Path
    footprint: Footprint


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All things of one kind together."""

    kind: UsageKind
    number: int
    own: int
    """The bytes that removing all of them would free."""
    shared: int
    """The bytes that they share with things of other kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Everything that occupies space."""

    items: tuple[Item, ...]

    @property
    def total(self) -> int:
        """Bytes of everything together, each file counted once."""
        return Footprint.together(item.footprint for item in self.items).size

    def rows(self) -> list[Row]:
        """One row for each kind that occurs."""
        found = []
        for kind in UsageKind:
            parts = [item.footprint for item in self.items if item.kind is kind]
            if parts:
                together = Footprint.together(parts)
                found.append(
                    Row(kind=kind, number=len(parts), own=together.own, shared=together.shared)
                )
        return found


def measure(paths: Paths, cwd: Path | None = None) -> Usage:
    """Measure everything of this user; files that cannot be read are left out. Blocks for I/O."""
    parts = (_sandboxes(paths), _saves(paths, cwd), _images(paths), _nodes(paths), _others(paths))
    return Usage(items=tuple(itertools.chain(*parts)))


def _sandboxes(paths: Paths) -> Iterator[Item]:
    registry = Registry(paths)
    names, trash = {entry.id: entry.name for entry in registry.list()}, SandboxTrash(registry)
    spares = {spare.id: name_of(spare.record) for spare in list_spares(paths)}
    for trashed in trash.list():
        yield _item(UsageKind.TRASH, trashed.name, *trashed.places)
    for path in _entries(paths.sandboxes):
        if path == trash.root:
            continue
        if path.name.startswith("."):
            yield _unfinished(path)
        else:
            name, kind = names.get(path.name, path.name), UsageKind.SANDBOX
            if path.name in spares:
                name, kind = f"{name} ({spares[path.name]})", UsageKind.SPARE
            yield _item(kind, name, path, *elsewhere(path))


def _saves(paths: Paths, cwd: Path | None) -> Iterator[Item]:
    for store in known_stores(paths, cwd):
        for path in store.roots():
            yield _item(UsageKind.SAVE, path.name, path)
        for path in store.left_behind():
            yield _unfinished(path)
        for trashed in store.trash():
            yield _item(UsageKind.TRASH, trashed.save.name, trashed.root)


def _images(paths: Paths) -> Iterator[Item]:
    for image in _entries(paths.images):
        if image.name.startswith("."):
            yield _unfinished(image)
            continue
        for path in _entries(image):
            if path.is_dir():
                yield _item(UsageKind.IMAGE, f"{image.name} {path.name}", path)
    for path in _entries(paths.data / "qemu"):
        yield _item(UsageKind.QEMU, path.name, path)


def _nodes(paths: Paths) -> Iterator[Item]:
    names = {node.id: node.name for node in nodes_of(paths)}
    for path in _entries(nodes_dir(paths)):
        yield _item(UsageKind.NODE, names.get(path.name, path.name), path)


def _others(paths: Paths) -> Iterator[Item]:
    known, place = {t.root: t.image for t in list_templates(paths)}, templates_dir(paths)
    for path in _entries(place):
        yield _item(UsageKind.TEMPLATE, known.get(path) or path.name, path)
    for path in _entries(paths.cache):
        if path != place:
            yield _item(UsageKind.CACHE, path.name, path)
    counted = (paths.sandboxes, paths.saves, paths.data / "images", paths.data / "qemu", place)
    for path in _entries(paths.data):
        if path == fleet_dir(paths):
            found = [one for one in _entries(path) if one != nodes_dir(paths)]
        elif path == paths.data / NODE_HOME:  # its saves are counted as saves
            found = [one for one in _entries(path) if one.name != WORKSPACE]
        else:
            found = [] if path in counted else [path]
        if found:
            yield _item(UsageKind.OTHER, path.name, *found)


def _unfinished(path: Path) -> Item:
    """Return a directory for unfinished work as an item: its maker holds the lock in it or, for a
    build, the lock of the image's name beside it."""
    build = BUILDING.fullmatch(path.name)
    lock = path.with_name(f".{build[1]}.lock") if build else path / "lock"
    is_held = False
    with contextlib.suppress(OSError):
        is_held = is_locked(lock)
    return _item(UsageKind.MAKING if is_held else UsageKind.LEFTOVER, path.name, path)


def _item(kind: UsageKind, name: str, *paths: Path) -> Item:
    return Item(kind=kind, name=name, path=paths[0], footprint=Footprint(*paths))


def _entries(directory: Path) -> list[Path]:
    """The entries of a directory, without lock files, which occupy nothing."""
    try:
        with os.scandir(directory) as entries:
            names = sorted(e.name for e in entries if not e.name.endswith("lock"))
    except OSError:
        return []
    return [directory / name for name in names]
