"""The records of a sandbox's history: its `Head` (``head.json``) and for each checkpoint a `Node`
(``node.json``)."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Any, TypeGuard

from quicksand.base.error_text import reason_of
from quicksand.base.errors import ConfigError, HistoryError
from quicksand.base.fields import Fields
from quicksand.base.files import read_json, write_json
from quicksand.base.processes import boot_id
from quicksand.records.layout import AGENT_PORTS, SandboxDir
from quicksand.things.tier import Tier, find_tier

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The present state of a sandbox: its disk, and the checkpoint from which it descends."""

    layers: tuple[str, ...]
    """Frozen layers of its disk, the lowest first."""
    top: str
    """The layer to which the guest writes; after a crash while a checkpoint is taken, possibly an
    empty layer above that one."""
    node: str | None = None
    """The id of the checkpoint from which it descends."""
    run: str | None = None
    """The run of QEMU whose memory descends from that of ``node``; None if no run's does."""
    memory: str = BLANK
    """The memory image that the run maps: a file in memory/."""
    stored: int = 0
    """Bytes of pages that the run's checkpoints have stored since their last memory image."""
    machine: str = ""
    """The machine (the name of its directory) that writes to this disk."""
    previous: Head | None = None
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
        """Parse a head. Raises ValueError naming what is wrong."""
        check_schema(value)
        found = Fields(value, "bad head")
        previous = found.any("previous")
        return cls(
            layers=tuple(_id(name) for name in found.items("layers")),
            top=_id(found.any("top")),
            node=None if found.any("node") is None else _id(found.any("node")),
            run=found.maybe("run", found.text),
            memory=_name(found.any("memory")),
            stored=found.whole("stored"),
            machine=found.text("machine"),
            previous=None if previous is None else cls.from_json(previous),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The record of one checkpoint."""

    id: str
    tag: str
    parent: str | None
    created: float
    """Unix time."""
    note: str
    tier: Tier
    tier_note: str
    """Why no better tier was used; "" for the best one."""
    auto: bool
    """The engine took it (before a revert, a start at a checkpoint, or removal)."""
    pinned: bool
    """Whether the checkpoint cannot be deleted and does not expire."""
    pause_s: float
    """Seconds for which the VM was paused."""
    bytes_written: int
    layers: tuple[str, ...]
    """Frozen layers of its disk, the lowest first."""
    shape: dict[str, Any]
    """Properties that a machine must have to continue from here (`SHAPE_NAMES` in restore.py)."""
    memory: str
    """The memory image below its pages: a file in memory/, or BLANK."""
    pages: tuple[File, ...]
    """Files of pages, in the order in which the index numbers them."""
    index: File | None
    devices: File | None
    """In the tier "internal" both are None, and ``state`` is the only file."""
    token: str
    """The agent's token in its memory."""
    owner: str = ""
    """The id of the sandbox whose names and secrets are in its memory; "" if unknown."""
    hidden: bool = False
    """Whether users do not see it: it is kept for its pages, or for clones or a template."""
    firmware: File | None = None
    """The machine's firmware, a file in memory/; None if none is kept (firmware.py)."""
    image: File | None = None
    """The file that ``memory`` names; None for BLANK."""
    state: File | None = None
    """Memory and devices as QEMU wrote them, a file in memory/; only in the tier "internal"."""
    shares: bool = False
    """Whether the guest may have shares mounted (mounts/), whose servers will be gone."""
    port: int = 0
    """A port of the agent that had a client. If a client is connected there when the guest
    continues, the agent notices no change of clients, which saves time (`restore.wake`)."""
    origin: str = ""
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

    def to_json(self) -> dict[str, Any]:
        plain = {f: getattr(self, f) for f in self.__slots__}
        plain["tier"] = self.tier.name
        plain["layers"] = list(self.layers)
        plain["pages"] = [file.to_json() for file in self.pages]
        for name in ("index", "devices", "image", "firmware", "state"):
            file = getattr(self, name)
            plain[name] = file.to_json() if file is not None else None
        return {"schema_version": SCHEMA, **plain}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Node:
        """Parse a checkpoint's record. Raises ValueError naming what is wrong."""
        check_schema(value)
        found = Fields(value, "bad checkpoint")
        try:
            node = cls(
                id=_id(found.any("id")),
                tag=check_tag(found.any("tag")),
                parent=None if found.any("parent") is None else _id(found.any("parent")),
                created=found.real("created"),
                note=read_note(found.any("note")),
                tier=find_tier(found.any("tier")),
                tier_note=found.text("tier_note"),
                auto=found.flag("auto"),
                pinned=found.flag("pinned"),
                pause_s=found.real("pause_s"),
                bytes_written=found.whole("bytes_written"),
                layers=tuple(_id(name) for name in found.items("layers")),
                shape=found.fields("shape"),
                memory=_name(found.any("memory")),
                pages=tuple(File.from_json(file) for file in found.items("pages")),
                index=_optional_file(found.any("index")),
                devices=_optional_file(found.any("devices")),
                token=found.text("token"),
                owner=found.text("owner"),
                hidden=found.flag("hidden"),
                firmware=_optional_file(found.any("firmware")),
                image=_optional_file(found.any("image")),
                state=_optional_file(found.any("state")),
                shares=found.flag("shares", default=True),  # older ones do not say
                origin=_origin(found.any("origin", default="")),
                port=_port(found.any("port", default=0)),
            )
        except (TypeError, ConfigError) as error:
            raise ValueError(f"bad checkpoint: {reason_of(error)}") from error
        node._check_files()
        return node

    def _check_files(self) -> None:
        """Raise ValueError unless it has exactly the files that its tier allows."""
        names = ("pages", "index", "devices", "firmware", "image", "state")
        found = {name for name in names if getattr(self, name)}
        blank = "image" not in found and not self.tier.has_pages
        if not self.tier.fits(found) or (blank and self.memory != BLANK):
            raise ValueError(f"bad checkpoint: these are no files of the tier {self.tier.name!r}")


def _optional_file(value: Any) -> File | None:
    return None if value is None else File.from_json(value)


def _origin(value: Any) -> str:
    return "" if value == "" else _name(value)


def _port(value: Any) -> int:
    if type(value) is not int or not 0 <= value < AGENT_PORTS:
        raise ValueError(f"{value!r} is no port of the agent")
    return value


def check_schema(value: Any) -> None:
    """Raise ValueError unless ``value`` is a JSON object of the schema version SCHEMA."""
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    if value.get("schema_version") != SCHEMA:
        raise ValueError(f"schema_version {value.get('schema_version')!r} is not {SCHEMA}")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """A present whose disk is frozen, and whose pages are in a file that may not be synced."""

    node: Node
    """The present's checkpoint without the memory, of the tier "disk"."""
    head: Head
    """The head before its disk was frozen."""
    run: str
    """The present's run of QEMU."""
    size: int
    """Bytes of its guest's memory."""
    since: str | None
    """The checkpoint since which the held pages were written; None for the whole run of QEMU."""
    firmware: File | None
    boot: str
    """The boot of the host (`boot_id`): held pages exist only as long as that."""

    @property
    def is_held(self) -> bool:
        """Whether the host has not been rebooted since, so that its pages are still held."""
        return self.boot == boot_id()

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA,
            "node": self.node.to_json(),
            "head": self.head.to_json(),
            "run": self.run,
            "size": self.size,
            "since": self.since,
            "firmware": self.firmware.to_json() if self.firmware is not None else None,
            "boot": self.boot,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> GivenUp:
        """Parse one. Raises ValueError naming what is wrong."""
        check_schema(value)
        found = Fields(value, "bad record of a present that was given up")
        firmware = found.any("firmware")
        return cls(
            node=Node.from_json(found.fields("node")),
            head=Head.from_json(found.fields("head")),
            run=found.text("run"),
            size=found.whole("size"),
            since=found.maybe("since", found.text),
            firmware=None if firmware is None else File.from_json(firmware),
            boot=found.text("boot"),
        )

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
