"""Making snapshots: looks at few things often and at the rest when they change.

There is no file watcher in the standard library, so the modification times of the sandboxes'
directories are compared: every record, state and exit file is replaced by a rename, which changes
them. What no file tells (a machine killed with its keeper) a slower look at the live ones finds.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand.errors import QuicksandError
from quicksand.host.memory import available_memory
from quicksand.host.paths import paths
from quicksand.images.resolve import ImageInfo, ImageResolver
from quicksand.layout import runtime_dir, sandbox_dir
from quicksand.registry import Entry, Registry
from quicksand.stats import allocated_size, process_usage

from quicksand_tui.listed import NO_HISTORY, ImageView, SandboxView, UseHistory
from quicksand_tui.past_reader import PastReader
from quicksand_tui.snapshot import HostView, Snapshot, State
from quicksand_tui.text import sanitise

if TYPE_CHECKING:
    from quicksand_tui.past import PastView

USAGE_EVERY_S = 2.0
READINGS_MAX = 120
"""That are remembered of each sandbox."""

Stamp = tuple[int, ...]


class Reader:
    """Remembers the last look. Used by one thread at a time."""

    def __init__(self) -> None:
        self._paths = paths()
        self._registry = Registry(self._paths)
        self._known: dict[str, tuple[Stamp, SandboxView]] = {}
        self._pasts: dict[str, PastReader] = {}
        self._cpu: dict[str, tuple[float, float]] = {}
        """By sandbox: (monotonic time, CPU seconds) of the last reading."""
        self._images_stamp: Stamp | None = None
        self._images: tuple[ImageView, ...] = ()
        self._host = HostView()
        self._next_usage = 0.0

    def read(self, visible: frozenset[str], *, fresh: bool = False) -> Snapshot:
        now = time.monotonic()
        due = fresh or now >= self._next_usage
        if fresh:
            self._images_stamp = None
            self._pasts = {}
            # What ran before is still the base of the next reading.
            self._known = {id_: ((), view) for id_, (_, view) in self._known.items()}
        if due:
            self._next_usage = now + USAGE_EVERY_S
        error = ""
        try:
            views = self._sandboxes(visible, due)
        except OSError as problem:
            views, error = (), f"{problem.filename}: {problem.strerror}"
        if due:
            self._host = self._look_at_host()
        return Snapshot(
            taken=time.time(),
            sandboxes=views,
            images=self._look_at_images(),
            host=self._host,
            error=sanitise(error),
        )

    def _sandboxes(self, visible: frozenset[str], due: bool) -> tuple[SandboxView, ...]:
        found: dict[str, tuple[Stamp, SandboxView]] = {}
        for id_ in _directories(self._paths.sandboxes):
            place, runtime = sandbox_dir(self._paths, id_), runtime_dir(self._paths, id_)
            stamp = (*_stamp(place.root), *_stamp(runtime.current().root))
            known = self._known.get(id_)
            same = known is not None and known[0] == stamp
            if known is not None and same and not (due and known[1].is_live):
                view = known[1]
            elif (entry := self._registry.inspect(id_)) is not None:
                view = self._with_usage(entry, _view(entry), known, visible)
            else:
                continue
            seen = id_ in visible
            past = self._past(id_, known, look=not same or seen, measure=seen)
            found[id_] = (stamp, view if view.past is past else replace(view, past=past))
        self._known = found
        self._pasts = {id_: past for id_, past in self._pasts.items() if id_ in found}
        self._cpu = {id_: value for id_, value in self._cpu.items() if id_ in found}
        views = [view for _, view in found.values()]
        return tuple(sorted(views, key=lambda view: (view.created or 0.0, view.id)))

    def _past(
        self, id_: str, known: tuple[Stamp, SandboxView] | None, *, look: bool, measure: bool
    ) -> PastView:
        """A sandbox's checkpoints: looked at when something else of it has changed, or somebody can
        see it; then also how large they are."""
        if known is not None and not look:
            return known[1].past
        reader = self._pasts.get(id_)
        if reader is None:
            reader = self._pasts[id_] = PastReader(sandbox_dir(self._paths, id_))
        return reader.read(measure=measure)

    def _with_usage(
        self,
        entry: Entry,
        view: SandboxView,
        known: tuple[Stamp, SandboxView] | None,
        visible: frozenset[str],
    ) -> SandboxView:
        """The view with its disk, and CPU and memory if it runs and somebody can see it."""
        view = replace(view, disk=allocated_size(sandbox_dir(self._paths, entry.id).root))
        if entry.run is None:
            self._cpu.pop(entry.id, None)
            return view
        if entry.id not in visible and known is not None:
            last = known[1]
            return replace(
                view,
                cpu_percent=last.cpu_percent,
                memory_used=last.memory_used,
                history=last.history,
            )
        now = time.monotonic()
        seconds, rss = process_usage(entry.run.qemu_pid)
        before, used = self._cpu.get(entry.id, (0.0, 0.0))
        percent = known[1].cpu_percent if known is not None else None
        if not before:
            self._cpu[entry.id] = (now, seconds)
        elif now - before >= USAGE_EVERY_S / 4:
            # A shorter time makes noise of the clock ticks, 10 ms each.
            percent = max(0.0, 100 * (seconds - used) / (now - before))
            self._cpu[entry.id] = (now, seconds)
            view = replace(view, history=_longer(known, percent, rss, view.disk or 0))
        elif known is not None:
            view = replace(view, history=known[1].history)
        return replace(view, cpu_percent=percent, memory_used=rss or None)

    def _look_at_images(self) -> tuple[ImageView, ...]:
        root = self._paths.images
        stamp: Stamp = _stamp(root)
        for name in _directories(root):
            stamp += _stamp(root / name)
        if stamp != self._images_stamp:
            try:
                found = ImageResolver(self._paths).list()
            except (OSError, QuicksandError) as error:
                # One unreadable directory must not hide what can be used.
                found = [ImageInfo(name="?", source="store", error=str(error))]
            self._images = tuple(_image(info) for info in found)
            self._images_stamp = stamp
        return self._images

    def _look_at_host(self) -> HostView:
        place = self._paths.data
        while not place.exists():
            place = place.parent
        try:
            memory, disk = available_memory(), shutil.disk_usage(place).free
            # In steps: last digits that change all the time would only cost repaints.
            return HostView(memory_free=memory >> 26 << 26, disk_free=disk >> 28 << 28)
        except OSError:
            return HostView()


def _longer(
    known: tuple[Stamp, SandboxView] | None, cpu: float, memory: int, disk: int
) -> UseHistory:
    """What was known, with another reading."""
    before = known[1].history if known is not None else NO_HISTORY
    return UseHistory(
        cpu=(*before.cpu, cpu)[-READINGS_MAX:],
        memory=(*before.memory, memory)[-READINGS_MAX:],
        disk=(*before.disk, disk)[-READINGS_MAX:],
    )


def _directories(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [e.name for e in entries if e.is_dir() and not e.name.startswith(".")]
    except FileNotFoundError:
        return []


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except FileNotFoundError:
        return (0, 0)
    return (found.st_ino, found.st_mtime_ns)


def _view(entry: Entry) -> SandboxView:
    record, run = entry.record, entry.run
    view = SandboxView(
        id=entry.id,
        name=sanitise(entry.name, limit=63),
        state=State(entry.status.value),
        error=sanitise(entry.error),
    )
    if record is None:
        return view
    view = replace(
        view,
        image=sanitise(record.began_with, limit=200),
        created=record.created,
        memory_limit=record.config.memory_bytes,
        cpus=record.config.cpus,
        network=record.config.network_mode.value,
        discard=record.discard,
    )
    if run is None:
        return view
    return replace(
        view,
        started=run.started,
        accel=sanitise(run.accel, limit=20),
        accel_reason=sanitise(run.accel_reason),
        ports=run.forwards,
    )


def _image(info: ImageInfo) -> ImageView:
    return ImageView(
        name=sanitise(info.name, limit=100),
        version=sanitise(info.version, limit=40),
        arch=sanitise(info.arch, limit=20),
        size=info.size,
        created=info.created,
        source=sanitise(info.source, limit=20),
        error=sanitise(info.error),
    )
