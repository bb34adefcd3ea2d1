"""A sandbox's history on disk: its layers, its checkpoints, and where it stands.

The checkpoints' directories are the tree; ``node.json``, written last, is a checkpoint's commit
mark. ``head.json`` names the layers that the guest's disk is made of at this moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any

from quicksand.errors import HistoryError
from quicksand.host.files import (
    PendingJson,
    is_locked,
    map_os_errors,
    read_json,
    sync_dir,
    try_lock,
    write_json,
)
from quicksand.layout import SandboxDir
from quicksand.snapshots.records import Head, Node, is_id

AUTO_KEPT = 5
"""Checkpoints taken before a revert that are kept."""

LAYER_FILES = ("qcow2", "json", "sha256")
"""Of files in layers/."""

TICK_NS = 50_000_000
"""Two changes of a file in less time may leave it the same time of modification (a kernel's tick
is up to 10 ms)."""

LOCK_WAIT_S = 30.0
LOCK_POLL_S = 0.01

_LASTING = {errno.EIO, errno.EISDIR, errno.ELOOP, errno.EACCES}
"""Errors of reading that do not pass by themselves."""


class History:
    """The history of one sandbox. Whoever changes it holds `locked`."""

    def __init__(self, place: SandboxDir) -> None:
        self.place = place
        self._seen: dict[str, tuple[tuple[int, int, int], Node]] = {}
        """Checkpoints as they were when they were last read, by what tells one file of an id from
        another: they are looked through several times in an operation, and there may be many."""

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Hold the history's lock. Raises HistoryError when another client keeps it."""
        path = self.place.history_lock
        deadline = time.monotonic() + LOCK_WAIT_S
        with map_os_errors(path):
            while (lock := try_lock(path)) is None and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(LOCK_POLL_S)
        if lock is None:
            raise HistoryError(
                "another client is making or restoring a checkpoint of this sandbox",
                hint="try again when it is done",
            )
        try:
            yield
        finally:
            os.close(lock)

    def head(self) -> Head:
        """Raises HistoryError if it cannot be read."""
        try:
            return Head.from_json(read_json(self.place.head))
        except (OSError, ValueError) as error:
            raise lost_head(self.place, error) from error

    def set_head(self, head: Head) -> None:
        write_json(self.place.head, head.to_json())

    def prepare_head(self, head: Head) -> PendingJson:
        """A head to be set later, when the disk may be full. Raises DiskSpaceError, PathError."""
        return PendingJson(self.place.head, head.to_json())

    def settle(self, machine: str) -> None:
        """``machine`` is the one that runs: decide a hand-over that was cut short."""
        head = self.head()
        if head.previous is not None:
            stays = head.previous.machine == machine
            self.set_head(head.previous if stays else replace(head, previous=None))

    # Checkpoints

    def nodes(self) -> list[Node]:
        """All checkpoints that can be read, the oldest first; not those that are hidden."""
        return [node for node in self.all_nodes() if not node.hidden]

    def all_nodes(self) -> list[Node]:
        """The hidden ones too."""
        return self._read_all()[0]

    def broken(self) -> dict[str, str]:
        """Checkpoints whose ``node.json`` cannot be read: id -> why."""
        return self._read_all()[1]

    def _read_all(self) -> tuple[list[Node], dict[str, str]]:
        """All checkpoints, and those that cannot be read, by one look at each: what could be read a
        moment ago may not be now (no descriptors left, say), and is there all the same."""
        found: list[Node] = []
        broken: dict[str, str] = {}
        ids = set(self._ids())
        self._seen = {id_: seen for id_, seen in self._seen.items() if id_ in ids}
        for id_ in ids:
            try:
                found.append(self._read(id_))
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                broken[id_] = str(error)
        return sorted(found, key=lambda node: (node.created, node.id)), broken

    def _ids(self) -> Iterable[str]:
        with contextlib.suppress(FileNotFoundError):
            for path in self.place.checkpoints.iterdir():
                if is_id(path.name):
                    yield path.name

    def _read(self, id_: str) -> Node:
        path = self.place.checkpoints / id_ / "node.json"
        found = path.stat()
        state = (found.st_ino, found.st_size, found.st_mtime_ns)
        before, node = self._seen.get(id_, (None, None))
        if node is None or state != before:
            node = Node.from_json(read_json(path))
            if node.id != id_:
                raise ValueError(f"it is the checkpoint {node.id}")
            if time.time_ns() - found.st_mtime_ns > TICK_NS:
                self._seen[id_] = (state, node)
        return node

    def find(self, tag: str) -> Node:
        """The checkpoint of that tag or id. Raises CheckpointNotFoundError (a ValueError)."""
        from quicksand.errors import CheckpointNotFoundError

        nodes = self.nodes()
        # An id is nobody else's, whatever tags there are.
        for name in ("id", "tag"):
            for node in reversed(nodes):
                if getattr(node, name) == tag:
                    return node
        import difflib

        close = difflib.get_close_matches(tag, [node.tag for node in nodes], n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else "`quicksand-tui tree NAME` lists them"
        raise CheckpointNotFoundError(f"there is no checkpoint {tag!r}", hint=hint)

    def get(self, id_: str) -> Node:
        """The checkpoint of that id, be it hidden. Raises HistoryError."""
        try:
            return self._read(id_)
        except (OSError, ValueError) as error:
            raise HistoryError(f"the checkpoint {id_} cannot be read: {error}") from error

    def commit(self, node: Node) -> None:
        """Write a checkpoint's commit mark; all its files are on disk already."""
        directory = self.place.checkpoints / node.id
        write_json(directory / "node.json", node.to_json())
        sync_dir(self.place.checkpoints)

    def position(self) -> str | None:
        """Where the sandbox stands in its tree. Raises HistoryError if the head cannot be read."""
        return self.find_visible(self.head().node)

    def find_visible(self, id_: str | None) -> str | None:
        """The nearest checkpoint from ``id_`` upwards that is not hidden."""
        nodes = {node.id: node for node in self.all_nodes()}
        while id_ in nodes and nodes[id_].hidden:
            id_ = nodes[id_].parent
        return id_

    def delete(self, tag: str) -> None:
        """Take the checkpoint of that tag or id out of the tree, also one that cannot be read: by
        its id. Raises CheckpointNotFoundError, HostError."""
        if tag not in self.broken():
            self.remove(self.find(tag))
            return
        self._replace_parent(tag, None)
        head = self._head_or_none()
        if head is not None and head.node == tag:
            self.set_head(replace(head, node=None, run=None))
        self._remove_files(tag)
        self.sweep()

    def _replace_parent(self, old: str, new: str | None) -> None:
        for child in self.all_nodes():
            if child.parent == old:
                self.commit(replace(child, parent=new))

    def remove(self, node: Node) -> None:
        """Take a checkpoint out of the tree: its children become its parent's.

        The one that a running sandbox stands on stays, hidden, until the next one is taken: else
        that would have to write all of the memory anew. Raises HistoryError if it is pinned.
        """
        if node.pinned:
            raise HistoryError(
                f"the checkpoint {node.tag!r} is pinned", hint="unpin it first, if it is to go"
            )
        self._replace_parent(node.id, node.parent)
        head = self._head_or_none()
        if head is not None and head.node == node.id:
            if head.run is not None and is_locked(self.place.lock):
                self.commit(replace(node, hidden=True))
                self.sweep()
                return
            self.set_head(replace(head, node=node.parent, run=None))
        self._remove_files(node.id)
        self.sweep()

    def pin(self, node: Node, pinned: bool) -> None:
        """Keep a checkpoint from being removed, or no longer."""
        self.commit(replace(node, pinned=pinned))

    def write_note(self, node: Node, note: str) -> None:
        """Say something else of a checkpoint."""
        self.commit(replace(node, note=note))

    def _remove_files(self, id_: str) -> None:
        """Remove a checkpoint's directory, its commit mark first."""
        mark = self.place.checkpoints / id_ / "node.json"
        with map_os_errors(mark):
            mark.unlink(missing_ok=True)
        shutil.rmtree(mark.parent, ignore_errors=True)

    def sweep(self) -> None:
        """Remove files that neither a checkpoint nor the head needs, and half-made checkpoints.

        Does nothing while a checkpoint cannot be read: nobody knows what it needs. Layers stay
        while nobody knows which of them the present is, or once was (`set_head_aside`).
        """
        ids = list(self._ids())
        all_nodes, broken = self._read_all()
        if broken:
            return
        head = self._leave_hidden(self._head_or_none())
        heads = [place for place in (head, head.previous if head else None) if place is not None]
        stood_on = {place.node for place in heads if place.run is not None}
        lost = head is None and self.place.head.exists()
        nodes = [node for node in all_nodes if not node.hidden or node.id in stood_on or lost]
        alive = {node.id for node in nodes}
        for id_ in ids:
            if id_ not in alive:
                self._remove_files(id_)
        self._remove_temporaries()
        if head is None:
            return
        layers = {name for node in nodes for name in node.layers}
        layers |= {name for place in heads for name in (*place.layers, place.top)}
        if is_locked(self.place.lock):
            layers |= {place.waiting for place in heads}
        if not self.place.broken_head.exists():
            kept = {f"{name}.{kind}" for name in layers for kind in LAYER_FILES}
            _remove_others(self.place.layers, kept)
        pages = {file.name for node in nodes for file in node.files}
        memory = {node.memory for node in nodes}
        # What a machine maps is needed while there is one; a start that does not go on from a
        # checkpoint begins with none.
        if is_locked(self.place.lock):
            memory |= {place.memory for place in heads}
        _remove_others(self.place.memory, pages | memory)

    def _leave_hidden(self, head: Head | None) -> Head | None:
        """A hidden checkpoint that no run needs is about to go: whoever stands on it stands on what
        is visible above it."""
        if head is None or head.run is not None or head.node is None:
            return head
        node = self.find_visible(head.node)
        if node != head.node:
            head = replace(head, node=node)
            self.set_head(head)
        return head

    def _remove_temporaries(self) -> None:
        """What `write_json` leaves when it is killed. Whoever writes these holds our lock."""
        for pattern in (f".{self.place.head.name}.*", "checkpoints/*/.node.json.*"):
            for path in self.place.root.glob(pattern):
                path.unlink(missing_ok=True)

    def set_head_aside(self) -> None:
        """Go on without a head that cannot be read. It is kept, and so are all layers: with them
        the disk that it named may still be put together by hand. No error if it can be read.

        Raises HistoryError if it may be readable in a moment (no descriptors left, say).
        """
        try:
            self.head()
        except HistoryError as error:
            cause = error.__cause__
            if isinstance(cause, FileNotFoundError):
                return
            if isinstance(cause, OSError) and cause.errno not in _LASTING:
                raise
            with map_os_errors(self.place.head):
                self.place.head.replace(self.place.broken_head)

    def _head_or_none(self) -> Head | None:
        with contextlib.suppress(HistoryError):
            return self.head()
        return None


def prune_automatic(history: History) -> None:
    """Keep the latest automatic checkpoints only, and those that somebody has pinned or written a
    note to."""
    nodes = history.nodes()
    automatic = [node for node in nodes if node.auto and not node.pinned and not node.note]
    for node in automatic[:-AUTO_KEPT]:
        history.remove(node)


def lost_head(place: SandboxDir, why: object) -> HistoryError:
    """The error for a sandbox of which nobody knows what its disk is made of."""
    return HistoryError(
        f"{place.head} cannot be read: {why}; so the present of its disk is lost",
        hint="`quicksand-tui tree NAME` lists its checkpoints, `quicksand-tui start --at TAG NAME` "
        "goes on from one",
    )


def _remove_others(directory: Any, kept: set[str]) -> None:
    with contextlib.suppress(FileNotFoundError):
        for path in directory.iterdir():
            if path.name not in kept:
                path.unlink(missing_ok=True)
