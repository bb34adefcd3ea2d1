"""A sandbox as its records on disk tell it, how each fact is shown, and what passes between its
guest and the world."""

from __future__ import annotations

from quicksand.things.fact import fact, shown_of
from quicksand.things.frozen import frozen
from quicksand.things.status import Status


@frozen
class GuestTraffic:
    """Bytes that a guest has received and sent: since it booted, of all interfaces except the
    loopback; or through one mount since that was mounted, with the protocol around its files."""

    received: int
    sent: int


@frozen
class TrafficRates:
    """Rates in bytes per second; ``history`` holds past sums of both, the latest last."""

    received: float = 0.0
    sent: float = 0.0
    history: tuple[float, ...] = ()


@frozen
class SandboxFacts:
    """The facts of one sandbox. The records of the sandboxes that are shown derive from it."""

    id: str = fact("entry.id", "", json="id")
    name: str = fact("entry.name", "", head="NAME", json="name")
    state: Status = fact("entry.status", head="STATUS", json="status")
    epoch: int = fact("entry.epoch", 0, head="EPOCH", rare=True, json="epoch")
    """The number, from 1, of this start of a sandbox that a fleet keeps; 0 if none keeps it."""
    superseded_by: str = fact("entry.superseded_by", "", json="superseded_by")
    """The machine where a later epoch runs."""
    error: str = fact("entry.error", "", head="REASON", rare=True, json="error")
    """The reason why it is CRASHED, BROKEN or PAUSED."""
    image: str = fact("record.began_with", "", head="IMAGE")
    """The name of the image or save with which it started."""
    own_image: str = fact("config.image", "", json="image")
    """The name of its image, also if it started with a save."""
    save: str | None = fact("record.save", json="save")
    """The name of the save with which it started."""
    created: float | None = fact("record.created", head="AGE", kind="age", json="created")
    """Unix time."""
    cpus: int | None = fact("config.cpus", head="CPUS", json="cpus")
    memory_limit: int | None = fact(
        "config.memory_bytes", head="MEMORY", kind="size", json="memory"
    )
    """Bytes."""
    network: str = fact("config.network_mode", "", kind="words", json="network", line="network {}")
    discard: bool = fact("record.discard", False, json="discard")
    """It is deleted when it stops."""
    has_display: bool = fact("config.enable_display", False)
    started: float | None = fact("run.started", json="started")
    """Unix time of the present run."""
    accel: str = fact("run.accel", "", head="ACCEL", json="accel")
    accel_reason: str = fact("run.accel_reason", "", json="accel_reason")
    """The reason why a faster accelerator is not used."""
    pid: int | None = fact("run.qemu_pid", json="pid")
    run: str = fact("run.run", "")
    """Identifies its QEMU, which a revert replaces; "" if it has none."""
    origin: str = fact("run.origin", "")
    """The tag of the checkpoint from which that QEMU went on; "" if it booted."""
    ports: tuple[tuple[int, int], ...] = fact("running.ports", (), head="PORTS", json="ports")
    """Pairs of host port and guest port, of TCP."""
    udp_ports: tuple[tuple[int, int], ...] = fact("running.udp_ports", (), json="udp_ports")

    @property
    def is_live(self) -> bool:
        return self.state.is_live


SHOWN = shown_of(SandboxFacts)
"""How the facts of a sandbox are shown, in their order in `ps`."""
