"""The records of a sandbox's history: its `Head` (``head.json``), for each checkpoint a `Node`
(``node.json``), and the notes that people give them.

`GivenUp` is the present that a revert in place gives up, until it is a checkpoint: where everything
is that its checkpoint needs. Whoever finds such a record later stores it (snapshots/keeping.py).
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from quicksand.base.errors import ConfigError, HistoryError
from quicksand.base.fields import JsonRecord, each_by, later, read_by
from quicksand.base.files import read_json, write_json
from quicksand.base.processes import boot_id
from quicksand.records.layout import AGENT_PORTS, SandboxDir
from quicksand.things.checkpoint import Tier, find_tier

NOTE_MAX = 16_384
"""Characters. A record has 4 MiB at most, and a character up to 12 bytes of it."""


def check_note(note: object) -> str:
    """Return ``note`` if it is a valid note. Raises ConfigError."""
    if not isinstance(note, str):
        raise ConfigError(f"{note!r:.80} is no note", hint='a text; "" is none')
    if len(note) > NOTE_MAX:
        raise ConfigError(
            f"a note of {len(note)} characters is too long", hint=f"{NOTE_MAX} is the most"
        )
    if note != _whole(note):
        raise ConfigError(
            f"the note {note!r:.80} has half a character, which no file or terminal takes",
            hint="leave it out",
        )
    return note


def read_note(note: object) -> str:
    """Return the note in a record. Older versions wrote whatever they were given: None counts as no
    note, and half a character as a question mark. Raises ConfigError for anything but text."""
    return check_note(
        _whole(note)[:NOTE_MAX] if isinstance(note, str) else "" if note is None else note
    )


def _whole(text: str) -> str:
    """Return ``text`` with a question mark for each surrogate, which is half of a character."""
    return text.encode("utf-8", "replace").decode()


SCHEMA = 1
TAG_MAX = 128
"""Characters."""

BLANK = "blank"
"""Stands for the memory image of a cold start, which has none: its memory starts empty."""

_ID = re.compile(r"[0-9a-f]{8,16}")
_NAME = re.compile(r"[0-9a-z][0-9a-z.-]{0,80}")


def new_id() -> str:
    """A new id for a layer, checkpoint or run: 12 hexadecimal digits."""
    return secrets.token_hex(6)


def check_tag(tag: str) -> str:
    """Return ``tag`` if it is a valid tag for a checkpoint. Raises ConfigError."""
    if not isinstance(tag, str) or not tag.strip() or len(tag) > TAG_MAX:
        raise ConfigError(
            f"{str(tag)[:TAG_MAX]!r} is not a valid tag for a checkpoint",
            hint=f"1 to {TAG_MAX} characters, not all of them spaces",
        )
    if not tag.isprintable():
        raise ConfigError(f"the tag {tag!r} has characters that cannot be printed")
    return tag


def _name(value: Any) -> str:
    """Check that ``value`` is a plain file name, which cannot lead out of its directory."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(f"{value!r} is no file name")
    return value


def is_id(value: object) -> TypeGuard[str]:
    """Whether ``value`` could be an id of `new_id`."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def _id(value: Any) -> str:
    if not is_id(value):
        raise ValueError(f"{value!r} is no id")
    return value


def _origin(value: Any) -> str:
    return "" if value == "" else _name(value)


def _port(value: Any) -> int:
    if type(value) is not int or not 0 <= value < AGENT_PORTS:
        raise ValueError(f"{value!r} is no port of the agent")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Head(JsonRecord):
    """The present state of a sandbox: its disk, and the checkpoint from which it descends."""

    WHAT = "bad head"
    VERSION = SCHEMA

    layers: tuple[str, ...] = field(metadata=each_by(_id))
    """Frozen layers of its disk, the lowest first."""
    top: str = field(metadata=read_by(_id))
    """The layer to which the guest writes; after a crash while a checkpoint is taken, possibly an
    empty layer above that one."""
    node: str | None = field(default=None, metadata=read_by(_id))
    """The id of the checkpoint from which it descends."""
    run: str | None = None
    """The run of QEMU whose memory descends from that of ``node``; None if no run's does."""
    memory: str = field(default=BLANK, metadata=read_by(_name))
    """The memory image that the run maps: a file in memory/."""
    stored: int = 0
    """Bytes of pages that the run's checkpoints have stored since their last memory image."""
    machine: str = ""
    """The machine (the name of its directory) that writes to this disk."""
    previous: Head | None = field(
        default=None,
        metadata=read_by(lambda value: Head.from_json(value)),  # noqa: PLW0108 - Head is not made yet
    )
    """While ``machine`` takes over from another machine, the head of that one. If everything ends
    at this moment, the keeper's exit.json tells which of the two counts."""

    @classmethod
    def going_on(cls, node: Node, *, machine: str, previous: Head | None = None) -> Head:
        """Return the head of a machine that continues from ``node`` in a new layer."""
        return cls(
            layers=node.layers,
            top=new_id(),
            node=node.id,
            # Memory that QEMU itself has loaded is not in any file of pages.
            run=new_id() if node.tier.has_pages else None,
            memory=node.memory,
            machine=machine,
            previous=previous,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file that a checkpoint needs, with its size and checksums when it was written."""

    name: str
    size: int
    """Bytes."""
    crcs: tuple[int, ...]
    """The CRC-32 of each CHUNK (pages.py)."""

    def to_json(self) -> list[Any]:
        return [self.name, self.size, list(self.crcs)]

    @classmethod
    def from_json(cls, value: Any) -> File:
        """Parse one. Raises ValueError."""
        if not isinstance(value, list) or len(value) != 3:
            raise ValueError(f"{repr(value)[:80]} is no file")
        name, size, crcs = _name(value[0]), value[1], value[2]
        fits = isinstance(crcs, list) and all(type(crc) is int and 0 <= crc < 2**32 for crc in crcs)
        if type(size) is not int or not 0 <= size < 2**63 or not fits:
            raise ValueError(f"the size or a checksum of {name} is impossible")
        return cls(name=name, size=size, crcs=tuple(crcs))


@dataclass(frozen=True, slots=True)
class Seal(JsonRecord):
    """A frozen layer's record of its size and checksums."""

    WHAT = "bad seal"
    VERSION = SCHEMA

    file: File = field(metadata=read_by(File.from_json))


A_FILE = read_by(File.from_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node(JsonRecord):
    """The record of one checkpoint."""

    WHAT = "bad checkpoint"
    VERSION = SCHEMA

    id: str = field(metadata=read_by(_id))
    tag: str = field(metadata=read_by(check_tag))
    parent: str | None = field(metadata=read_by(_id))
    created: float
    """Unix time."""
    note: str = field(metadata=read_by(read_note))
    tier: Tier = field(metadata=read_by(find_tier))
    tier_note: str
    """Why no better tier was used; "" for the best one."""
    auto: bool
    """The engine took it (before a revert, a start at a checkpoint, or removal)."""
    pinned: bool
    """Whether the checkpoint cannot be deleted and does not expire."""
    pause_s: float
    """Seconds for which the VM was paused."""
    bytes_written: int
    layers: tuple[str, ...] = field(metadata=each_by(_id))
    """Frozen layers of its disk, the lowest first."""
    shape: dict[str, Any]
    """Properties that a machine must have to continue from here (`SHAPE_NAMES` in restore.py)."""
    memory: str = field(metadata=read_by(_name))
    """The memory image below its pages: a file in memory/, or BLANK."""
    pages: tuple[File, ...] = field(metadata=each_by(File.from_json))
    """Files of pages, in the order in which the index numbers them."""
    index: File | None = field(metadata=A_FILE)
    devices: File | None = field(metadata=A_FILE)
    """In the tier "internal" both are None, and ``state`` is the only file."""
    token: str
    """The agent's token in its memory."""
    owner: str = ""
    """The id of the sandbox whose names and secrets are in its memory; "" if unknown."""
    hidden: bool = False
    """Whether users do not see it: it is kept for its pages, or for clones or a template."""
    firmware: File | None = field(default=None, metadata=A_FILE)
    """The machine's firmware, a file in memory/; None if none is kept (firmware.py)."""
    image: File | None = field(default=None, metadata=A_FILE)
    """The file that ``memory`` names; None for BLANK."""
    state: File | None = field(default=None, metadata=A_FILE)
    """Memory and devices as QEMU wrote them, a file in memory/; only in the tier "internal"."""
    shares: bool = field(default=False, metadata=later(True))
    """Whether the guest may have shares mounted (mounts/), whose servers will be gone."""
    port: int = field(default=0, metadata=later(0, **read_by(_port)))
    """A port of the agent that had a client. If a client is connected there when the guest
    continues, the agent notices no change of clients, which saves time (`restore.wake`)."""
    origin: str = field(default="", metadata=later("", **read_by(_origin)))
    """Like ``memory``, but the first image of the checkpoint's line: pages that the index does not
    list are the same in both. "" in older records, where it is ``memory``."""

    @property
    def line(self) -> str:
        """The first image of the line: see ``origin``."""
        return self.origin or self.memory

    @property
    def files(self) -> tuple[File, ...]:
        """The files that it needs in memory/."""
        others = (f for f in (self.image, self.firmware, self.state) if f is not None)
        return (*self.pages, *others)

    @property
    def own_files(self) -> tuple[tuple[str, File], ...]:
        """The files that it needs in its own directory: (name, file)."""
        found = (("devices", self.devices), ("pages.index", self.index))
        return tuple((name, file) for name, file in found if file is not None)

    def check(self) -> None:
        """Raise ValueError unless it has exactly the files that its tier allows."""
        names = ("pages", "index", "devices", "firmware", "image", "state")
        found = {name for name in names if getattr(self, name)}
        blank = "image" not in found and not self.tier.has_pages
        if not self.tier.fits(found) or (blank and self.memory != BLANK):
            raise ValueError(f"bad checkpoint: these are no files of the tier {self.tier.name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp(JsonRecord):
    """A present whose disk is frozen, and whose pages are in a file that may not be synced."""

    WHAT = "bad record of a present that was given up"
    VERSION = SCHEMA

    node: Node = field(metadata=read_by(Node.from_json))
    """The present's checkpoint without the memory, of the tier "disk"."""
    head: Head = field(metadata=read_by(Head.from_json))
    """The head before its disk was frozen."""
    run: str
    """The present's run of QEMU."""
    size: int
    """Bytes of its guest's memory."""
    since: str | None
    """The checkpoint since which the held pages were written; None for the whole run of QEMU."""
    firmware: File | None = field(metadata=read_by(File.from_json))
    boot: str
    """The boot of the host (`boot_id`): held pages exist only as long as that."""

    @property
    def is_held(self) -> bool:
        """Whether the host has not been rebooted since, so that its pages are still held."""
        return self.boot == boot_id()

    def write(self, place: SandboxDir) -> None:
        """Write it to the disk. Raises DiskSpaceError, PathError."""
        write_json(place.given_up, self.to_json(), read=GivenUp.from_json)


def read_given_up(place: SandboxDir) -> GivenUp | None:
    """Read the present that was given up and is not a checkpoint yet, if there is one. Raises
    HistoryError if it cannot be read."""
    try:
        return GivenUp.from_json(read_json(place.given_up))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise HistoryError(f"{place.given_up} cannot be read: {error}") from error
