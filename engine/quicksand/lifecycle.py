"""Starting and stopping a machine. `boot` either returns a machine whose agent has answered, or
raises with nothing left behind; that holds for cancellation at any await too."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from quicksand.agent.link import AgentLink
from quicksand.config import BootTiming, PortForward
from quicksand.errors import (
    AgentUnreachableError,
    BootTimeoutError,
    DiskSpaceError,
    GuestPanicError,
    ImageError,
    PortInUseError,
    QemuDiedError,
    QuicksandError,
)
from quicksand.host.arch import Architecture
from quicksand.host.files import is_locked, map_os_errors, tail
from quicksand.host.memory import check_memory
from quicksand.host.paths import make_private_dir
from quicksand.images.initrd import compose_initrd
from quicksand.images.overlay import create_overlay
from quicksand.images.qcow2 import check_qcow2
from quicksand.images.resolve import ImageResolver, ResolvedImage
from quicksand.layout import SandboxDir, runtime_dir, sandbox_dir
from quicksand.qemu.accelerator import AcceleratorStatus, choose_accelerator
from quicksand.qemu.binaries import QemuBinaries, find_binaries
from quicksand.qemu.command import AGENT_HTTP_PORT, Boot, Machine, plan
from quicksand.qemu.process import Listeners, OwnedProcess, launch
from quicksand.registry import (
    Record,
    Registry,
    RunState,
    find_panic,
    publish_state,
    remove_tree,
)

T = TypeVar("T")
Progress = Callable[[str, int, int], None]
"""Called with a stage, what is done and the total."""

STAGES = ("image", "accelerator", "disk", "qemu", "guest")

DISK_RESERVE = 64 * 1024 * 1024
"""Bytes that must be free to start: a guest that finds the host full at once helps nobody."""

END_POLL_S = 0.01
KILL_WAIT_S = 10.0


@dataclass(slots=True, kw_only=True)
class LiveMachine:
    """A machine that this process started and owns until it is detached."""

    record: Record
    run: RunState
    timing: BootTiming
    process: OwnedProcess
    link: AgentLink
    image: ResolvedImage


class Stopwatch:
    """Names phases of a start and measures them."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._last = time.monotonic()
        self._phases: dict[str, float] = {}

    def begin(self, stage: str) -> None:
        if self._progress is not None:
            self._progress(stage, STAGES.index(stage), len(STAGES))

    def lap(self, phase: str) -> None:
        """Book the time since the last lap to ``phase``, a field of BootTiming."""
        now = time.monotonic()
        self._phases[phase] = self._phases.get(phase, 0.0) + now - self._last
        self._last = now

    def timing(self) -> BootTiming:
        phases: dict[str, Any] = dict(self._phases)
        return BootTiming(**phases)


async def boot(
    registry: Registry, record: Record, lock: int, *, progress: Progress | None = None
) -> LiveMachine:
    """Boot the sandbox of ``record``, whose lock the caller holds as ``lock``.

    Raises HostError, ImageError, MachineError or AgentError; nothing runs then, the runtime
    directory is gone, and the sandbox's directory is the caller's to keep or remove.
    """
    watch = Stopwatch(progress)
    place, runtime = sandbox_dir(registry.paths, record.id), runtime_dir(registry.paths, record.id)
    watch.begin("image")
    image, arch = await asyncio.to_thread(_resolve, registry, record)
    watch.lap("resolve_image_s")
    watch.begin("accelerator")
    binaries = await asyncio.to_thread(find_binaries, arch.value)
    watch.lap("load_runtime_s")
    status = await choose_accelerator(binaries, record.config.accel, arch)
    check_memory(record.config.memory_bytes)
    watch.lap("detect_accelerator_s")
    watch.begin("disk")
    initrd = await in_thread_to_the_end(lambda: _prepare_disk(registry, record, image, place))
    watch.lap("setup_disk_s")
    watch.begin("qemu")
    forwards = pick_ports(record.config.port_forwards)
    http_port = pick_port(PortForward(0, AGENT_HTTP_PORT)) if record.config.agent_http else None
    machine = _plan_machine(record, image, initrd, place.disk, arch, status, forwards, http_port)
    async with contextlib.AsyncExitStack() as undo:
        undo.callback(remove_quietly, runtime.root)
        make_private_dir(registry.paths.runtime)
        # We hold the lock, so what is there belongs to a run that ended badly.
        remove_tree(runtime.root)
        with map_os_errors(runtime.root):
            runtime.root.mkdir(mode=0o700)
            listeners = Listeners(runtime)
        undo.callback(listeners.close)
        process = await launch(
            binaries,
            plan(machine, listeners.inherited),
            sandbox=place,
            runtime=runtime,
            lock=lock,
            listeners=listeners,
            discard=record.discard,
        )
        undo.push_async_callback(_kill, process)
        listeners.close()
        watch.lap("launch_process_s")
        watch.begin("guest")
        run = _run_state(machine, binaries, status, process, listeners)
        link = AgentLink(
            runtime, run.token, why_gone=lambda: why_gone(place, doing="the guest booted")
        )
        undo.callback(link.close)
        await _await_agent(record, place, process, link)
        watch.lap("connect_agent_s")
        publish_state(runtime, run)
        watch.lap("post_boot_s")
        undo.pop_all()
    return LiveMachine(
        record=record,
        run=run,
        timing=_timing(watch, link),
        process=process,
        link=link,
        image=image,
    )


def _resolve(registry: Registry, record: Record) -> tuple[ResolvedImage, Architecture]:
    """The record's image: at the first start the one of that name, later the very same files."""
    arch = record.config.arch or Architecture.host()
    resolver = ImageResolver(registry.paths)
    if not record.committed:
        return resolver.resolve(record.config.image, arch), arch
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


async def in_thread_to_the_end(function: Callable[[], T]) -> T:
    """Run ``function`` in a thread. A cancellation waits for it: what it makes must not appear
    after the clearing up."""
    task = asyncio.create_task(asyncio.to_thread(function), name="quicksand-disk")
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise


def _prepare_disk(
    registry: Registry, record: Record, image: ResolvedImage, place: SandboxDir
) -> Path:
    """Overlay and initrd; returns the initrd."""
    for log in (place.console_log, place.qemu_log, place.exit):
        log.unlink(missing_ok=True)
        log.with_name(log.name + ".1").unlink(missing_ok=True)
    free = os.statvfs(place.root)
    if free.f_bavail * free.f_frsize < DISK_RESERVE:
        raise DiskSpaceError(
            f"{place.root} has less than {DISK_RESERVE // 2**20} MiB of free space",
            hint="`quicksand-tui ps -a` shows what sandboxes take; remove one, or free some space",
        )
    if not place.disk.exists():
        top = image.chain[-1]
        base_size = check_qcow2(top, allow_backing=len(image.chain) > 1).virtual_size
        size = max(base_size, record.config.disk_size_bytes or 0)
        create_overlay(place.disk, backing=top, size=size)
    return compose_initrd(image.initrd, image.guest_arch, registry.paths.cache)


def _plan_machine(
    record: Record,
    image: ResolvedImage,
    initrd: Path,
    disk: Path,
    arch: Architecture,
    status: AcceleratorStatus,
    forwards: tuple[PortForward, ...],
    http_port: int | None,
) -> Machine:
    config = record.config
    return Machine(
        arch=arch,
        accel=status.accelerator,
        memory_bytes=config.memory_bytes,
        cpus=config.cpus,
        boot=Boot(
            kernel=image.kernel,
            initrd=initrd,
            disk=disk,
            backing=image.chain,
            hostname=hostname(record.name),
            cmdline=image.cmdline,
        ),
        network=config.network_mode,
        forwards=forwards,
        mac=mac_address(record.id),
        aio="threads",
        http_port=http_port,
        extra=config.extra_qemu_args,
    )


def _run_state(
    machine: Machine,
    binaries: QemuBinaries,
    status: AcceleratorStatus,
    process: OwnedProcess,
    listeners: Listeners,
) -> RunState:
    return RunState(
        keeper_pid=process.keeper_pid,
        qemu_pid=process.qemu_pid,
        token=secrets.token_hex(16),
        accel=machine.accel.value,
        accel_reason=status.error or "",
        forwards=tuple((f.host, f.guest) for f in machine.forwards),
        http_port=machine.http_port,
        started=time.time(),
        paused=False,
        qemu_command=(str(binaries.system), *plan(machine, listeners.inherited)),
    )


async def _await_agent(
    record: Record, place: SandboxDir, process: OwnedProcess, link: AgentLink
) -> None:
    """Return when the agent has answered; raise as soon as QEMU ends, or at the deadline."""
    timeout = record.config.boot_timeout
    try:
        async with asyncio.timeout(timeout):
            await first_of(link.session(timeout=timeout + 60), process.wait())
    except (TimeoutError, AgentUnreachableError):
        raise BootTimeoutError(
            f"the guest's agent did not answer within {timeout:g} s of the start",
            hint="a slow host may need a larger boot_timeout; the end of the console is below",
            log=tail(place.console_log, limit=2000),
        ) from None
    if link.connected is None:
        raise why_gone(place, doing="the guest booted") or QemuDiedError("QEMU ended at start")


async def first_of(wanted: Awaitable[T], ended: Awaitable[object]) -> None:
    """Wait until either is done; the other is cancelled. Errors of ``wanted`` are raised."""
    tasks = [asyncio.ensure_future(wanted), asyncio.ensure_future(ended)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            await tasks[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.exception()


def _timing(watch: Stopwatch, link: AgentLink) -> BootTiming:
    """The host's phases, and within the wait for the agent the guest's own."""
    session = link.connected
    boot = session.hello.get("boot") if session is not None else None
    marks = (
        [boot.get(k) for k in ("init_s", "network_s", "serving_s")]
        if isinstance(boot, dict)
        else []
    )
    timing = watch.timing()
    if len(marks) == 3 and all(isinstance(mark, int | float) for mark in marks):
        init, network, serving = (float(mark) for mark in marks if mark is not None)
        timing = replace(
            timing,
            kernel_boot_s=init,
            init_system_s=max(0.0, network - init),
            agent_startup_s=max(0.0, serving - network),
        )
    return timing


async def _kill(process: OwnedProcess) -> None:
    process.cut()
    await asyncio.shield(process.wait())


def remove_quietly(path: Path) -> None:
    """Remove a half-made directory; what cannot be removed the next reaping takes."""
    shutil.rmtree(path, ignore_errors=True)


def why_gone(place: SandboxDir, *, doing: str) -> QuicksandError | None:
    """The error that tells why a machine is gone; None while it lives."""
    if is_locked(place.lock) and not place.exit.exists():
        return None
    panic = find_panic(place)
    if panic:
        return GuestPanicError(
            f"the guest's kernel panicked while {doing}", log=tail(place.console_log, limit=2000)
        )
    log = tail(place.qemu_log, limit=2000) or tail(place.console_log, limit=1000)
    return QemuDiedError(f"QEMU ended while {doing}", log=log)


async def until_unlocked(lock: Path, *, timeout: float) -> bool:
    """Whether a sandbox's lock is free (keeper and QEMU gone) within ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while is_locked(lock):
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(END_POLL_S)
    return True


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
                hint=f"choose another one, or 0 for any: PortForward(0, {forward.guest})",
            ) from error
        port: int = probe.getsockname()[1]
        return port


def hostname(name: str) -> str:
    """A host name made of a sandbox's name (RFC 1123: letters, digits and hyphens, 63 at most)."""
    return "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")[:63] or "sandbox"


def mac_address(sandbox_id: str) -> str:
    """A locally administered address of the sandbox's own (52:54:00 is QEMU's prefix)."""
    return "52:54:00:" + ":".join(sandbox_id[i : i + 2] for i in (0, 2, 4))
