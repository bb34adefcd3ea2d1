"""Templates: machines that have booted already. `start` goes on from one instead of booting.

A template is the directory of a sandbox, ``<cache>/templates/<key>/``, with one checkpoint, taken
when the guest had booted and nothing of anybody's had run in it. Its key is all that its machine
is made of, so a template of anything else is never found; it can be removed at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quicksand.config import Accelerator
from quicksand.errors import QuicksandError
from quicksand.host.cpu import describe_cpu, read_microcode
from quicksand.host.files import is_locked, map_os_errors, read_json
from quicksand.host.paths import Paths
from quicksand.layout import AGENT_PORTS, QMP_MONITORS, SandboxDir
from quicksand.planning import Parts, Ports, plan_machine
from quicksand.qemu.command import AGENT_HTTP_PORT, Inherited, plan
from quicksand.registry import Record
from quicksand.snapshots.history import History
from quicksand.snapshots.origins import Origin
from quicksand.snapshots.records import Head
from quicksand.stats import allocated_size

SCHEMA = 5
"""Part of the key: to be raised when what a template is changes."""

TAG = "template"

VARIABLE = "QUICKSAND_TEMPLATES"
OFF = "off"
"""As its value: boot always."""
USE_ONLY = "use"
"""As its value: use those that are there, make none in the background."""

KEPT = 8
"""Templates that are kept, the last used ones; each takes about 100 MB."""

MAKER = "quicksand.template_maker"


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateInfo:
    """A template that is there."""

    root: Path
    image: str
    """The image's name when it was made; "" if its record cannot be read."""
    image_digest: str
    memory: str
    cpus: int
    size: int
    """Bytes on disk. Sandboxes that came from it share them by links."""
    used: float
    """Unix time of its last use."""


class Templates:
    """The template of one machine: where it is, whether it is there."""

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
        """Why such a machine can have none; "" if it can."""
        if not parts.image.digest:
            self.refusal = "the image is not in the store: nothing vouches for its files"
        elif record.source is not None and not record.source.digest:
            self.refusal = "the save has no checksums: nothing vouches for its files"
        elif record.config.extra_qemu_args:
            self.refusal = "the sandbox has QEMU arguments of its own"
        elif os.environ.get(VARIABLE) == OFF:
            self.refusal = f"{VARIABLE} is {OFF}"

    @property
    def place(self) -> SandboxDir:
        return SandboxDir(self.root / self.key)

    @property
    def lock(self) -> Path:
        """flock'ed by whoever makes it."""
        return self.root / f"{self.key}.lock"

    def find(self) -> Origin | None:
        """The template, if there is one. It is checked when its files are used. Blocks for I/O."""
        if self.refusal:
            return None
        nodes = [node for node in History(self.place).all_nodes() if node.tag == TAG]
        if not nodes:
            return None
        with contextlib.suppress(OSError):
            os.utime(self.place.root)
        return Origin(place=self.place, node=nodes[0])

    def discard(self) -> None:
        """Remove it. Sandboxes that came from it have links of their own to what they need."""
        discard(self.place.root)

    @property
    def is_being_made(self) -> bool:
        return is_locked(self.lock)


async def make_in_background(templates: Templates) -> None:
    """Have the template made by a process of its own, which nobody waits for.

    Does nothing if one is at it. What goes wrong there goes wrong in the foreground too, where
    `quicksand-tui images warm` tells it.
    """
    if templates.refusal or templates.is_being_made or os.environ.get(VARIABLE) == USE_ONLY:
        return
    shell = 'exec "$@" <&3 3<&- >/dev/null 2>&1 &'
    read, write = os.pipe()
    try:
        # Larger than a pipe's buffer no record is (unix: 64 KiB, and the configuration is small).
        os.write(write, json.dumps(templates.record.to_json()).encode())
    finally:
        os.close(write)
    try:
        starter = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            f"exec 3<&0; {shell}",
            "sh",
            *(sys.executable, "-P", "-m", MAKER),
            stdin=read,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        await starter.wait()
    finally:
        os.close(read)


def list_templates(paths: Paths) -> list[TemplateInfo]:
    """All templates of this user, the last used first. Blocks for I/O."""
    found = []
    root = templates_dir(paths)
    with contextlib.suppress(FileNotFoundError):
        for path in root.iterdir():
            if path.is_dir() and not path.name.startswith("."):
                # Another process may remove it now.
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
    """Where templates are: in the cache, but beside the sandboxes if that is another file system,
    for hard links to them are wanted there."""
    with contextlib.suppress(OSError):
        devices = {_nearest(path).stat().st_dev for path in (paths.cache, paths.data)}
        if len(devices) > 1:
            return paths.data / "templates"
    return paths.cache / "templates"


def _nearest(path: Path) -> Path:
    """``path``, or the directory that it would be made in."""
    return next(parent for parent in (path, *path.parents) if parent.exists())


def _key(record: Record, parts: Parts) -> str:
    """Names the machine: whatever differs in it makes another key. What is renewed after a start
    (names, addresses, ports) has no part in it, nor has where files are."""
    neutral = replace(record, id="0" * 12, name=TAG)
    image = replace(
        parts.image,
        kernel=Path("kernel"),
        chain=tuple(Path(str(number)) for number in range(len(parts.image.chain))),
    )
    machine = plan_machine(
        neutral,
        replace(parts, image=image, initrd=Path(parts.initrd.name)),
        Head(layers=(), top="top"),
        Ports(forwards=(), http=AGENT_HTTP_PORT if record.config.agent_http else None),
        SandboxDir(Path()),
    )
    sockets = Inherited(
        qmp=range(QMP_MONITORS), agent=range(QMP_MONITORS, QMP_MONITORS + AGENT_PORTS)
    )
    program = parts.binaries.system.stat()
    facts: list[Any] = [
        SCHEMA,
        parts.image.digest,
        record.config.disk_size_bytes,
        "" if record.source is None else record.source.digest,
        plan(machine, sockets),
        [parts.binaries.version_text, program.st_size, program.st_mtime_ns],
        # A guest that runs on the processor itself has seen it.
        "" if machine.accel is Accelerator.TCG else [describe_cpu(), read_microcode()],
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def discard(root: Path) -> None:
    """Remove a template's directory, its commit mark first."""
    with map_os_errors(root):
        for mark in root.glob("checkpoints/*/node.json"):
            mark.unlink(missing_ok=True)
    shutil.rmtree(root, ignore_errors=True)


def prune(root: Path, *, kept: int = KEPT) -> None:
    """Remove templates that were not used for longest, and what makers that died have left."""
    found = []
    for path in root.iterdir():
        if path.name.startswith("."):
            if not is_locked(path.with_name(f"{path.name.rpartition('-')[2]}.lock")):
                shutil.rmtree(path, ignore_errors=True)
        elif path.is_dir():
            found.append((path.stat().st_mtime, path))
    for _, path in sorted(found, reverse=True)[kept:]:
        with contextlib.suppress(QuicksandError):
            discard(path)
            path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
