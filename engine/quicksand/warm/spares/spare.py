"""A spare: its record (``spare.json``), and the key that tells which starts it fits."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from quicksand.base.fields import JsonRecord, read_by
from quicksand.base.files import is_locked, read_json
from quicksand.base.paths import Paths
from quicksand.base.settings import OFF, SPARES
from quicksand.disks.images.disk_headers import check_qcow2
from quicksand.qemu.planning import Parts
from quicksand.records.layout import AGENT_PORTS, SandboxDir, runtime_dir, sandbox_dir
from quicksand.records.registry import ids_in
from quicksand.records.sandboxes import Record, RunState
from quicksand.warm.templates import Templates

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Spare(JsonRecord):
    """The contents of ``spare.json``."""

    WHAT = "bad spare.json"
    VERSION = SCHEMA

    id: str
    key: str
    """A digest of everything about the machine that cannot be changed while it runs."""
    record: Record = field(metadata=read_by(Record.from_json))
    """The record with which it was made. The sandbox gets another one."""
    run: RunState = field(metadata=read_by(RunState.from_json))
    port: int
    """The agent port to connect to."""
    until: float | None
    """The Unix time at which its keeper ends it; None for no limit."""

    @property
    def disk(self) -> int:
        """The size that its disk was given, in bytes; 0 for that of the image."""
        return self.record.config.disk_size_bytes or 0

    def check(self) -> None:
        if not 0 <= self.port < AGENT_PORTS or self.record.id != self.id:
            raise ValueError(f"bad spare.json: of {self.record.id!r}, port {self.port}")


def list_spares(paths: Paths) -> list[Spare]:
    """List all waiting spares of this user, in the order of their making. Blocks for I/O."""
    found = [spare for root in _roots(paths) if (spare := _read(paths, root)) is not None]
    return sorted(found, key=lambda spare: (spare.record.created, spare.id))


def has_spares(paths: Paths) -> bool:
    """Whether there may be any spares, found out as quickly as possible. Blocks for I/O."""
    return next(_roots(paths), None) is not None


def _roots(paths: Paths) -> Iterator[Path]:
    sandboxes = paths.sandboxes
    place, name = os.fspath(sandboxes), SandboxDir(sandboxes).spare.name
    with contextlib.suppress(OSError):
        for id_ in ids_in(sandboxes):
            # Each start asks this about all sandboxes, so only a text is made of each.
            if os.path.lexists(f"{place}/{id_}/{name}"):
                yield sandboxes / id_


def _read(paths: Paths, root: Path) -> Spare | None:
    """Return the spare in ``root``; None if it no longer waits, or if its sockets are in another
    runtime directory than this process uses."""
    place, runtime = sandbox_dir(paths, root.name), runtime_dir(paths, root.name)
    with contextlib.suppress(OSError, ValueError):
        spare = Spare.from_json(read_json(place.spare))
        is_waiting = is_locked(place.lock) and not place.record.exists()
        if is_waiting and spare.id == root.name and runtime.keeper_socket.exists():
            return spare
    return None


def is_off() -> str:
    """Return the setting that turns spares off, in words; "" if none does. Raises ConfigError."""
    return f"{SPARES.variable} is {OFF}" if SPARES.is_off else ""


@dataclass(frozen=True, slots=True)
class Fit:
    """The spares that a start can take."""

    key: str
    """The key of the spares that fit, whatever the size of their disks, which can grow. Names,
    addresses, ports and mounts are not part of it either."""
    refusal: str
    """The reason why there can be none; "" if there can."""
    hint: str
    """A hint for it; "" if nothing can be done."""

    @classmethod
    def of(cls, paths: Paths, record: Record, parts: Parts) -> Fit:
        """Return the fit for the first start of ``record`` with ``parts``. Blocks for I/O."""
        plain = replace(record, config=replace(record.config, disk_size=None))
        templates = Templates(paths, plain, parts)
        named = {"memory": paths.memory, **record.config.places}
        facts = [templates.key, *map(str, named.values())]
        key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
        refusal, hint = _why_none(record)
        return cls(key, refusal or templates.refusal, hint)


def _why_none(record: Record) -> tuple[str, str]:
    """Return why a machine of ``record`` cannot wait, and a remedy; "" and "" if it can."""
    if off := is_off():
        return off, ""
    if not sys.platform.startswith("linux"):
        return "spares need Linux", ""
    if record.config.agent_http or record.config.vnc_port is not None:
        option = "--agent-http" if record.config.agent_http else "--vnc-port"
        return (
            "it would have to listen at a port before anybody asks for it",
            f"leave out {option}: starts with it resume from the template",
        )
    return "", ""


def list_fitting(paths: Paths, record: Record, parts: Parts) -> list[Spare]:
    """List the spares that the first start of ``record`` can take over, the best first: those whose
    disk has the right size, then those whose disk can grow to it. Blocks for I/O. Raises
    ImageError."""
    found = list_spares(paths)
    if not found:
        return []
    fit = Fit.of(paths, record, parts)
    if fit.refusal:
        return []
    wanted = record.config.disk_size_bytes or 0
    found = [spare for spare in found if spare.key == fit.key and spare.disk <= wanted]
    if any(spare.disk < wanted for spare in found) and not _can_grow(record, parts):
        found = [spare for spare in found if spare.disk == wanted]
    return sorted(found, key=lambda spare: spare.disk != wanted)


def growth(spare: Spare, record: Record) -> int:
    """Return the size to which the disk of ``spare`` must grow, in bytes; 0 if it has that size."""
    wanted = record.config.disk_size_bytes or 0
    return wanted if wanted > spare.disk else 0


def _can_grow(record: Record, parts: Parts) -> bool:
    """Whether the requested disk of ``record`` is larger than its image's. The disk of a save is
    left as it is: only a start without a spare decides about its size."""
    if record.source is not None:
        return False
    base = check_qcow2(parts.image.chain[-1], allow_backing=len(parts.image.chain) > 1)
    return (record.config.disk_size_bytes or 0) > base.virtual_size
