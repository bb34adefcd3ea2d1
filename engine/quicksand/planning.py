"""From a sandbox's record to the machine that QEMU is to be: image, accelerator, disk, ports."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from quicksand.config import NetworkMode, PortForward
from quicksand.errors import DiskSpaceError, ImageError, PortInUseError
from quicksand.host.arch import Architecture
from quicksand.host.files import map_os_errors, read_json
from quicksand.host.memory import check_memory
from quicksand.images.initrd import compose_initrd
from quicksand.images.overlay import create_overlay
from quicksand.images.qcow2 import check_qcow2
from quicksand.images.resolve import ImageResolver, ResolvedImage
from quicksand.layout import SandboxDir, layer_name
from quicksand.qemu.accelerator import AcceleratorStatus, choose_accelerator
from quicksand.qemu.binaries import QemuBinaries, find_binaries
from quicksand.qemu.command import AGENT_HTTP_PORT, Boot, Machine, plan
from quicksand.qemu.keeping import FIRST
from quicksand.qemu.process import Listeners
from quicksand.registry import Record, Registry, RunState
from quicksand.snapshots.history import History, lost_head, prune_automatic
from quicksand.snapshots.layers import add_layer
from quicksand.snapshots.left_behind import keep_left_behind
from quicksand.snapshots.records import BLANK, PAGES, Head, Node, new_id

UNFINISHED = "starting"
"""Stands for a machine in a head whose start has not succeeded yet."""

DISK_RESERVE = 64 * 1024 * 1024
"""Bytes that must be free to start: a guest that finds the host full at once helps nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What machines of one record are made of."""

    image: ResolvedImage
    arch: Architecture
    binaries: QemuBinaries
    status: AcceleratorStatus
    initrd: Path
    """The image's, with the agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Ports of the host's loopback."""

    forwards: tuple[PortForward, ...]
    http: int | None
    """Leads to the agent's HTTP."""


async def gather_parts(
    registry: Registry, record: Record, lap: Callable[[str], None] = lambda _: None
) -> Parts:
    """Find image, QEMU and accelerator, and see that the memory is there.

    ``lap`` is called after each phase, by its name in BootTiming. Raises HostError or ImageError.
    """
    image, arch = await asyncio.to_thread(resolve_image, registry, record)
    cache = registry.paths.cache
    initrd = await asyncio.to_thread(compose_initrd, image.initrd, image.guest_arch, cache)
    lap("resolve_image_s")
    binaries = await asyncio.to_thread(find_binaries, arch.value)
    lap("load_runtime_s")
    status = await choose_accelerator(binaries, record.config.accel, arch)
    check_memory(record.config.memory_bytes)
    lap("detect_accelerator_s")
    return Parts(image=image, arch=arch, binaries=binaries, status=status, initrd=initrd)


def resolve_image(registry: Registry, record: Record) -> tuple[ResolvedImage, Architecture]:
    """The record's image: at the first start the one of that name, later (and for clones) the very
    same files."""
    arch = record.config.arch or Architecture.host()
    resolver = ImageResolver(registry.paths)
    if not record.committed and not record.chain:
        return resolver.resolve(record.config.image, arch), arch
    if not record.chain:
        raise ImageError(f"the record of {record.name!r} names no image files")
    base = Path(record.chain[-1])
    if record.image_digest and base.exists():
        image = resolver.resolve(str(base.parent), arch)
    else:
        image = resolver.resolve(record.config.image, arch)
    if image.digest != record.image_digest:
        raise ImageError(
            f"the image {record.config.image!r} is no longer the one that the sandbox's disk "
            f"lies on (digest {record.image_digest[:12]})",
            hint=f"bring back {base}, or make a new sandbox",
        )
    return image, arch


def prepare_disk(
    record: Record, image: ResolvedImage, place: SandboxDir, at: Node | None = None
) -> Head:
    """See that there are a disk and a memory image to start from, or to go on from at the
    checkpoint ``at``; returns where the sandbox stands. The caller holds the history's lock.

    Raises DiskSpaceError, PathError, ImageError, HistoryError.
    """
    check_space(place.root)
    history = History(place)
    with map_os_errors(place.root):
        place.make()
    if at is not None:
        history.set_head_aside()
    head = _find_head(place, _last_machine(place))
    if head is None and at is None:
        _refuse_lost_disk(record, place)
        head = _first_disk(record, image, place)
    if at is not None:
        # Until it runs, the disk as it was is what counts: its layers must not be swept away.
        head = Head.going_on(at, machine=UNFINISHED, previous=head)
        add_layer(place, head.top, below=at.layers[-1])
    assert head is not None
    history.set_head(head)
    # Only now: exit.json has told which machine's disk counts.
    with map_os_errors(place.root):
        for log in (place.console_log, place.qemu_log, place.exit):
            log.unlink(missing_ok=True)
            log.with_name(log.name + ".1").unlink(missing_ok=True)
    return head


def _first_disk(record: Record, image: ResolvedImage, place: SandboxDir) -> Head:
    size = record.config.disk_size_bytes or 0
    if record.source is not None:
        from quicksand.saves.resuming import adopt

        return adopt(record.source, place, image, size)
    top = image.chain[-1]
    base_size = check_qcow2(top, allow_backing=len(image.chain) > 1).virtual_size
    head = Head(layers=(), top=new_id(), machine=FIRST)
    create_overlay(place.layer(head.top), backing=top, size=max(base_size, size))
    return head


def _refuse_lost_disk(record: Record, place: SandboxDir) -> None:
    """A sandbox that has had a disk does not get an empty one. Raises HistoryError."""
    if place.broken_head.exists():
        raise lost_head(place, f"it was set aside as {place.broken_head.name}")
    if record.committed and not place.head.exists() and any(place.layers.iterdir()):
        raise lost_head(place, "it is missing")


def _find_head(place: SandboxDir, ended: str) -> Head | None:
    """Where the sandbox stood when it ended; None if it never ran. ``ended`` is the machine that
    ran then."""
    if not place.head.exists():
        return None
    head = History(place).head()
    # A hand-over or a start that was not finished: what was before it counts.
    if head.machine == UNFINISHED or (head.previous is not None and head.machine != ended):
        if head.previous is None:
            return None
        head = head.previous
    return replace(head, run=None, memory=BLANK, machine=FIRST, previous=None)


def finish_start(place: SandboxDir, head: Head, at: Node) -> None:
    """The machine of ``head``, which goes on from ``at``, runs: from now on its disk is the
    sandbox's. What was the present is kept as an automatic checkpoint.

    The caller holds the history's lock. Raises HostError: then what was before it counts.
    """
    history = History(place)
    if head.previous is not None:
        keep_left_behind(history, head.previous, at)
    history.set_head(replace(head, machine=FIRST, previous=None))
    prune_automatic(history)


def _last_machine(place: SandboxDir) -> str:
    """Which machine ran when the sandbox ended, by its keeper; "" if it could not tell."""
    with contextlib.suppress(OSError, ValueError):
        return str(read_json(place.exit).get("machine", ""))
    return ""


def check_space(root: Path, need: int = 0) -> None:
    """Raise DiskSpaceError if ``need`` bytes would make the file system of ``root`` as good as
    full."""
    found = os.statvfs(root)
    if found.f_bavail * found.f_frsize < need + DISK_RESERVE:
        raise DiskSpaceError(
            f"{root} has less than {(need + DISK_RESERVE) // 2**20} MiB of free space",
            hint="`quicksand-tui du` shows where it goes, `quicksand-tui clean` frees some",
        )


def plan_machine(
    record: Record,
    parts: Parts,
    head: Head,
    ports: Ports,
    place: SandboxDir,
    *,
    at: Node | None = None,
) -> Machine:
    """The machine of ``record`` on the disk and the memory image of ``head``; it waits for the
    state of the checkpoint ``at``, if there is one."""
    config, image = record.config, parts.image
    return Machine(
        name=str(place.root),
        arch=parts.arch,
        accel=parts.status.accelerator,
        memory_bytes=config.memory_bytes,
        memory_image=None if head.memory == BLANK else place.memory / head.memory,
        incoming=at is not None and at.tier == PAGES,
        halted=at is not None and at.tier != PAGES,
        cpus=config.cpus,
        boot=Boot(
            kernel=image.kernel,
            initrd=parts.initrd,
            disk=layer_name(head.top),
            backing=(*image.chain, *map(layer_name, head.layers)),
            hostname=hostname(record.name),
            cmdline=image.cmdline,
        ),
        network=config.network_mode,
        forwards=ports.forwards,
        mac=mac_address(record.id),
        aio="threads",
        http_port=ports.http,
        extra=config.extra_qemu_args,
    )


def make_run_state(
    machine: Machine,
    parts: Parts,
    listeners: Listeners,
    *,
    pids: tuple[int, int],
    token: str,
    run: str,
    origin: str = "",
) -> RunState:
    """What clients need of a machine whose keeper and QEMU are ``pids``."""
    return RunState(
        keeper_pid=pids[0],
        qemu_pid=pids[1],
        run=run,
        origin=origin,
        token=token,
        accel=machine.accel.value,
        accel_reason=parts.status.error or "",
        forwards=tuple((f.host, f.guest) for f in machine.forwards),
        http_port=machine.http_port,
        started=time.time(),
        paused=False,
        qemu_command=(str(parts.binaries.system), *plan(machine, listeners.inherited)),
    )


def pick_all_ports(record: Record) -> Ports:
    """The ports that a start takes. Raises PortInUseError."""
    config = record.config
    http = pick_port(PortForward(0, AGENT_HTTP_PORT)) if config.agent_http else None
    return Ports(forwards=pick_ports(config.port_forwards), http=http)


def pick_ports(forwards: tuple[PortForward, ...]) -> tuple[PortForward, ...]:
    """Replace host port 0 by a free one. Raises PortInUseError for a taken one, by its number."""
    return tuple(PortForward(host=pick_port(f), guest=f.guest) for f in forwards)


def pick_port(forward: PortForward) -> int:
    """The host port to use for ``forward``. Raises PortInUseError."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", forward.host))
        except OSError as error:
            raise PortInUseError(
                f"host port {forward.host} cannot be used: {error.strerror}",
                hint="choose another host port, or 0 for any free one",
            ) from error
        port: int = probe.getsockname()[1]
        return port


def identity(record: Record, *, was_used: bool = True) -> dict[str, str]:
    """What makes this sandbox's guest another than that whose memory it goes on from: parameters
    of the agent's ``set_identity``. Unless it ``was_used``, none of its programs but the init has
    read its boot id, which the kernel makes when that is first done."""
    found = {
        "hostname": hostname(record.name),
        "machine_id": machine_id(record.id),
        "ssh_host_keys": "new",
    }
    if record.config.network_mode is not NetworkMode.NONE:
        found["mac"] = mac_address(record.id)
    return found | {"boot_id": "new" if was_used else "if_read"}


def machine_id(sandbox_id: str) -> str:
    """A machine-id(5) of the sandbox's own: 32 hexadecimal digits."""
    return hashlib.sha256(f"quicksand {sandbox_id}".encode()).hexdigest()[:32]


def hostname(name: str) -> str:
    """A host name made of a sandbox's name (RFC 1123: letters, digits and hyphens, 63 at most)."""
    return "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")[:63] or "sandbox"


def mac_address(sandbox_id: str) -> str:
    """A locally administered address of the sandbox's own (52:54:00 is QEMU's prefix)."""
    return "52:54:00:" + ":".join(sandbox_id[i : i + 2] for i in (0, 2, 4))
