"""Freeing disk space: removing templates and caches, which can be made again, and the trash."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from quicksand.base.effort import best_effort
from quicksand.base.errors import QuicksandError
from quicksand.base.files import is_locked
from quicksand.base.footprint import Footprint
from quicksand.base.listing import ANY_ID, own_directories, own_files
from quicksand.base.paths import Paths
from quicksand.base.removal import id_of, remove, why_not_ours
from quicksand.base.staging import list_abandoned, sweep_staging
from quicksand.disks.images.boot_files import list_boot_files, set_aside
from quicksand.disks.images.build_cache import (
    drop_build_logs,
    drop_downloads,
    list_build_logs,
    list_downloads,
)
from quicksand.disks.images.image_store import REMOVED
from quicksand.life.sandbox_removal import SandboxTrash
from quicksand.qemu.planning import booted_files
from quicksand.records.fleet_files import useless_nodes
from quicksand.records.host_sockets import host_places
from quicksand.records.layout import sandbox_dir
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import is_id
from quicksand.saves.bundle.unpacked import forget, unpacked_files
from quicksand.saves.moving.depot import drop_arrived, list_arrived
from quicksand.saves.store import SaveStore
from quicksand.saves.workspaces import known_stores
from quicksand.things.status import Status
from quicksand.warm.spares.claiming import end
from quicksand.warm.spares.spare import list_spares
from quicksand.warm.templates import discard, list_templates, templates_dir


class Waste(StrEnum):
    """The kinds of things that can be removed."""

    TEMPLATES = "templates"
    SPARES = "spares"
    """Spares, which wait for the next start, with their processes."""
    BOOT_FILES = "boot files"
    """Kernels and initrds, extracted from images for starts."""
    BUNDLES = "unpacked bundles"
    """Saves of bundles from which sandboxes were started."""
    DOWNLOADS = "downloads"
    """Packages that builds of images have downloaded."""
    VERDICTS = "verdicts"
    """Cached results of probes and checks: which accelerator works, which files are undamaged."""
    ARRIVED = "parts of saves"
    """Files of saves that another machine was sending when the transfer was interrupted."""
    BUILD_LOGS = "build logs"
    TRASH = "trash"
    LEFTOVERS = "leftovers"


COST = {
    Waste.TEMPLATES: "the next start of each machine boots",
    Waste.SPARES: "they are ended; the next start of each machine is slower",
    Waste.BOOT_FILES: "the next start makes them again",
    Waste.BUNDLES: "the next start from each bundle unpacks it again",
    Waste.DOWNLOADS: "the next build of an image downloads them again",
    Waste.VERDICTS: "the next start probes and checks again",
    Waste.ARRIVED: "an interrupted transfer of these begins anew",
    Waste.BUILD_LOGS: "what the last build of each image has printed is gone",
    Waste.TRASH: "these sandboxes and saves cannot be brought back then",
    Waste.LEFTOVERS: "",
}
"""The cost of removing each kind, for people."""

VERDICTS = re.compile(r"(?:accelerators|qemu-versions)\.json")
CHECKED = "verified"
"""Files in the cache that hold verdicts, and the directory with one file for each boot."""

DOOMED = re.compile(rf"{re.escape(REMOVED)}(?:[0-9a-f]{{8}}-)?[0-9a-f]{{8,64}}")
"""Names of image versions that were being removed; earlier programs have put nothing before the
version."""

LOCKS = re.compile(r"[0-9a-f]{32}\.lock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heap:
    """Everything of one kind."""

    kind: Waste
    paths: tuple[Path, ...]
    footprint: Footprint
    kept: str = ""
    """The reason why it cannot be removed now, or ""."""

    @property
    def frees(self) -> int:
        """Bytes that removing it frees now."""
        return 0 if self.kept else self.footprint.own


class Cleaner:
    """First looks (`look`), then removes (`clean`). Things in use by then are left alone."""

    def __init__(self, paths: Paths, cwd: Path | None = None) -> None:
        self._paths = paths
        self._stores = known_stores(paths, cwd)
        self._removed = SandboxTrash(Registry(paths))

    def look(self) -> list[Heap]:
        """List the things that could be removed, with the space that each would free. Blocks for
        I/O."""
        cache, starting = self._paths.cache, self._why_not()
        trash = [t.root for store in self._stores for t in store.trash() if t.was_save]
        for found in self._removed.list():
            if not why_not_ours(found.root):
                trash += found.places
        verdicts = own_files(cache, VERDICTS) + own_directories(cache / CHECKED, ANY_ID)
        heaps = [
            self._heap(Waste.TEMPLATES, self._templates(), starting),
            self._heap(Waste.SPARES, self._spares()),
            self._heap(Waste.BOOT_FILES, self._boot_files(), starting),
            self._heap(Waste.BUNDLES, unpacked_files(self._paths), starting),
            self._heap(Waste.DOWNLOADS, list_downloads(cache)),
            self._heap(Waste.VERDICTS, verdicts),
            self._heap(Waste.ARRIVED, list_arrived(self._paths)),
            self._heap(Waste.BUILD_LOGS, list_build_logs(self._paths)),
            self._heap(Waste.TRASH, trash),
            self._heap(Waste.LEFTOVERS, self._leftovers()),
        ]
        return [heap for heap in heaps if heap.paths]

    @staticmethod
    def _heap(kind: Waste, paths: Sequence[Path], kept: str = "") -> Heap:
        there = tuple(path for path in paths if path.exists())
        return Heap(kind=kind, paths=there, footprint=Footprint(*there), kept=kept)

    def _why_not(self) -> str:
        """The reason why templates and boot files cannot be removed now, or "": starting machines
        use them by their paths until QEMU has opened them."""
        for entry in Registry(self._paths).list():
            if entry.status is Status.STARTING:
                return f"the sandbox {entry.name!r} is just starting"
        root = templates_dir(self._paths)
        if any(is_locked(lock) for lock in own_files(root, LOCKS)):
            return "a template is being made"
        return ""

    def _templates(self) -> list[Path]:
        return [template.root for template in list_templates(self._paths)]

    def _spares(self) -> list[Path]:
        return [sandbox_dir(self._paths, s.id).root for s in list_spares(self._paths)]

    def _leftovers(self) -> list[Path]:
        doomed = own_directories(self._paths.images, DOOMED)
        return doomed + list_abandoned(host_places(self._paths)) + useless_nodes(self._paths)

    def _boot_files(self) -> list[Path]:
        """The cached boot files except those of running machines."""
        used = booted_files(Registry(self._paths))
        return [p for p in list_boot_files(self._paths.cache) if p not in used]

    def clean(self, heaps: Sequence[Heap]) -> int:
        """Remove these things, and return the bytes freed. Things that cannot be removed stay."""
        chosen = [heap for heap in heaps if not heap.kept]
        before = Footprint.together(heap.footprint for heap in chosen).own
        work: dict[Waste, Callable[[Heap], None]] = {
            Waste.TEMPLATES: self._clean_templates,
            Waste.SPARES: self._clean_spares,
            Waste.BOOT_FILES: self._clean_boot_files,
            Waste.BUNDLES: self._clean_bundles,
            Waste.DOWNLOADS: lambda heap: drop_downloads(heap.paths),
            Waste.VERDICTS: _remove,
            Waste.ARRIVED: lambda heap: drop_arrived(heap.paths, self._paths),
            Waste.BUILD_LOGS: lambda heap: drop_build_logs(heap.paths, self._paths),
            Waste.TRASH: self._clean_trash,
            Waste.LEFTOVERS: self._clean_leftovers,
        }
        for heap in chosen:
            with best_effort(f"clean {heap.kind.value}", self._paths.engine_log):
                work[heap.kind](heap)
        self._tidy()
        left = Footprint(*(path for heap in chosen for path in heap.paths if path.exists()))
        return max(0, before - left.own)

    def _tidy(self) -> None:
        """Remove files that dead processes have left."""
        for store in self._stores:
            with best_effort(
                f"recover the saves in {store.root}", self._paths.engine_log, QuicksandError
            ):
                if store.root.exists():
                    store.recover()
        with best_effort(
            "remove unfinished imports of images", self._paths.engine_log, QuicksandError
        ):
            sweep_staging(self._paths.images)
        Registry(self._paths).reap()

    def _clean_templates(self, heap: Heap) -> None:
        if self._why_not():
            return
        for root in heap.paths:
            with best_effort(
                f"remove the template {root.name}", self._paths.engine_log, QuicksandError
            ):
                discard(root)

    def _clean_spares(self, heap: Heap) -> None:
        shown = {path.name for path in heap.paths}
        for spare in list_spares(self._paths):
            if spare.id in shown:
                end(Registry(self._paths), spare)

    def _clean_boot_files(self, heap: Heap) -> None:
        """Rename the files first, then look for starts: a start that begins later makes new ones,
        and one that began before is seen, so its files are renamed back."""
        aside = {}
        for path in set(heap.paths) & set(list_boot_files(self._paths.cache)):
            aside[path] = set_aside(path)
            path.rename(aside[path])
        is_used = self._why_not() != ""
        for path, new in aside.items():
            if is_used:
                new.rename(path)
            else:
                new.unlink(missing_ok=True)

    def _clean_bundles(self, heap: Heap) -> None:
        if not self._why_not():
            forget(heap.paths, self._paths)

    def _clean_leftovers(self, heap: Heap) -> None:
        sweep_staging(host_places(self._paths))  # with its lock: one may just be being made there
        useless = useless_nodes(self._paths)
        for path in heap.paths:
            if path.parent == self._paths.images or path in useless:
                with contextlib.suppress(OSError):  # the others are still removed
                    remove(path)

    def _clean_trash(self, heap: Heap) -> None:
        # Only what `look` has shown.
        shown = {path.name for path in heap.paths}
        for store in self._stores:
            _empty(store, shown)
        self._removed.empty([name for name in shown if is_id(name)])


def _empty(store: SaveStore, ids: set[str]) -> None:
    mine = [found.id for found in store.trash() if found.id in ids]
    if mine:
        store.empty_trash(mine)


def _remove(heap: Heap) -> None:
    for path in heap.paths:
        with contextlib.suppress(OSError):  # the others are still removed
            if id_of(path.name):
                remove(path)
            else:
                path.unlink()
