"""Reads the sandboxes for the app: cheap facts often, the others only when they change."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace
from itertools import starmap
from typing import TYPE_CHECKING, Any

from quicksand.base.errors import HistoryError, QuicksandError
from quicksand.base.footprint import Footprint
from quicksand.base.paths import paths
from quicksand.base.processes import is_stopped, process_usage
from quicksand.mounts.known_mounts import known_mounts
from quicksand.records.fleet_files import claims_dir
from quicksand.records.layout import runtime_dir
from quicksand.records.registry import Registry, names_in
from quicksand.snapshots.history import history_of
from quicksand.snapshots.tree import Tree, measure_tree, read_tree, told_by
from quicksand.things.mount_facts import MountFacts
from quicksand.things.status import Status

from quicksand_tui.door.stamps import Stamp, dir_stamp, directories
from quicksand_tui.model.amounts import size_text
from quicksand_tui.model.shown_sandboxes import (
    NO_HISTORY,
    NO_TREE,
    CheckpointTree,
    CheckpointView,
    SandboxView,
    TrafficMeter,
)
from quicksand_tui.model.text import cleaned, error_text, harmless, sanitise
from quicksand_tui.model.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from quicksand.records.nodes import Node
    from quicksand.records.sandboxes import Entry

    from quicksand_tui.door.surroundings import Surroundings


class TreeReader:
    """Reads one sandbox's checkpoints and remembers them. Used by one thread at a time."""

    def __init__(self, registry: Registry, sandbox_id: str) -> None:
        self._registry = registry
        self._id = sandbox_id
        self._views: dict[str, tuple[Node, CheckpointView]] = {}
        self._tree = NO_TREE
        self._sizes: dict[str, tuple[int, int]] = {}
        """The own bytes and the shared bytes of checkpoints, by their ids."""
        self._together = (0, 0)
        """The own bytes and the shared bytes of all checkpoints together."""
        self._measured: tuple[tuple[CheckpointView, ...], str | None] | None = None
        """The checkpoints and the head when sizes were last measured."""

    def read(self, *, measure: bool = False) -> CheckpointTree:
        """Returns the checkpoints, with their sizes if they are to be measured; the same object as
        before if nothing has changed. The reason for an unreadable part becomes an ``error`` in the
        result."""
        found = read_tree(history_of(self._registry, self._id))
        views = sorted(
            (*map(self._view, found.nodes), *starmap(_broken, found.broken.items())), key=_order
        )
        self._views = {node.id: self._views[node.id] for node in found.nodes}
        tree = CheckpointTree(
            checkpoints=tuple(views),
            head=found.head,
            changed=self._changed(found),
            error=sanitise(found.error),
        )
        if measure:
            self._measure(tree)
        if self._sizes:
            sized, (own, shared) = map(self._sized, tree.checkpoints), self._together
            tree = replace(tree, checkpoints=tuple(sized), own=own, shared=shared)
        if tree != self._tree:
            self._tree = tree
        return self._tree

    def _view(self, node: Node) -> CheckpointView:
        known = self._views.get(node.id)
        if known is None or known[0] is not node:
            has_picture = os.path.lexists(self._registry.place(self._id).screen(node.id))
            told = cleaned(told_by(node))
            name = node.tag if node.tag == told["tag"] else node.id
            view = CheckpointView(**told, name=name, has_picture=has_picture)
            known = self._views[node.id] = (node, view)
        return known[1]

    def _changed(self, found: Tree) -> int | None:
        """Returns the bytes written since the head. A size whose text is unchanged stays, so that
        nothing is repainted."""
        before = self._tree.changed
        if found.head is None or found.head != self._tree.head:
            return found.changed
        same = found.changed is None or size_text(before) == size_text(found.changed)
        return before if same else found.changed

    def _sized(self, view: CheckpointView) -> CheckpointView:
        known = self._sizes.get(view.id)
        if known == ((view.size, view.shared) if view.is_measured else None):
            return view
        size, shared = known or (0, 0)
        return replace(view, size=size, shared=shared, is_measured=known is not None)

    def _measure(self, tree: CheckpointTree) -> None:
        """Measures the checkpoints if they or the head have changed since the last time."""
        state = (tree.checkpoints, tree.head)
        if state == self._measured or not tree.checkpoints:
            return
        with contextlib.suppress(OSError, HistoryError):
            found = measure_tree(history_of(self._registry, self._id))
            self._sizes = {one.id: (one.size, one.shared) for one in found.checkpoints}
            self._together = (found.size, found.shared)
            if len(self._sizes) == len(tree.checkpoints):
                self._measured = state


def _broken(id_: str, error: str) -> CheckpointView:
    return CheckpointView(id=id_, tag=id_, name=id_, error=sanitise(error) or "unreadable")


def _order(view: CheckpointView) -> tuple[bool, float, str]:
    return (not view.error, view.created, view.id)


USAGE_EVERY_S = 2.0
"""Seconds between two readings of CPU, memory and disk."""


class Reader:
    """Reads sandboxes, images and the host, and remembers them. Used by one thread at a time."""

    def __init__(self) -> None:
        self._paths = paths()
        self._place = self._paths.sandboxes
        self._registry = Registry(self._paths)
        self._known: dict[str, tuple[Stamp, SandboxView]] = {}
        self._moved: set[str] = set()
        """The directories of sandboxes that are new, gone or changed since `directories` was last
        asked for: a new sandbox may have no record yet."""
        self._trees: dict[str, TreeReader] = {}
        self._cpu: dict[str, tuple[float, float]] = {}
        """The last reading of each sandbox, by its id: (monotonic time, CPU seconds)."""
        self._meters: dict[str, dict[str, TrafficMeter]] = {}
        """The traffic of mounts, by sandbox and place in its guest."""
        self._around: Surroundings | None = None
        """The surroundings; None until everything is looked at."""
        self._next_usage = 0.0

    def read(
        self,
        visible: frozenset[str],
        *,
        fresh: bool = False,
        sandboxes_only: bool = False,
        is_quiet: bool = False,
    ) -> World:
        """Reads everything, or only the sandboxes, which takes a third of the time at first. With
        ``is_quiet`` nothing has changed in `directories` since the last time, so that only things
        are looked at that leave no trace there."""
        now = time.monotonic()
        due = fresh or now >= self._next_usage
        if fresh:
            if self._around is not None:
                self._around.forget()
            self._trees = {}
            self._registry = Registry(self._paths)
            # The views stay: the next CPU reading is the difference to theirs.
            self._known = {id_: ((), view) for id_, (_, view) in self._known.items()}
        if due and not sandboxes_only:
            self._next_usage = now + USAGE_EVERY_S
        error = self._look_at_sandboxes(visible, due, now, is_quiet=is_quiet and not fresh)
        views = [view for _, view in self._known.values()]
        world = World(
            taken=time.time(),
            images_loaded=False,
            sandboxes=tuple(sorted(views, key=lambda view: (view.created or 0.0, view.id))),
            error=error,
        )
        if sandboxes_only:
            return world
        around = self._around
        if around is None:
            from quicksand_tui.door.surroundings import Surroundings  # noqa: PLC0415

            around = self._around = Surroundings(self._paths)
        if due:
            around.look_at_host(self._registry)
        images_error = around.look_at_images(due)
        return replace(
            world,
            images_loaded=True,
            images=around.images,
            host=around.host,
            images_error=images_error,
        )

    def directories(self) -> Iterator[Path]:
        """Yields the directories in which the names change with a sandbox; none of sandboxes that
        have stopped, and have not changed since the last call."""
        yield self._paths.sandboxes
        yield self._paths.runtime
        yield self._paths.images
        yield claims_dir(self._paths)
        live = (id_ for id_, (_, view) in self._known.items() if view.is_live)
        moved, self._moved = self._moved.union(live), set()
        for id_ in moved:
            yield self._registry.place(id_).root
            yield self._registry.place(id_).checkpoints
            machine = self._registry.machine(id_).root
            yield machine
            yield machine.parent

    def _look_at_sandboxes(
        self, visible: frozenset[str], due: bool, now: float, *, is_quiet: bool
    ) -> str:
        """Looks at all sandboxes. Those that cannot be read now stay as they were, and are looked
        at again the next time; returns the reason, or ""."""
        found: dict[str, tuple[Stamp, SandboxView]] = {}
        error = ""
        try:
            ids = directories(self._paths.sandboxes)
        except OSError as problem:
            return error_text(problem)
        runs = self._which_run()
        for id_ in ids:
            known = self._known.get(id_)
            if is_quiet and known is not None and self._rests(id_, known, visible, due):
                found[id_] = known
                continue
            try:
                stamp = self._stamp(id_, has_run=runs is None or id_ in runs)
                if known is None or known[0] != stamp:
                    self._moved.add(id_)
                seen = self._look_at_sandbox(id_, stamp, visible, due, now)
            except (OSError, QuicksandError) as problem:
                error = error_text(problem)
                seen = ((), _unreadable(id_, known, error))
            if seen is not None:
                found[id_] = seen
        self._moved |= self._known.keys() - found.keys()
        self._known = found
        self._trees = {id_: tree for id_, tree in self._trees.items() if id_ in found}
        self._cpu = {id_: value for id_, value in self._cpu.items() if id_ in found}
        self._meters = {id_: value for id_, value in self._meters.items() if id_ in found}
        return error

    def _which_run(self) -> frozenset[str] | None:
        """Returns the names in the runtime directory; None if they cannot be read."""
        try:
            return frozenset(names_in(self._paths.runtime))
        except OSError:
            return None

    @staticmethod
    def _rests(
        id_: str, known: tuple[Stamp, SandboxView], visible: frozenset[str], due: bool
    ) -> bool:
        """Whether nothing can have happened to a sandbox but changes that its directories show."""
        stamp, view = known
        is_followed = stamp and not view.is_live and id_ not in visible
        return bool(is_followed) and not (due and _has_errors(view))

    def _stamp(self, id_: str, *, has_run: bool) -> Stamp:
        """Returns a stamp of the names in a sandbox's directories, also in its runtime directory if
        there is one at all. Raises OSError."""
        own = dir_stamp(self._place / id_)
        if not has_run:
            return own
        runtime = runtime_dir(self._paths, id_).root  # with forwards made while it runs
        return (*own, *dir_stamp(self._registry.machine(id_).root), *dir_stamp(runtime))

    def _look_at_sandbox(
        self, id_: str, stamp: Stamp, visible: frozenset[str], due: bool, now: float
    ) -> tuple[Stamp, SandboxView] | None:
        """Returns a sandbox with its stamp; None if there is none. Raises OSError and
        QuicksandError."""
        known = self._known.get(id_)
        same = known is not None and known[0] == stamp
        doubted = due and known is not None and _has_errors(known[1])
        if known is not None and same and not doubted and not (due and known[1].is_live):
            view = known[1]
        elif (entry := self._registry.inspect(id_)) is not None:
            view = self._with_usage(entry, _view(entry), known, visible)
            # A new mount, or the end of one, changes the stamp.
            is_old = known is not None and same and id_ not in visible
            mounts = known[1].mounts if known and is_old else self._mounts(entry, now)
            view = replace(view, mounts=mounts)
        else:
            return None
        seen = id_ in visible
        tree = self._tree(id_, known, look=not same or seen or doubted, measure=seen)
        return stamp, view if view.tree is tree else replace(view, tree=tree)

    def _mounts(self, entry: Entry, now: float) -> tuple[MountFacts, ...]:
        meters = self._meters.setdefault(entry.id, {})
        known_now = known_mounts(self._registry, entry)
        for gone in meters.keys() - {known.key for known in known_now}:
            del meters[gone]
        for known in known_now:
            meters.setdefault(known.key, TrafficMeter()).add(known.carried, now)
        # What changes all the time and is not shown would only repaint.
        unshown: dict[str, Any] = {"received": None, "sent": None, "told_times": ()}
        return tuple(
            harmless(MountFacts, known, traffic=meters[known.key].rates, **unshown)
            for known in known_now
        )

    def _tree(
        self, id_: str, known: tuple[Stamp, SandboxView] | None, *, look: bool, measure: bool
    ) -> CheckpointTree:
        """Returns a sandbox's checkpoints, read anew only with ``look``, and measured with
        ``measure``."""
        if known is not None and not look:
            return known[1].tree
        reader = self._trees.get(id_)
        if reader is None:
            reader = self._trees[id_] = TreeReader(self._registry, id_)
        return reader.read(measure=measure)

    def _with_usage(
        self,
        entry: Entry,
        view: SandboxView,
        known: tuple[Stamp, SandboxView] | None,
        visible: frozenset[str],
    ) -> SandboxView:
        """Adds the size of the disk and, for a running and visible sandbox, CPU and memory."""
        disk = Footprint(self._registry.place(entry.id).root)
        view = replace(view, disk=disk.own, disk_shared=disk.shared)
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
        if is_stopped(entry.run.qemu_pid):
            since = known[1].silent_since if known is not None else None
            view = replace(view, silent_since=since or time.time())
        now = time.monotonic()
        seconds, rss = process_usage(entry.run.qemu_pid)
        before, used = self._cpu.get(entry.id, (0.0, 0.0))
        percent = known[1].cpu_percent if known is not None else None
        if not before:
            self._cpu[entry.id] = (now, seconds)
        elif now - before >= USAGE_EVERY_S / 4:
            # Over a shorter time the clock ticks of 10 ms make the percentage jump.
            percent = max(0.0, 100 * (seconds - used) / (now - before))
            self._cpu[entry.id] = (now, seconds)
            before_it = NO_HISTORY if known is None else known[1].history
            view = replace(view, history=before_it.longer(percent, rss, view.disk or 0))
        elif known is not None:
            view = replace(view, history=known[1].history)
        return replace(view, cpu_percent=percent, memory_used=rss or None)


def _has_errors(view: SandboxView) -> bool:
    """Whether a part of a sandbox could not be read, which may succeed at any time."""
    tree = view.tree
    return bool(view.error or tree.error) or any(made.error for made in tree.checkpoints)


def _unreadable(id_: str, known: tuple[Stamp, SandboxView] | None, why: str) -> SandboxView:
    """Returns a sandbox that cannot be read now: in its last known state, or else as broken."""
    if known is None:
        return SandboxView(id=id_, name=id_, state=Status.BROKEN, error=why)
    return replace(known[1], error=f"it cannot be read now: {why}")


def _view(entry: Entry) -> SandboxView:
    view = SandboxView(**cleaned(entry.told()))
    if entry.run is None:
        return view
    return replace(
        view,
        forwards=tuple(sorted({*entry.ports} - {*entry.run.forwards})),
        udp_forwards=tuple(sorted({*entry.udp_ports} - {*entry.run.udp_forwards})),
    )
