"""A sandbox's history on disk: its layers, its checkpoints and its head.

The checkpoints form a tree by their parents; ``node.json``, written last, commits a checkpoint.
``head.json`` names the layers that make up the guest's disk at this moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import errno
import os
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quicksand.base.errors import CheckpointNotFoundError, HistoryError
from quicksand.base.files import (
    PendingJson,
    is_locked,
    map_os_errors,
    read_json,
    sync_dir,
    try_lock,
    write_json,
)
from quicksand.base.listing import TEMPORARY, own_files
from quicksand.base.remedies import Remedy, Words
from quicksand.base.removal import remove
from quicksand.base.sharing import share_file
from quicksand.records.layout import SandboxDir
from quicksand.records.nodes import File, Head, Node, check_note, is_id, read_given_up
from quicksand.records.registry import Registry
from quicksand.snapshots.pages import TICK_NS

AUTO_KEPT = 5
"""Automatic checkpoints that are kept; older ones are removed."""

LAYER_FILES = ("qcow2", "json", "sha256")
"""Suffixes of a layer's files in layers/."""

LOCK_WAIT_S = 30.0
LOCK_POLL_S = 0.01

_LASTING = {errno.EIO, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EINVAL}
"""Read errors that do not go away by themselves."""

_HEAD_LEFT = re.compile(rf"\.(head|given-up)\.json{TEMPORARY}")
_NODE_LEFT = re.compile(rf"\.node\.json{TEMPORARY}")
_OF_A_LAYER_OR_MEMORY = re.compile(r"\.?[0-9a-f]{8,64}(?:\.[0-9a-z]+)+")
"""Files in ``layers`` and ``memory``: an id or a digest with its suffix; unfinished, with a dot
before it and perhaps random digits at either end."""


def history_of(registry: Registry, id_: str) -> History:
    """The history of a sandbox; the same object each time, since it caches what it has read."""
    return registry.kept(History, id_)


class History:
    """The history of one sandbox. To change it, hold `locked`."""

    def __init__(self, place: SandboxDir) -> None:
        self.place = place
        self._checkpoints = os.fspath(place.checkpoints)
        self._seen: dict[str, tuple[tuple[int, int, int], Node]] = {}
        """A cache: id -> the file's (inode, size, modification time) and its checkpoint. One
        operation reads all checkpoints several times, and there may be many."""
        self._files: dict[File, File] = {}
        """The files of these checkpoints, each once: most checkpoints need those of the one before
        as well."""

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Hold the history's lock. Raises HistoryError if another client holds it for longer than
        LOCK_WAIT_S, HostError."""
        path = self.place.history_lock
        deadline = time.monotonic() + LOCK_WAIT_S
        with map_os_errors(path):
            while (lock := try_lock(path)) is None and time.monotonic() < deadline:  # noqa: ASYNC110 - no event tells
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
        """Read the head. Raises HistoryError if it cannot be read."""
        try:
            return Head.from_json(read_json(self.place.head))
        except (OSError, ValueError) as error:
            raise lost_head(self.place, error) from error

    def set_head(self, head: Head) -> None:
        """Write the head. Raises DiskSpaceError, PathError."""
        write_json(self.place.head, head.to_json(), read=Head.from_json)

    def prepare_head(self, head: Head) -> PendingJson:
        """Write a head to a temporary file now, to be set later even if the disk is full by then.
        Raises DiskSpaceError, PathError."""
        return PendingJson(self.place.head, head.to_json(), read=Head.from_json)

    def settle(self, machine: str) -> None:
        """Complete or revoke a hand-over between two machines that was cut short: ``machine`` is
        the one that runs. Raises HistoryError, HostError."""
        head = self.head()
        if head.previous is not None:
            stays = head.previous.machine == machine
            self.set_head(head.previous if stays else replace(head, previous=None))

    # Checkpoints

    def nodes(self) -> list[Node]:
        """All checkpoints that can be read and are not hidden, the oldest first."""
        return [node for node in self.all_nodes() if not node.hidden]

    def all_nodes(self) -> list[Node]:
        """All checkpoints that can be read, hidden ones too, the oldest first."""
        return self.look()[0]

    def broken(self) -> dict[str, str]:
        """The checkpoints whose ``node.json`` cannot be read: id -> reason."""
        return self.look()[1]

    def look(self) -> tuple[list[Node], dict[str, str]]:
        """The checkpoints that can be read, and id -> reason for those that cannot, with each read
        only once: a second read might fail (no descriptors left, say) and give another result."""
        found: list[Node] = []
        broken: dict[str, str] = {}
        ids = set(self._ids())
        if gone := self._seen.keys() - ids:
            self._seen = {id_: seen for id_, seen in self._seen.copy().items() if id_ not in gone}
            self._files.clear()
        for id_ in ids:
            try:
                found.append(self._read(id_))
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                broken[id_] = str(error)
        return sorted(found, key=lambda node: (node.created, node.id)), broken

    def _ids(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._checkpoints) if is_id(name)]  # noqa: PTH208
        except FileNotFoundError:
            return []

    def _read(self, id_: str) -> Node:
        # No `Path` until the file is read: most operations look at hundreds of files three times,
        # and making the paths would take longer than everything else.
        path = f"{self._checkpoints}/{id_}/node.json"
        found = os.stat(path)  # noqa: PTH116
        state = (found.st_ino, found.st_size, found.st_mtime_ns)
        before, node = self._seen.get(id_, (None, None))
        if node is None or state != before:
            node = Node.from_json(read_json(Path(path)))
            if node.id != id_:
                raise ValueError(f"it is the checkpoint {node.id}")
            pages = tuple(self._files.setdefault(file, file) for file in node.pages)
            node = replace(node, pages=pages)
            if time.time_ns() - found.st_mtime_ns > TICK_NS:
                self._seen[id_] = (state, node)
        return node

    def find(self, tag: str) -> Node:
        """The checkpoint with that tag or id. Raises CheckpointNotFoundError (a ValueError)."""
        nodes = self.nodes()
        # An id is unique, so it comes before a tag that looks like one.
        for name in ("id", "tag"):
            for node in reversed(nodes):
                if getattr(node, name) == tag:
                    return node
        close = difflib.get_close_matches(tag, [node.tag for node in nodes], n=1, cutoff=0.5)
        lists = Words(Remedy("tree", name=_name_at(self.place)), " lists them")
        hint = f"did you mean {close[0]!r}?" if close else lists
        raise CheckpointNotFoundError(f"there is no checkpoint {tag!r}", hint=hint)

    def get(self, id_: str) -> Node:
        """The checkpoint with that id, even if it is hidden. Raises HistoryError."""
        try:
            return self._read(id_)
        except (OSError, ValueError) as error:
            raise HistoryError(f"the checkpoint {id_} cannot be read: {error}") from error

    def commit(self, node: Node) -> None:
        """Write a checkpoint's ``node.json``; all its other files must be on disk already. Raises
        HostError."""
        directory = self.place.checkpoints / node.id
        write_json(directory / "node.json", node.to_json(), read=Node.from_json)
        sync_dir(self.place.checkpoints)

    def position(self) -> str | None:
        """The id of the checkpoint that the present descends from, or None. Raises HistoryError if
        the head cannot be read."""
        return self.find_visible(self.head().node)

    def find_visible(self, id_: str | None) -> str | None:
        """The id of the checkpoint ``id_`` or of its nearest ancestor that is not hidden."""
        nodes = {node.id: node for node in self.all_nodes()}
        while id_ in nodes and nodes[id_].hidden:
            id_ = nodes[id_].parent
        return id_

    def delete(self, tag: str) -> None:
        """Delete the checkpoint with that tag or id; one that cannot be read is deleted by its id.
        Raises CheckpointNotFoundError, HistoryError if it is pinned, HostError."""
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
        """Remove a checkpoint; its children become its parent's.

        The checkpoint from which a running machine's memory descends is only hidden until the next
        one is taken, which would otherwise have to write all of the memory again. Raises
        HistoryError if it is pinned, HostError.
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
        """Pin a checkpoint, so that it cannot be removed, or unpin it. Raises HostError."""
        self.commit(replace(node, pinned=pinned))

    def write_note(self, node: Node, note: str) -> None:
        """Replace a checkpoint's note. Raises ConfigError for a bad one, HostError."""
        self.commit(replace(node, note=check_note(note)))

    def _remove_files(self, id_: str) -> None:
        """Remove a checkpoint's directory, ``node.json`` first."""
        mark = self.place.checkpoints / id_ / "node.json"
        with map_os_errors(mark):
            mark.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # the next sweep removes what is left
            remove(self.place.root, part=f"{mark.parent.parent.name}/{id_}")

    def sweep(self) -> None:
        """Remove unfinished checkpoints and files that neither a checkpoint nor the head needs.

        Does nothing while a checkpoint, or the record of a given-up present, cannot be read, since
        its files are then unknown. Layers stay while the head cannot be read or is set aside
        (`set_head_aside`). Raises HostError.
        """
        try:
            given = read_given_up(self.place)
        except HistoryError:
            return
        ids = self._ids()
        all_nodes, broken = self.look()
        if broken:
            return
        head = self._leave_hidden(self._head_or_none())
        places = (head, head.previous if head else None, given.head if given else None)
        heads = [place for place in places if place is not None]
        stood_on = {place.node for place in heads if place.run is not None}
        lost = head is None and self.place.head.exists()
        nodes = [node for node in all_nodes if not node.hidden or node.id in stood_on or lost]
        alive = {node.id for node in (*nodes, *([given.node] if given else []))}
        for id_ in ids:
            if id_ not in alive:
                self._remove_files(id_)
        self._remove_temporaries()
        if head is None:
            return
        layers = {name for node in nodes for name in node.layers}
        layers |= {name for place in heads for name in (*place.layers, place.top)}
        if not self.place.broken_head.exists():
            kept = {f"{name}.{kind}" for name in layers for kind in LAYER_FILES}
            _remove_others(self.place.layers, kept)
        pages = {file.name for node in nodes for file in node.files}
        memory = {node.memory for node in nodes}
        # A memory image is needed only while a machine maps it: a cold start maps none.
        if is_locked(self.place.lock):
            memory |= {place.memory for place in heads}
        if given is not None:
            memory |= {given.head.memory, self.place.held(given.node.id).name}
            memory |= {given.firmware.name} if given.firmware is not None else set()
        _remove_others(self.place.memory, pages | memory)

    def _leave_hidden(self, head: Head | None) -> Head | None:
        """If no machine needs the hidden checkpoint from which the head descends, let the head
        descend from its nearest visible ancestor, since the hidden one is about to be removed."""
        if head is None or head.run is not None or head.node is None:
            return head
        node = self.find_visible(head.node)
        if node != head.node:
            head = replace(head, node=node)
            self.set_head(head)
        return head

    def _remove_temporaries(self) -> None:
        """Remove the files that `write_json` leaves when it is killed. Writers hold the history's
        lock, so none of these files is still being written."""
        left = own_files(self.place.root, _HEAD_LEFT)
        for id_ in self._ids():
            left += own_files(self.place.checkpoints / id_, _NODE_LEFT)
        for path in left:
            path.unlink(missing_ok=True)

    def set_head_aside(self) -> None:
        """Rename a head that cannot be read to head.json.broken. It and all layers are kept, so
        that the disk may still be put together by hand. Does nothing if the head can be read.

        Raises HistoryError if the reason may pass (no descriptors left, say), HostError.
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
    """Remove all but the latest AUTO_KEPT automatic checkpoints; those that are pinned or have a
    note stay. Raises HostError."""
    nodes = history.nodes()
    automatic = [node for node in nodes if node.auto and not node.pinned and not node.note]
    for node in automatic[:-AUTO_KEPT]:
        history.remove(node)


def lost_head(place: SandboxDir, why: object) -> HistoryError:
    """The error for a sandbox whose present disk is unknown because its head cannot be read."""
    name = _name_at(place)
    return HistoryError(
        f"{place.head} cannot be read: {why}; so the sandbox's present disk is unknown",
        hint=Words(
            Remedy("tree", name=name),
            " lists its checkpoints, ",
            Remedy("start_at", at="TAG", name=name),
            " resumes one",
        ),
    )


def _name_at(place: SandboxDir) -> str:
    """The sandbox's name for a hint; "NAME" if that cannot be read."""
    try:
        return str(read_json(place.record)["name"])
    except (OSError, ValueError, KeyError):
        return "NAME"


def _remove_others(directory: Path, kept: set[str]) -> None:
    # The memory's directory may be in another place, behind a link that we have made.
    real = directory.readlink() if directory.is_symlink() else directory
    for path in own_files(real, _OF_A_LAYER_OR_MEMORY):
        if path.name not in kept:
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A checkpoint, and the directory of the sandbox or template that it belongs to."""

    place: SandboxDir
    node: Node


def import_node(origin: Origin, place: SandboxDir, **changes: Any) -> Node:
    """Add a checkpoint, with all files that it needs and with ``changes`` to its record, to the
    sandbox in ``place``; returns it. The caller holds the locks of both histories.

    Files are hard-linked where the file system allows it, else copied. Raises HistoryError if a
    file is missing, DiskSpaceError, PathError.
    """
    old, node = origin.place, origin.node
    if (place.checkpoints / node.id / "node.json").exists():
        return History(place).get(node.id)
    with map_os_errors(place.root):
        place.make()
        (place.checkpoints / node.id).mkdir(mode=0o700, exist_ok=True)
    shared = [(old.layer(name), place.layer(name)) for name in node.layers]
    shared += [(old.seal(name), place.seal(name)) for name in node.layers]
    for name in {file.name for file in node.files}:
        shared.append((old.memory / name, place.memory / name))
    for name, _ in node.own_files:
        shared.append((old.checkpoints / node.id / name, place.checkpoints / node.id / name))
    for source, target in shared:
        if not source.exists():
            raise HistoryError(f"the checkpoint {node.tag!r} is damaged: {source} is missing")
        share_file(source, target)
    if (screen := old.screen(node.id)).exists():
        share_file(screen, place.screen(node.id))
    for changed in (place.layers, place.memory, place.checkpoints / node.id):
        sync_dir(changed)
    imported = replace(node, parent=None, **changes)
    History(place).commit(imported)
    return imported


WHAT_MAX = 90
"""Characters of the description; the time and a number follow."""


def automatic_tag(history: History, what: str) -> str:
    """``what`` and the local time, and a number if that tag is taken."""
    tag = first = f"{what[:WHAT_MAX]} {time.strftime('%H:%M:%S')}"
    taken = {node.tag for node in history.nodes()}
    number = 2
    while tag in taken:
        tag, number = f"{first} ({number})", number + 1
    return tag
