"""A sandbox's history on disk: its layers, its checkpoints, and where it stands.

The checkpoints' directories are the tree; ``node.json``, written last, is a checkpoint's commit
mark. ``head.json`` names the layers that the guest's disk is made of at this moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import re
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from typing import Any

from quicksand.errors import ConfigError, HistoryError
from quicksand.host.files import (
    is_locked,
    map_os_errors,
    read_json,
    sync_dir,
    try_lock,
    write_json,
)
from quicksand.layout import SandboxDir

SCHEMA = 1
TAG_MAX = 128
"""Characters."""

AUTO_KEPT = 5
"""Checkpoints taken before a revert that are kept."""

LOCK_WAIT_S = 30.0
LOCK_POLL_S = 0.01

PAGES = "pages"
"""The tier of checkpoints whose memory is files of pages."""
INTERNAL = "internal"
"""The tier of those whose memory and devices are a snapshot that QEMU itself has written."""

BLANK = "blank"
"""Stands for the memory image of a cold start: there is none, its memory begins empty."""

_LASTING = {errno.EIO, errno.EISDIR, errno.ELOOP, errno.EACCES}
"""Errors of reading that do not pass by themselves."""

_ID = re.compile(r"[0-9a-f]{8,16}")
_NAME = re.compile(r"[0-9a-z][0-9a-z.-]{0,80}")


def new_id() -> str:
    return secrets.token_hex(6)


def check_tag(tag: str) -> str:
    """Return ``tag`` if a checkpoint may be called so. Raises ConfigError."""
    if not isinstance(tag, str) or not tag.strip() or len(tag) > TAG_MAX:
        raise ConfigError(
            f"{str(tag)[:TAG_MAX]!r} is no tag for a checkpoint",
            hint=f"1 to {TAG_MAX} characters, not all of them spaces",
        )
    if not tag.isprintable():
        raise ConfigError(f"the tag {tag!r} has characters that cannot be printed")
    return tag


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Where a sandbox stands."""

    layers: tuple[str, ...]
    """Frozen layers of its disk, the lowest first."""
    top: str
    """The layer that the guest writes to; or, after a crash in the middle of a checkpoint, an empty
    one above that."""
    node: str | None = None
    """The checkpoint that it descends from."""
    run: str | None = None
    """The run of QEMU that has all pages of ``node`` in its memory, if one has."""
    memory: str = BLANK
    """The memory image that the run maps: a file in memory/."""
    stored: int = 0
    """Bytes of pages that the run's checkpoints have stored since their last memory image."""
    machine: str = ""
    """The machine (its directory's name) whose disk this is."""
    previous: Head | None = None
    """While ``machine`` takes over from another: where that one stands. Which of the two counts if
    all ends in this instant, the keeper tells (exit.json)."""

    @classmethod
    def going_on(cls, node: Node, *, machine: str, previous: Head | None = None) -> Head:
        """Where a machine stands that goes on from ``node``, in a layer of its own."""
        return cls(
            layers=node.layers,
            top=new_id(),
            node=node.id,
            # What QEMU itself has loaded is in no file of pages.
            run=new_id() if node.tier == PAGES else None,
            memory=node.memory,
            machine=machine,
            previous=previous,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA,
            "layers": list(self.layers),
            "top": self.top,
            "node": self.node,
            "run": self.run,
            "memory": self.memory,
            "stored": self.stored,
            "machine": self.machine,
            "previous": self.previous.to_json() if self.previous is not None else None,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Head:
        """Raises ValueError naming what is wrong."""
        _check_schema(value)
        try:
            return cls(
                layers=tuple(_id(name) for name in value["layers"]),
                top=_id(value["top"]),
                node=None if value["node"] is None else _id(value["node"]),
                run=None if value["run"] is None else str(value["run"]),
                memory=_name(value["memory"]),
                stored=int(value["stored"]),
                machine=str(value["machine"]),
                previous=None if value["previous"] is None else cls.from_json(value["previous"]),
            )
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"bad head: {error!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file that a checkpoint needs, as it was when it was written."""

    name: str
    size: int
    crcs: tuple[int, ...]
    """CRC-32 of each CHUNK of it (pages.py)."""

    def to_json(self) -> list[Any]:
        return [self.name, self.size, list(self.crcs)]

    @classmethod
    def from_json(cls, value: Any) -> File:
        name, size, crcs = value
        found = cls(name=_name(name), size=int(size), crcs=tuple(int(crc) for crc in crcs))
        if not 0 <= found.size < 2**63 or not all(0 <= crc < 2**32 for crc in found.crcs):
            raise ValueError(f"the size or a checksum of {found.name} is impossible")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One checkpoint."""

    id: str
    tag: str
    parent: str | None
    created: float
    """Unix time."""
    note: str
    tier: str
    tier_note: str
    """Why no better one."""
    auto: bool
    """Taken by a revert, so that it can be undone."""
    pinned: bool
    pause_s: float
    """Seconds that the VM stood still."""
    bytes_written: int
    layers: tuple[str, ...]
    """Frozen layers of its disk, the lowest first."""
    shape: dict[str, Any]
    """What a machine must be to go on from here (restore.py)."""
    memory: str
    """The memory image that its pages lie over: a file in memory/."""
    pages: tuple[File, ...]
    """Files of pages, in the order in which the index numbers them."""
    index: File | None
    devices: File | None
    """Of the tier INTERNAL neither is there, nor is any other file but ``state``."""
    token: str
    """The agent's token in its memory."""
    owner: str = ""
    """The sandbox whose names and secrets its memory has; "" where that is not known."""
    hidden: bool = False
    """Kept for its pages or for one start; nobody asked for it."""
    firmware: File | None = None
    """What a reboot of the guest runs, a file in memory/; None if the machine needs none."""
    disk: tuple[File, ...] = ()
    """The files of ``layers``, in their order."""
    image: File | None = None
    """The file that ``memory`` names; None for BLANK, which is no file."""
    state: File | None = None
    """Memory and devices as QEMU wrote them, a file in memory/; of the tier INTERNAL only."""

    @property
    def files(self) -> tuple[File, ...]:
        """What it needs in memory/."""
        others = (f for f in (self.image, self.firmware, self.state) if f is not None)
        return (*self.pages, *others)

    def to_json(self) -> dict[str, Any]:
        plain = {f: getattr(self, f) for f in self.__slots__}
        plain["layers"] = list(self.layers)
        plain["pages"] = [file.to_json() for file in self.pages]
        plain["disk"] = [file.to_json() for file in self.disk]
        for name in ("index", "devices", "image", "firmware", "state"):
            file = getattr(self, name)
            plain[name] = file.to_json() if file is not None else None
        return {"schema_version": SCHEMA, **plain}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Node:
        """Raises ValueError naming what is wrong."""
        _check_schema(value)
        try:
            node = cls(
                id=_id(value["id"]),
                tag=check_tag(value["tag"]),
                parent=None if value["parent"] is None else _id(value["parent"]),
                created=_finite(value["created"]),
                note=str(value["note"]),
                tier=str(value["tier"]),
                tier_note=str(value["tier_note"]),
                auto=bool(value["auto"]),
                pinned=bool(value["pinned"]),
                pause_s=_finite(value["pause_s"]),
                bytes_written=int(value["bytes_written"]),
                layers=tuple(_id(name) for name in value["layers"]),
                shape=dict(value["shape"]),
                memory=_name(value["memory"]),
                pages=tuple(File.from_json(file) for file in value["pages"]),
                index=_optional_file(value["index"]),
                devices=_optional_file(value["devices"]),
                token=str(value["token"]),
                owner=str(value["owner"]),
                hidden=bool(value["hidden"]),
                firmware=_optional_file(value["firmware"]),
                disk=tuple(File.from_json(file) for file in value["disk"]),
                image=_optional_file(value["image"]),
                state=_optional_file(value["state"]),
            )
        except (KeyError, TypeError, OverflowError, ConfigError) as error:
            raise ValueError(f"bad checkpoint: {error!r}") from error
        node._check_files()
        return node

    def _check_files(self) -> None:
        """Raise ValueError unless it has the files of its tier."""
        of_pages = (self.index, self.devices)
        if self.tier == INTERNAL:
            whole = self.files == (self.state,) and of_pages == (None, None)
            whole = whole and self.memory == BLANK
        else:
            whole = None not in of_pages and self.state is None
        if not whole:
            raise ValueError(f"bad checkpoint: these are no files of the tier {self.tier!r}")


class History:
    """The history of one sandbox. Whoever changes it holds `locked`."""

    def __init__(self, place: SandboxDir) -> None:
        self.place = place

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
        for id_ in self._ids():
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
                if _ID.fullmatch(path.name):
                    yield path.name

    def _read(self, id_: str) -> Node:
        node = Node.from_json(read_json(self.place.checkpoints / id_ / "node.json"))
        if node.id != id_:
            raise ValueError(f"it is the checkpoint {node.id}")
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
        head = self._head_or_none()
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
        if not self.place.broken_head.exists():
            _remove_others(self.place.layers, {f"{name}.qcow2" for name in layers})
        pages = {file.name for node in nodes for file in node.files}
        memory = {node.memory for node in nodes}
        # What a machine maps is needed while there is one; a start that does not go on from a
        # checkpoint begins with none.
        if is_locked(self.place.lock):
            memory |= {place.memory for place in heads}
        _remove_others(self.place.memory, pages | memory)

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


def _optional_file(value: Any) -> File | None:
    return None if value is None else File.from_json(value)


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is no finite number")
    return number


def _check_schema(value: Any) -> None:
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    if value.get("schema_version") != SCHEMA:
        raise ValueError(f"schema_version {value.get('schema_version')!r} is not {SCHEMA}")


def _name(value: Any) -> str:
    """A file's name that leads nowhere else."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(f"{value!r} is no file name")
    return value


def _id(value: Any) -> str:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ValueError(f"{value!r} is no id")
    return value
