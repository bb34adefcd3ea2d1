"""What a sandbox's records say: where it stands (``head.json``), and each of its checkpoints
(``node.json``)."""

from __future__ import annotations

import math
import re
import secrets
from dataclasses import dataclass
from typing import Any, TypeGuard

from quicksand.errors import ConfigError
from quicksand.layout import AGENT_PORTS

SCHEMA = 1
TAG_MAX = 128
"""Characters."""

PAGES = "pages"
"""The tier of checkpoints whose memory is files of pages."""
INTERNAL = "internal"
"""The tier of those whose memory and devices are a snapshot that QEMU itself has written."""
DISK = "disk"
"""The tier of those that have no memory: the disk of a sandbox that was stopped."""

BLANK = "blank"
"""Stands for the memory image of a cold start: there is none, its memory begins empty."""

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
    waiting: str = ""
    """The layer of a machine that waits to take over, if there is one."""

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
            "waiting": self.waiting,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Head:
        """Raises ValueError naming what is wrong."""
        check_schema(value)
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
                waiting=_id(waiting) if (waiting := value.get("waiting", "")) != "" else "",
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
        found = cls(name=_name(name), size=int(size), crcs=tuple(map(int, crcs)))
        fits = not found.crcs or (min(found.crcs) >= 0 and max(found.crcs) < 2**32)
        if not 0 <= found.size < 2**63 or not fits:
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
    image: File | None = None
    """The file that ``memory`` names; None for BLANK, which is no file."""
    state: File | None = None
    """Memory and devices as QEMU wrote them, a file in memory/; of the tier INTERNAL only."""
    port: int = 0
    """A port of the agent that had a client. One is to be there when the guest goes on: then that
    has nobody to part with and nobody to greet."""

    @property
    def files(self) -> tuple[File, ...]:
        """What it needs in memory/."""
        others = (f for f in (self.image, self.firmware, self.state) if f is not None)
        return (*self.pages, *others)

    @property
    def own_files(self) -> tuple[tuple[str, File], ...]:
        """What it needs in its directory, by name."""
        found = (("devices", self.devices), ("pages.index", self.index))
        return tuple((name, file) for name, file in found if file is not None)

    def to_json(self) -> dict[str, Any]:
        plain = {f: getattr(self, f) for f in self.__slots__}
        plain["layers"] = list(self.layers)
        plain["pages"] = [file.to_json() for file in self.pages]
        for name in ("index", "devices", "image", "firmware", "state"):
            file = getattr(self, name)
            plain[name] = file.to_json() if file is not None else None
        return {"schema_version": SCHEMA, **plain}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Node:
        """Raises ValueError naming what is wrong."""
        check_schema(value)
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
                image=_optional_file(value["image"]),
                state=_optional_file(value["state"]),
                port=_port(value.get("port", 0)),
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
        elif self.tier == DISK:
            whole = self.files == () and of_pages == (None, None) and self.memory == BLANK
        else:
            whole = None not in of_pages and self.state is None
        if not whole:
            raise ValueError(f"bad checkpoint: these are no files of the tier {self.tier!r}")


def _optional_file(value: Any) -> File | None:
    return None if value is None else File.from_json(value)


def _port(value: Any) -> int:
    if type(value) is not int or not 0 <= value < AGENT_PORTS:
        raise ValueError(f"{value!r} is no port of the agent")
    return value


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is no finite number")
    return number


def check_schema(value: Any) -> None:
    """Raise ValueError unless it is a record that we can read."""
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    if value.get("schema_version") != SCHEMA:
        raise ValueError(f"schema_version {value.get('schema_version')!r} is not {SCHEMA}")


def _name(value: Any) -> str:
    """A file's name that leads nowhere else."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(f"{value!r} is no file name")
    return value


def is_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def _id(value: Any) -> str:
    if not is_id(value):
        raise ValueError(f"{value!r} is no id")
    return value
