"""Sandboxes as the app lists them, what a guest reports about itself, and what the app knows of a
sandbox besides: its shells, and what it did there."""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import Protocol

from quicksand.things.frozen import frozen
from quicksand.things.sandbox_facts import SandboxFacts
from quicksand.things.status import MountState, Status

from quicksand_tui.model.named import Named
from quicksand_tui.model.shown_checkpoints import NO_TREE, CheckpointTree

READINGS_MAX = 240
"""The most rates in a history."""
USES_MAX = 120
"""The most readings of a use of the host."""


SILENT_S = 3.0
"""Seconds without an answer after which a guest counts as silent."""


class Traffic(Protocol):
    """Bytes that a guest has received and sent since it booted."""

    @property
    def received(self) -> int: ...

    @property
    def sent(self) -> int: ...


@frozen
class TrafficRates:
    """Rates in bytes per second; ``history`` holds past sums of both, the latest last."""

    received: float = 0.0
    sent: float = 0.0
    history: tuple[float, ...] = ()


class TrafficMeter:
    """Turns readings of byte counters into rates."""

    def __init__(self) -> None:
        self._last: tuple[Traffic, float] | None = None
        self._history: deque[float] = deque(maxlen=READINGS_MAX)
        self.rates: TrafficRates | None = None
        """The present rates; None until two readings exist."""

    def add(self, traffic: Traffic | None, now: float) -> None:
        """Adds a reading at ``now``, in seconds of any monotonic clock. With None the rates become
        unknown until two more readings; the history stays."""
        if traffic is None:
            self.rates = None
        before, self._last = self._last, None if traffic is None else (traffic, now)
        if before is None or traffic is None or now <= before[1]:
            return
        passed = now - before[1]
        received = (traffic.received - before[0].received) / passed
        sent = (traffic.sent - before[0].sent) / passed
        if received < 0 or sent < 0:
            return  # the counters restarted: the guest booted, or went back to a checkpoint
        self._history.append(received + sent)
        history = tuple(self._history)
        self.rates = TrafficRates(received=received, sent=sent, history=history)


@frozen
class ProcessView:
    """A process as its guest reports it. All text is sanitised."""

    pid: int
    user: str
    rss: int
    """Bytes."""
    cpu_s: float
    command: str


@frozen
class GuestView:
    """A guest's report on itself; memory and disk are in bytes."""

    memory_total: int
    memory_used: int
    disk_total: int
    disk_used: int
    load: float
    """The load average over one minute."""
    processes: int
    uptime_s: float
    traffic: Traffic | None = None
    """The traffic since the boot; None if the guest has no network or does not report it."""
    busiest: tuple[ProcessView, ...] = ()
    """The processes with the most CPU time, in descending order."""


@frozen
class RemovedView:
    """A sandbox that was deleted. All text is sanitised."""

    id: str
    name: str
    in_trash: bool
    """It can be restored."""
    goes_on: bool = False
    """When restored, it resumes running where it was."""
    not_kept: str = ""
    """The reason why the running state could not be kept; "" if it was, or had not to be."""


@frozen
class MountView:
    """A directory of this host in a guest. All text but ``key`` is sanitised."""

    key: str
    """The path in the guest, unchanged."""
    host: str
    guest: str
    readonly: bool = False
    type: str = ""
    """The way of mounting it; "" for the usual way."""
    state: MountState = MountState.MOUNTED
    traffic: TrafficRates | None = None
    """The traffic through it; None until it was looked at twice."""
    protect: bool = False
    """Files that programs of this host run by themselves are read-only."""
    told: tuple[str, ...] = ()
    """Files of this kind that the guest wrote, below ``host``, the last first."""

    @property
    def named(self) -> Named:
        """Its path in the guest, which is shown sanitised."""
        return Named(self.key, self.guest)


@frozen
class UseHistory:
    """A sandbox's use of the host. Readings are some seconds apart, the latest last."""

    cpu: tuple[float, ...] = ()
    """Percent of one CPU."""
    memory: tuple[int, ...] = ()
    """Resident bytes."""
    disk: tuple[int, ...] = ()
    """Allocated bytes."""

    def longer(self, cpu: float, memory: int, disk: int) -> UseHistory:
        """Returns a history with another reading."""
        return UseHistory(
            cpu=(*self.cpu, cpu)[-USES_MAX:],
            memory=(*self.memory, memory)[-USES_MAX:],
            disk=(*self.disk, disk)[-USES_MAX:],
        )


NO_HISTORY = UseHistory()


AT = "@"
"""Stands between a name or an id and the name of its machine. No sandbox has it in its name."""


def at_host(name: str, host: str) -> str:
    """Returns the name or id of a machine's sandbox among those of all machines."""
    return f"{name}{AT}{host}" if host else name


def split_host(name: str) -> tuple[str, str]:
    """Returns the two parts that `at_host` has put together."""
    own, _, host = name.partition(AT)
    return own, host


@frozen
class SandboxView(SandboxFacts):
    """One sandbox, with what the app has measured of it. All text but ``id`` is sanitised. For
    another machine, id and name are made by `at_host`."""

    id: str
    name: str
    state: Status
    host: str = ""
    """The name of its machine; "" is this one."""
    away: bool = False
    """Its machine does not answer now: all this is the last known state."""
    memory_used: int | None = None
    """Resident bytes of QEMU; None if it does not run or is not measured yet."""
    cpu_percent: float | None = None
    """Percent of one CPU; None until two readings exist."""
    disk: int | None = None
    """Bytes that removing it would free."""
    disk_shared: int = 0
    """Further bytes, which its template, clones or saves need as well."""
    forwards: tuple[tuple[int, int], ...] = ()
    """Forwards of TCP that were made while it runs, and can be ended."""
    udp_forwards: tuple[tuple[int, int], ...] = ()
    mounts: tuple[MountView, ...] = ()
    """Its mounts, in the order of the guest's paths."""
    silent_since: float | None = None
    """Unix time since when its QEMU stands still, or its guest is silent; None if neither was
    noticed."""
    tree: CheckpointTree = NO_TREE
    history: UseHistory = field(default=NO_HISTORY, compare=False)
    traffic: TrafficRates | None = None
    """The rates of its network; None until the guest has been asked twice."""

    @property
    def key(self) -> str:
        return self.id

    @property
    def short_name(self) -> str:
        """Its name among those of its machine."""
        return self.name.removesuffix(f"{AT}{self.host}") if self.host else self.name

    def mount_at(self, key: str | None) -> MountView | None:
        return next((mount for mount in self.mounts if mount.key == key), None)


@frozen
class Glance:
    """The last lines of a shell. All text is sanitised."""

    title: str
    lines: tuple[str, ...]


@frozen
class EventView:
    """An event of a sandbox."""

    when: float
    """Unix time."""
    text: str
    took: str = ""
    """The time that it took, or its outcome."""
    role: str = ""


@frozen
class ChangedPlace:
    """A file that differs, or a directory's files that differ in the same way."""

    letter: str
    """A for added, M for changed, D for removed files."""
    path: str
    files: int = 1
    size: int | None = None
    """Their present bytes, or the last ones if they were removed."""


@frozen
class Changes:
    """The differences between a checkpoint and another one, or the present disk."""

    places: tuple[ChangedPlace, ...] = ()
    why: str = ""
    """The reason why they are not known."""
    asked: bool = False
    """The answer is on its way."""


@frozen
class Known:
    """The parts of a sandbox's overview besides its facts."""

    shells: tuple[str, ...] = ()
    """Titles of the open shells."""
    glance: Glance | None = None
    events: tuple[EventView, ...] = ()
    """The last events, newest first."""
    changes: Changes | None = None
