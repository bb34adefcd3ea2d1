"""All our processes on this host, with their memory: those of sandboxes, and those that no list of
sandboxes shows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from quicksand.base.processes import list_processes, memory_of, process_usage, running_modules
from quicksand.life.spare_names import name_of
from quicksand.mounts.shares import list_shares
from quicksand.records.layout import MachineDir, RuntimeDir, runtime_dir
from quicksand.records.registry import Registry
from quicksand.warm import publishing, templates
from quicksand.warm.spares import orders
from quicksand.warm.spares.spare import list_spares

SERVER = "mount server"
MAKERS = {
    templates.MAKER: "template maker",
    orders.MAKER: "spare maker",
    publishing.FORWARDER: "port forwarder",
    # An earlier version, which may still run, uses these names.
    "quicksand.template_maker": "template maker",
    "quicksand.spares.maker": "spare maker",
}
"""The names of our programs in the background."""


class Role(StrEnum):
    """The purpose of a process."""

    SANDBOX = "sandbox"
    SPARE = "spare"
    """The process waits for a start."""
    OTHER = "other"
    """The process belongs to a sandbox that is being made, is gone, or lies in another data
    directory; or it makes templates or spares in the background."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OurProcess:
    """One process."""

    pid: int
    kind: str
    """"QEMU", "keeper", "mount server", or one of MAKERS."""
    role: Role
    name: str
    """The sandbox's name; for other processes the id, or the directory to which they belong."""
    machine: str
    """The machine for whose starts a spare waits; "" for other processes."""
    memory: int
    """Bytes of memory; pages that processes share count in part (PSS), where the system tells."""
    cpu_s: float


def list_all(registry: Registry) -> list[OurProcess]:
    """List our processes, those of sandboxes first. Blocks for I/O."""
    entries = {entry.id: entry for entry in registry.list()}
    spares = {spare.id: name_of(spare.record) for spare in list_spares(registry.paths)}
    found = []
    for process in list_processes():
        place = Path(process.of)
        is_ours = place.parent == registry.paths.sandboxes
        entry = entries.get(place.name) if is_ours else None
        machine = ""
        if entry is not None:
            role, name = Role.SANDBOX, entry.name
        elif is_ours and place.name in spares:
            role, name, machine = Role.SPARE, place.name, spares[place.name]
        else:
            role, name = Role.OTHER, process.of
        found.append(_measure(process.pid, process.kind.value, role, name, machine))
    for entry in entries.values():
        runtime = runtime_dir(registry.paths, entry.id)
        for inside in _machines(runtime):
            for share in list_shares(inside):
                found.append(_measure(share.pid, SERVER, Role.SANDBOX, entry.name))
    for pid, module in running_modules(MAKERS):
        found.append(_measure(pid, MAKERS[module], Role.OTHER, ""))
    order = list(Role)
    return sorted(found, key=lambda one: (order.index(one.role), one.name, one.kind, one.pid))


def spare_memory(registry: Registry) -> tuple[int, int]:
    """(number of spares that wait, bytes of memory of their QEMUs). Blocks for I/O."""
    pids = [spare.run.qemu_pid for spare in list_spares(registry.paths)]
    return len(pids), sum(map(memory_of, pids))


def _machines(runtime: RuntimeDir) -> list[MachineDir]:
    return [runtime.machine(name) for name in runtime.names() if name.isdigit()]


def _measure(pid: int, kind: str, role: Role, name: str, machine: str = "") -> OurProcess:
    cpu, _ = process_usage(pid)
    return OurProcess(
        pid=pid,
        kind=kind,
        role=role,
        name=name,
        machine=machine,
        memory=memory_of(pid),
        cpu_s=cpu,
    )
