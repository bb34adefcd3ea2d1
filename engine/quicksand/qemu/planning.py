"""Turning a sandbox's record into a description of QEMU's machine: image, accelerator, disk,
ports."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.capacity import check_memory
from quicksand.base.errors import ImageError, PortInUseError
from quicksand.base.progress import Progress, Stopwatch
from quicksand.base.tick_rate import tick_rate_khz
from quicksand.disks.images.boot_files import compose_initrd, start_file_of, start_kernel, trim
from quicksand.disks.images.resolve import ImageResolver, ResolvedImage
from quicksand.qemu.accelerator import AcceleratorStatus, choose_accelerator
from quicksand.qemu.binaries import QemuBinaries, find_binaries, require_display
from quicksand.qemu.command import Boot, MachinePlan, SharedDirectory, plan
from quicksand.qemu.process import Listeners
from quicksand.records.config import VNC_PORT_HINT, Accelerator, NetworkMode
from quicksand.records.layout import SandboxDir, layer_name
from quicksand.records.memory_budget import check_budget
from quicksand.records.nodes import BLANK, Head, Node
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record, RunState


def booted_files(registry: Registry) -> set[Path]:
    """Return the files of running machines: a revert starts a new QEMU with the same ones. Blocks
    for I/O."""
    used: set[Path] = set()
    for entry in registry.list():
        if entry.run is not None:
            used |= _files_of(entry.run, registry.paths.cache)
    return used


def _files_of(run: RunState, cache: Path) -> set[Path]:
    """Return a machine's files, and the kernel from which a machine that went on would boot."""
    found = set(map(Path, run.qemu_command))
    for option, value in pairwise(run.qemu_command):
        if option == "-kernel":
            with contextlib.suppress(OSError):  # the image is gone, so no file is made from it
                found.add(start_file_of(Path(value), cache))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The properties that all machines of one record share."""

    image: ResolvedImage
    arch: Architecture
    binaries: QemuBinaries
    status: AcceleratorStatus
    kernel: Path
    """The form of the image's kernel that starts fastest."""
    initrd: Path
    """The image's initrd with the agent added."""
    tsc_khz: int | None
    """See `MachinePlan`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Ports of the host's loopback."""

    http: int | None = None
    """Leads to the agent's HTTP interface; None if that is off."""
    vnc: int | None = None
    """Leads to the screen; None if it is not requested."""


async def gather_parts(
    registry: Registry,
    record: Record,
    lap: Callable[[str], None] = lambda _: None,
    *,
    beside: Sequence[str] = (),
) -> Parts:
    """Find image, QEMU and accelerator, and check that the host has enough memory.

    ``lap`` is called after each phase with its name in BootTiming. ``beside``: the command line of
    the QEMU whose guest will go on in this one. Raises HostError, ImageError.
    """
    image, arch = await asyncio.to_thread(resolve_image, registry, record)
    kernel, initrd = await asyncio.to_thread(_boot_files, image, registry, beside)
    lap("resolve_image_s")
    binaries = await asyncio.to_thread(find_binaries, arch.value)
    if record.config.enable_display:
        require_display(binaries)
    if not binaries.starts_elf:
        kernel = image.kernel
    lap("load_runtime_s")
    status = await choose_accelerator(binaries, record.config.accel, arch)
    tsc_khz = None
    if status.accelerator is Accelerator.TCG and arch is Architecture.X86_64:
        tsc_khz = await asyncio.to_thread(tick_rate_khz)
    check_memory(record.config.memory_bytes)
    await asyncio.to_thread(check_budget, registry, record)
    lap("detect_accelerator_s")
    return Parts(
        image=image,
        arch=arch,
        binaries=binaries,
        status=status,
        kernel=kernel,
        initrd=initrd,
        tsc_khz=tsc_khz,
    )


def _boot_files(
    image: ResolvedImage, registry: Registry, beside: Sequence[str]
) -> tuple[Path, Path]:
    cache = registry.paths.cache
    trim(cache, lambda: booted_files(registry))
    kernel = start_kernel(image.kernel, cache)
    # A guest that goes on does not boot, so the files from which it has booted will do: their
    # package may have been upgraded since, or be gone.
    for option, value in itertools.pairwise(beside):
        if option == "-initrd" and Path(value).is_file():
            return kernel, Path(value)
    return kernel, compose_initrd(image.initrd, image.guest_arch, cache)


@dataclass(frozen=True, slots=True)
class Found:
    """The findings of a start before it makes anything."""

    parts: Parts
    watch: Stopwatch


async def look_for_parts(
    registry: Registry, record: Record, progress: Progress | None = None
) -> Found:
    """Begin a start: find the machine's parts. Raises HostError, ImageError."""
    watch = Stopwatch(progress)
    watch.begin("image")
    return Found(await gather_parts(registry, record, watch.lap), watch)


def resolve_image(registry: Registry, record: Record) -> tuple[ResolvedImage, Architecture]:
    """Find the record's image: at the first start the present one of that name, later (and for
    clones) the very same files. Raises ImageError if those are gone or have changed."""
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
            f"is based on (digest {record.image_digest[:12]})",
            hint=f"bring back {base}, or make a new sandbox",
        )
    return image, arch


def plan_machine(
    record: Record,
    parts: Parts,
    head: Head,
    ports: Ports,
    place: SandboxDir,
    *,
    at: Node | None = None,
    directories: Sequence[SharedDirectory] = (),
) -> MachinePlan:
    """Return the machine of ``record`` with the disk and memory image of ``head``. With ``at`` it
    waits for that checkpoint's state to be loaded. QEMU serves ``directories`` by 9p."""
    config, image = record.config, parts.image
    is_going_on = at is not None and at.tier.has_memory
    is_pc = parts.arch is Architecture.X86_64
    return MachinePlan(
        name=str(place.root),
        arch=parts.arch,
        accel=parts.status.accelerator,
        memory_bytes=config.memory_bytes,
        memory_image=None if head.memory == BLANK else place.memory / head.memory,
        incoming=at is not None and at.tier.is_incoming,
        halted=at is not None and not at.tier.is_incoming,
        cpus=config.cpus,
        tsc_khz=parts.tsc_khz,
        boot=Boot(
            # A machine that goes on needs a kernel only if its guest boots again. QEMU would write
            # an ELF file to the guest's memory at each reset, and loading a state begins with one
            # (QEMU hw/core/loader.c, rom_reset), but it provides a bzImage when the guest asks. On
            # arm64 it provides none, and writes no kernel before incoming state.
            kernel=image.kernel if is_going_on and is_pc else parts.kernel,
            initrd=parts.initrd,
            disk=layer_name(head.top),
            backing=(*image.chain, *map(layer_name, head.layers)),
            hostname=hostname(record.name),
            cmdline=image.cmdline,
        ),
        network=config.network_mode,
        display=config.enable_display,
        vnc_port=config.vnc_port is not None,
        mac=mac_address(record.id),
        aio="threads",
        http_port=ports.http,
        directories=directories,
        extra=config.extra_qemu_args,
    )


def make_run_state(
    machine: MachinePlan,
    parts: Parts,
    listeners: Listeners,
    *,
    pids: tuple[int, int],
    token: str,
    run: str,
    origin: str = "",
    vnc_port: int | None = None,
    forwards: tuple[tuple[int, int], ...] = (),
    udp_forwards: tuple[tuple[int, int], ...] = (),
) -> RunState:
    """The `RunState` of a machine whose keeper and QEMU have the process ids ``pids``."""
    return RunState(
        keeper_pid=pids[0],
        qemu_pid=pids[1],
        run=run,
        origin=origin,
        token=token,
        accel=machine.accel.value,
        accel_reason=parts.status.error or "",
        forwards=forwards,
        udp_forwards=udp_forwards,
        http_port=machine.http_port,
        vnc_port=vnc_port,
        started=time.time(),
        paused=False,
        qemu_command=(str(parts.binaries.system), *plan(machine, listeners.inherited)),
    )


def pick_ports(record: Record) -> Ports:
    """Choose the host ports at which QEMU listens. Raises PortInUseError."""
    config = record.config
    http = _pick(0, "the port of the agent's HTTP", "") if config.agent_http else None
    vnc = None
    if config.vnc_port is not None:
        vnc = _pick(config.vnc_port, "the VNC port", VNC_PORT_HINT)
    return Ports(http=http, vnc=vnc)


def _pick(wanted: int, what: str, hint: str) -> int:
    """``wanted``, or any free port if that is 0. Raises PortInUseError."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError as error:
            raise PortInUseError(
                f"{what} {wanted} cannot be used: {error.strerror}", hint=hint
            ) from error
        port: int = probe.getsockname()[1]
        return port


def identity(record: Record, *, was_used: bool = True) -> dict[str, str]:
    """Parameters of the agent's ``set_identity`` that give this sandbox's guest its own identity,
    when its memory comes from another one. If that guest was not ``was_used`` (a template), its
    boot id is renewed only if a program has read it: the kernel makes it at the first read."""
    found = {
        "hostname": hostname(record.name),
        "machine_id": machine_id(record.id),
        "ssh_host_keys": "new",
    }
    if record.config.network_mode is not NetworkMode.NONE:
        found["mac"] = mac_address(record.id)
    return found | {"boot_id": "new" if was_used else "if_read"}


def machine_id(sandbox_id: str) -> str:
    """The sandbox's own machine-id(5): 32 hexadecimal digits."""
    return hashlib.sha256(f"quicksand {sandbox_id}".encode()).hexdigest()[:32]


def hostname(name: str) -> str:
    """A host name derived from a sandbox's name (RFC 1123: at most 63 letters, digits, hyphens)."""
    return "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")[:63] or "sandbox"


def mac_address(sandbox_id: str) -> str:
    """The sandbox's own MAC address, locally administered (52:54:00 is QEMU's prefix)."""
    return "52:54:00:" + ":".join(sandbox_id[i : i + 2] for i in (0, 2, 4))
