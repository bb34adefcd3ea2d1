"""Sandboxes as the app lists them, what a guest reports about itself, and what the app knows of a
sandbox besides: its shells, and what it did there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import field

from quicksand.things.checkpoint import CheckpointFacts
from quicksand.things.fact import Named
from quicksand.things.frozen import frozen
from quicksand.things.mount_facts import MountFacts
from quicksand.things.sandbox_facts import GuestTraffic, SandboxFacts, TrafficRates
from quicksand.things.save import AT
from quicksand.things.status import Status


def shown(word: str) -> str:
    """Returns the name of a thing on the screen."""
    return word.shown if isinstance(word, Named) else word


TAG_LIMIT = 128
"""The most characters of a tag: the engine's limit, as a test checks (the model knows no
engine)."""

NOTE_LIMIT = 1000
"""The most characters of a note that are shown."""


@frozen
class CheckpointView(CheckpointFacts):
    """One checkpoint, with what the app has looked at. All text is sanitised; ``created`` is 0 if
    it is unknown."""

    id: str
    tag: str
    """The tag, or the id if the checkpoint cannot be read."""
    name: str
    """The word for it in commands: its tag, or its id if the tag cannot be typed."""
    is_measured: bool = False
    """Its sizes on disk are known."""
    has_picture: bool = False
    """A picture of the screen was kept with it."""
    error: str = ""
    """The reason why it cannot be read."""

    @property
    def named(self) -> Named:
        """Its id, with the name that shown commands use."""
        return Named(self.id, self.name)


@frozen
class CheckpointTree:
    """The checkpoints of a sandbox, and its position among them."""

    checkpoints: tuple[CheckpointView, ...] = ()
    """Unreadable ones first, then by age, oldest first."""
    head: str | None = None
    """The id of the checkpoint that the present state continues."""
    changed: int | None = None
    """Bytes written to the disk since the head; None if unknown."""
    own: int | None = None
    """Bytes that deleting all of them would free; None until they are measured."""
    shared: int = 0
    """Further bytes, which the present state, clones or templates need as well."""
    error: str = ""
    """The reason why the head is unknown."""

    @property
    def parents(self) -> dict[str, str | None]:
        """The parent of each checkpoint by id, in the order in which siblings are drawn."""
        return {checkpoint.id: checkpoint.parent for checkpoint in self.checkpoints}

    @property
    def undo_goes_to(self) -> CheckpointView | None:
        """The last automatic checkpoint."""
        return next((one for one in reversed(self.checkpoints) if one.auto), None)

    def find(self, id_: str | None) -> CheckpointView | None:
        return next((checkpoint for checkpoint in self.checkpoints if checkpoint.id == id_), None)

    def descendants(self, id_: str) -> int:
        """Returns the number of checkpoints that descend from this one, directly or not."""
        children: dict[str | None, list[str]] = {}
        for checkpoint in self.checkpoints:
            children.setdefault(checkpoint.parent, []).append(checkpoint.id)
        seen, waiting = {id_}, [id_]
        while waiting:
            # The files may hold a circle.
            new = [child for child in children.get(waiting.pop(), []) if child not in seen]
            seen.update(new)
            waiting += new
        return len(seen) - 1


NO_TREE = CheckpointTree()


@frozen
class Marks:
    """The characters that mark checkpoints in the tree, and its words."""

    node: str
    head: str
    broken: str
    here: str
    fold: str
    """The mark of checkpoints that are not drawn."""


FANCY = Marks(node="○", head="●", broken="✗", here="← here", fold="⋯")
PLAIN = Marks(node="o", head="*", broken="x", here="<- here", fold=":")


def line_to(head: str | None, parents: Mapping[str, str | None]) -> Iterator[str]:
    """Yields ``head`` and its ancestors, up to its root."""
    seen: set[str] = set()
    while head is not None and head not in seen:
        yield head
        seen.add(head)
        head = parents.get(head)


READINGS_MAX = 240
"""The most rates in a history."""
USES_MAX = 120
"""The most readings of a use of the host."""


SILENT_S = 3.0
"""Seconds without an answer after which a guest counts as silent."""


class TrafficMeter:
    """Turns readings of byte counters into rates."""

    def __init__(self) -> None:
        self._last: tuple[GuestTraffic, float] | None = None
        self._history: deque[float] = deque(maxlen=READINGS_MAX)
        self.rates: TrafficRates | None = None
        """The present rates; None until two readings exist."""

    def add(self, traffic: GuestTraffic | None, now: float) -> None:
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
    mounts: tuple[MountFacts, ...] = ()
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

    def mount_at(self, key: str | None) -> MountFacts | None:
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
