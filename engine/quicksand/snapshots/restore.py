"""Going on from a checkpoint: a new QEMU maps the memory image, gets the pages that lie over it and
loads the devices' state; or loads the snapshot that another QEMU has made of both. Nothing of the
checkpoint is modified."""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

from quicksand.agent.link import AgentLink
from quicksand.agent.session import Session
from quicksand.config import Accelerator, SandboxConfig
from quicksand.errors import AgentUnreachableError, HistoryError, MachineError
from quicksand.host.arch import Architecture
from quicksand.host.cpu import describe_cpu
from quicksand.host.threads import in_thread_to_the_end
from quicksand.layout import MachineDir, SandboxDir
from quicksand.planning import identity
from quicksand.qemu.qmp import Monitor
from quicksand.registry import Record, RunState
from quicksand.snapshots.firmware import put_firmware
from quicksand.snapshots.guest_ram import PAGE, GuestRam
from quicksand.snapshots.image import not_of_image, own_pages
from quicksand.snapshots.internal import load_snapshot
from quicksand.snapshots.layers import check_layers
from quicksand.snapshots.pages import ZEROS, MappedFile, PageIndex, Run, overlay_runs, verify
from quicksand.snapshots.records import DISK, Node
from quicksand.snapshots.storing import find_image, load_index
from quicksand.snapshots.verified import Verified

LOAD_POLL_S = 0.001
LOAD_TIMEOUT_S = 30.0

FIRST_HELLO_S = 2.0
HELLO_S = 20.0
"""Until the agent answers. It takes a tenth of a second, on a host that swaps much longer; never
where a client was half way through a request at the time of the checkpoint (see `wake`)."""

ENTROPY_BYTES = 64

IDENTITY_S = 120.0
"""New SSH host keys may be part of it: an RSA key takes half a minute in an emulated guest."""

ZEROS_AT_ONCE = 1024
"""Pages."""

SHAPE_NAMES = {
    "arch": "architecture",
    "accel": "accelerator",
    "memory": "memory",
    "cpus": "number of CPUs",
    "network": "network mode",
    "qemu": "QEMU version",
    "image": "image",
    "extra": "extra QEMU arguments",
    "cpu": "processor",
}


async def shape_of(
    run: RunState, monitor: Monitor, config: SandboxConfig, digest: str
) -> dict[str, Any]:
    """What a machine must be to go on from a checkpoint of this one."""
    version = (await monitor.execute("query-version"))["qemu"]
    qemu = f"{version['major']}.{version['minor']}.{version['micro']}"
    return make_shape(config, accel=run.accel, qemu=qemu, image=digest)


def make_shape(config: SandboxConfig, *, accel: str, qemu: str, image: str) -> dict[str, Any]:
    """What makes two machines take each other's checkpoints; SHAPE_NAMES tells the keys.

    ``qemu``: its version, ``image``: the image's digest.
    """
    return {
        "arch": (config.arch or Architecture.host()).value,
        "accel": accel,
        "memory": config.memory_bytes,
        "cpus": config.cpus,
        "network": config.network_mode.value,
        "qemu": qemu,
        "image": image,
        "extra": list(config.extra_qemu_args),
        "cpu": cpu_for(accel),
    }


def cpu_for(accel: str) -> str:
    """The processor that guests have seen; "" where QEMU emulates one of its own."""
    return "" if accel == Accelerator.TCG else describe_cpu()


def differences(node: Node, shape: dict[str, Any]) -> list[str]:
    """Why a machine of ``shape`` cannot take ``node``; empty if it can."""
    if node.tier == DISK:  # it can be any that boots
        return []
    return [
        f"{name} {_short(node.shape.get(key))}, not {_short(shape[key])}"
        for key, name in SHAPE_NAMES.items()
        # Older checkpoints do not tell the processor.
        if node.shape.get(key) != shape[key] and (key != "cpu" or key in node.shape)
    ]


def check_shape(node: Node, shape: dict[str, Any]) -> None:
    """Raise HistoryError saying what differs if a machine of ``shape`` cannot take ``node``."""
    found = differences(node, shape)
    if found:
        raise HistoryError(
            f"the checkpoint {node.tag!r} is of another machine: {'; '.join(found)}",
            hint="use the QEMU and the accelerator that it was made with",
        )


def _short(value: object) -> str:
    return str(value)[:40]


def check_disk_and_image(place: SandboxDir, node: Node) -> None:
    """What QEMU opens at its start must be whole before: it would make what is missing. Raises
    HistoryError naming the damaged file."""
    check_layers(place, node)
    if node.state is not None:
        verify(place.memory / node.state.name, node.state, Verified.of_user())
    path = find_image(place, node.memory)
    if path is not None:
        if node.image is None:
            raise HistoryError(f"the checkpoint {node.tag!r} has no checksums of {path}")
        verify(path, node.image, Verified.of_user())


async def load_memory(
    place: SandboxDir, machine: MachineDir, node: Node, monitor: Monitor, pid: int
) -> None:
    """Put the checkpoint's pages into the memory of a QEMU that waits for a state, that of
    ``machine``; QEMU's own snapshot brings the devices with it.

    Raises HistoryError naming the damaged file, MachineError.
    """
    if node.state is not None:
        await load_snapshot(monitor, place.memory / node.state.name, node, machine.loading)
        return
    image = find_image(place, node.memory)
    index = await asyncio.to_thread(load_index, place, node)
    if node.firmware is not None:
        await put_firmware(monitor, pid, place.memory, node.firmware)
    ram = await GuestRam.locate(monitor, pid, image, index.size, node.shape["arch"])
    await in_thread_to_the_end(lambda: _load_memory(place, node, index, ram))


def _load_memory(place: SandboxDir, node: Node, index: PageIndex, ram: GuestRam) -> None:
    verified = Verified.of_user()
    files = list(node.pages)
    image = next((n for n, file in enumerate(files) if file.name == node.memory), len(files))
    path = find_image(place, node.memory)
    if path is not None:
        assert node.image is not None, "check_disk_and_image comes first"
        files.append(node.image)
    by_file: dict[int, list[Run]] = {}
    for run in _runs_to_write(index, image, ram, blank=path is None):
        by_file.setdefault(run.file, []).append(run)
    for run in by_file.pop(ZEROS, []):
        _write_zeros(ram, run)
    for number, runs in by_file.items():
        file = files[number]
        with MappedFile(place.memory / file.name, file, verified) as mapped:
            for group in _neighbours(runs):
                start, end = group[0].at, group[-1].at + group[-1].count
                data = mapped.data[start * PAGE : end * PAGE]
                ram.write([(run.first, run.count) for run in group], data)
                del data


def _runs_to_write(index: PageIndex, image: int, ram: GuestRam, *, blank: bool) -> list[Run]:
    """What must be put into a fresh QEMU's memory, which is the image of that number privately.

    Pages that the index does not list, or lists as the image's own, are there; so are zeros where
    memory begins ``blank``. But not where QEMU itself has written at its start (on some machines
    the kernel, say): those get what they had, too.
    """
    over = not_of_image(index.runs, image)
    if blank:
        over = [run for run in over if run.file != ZEROS]
    own = own_pages(ram.written(), image)
    return overlay_runs(over, [replace(run, file=ZEROS, at=0) for run in own] if blank else own)


def _neighbours(runs: list[Run]) -> Iterator[list[Run]]:
    """Runs in groups whose pages follow one another in the file: one call writes each."""
    group: list[Run] = []
    for run in runs:
        if group and group[-1].at + group[-1].count != run.at:
            yield group
            group = []
        group.append(run)
    if group:
        yield group


def _write_zeros(ram: GuestRam, run: Run) -> None:
    zeros = memoryview(bytearray(min(run.count, ZEROS_AT_ONCE) * PAGE))
    for first in range(run.first, run.end, ZEROS_AT_ONCE):
        count = min(ZEROS_AT_ONCE, run.end - first)
        ram.write([(first, count)], zeros[: count * PAGE])


async def load_devices(place: SandboxDir, node: Node, monitor: Monitor) -> None:
    """Load the devices' state; the VM stands still then. Nothing is left to do if the memory came
    with it. Raises HistoryError, MachineError."""
    file = node.devices
    if file is None:
        return
    path = place.checkpoints / node.id / "devices"
    await asyncio.to_thread(lambda: MappedFile(path, file).close())
    descriptor = os.open(path, os.O_RDONLY)
    try:
        await monitor.pass_descriptor(descriptor, "state")
    finally:
        os.close(descriptor)
    await monitor.execute("migrate-incoming", uri="fd:state")
    async with asyncio.timeout(LOAD_TIMEOUT_S):
        while (status := await _status(monitor)) == "inmigrate":  # noqa: ASYNC110
            await asyncio.sleep(LOAD_POLL_S)
    if status not in ("paused", "prelaunch"):
        raise MachineError(f"QEMU did not take the state of {node.tag!r}: it is {status}")


async def _status(monitor: Monitor) -> str:
    return str((await monitor.execute("query-status"))["status"])


async def go_on(
    record: Record,
    place: SandboxDir,
    machine: MachineDir,
    node: Node,
    run: RunState,
    link: AgentLink,
) -> str:
    """Let a fresh QEMU that waits for a state go on from ``node``, and its guest be repaired.
    ``link`` knows the node's token, and is connected afterwards.

    Returns the agent's token. Raises HistoryError, MachineError, AgentError.
    """
    monitor = await Monitor.connect(machine)
    try:
        check_shape(node, await shape_of(run, monitor, record.config, record.image_digest))
        session = await link.dial(machine, node.port)
        await load_memory(place, machine, node, monitor, run.qemu_pid)
        await load_devices(place, node, monitor)
        session = await wake(session, lambda: link.session(timeout=HELLO_S), node, monitor)
        return await repair_guest(session, record, node)
    finally:
        await monitor.close()


async def wake(
    session: Session, again: Callable[[], Awaitable[Session]], node: Node, monitor: Monitor
) -> Session:
    """Let a VM whose state is loaded run, and shake hands with its agent.

    ``session``: a connection to the node's port of before the devices' state was loaded. So the
    guest does not see the client of the checkpoint's time go and another come, which would cost it
    a tenth of its way to the first command. ``again`` makes another one.
    """
    hello = asyncio.create_task(
        # A guest takes long over its first words, and its clock would be late by that.
        session.handshake(node.token, timeout=FIRST_HELLO_S, set_clock=False),
        name="quicksand-hello",
    )
    try:
        await asyncio.sleep(0)
        await monitor.execute("cont")
        await hello
    except AgentUnreachableError:
        # It was taken for the rest of what that client was about to send. A new one is not.
        session.close()
        return await again()
    except BaseException:
        hello.cancel()
        await asyncio.wait((hello,))
        raise
    return session


async def repair_guest(session: Session, record: Record, node: Node) -> str:
    """Make new what must be before anything of the user's runs: the clock, the random generator's
    state and, if the memory is that of another sandbox, names and secrets.

    Returns the agent's token.
    """
    await session.request("set_time", {"unix_ns": time.time_ns()})
    entropy = base64.b64encode(secrets.token_bytes(ENTROPY_BYTES)).decode()
    await session.request("reseed", {"entropy_b64": entropy})
    if node.owner in ("", record.id):
        return node.token
    params = identity(record, was_used=not node.hidden)
    await session.request("set_identity", params, timeout=IDENTITY_S)
    token = secrets.token_hex(16)
    await session.request("rotate_token", {"token": token})
    return token
