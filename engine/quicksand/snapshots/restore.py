"""Continuing from a checkpoint in a new QEMU, without modifying the checkpoint.

In the tier "pages" QEMU maps the memory image, the other pages are written over it, and QEMU loads
the devices' state; in the tier "internal" it loads another QEMU's snapshot. The shape of a machine
is the set of facts in which it must equal a checkpoint's machine to accept that checkpoint.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

from quicksand.base.arch import Architecture
from quicksand.base.cpu import describe_cpu
from quicksand.base.errors import AgentUnreachableError, HistoryError
from quicksand.base.hypervisor import Hypervisor
from quicksand.display.hands import lift_all
from quicksand.display.in_guest import tell_name
from quicksand.guest.agent.link import AgentLink
from quicksand.guest.agent.session import Session
from quicksand.qemu.command import count_directories
from quicksand.qemu.guest_resume import renew, resume
from quicksand.qemu.planning import identity
from quicksand.qemu.qemu_hypervisor import Qemu
from quicksand.records.config import Accelerator, SandboxConfig
from quicksand.records.layout import MachineDir, SandboxDir
from quicksand.records.nodes import Node
from quicksand.records.sandboxes import Record, RunState
from quicksand.snapshots.layers import check_layers
from quicksand.snapshots.pages import verify
from quicksand.snapshots.storing import find_image
from quicksand.snapshots.tier_choice import way_of
from quicksand.snapshots.verified import Verified

HELLO_S = 20.0
"""Seconds to wait for the agent's first answer on a second connection (see `wake`)."""

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
    "display": "display",
    "directories": "number of 9p directories",
}
HELD = "held"
"""A further key of shapes, which need not be equal: whether a key or button may have been held
down. Older checkpoints do not record it."""

BEFORE = {"display": False, "directories": 0}
"""The values for checkpoints that do not record them."""


async def shape_of(
    run: RunState, hypervisor: Hypervisor, config: SandboxConfig, digest: str
) -> dict[str, Any]:
    """The shape of the running machine ``run``; ``digest`` is its image's. Raises MachineError."""
    qemu = await hypervisor.version()
    directories = count_directories(run.qemu_command)
    return make_shape(config, accel=run.accel, qemu=qemu, image=digest, directories=directories)


def make_shape(
    config: SandboxConfig, *, accel: str, qemu: str, image: str, directories: int = 0
) -> dict[str, Any]:
    """A shape: a dict with the keys of SHAPE_NAMES. ``qemu`` is QEMU's version, ``image`` the
    image's digest, ``directories`` how many QEMU serves by 9p, each with a device of its own.
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
        "display": config.enable_display,
        "directories": directories,
    }


def cpu_for(accel: str) -> str:
    """The host's processor, which guests see; "" with TCG, which emulates its own."""
    return "" if accel == Accelerator.TCG else describe_cpu()


def differences(node: Node, shape: dict[str, Any]) -> list[str]:
    """The reasons why a machine of ``shape`` cannot continue from ``node``; empty if it can."""
    if not node.tier.has_memory:  # a machine of any shape can boot from it
        return []
    taken = {**BEFORE, **node.shape}
    return [
        f"{name} {_short(taken.get(key))}, not {_short(shape[key])}"
        for key, name in SHAPE_NAMES.items()
        # Older checkpoints do not record the processor.
        if taken.get(key) != shape[key] and (key != "cpu" or key in taken)
    ]


def check_shape(node: Node, shape: dict[str, Any]) -> None:
    """Raise HistoryError, naming the differences, if a machine of ``shape`` cannot continue from
    ``node``."""
    found = differences(node, shape)
    if found:
        raise HistoryError(
            f"the checkpoint {node.tag!r} does not fit this machine: {'; '.join(found)}",
            hint="use the QEMU and the accelerator with which it was taken",
        )


def _short(value: object) -> str:
    return str(value)[:40]


def check_disk_and_image(place: SandboxDir, node: Node) -> None:
    """Compare the files that QEMU opens at its start, and would create if missing, with their
    checksums. Raises HistoryError naming the damaged file."""
    check_layers(place, node)
    if node.state is not None:
        verify(place.memory / node.state.name, node.state, Verified.of_user())
    path = find_image(place, node.memory)
    if path is not None:
        if node.image is None:
            raise HistoryError(f"the checkpoint {node.tag!r} has no checksums of {path}")
        verify(path, node.image, Verified.of_user())


async def go_on(
    record: Record,
    place: SandboxDir,
    machine: MachineDir,
    node: Node,
    run: RunState,
    link: AgentLink,
) -> str:
    """Let a fresh QEMU that waits for incoming state continue from ``node``, and renew its guest's
    clock, secrets and names. ``link`` knows the node's token and is connected afterwards.

    Returns the agent's token from now on. Raises HistoryError, MachineError, AgentError.
    """
    hypervisor = await Qemu.connect(machine)
    try:
        check_shape(node, await shape_of(run, hypervisor, record.config, record.image_digest))
        session = await link.dial(machine, node.port)
        way = way_of(node)
        await way.load_memory(place, machine, node, hypervisor, run.qemu_pid)
        if way.track is not None:
            # Memory that is tracked is mapped page by page. Otherwise the kernel would map up to 15
            # neighbours with each page read: 20 MiB more for an idle guest.
            await way.track(place, machine, node, hypervisor, run)
        await way.load_devices(place, node, hypervisor)
        session, _ = await wake(session, lambda: link.session(timeout=HELLO_S), node, hypervisor)
        return await repair_guest(session, record, node)
    finally:
        await hypervisor.close()


async def wake(
    session: Session,
    again: Callable[[], Awaitable[Session]],
    node: Node,
    hypervisor: Hypervisor,
) -> tuple[Session, float]:
    """Resume a VM whose state is loaded, shake hands with its agent, and release held keys and
    buttons. Returns the session, and the moment when the VM ran again, by `time.perf_counter`.

    ``session`` has been connected to the node's port since before the devices' state was loaded. So
    the guest does not see the checkpoint's client leave and another one arrive, which would add a
    tenth to the time until its first command. ``again`` makes another connection if the agent does
    not answer on this one. Raises MachineError, AgentError.
    """
    resumed = time.perf_counter()
    try:
        resumed = await resume(session, node.token, hypervisor)
    except AgentUnreachableError:
        # The agent took the handshake for the rest of a request of the checkpoint's client.
        session.close()
        session = await again()
    if node.shape.get("display") and node.shape.get(HELD, True):
        await lift_all(hypervisor)
    return session, resumed


async def repair_guest(session: Session, record: Record, node: Node) -> str:
    """Renew the guest's clock, its random generator's state and, if the memory comes from another
    sandbox, its names and secrets, before any program of the user runs.

    Returns the agent's token. Raises AgentError.
    """
    is_own = node.owner in ("", record.id)
    names = {} if is_own else identity(record, was_used=not node.hidden)
    token = {} if is_own else {"token": secrets.token_hex(16)}
    await renew(session, names, token)
    if names and node.shape.get("display"):
        await tell_name(session)
    return token.get("token", node.token)
