"""Templates: checkpoints of freshly booted machines, from which `start` continues instead of
booting.

A template is a sandbox directory ``<cache>/templates/<key>/`` with one checkpoint, taken after the
boot, before any program of a user ran. Its key is a digest of everything that the machine consists
of, so a template of another machine is never found. It can be removed at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from quicksand.base.background import run_later, run_to_its_end
from quicksand.base.cpu import describe_cpu, read_microcode
from quicksand.base.effort import best_effort
from quicksand.base.errors import HostError
from quicksand.base.fields import JsonRecord, read_by
from quicksand.base.files import is_locked, map_os_errors, read_json
from quicksand.base.footprint import allocated_size
from quicksand.base.listing import ANY_ID, own_directories
from quicksand.base.paths import Paths
from quicksand.base.processes import start_of
from quicksand.base.regular import read_file
from quicksand.base.removal import remove, require_ours
from quicksand.base.settings import OFF, TEMPLATES, USE
from quicksand.base.tools import Findings
from quicksand.mounts.devices import ninep_of
from quicksand.qemu.command import AGENT_HTTP_PORT, Inherited, plan
from quicksand.qemu.planning import Parts, Ports, plan_machine
from quicksand.records.config import Accelerator
from quicksand.records.layout import AGENT_PORTS, QMP_MONITORS, SHARES, SandboxDir
from quicksand.records.nodes import Head
from quicksand.records.sandboxes import Record
from quicksand.snapshots.history import History, Origin

KEYS = re.compile(r"[0-9a-f]{32}")
UNFINISHED = re.compile(r"\.[a-z]+-[0-9a-f]{32}")
"""The names of templates that are being made or removed."""

SCHEMA = 10
"""A part of the key; raised when the contents of templates change."""

TAG = "template"

CHECKED = "checked"
"""The file in a template's directory which says that its guest was found fit (fitness.py), as
required for this `SCHEMA`. Other templates are never used, and are removed."""

UNFIT_FOR_S = 6 * 3600.0
"""Seconds for which no template of a machine is made in the background after its guest was found
unfit: the next start would only boot two more of them, and fail again."""
_UNFIT = "unfit-templates.json"

VARIABLE = TEMPLATES.variable
"""Environment variable: OFF boots always, USE makes no templates in the background."""

KEPT = 8
"""The templates that are kept, the most recently used ones; each takes about 100 MB."""

MAKER = "quicksand.warm.template_maker"

LOCK_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateInfo:
    """An existing template."""

    root: Path
    image: str
    """The image's name when it was made; "" if its record cannot be read."""
    image_digest: str
    memory: str
    cpus: int
    size: int
    """Bytes on disk, which sandboxes that started from it share by hard links."""
    used: float
    """Unix time of its last use."""


class Templates:
    """The template of one machine, which may or may not exist."""

    def __init__(self, paths: Paths, record: Record, parts: Parts) -> None:
        self.root = templates_dir(paths)
        self.record = replace(
            record,
            committed=True,
            image_digest=parts.image.digest,
            chain=tuple(str(path) for path in parts.image.chain),
        )
        self.key = _key(record, parts)
        self.refusal = ""
        """The reason why such a machine can have no template; "" if it can."""
        if not parts.image.digest:
            self.refusal = "the image is not in the store, so its files have no checksums"
        elif record.source is not None and not record.source.digest:
            self.refusal = "the save has no checksums"
        elif record.config.extra_qemu_args:
            self.refusal = "the sandbox has QEMU arguments of its own"
        elif ninep_of(record.config.mounts):
            self.refusal = "QEMU serves a directory of the sandbox by 9p"
        elif TEMPLATES.is_off:
            self.refusal = f"{VARIABLE} is {OFF}"

    @property
    def place(self) -> SandboxDir:
        return SandboxDir(self.root / self.key)

    @property
    def lock(self) -> Path:
        """flock'ed by the process that makes the template."""
        return self.root / f"{self.key}.lock"

    def find(self) -> Origin | None:
        """The template if it exists, else None. Its files are checked when they are used. Blocks
        for I/O."""
        if self.refusal or not is_checked(self.place.root):
            return None
        nodes = [node for node in History(self.place).all_nodes() if node.tag == TAG]
        if not nodes:
            return None
        with contextlib.suppress(OSError):
            os.utime(self.place.root)
        return Origin(place=self.place, node=nodes[0])

    def discard(self) -> None:
        """Remove the template. Sandboxes that started from it have their own links to its files.
        Raises HostError."""
        discard(self.place.root)

    @property
    def is_being_made(self) -> bool:
        return is_locked(self.lock)

    @property
    def is_unfit(self) -> bool:
        """Whether its guest was found unfit some hours ago. Blocks for I/O."""
        noted = Findings(_UNFIT).get(self.key)
        return isinstance(noted, int | float) and 0 <= time.time() - noted < UNFIT_FOR_S

    def note_unfit(self) -> None:
        """Note that its guest was found unfit. Failing to note that only costs time."""
        with contextlib.suppress(HostError):
            Findings(_UNFIT).put(self.key, time.time())

    @property
    def waiting(self) -> Path:
        """Locked by the background process that will make it when the first machine is idle."""
        return self.root / f"{self.key}.waiting"


def _beside(value: object) -> tuple[int, str]:
    match value:
        case [int(pid), str(started)]:
            return pid, started
    raise ValueError(f"bad order: beside is {repr(value)[:80]}")


@dataclass(frozen=True, slots=True)
class TemplateOrder(JsonRecord):
    """The order for a process that makes a template."""

    WHAT = "bad order"

    record: Record = field(metadata=read_by(Record.from_json))
    beside: tuple[int, str] | None = field(default=None, metadata=read_by(_beside))
    """The process id of the QEMU that must become idle first, and the time of its start."""
    waiting: str = ""
    """The file that is locked meanwhile, so that no second process waits (`Templates.waiting`)."""


async def make_in_background(templates: Templates, *, beside: int) -> None:
    """Start a separate process that makes the template, without waiting for it. It begins when the
    QEMU with the process id ``beside``, which is in use, is idle or has ended.

    Does nothing if a process is already making the template. Its errors are not reported; the
    command `images warm` does the same in the foreground and reports them.
    """
    if templates.refusal or templates.is_being_made or TEMPLATES.read() == USE:
        return
    if await asyncio.to_thread(lambda: is_locked(templates.waiting) or templates.is_unfit):
        return
    first = (beside, await asyncio.to_thread(start_of, beside))
    order = TemplateOrder(templates.record, beside=first, waiting=str(templates.waiting))
    await run_later(MAKER, order.to_json())


async def make_apart(templates: Templates) -> None:
    """Have the template made by a separate process, which gives way to all others, and wait until
    it, or another one that makes the same, has ended. Its errors are not reported."""
    if templates.refusal or TEMPLATES.read() == USE:
        return
    if not templates.is_being_made:
        await run_to_its_end(MAKER, TemplateOrder(templates.record).to_json())
    while templates.is_being_made:  # noqa: ASYNC110 - no event tells
        await asyncio.sleep(LOCK_POLL_S)


def list_templates(paths: Paths) -> list[TemplateInfo]:
    """All templates of this user, the most recently used first. Blocks for I/O."""
    found = []
    root = templates_dir(paths)
    for path in own_directories(root, KEYS):
        # Another process may just be removing it.
        with contextlib.suppress(FileNotFoundError):
            found.append(_inspect(path))
    return sorted(found, key=lambda template: template.used, reverse=True)


def _inspect(root: Path) -> TemplateInfo:
    used = root.stat().st_mtime
    record = None
    with contextlib.suppress(OSError, ValueError):
        record = Record.from_json(read_json(SandboxDir(root).record))
    return TemplateInfo(
        root=root,
        image=record.config.image if record else "",
        image_digest=record.image_digest if record else "",
        memory=record.config.memory if record else "",
        cpus=record.config.cpus if record else 0,
        size=allocated_size(root),
        used=used,
    )


def templates_dir(paths: Paths) -> Path:
    """Return the directory of templates: in the cache, or beside the sandboxes if those are on
    another file system, since sandboxes need hard links to the files of templates."""
    with contextlib.suppress(OSError):
        devices = {_nearest(path).stat().st_dev for path in (paths.cache, paths.data)}
        if len(devices) > 1:
            return paths.data / "templates"
    return paths.cache / "templates"


def _nearest(path: Path) -> Path:
    """``path`` or, if it does not exist, its nearest ancestor that does."""
    return next(parent for parent in (path, *path.parents) if parent.exists())


def _key(record: Record, parts: Parts) -> str:
    """Return a digest of everything of which the machine consists, except values that are renewed
    after a start (names, addresses, ports) and the paths of files."""
    config = replace(record.config, vnc_port=None)
    neutral = replace(record, id="0" * 12, name=TAG, config=config)
    image = replace(
        parts.image,
        chain=tuple(Path(str(number)) for number in range(len(parts.image.chain))),
    )
    machine = plan_machine(
        neutral,
        replace(parts, image=image, kernel=Path(parts.kernel.name), initrd=Path(parts.initrd.name)),
        Head(layers=(), top="top"),
        Ports(http=AGENT_HTTP_PORT if record.config.agent_http else None),
        SandboxDir(Path()),
    )
    sockets = Inherited(
        qmp=range(QMP_MONITORS),
        agent=range(AGENT_PORTS),
        shares=range(SHARES),
        vnc=Path("vnc"),
        vnc_port=Path("port"),
    )
    program = parts.binaries.system.stat()
    facts: list[Any] = [
        SCHEMA,
        parts.image.digest,
        record.config.disk_size_bytes,
        "" if record.source is None else record.source.digest,
        plan(machine, sockets),
        [parts.binaries.version_text, program.st_size, program.st_mtime_ns],
        # Without emulation the guest has seen the host's processor.
        "" if machine.accel is Accelerator.TCG else [describe_cpu(), read_microcode()],
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def note_checked(root: Path) -> None:
    """Note that the guest of the template in ``root`` was found fit. Raises OSError."""
    (root / CHECKED).write_text(f"{SCHEMA}\n", encoding="ascii")


def is_checked(root: Path) -> bool:
    """Whether the guest of the template in ``root`` was found fit to be one."""
    try:
        return read_file(root / CHECKED).strip() == str(SCHEMA).encode("ascii")
    except (OSError, ValueError):
        return False


def discard(root: Path) -> None:
    """Remove a template's directory, its node.json first. Raises HostError."""
    with map_os_errors(root):
        require_ours(root)
        for directory in own_directories(root / "checkpoints", ANY_ID):
            (directory / "node.json").unlink(missing_ok=True)
        remove(root)


def prune(root: Path, log: Path, *, kept: int = KEPT) -> None:
    """Remove all but the ``kept`` most recently used templates, those without the present check,
    and the remains of processes that died while making one. Those that cannot be removed are noted
    in ``log``."""
    found, useless = [], []
    for path in own_directories(root, UNFINISHED):
        with contextlib.suppress(OSError):
            if not is_locked(path.with_name(f"{path.name.rpartition('-')[2]}.lock")):
                remove(path)
    for path in own_directories(root, KEYS):
        with contextlib.suppress(FileNotFoundError):
            if is_checked(path):
                found.append((path.stat().st_mtime, path))
            else:
                useless.append(path)
    for path in [*useless, *(path for _, path in sorted(found, reverse=True)[kept:])]:
        with best_effort(f"remove the template {path.name}", log):
            discard(path)
            path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
