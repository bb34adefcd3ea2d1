"""The simulated scenario."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from bench.fleet_simulator.costs import Costs


class Design(StrEnum):
    """The way in which places are found."""

    SSH = "ssh"
    """Each client is connected to all hosts, and asks one by its own knowledge (`Choice`)."""
    RAY = "ray"
    """A head keeps the books."""


class Choice(StrEnum):
    """The rule by which a client chooses the host that it asks first."""

    MOST_FREE = "most-free"
    """The first by name among equals: the same for all clients."""
    OWN_ORDER = "own-order"
    """The same, but each client has an order of its own."""
    TWO = "two"
    """The better of two drawn ones, as in fleets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Rates of faults, per hour. No fleet was available to measure these: they are assumed, and
    higher than one should expect."""

    power: float = 0.002
    """A host loses its power: once in three weeks."""
    silence: float = 0.01
    """A host is frozen, or cut off from all."""
    silence_s: float = 120.0
    """For how long, on average."""
    slow: float = 0.02
    """A host gets ten times slower for five minutes."""
    cut: float = 0.2
    """A client loses its connection to a host."""
    cut_s: float = 20.0
    client: float = 0.05
    """A client is killed."""
    head: float = 0.05

    @classmethod
    def none(cls) -> Faults:
        """Nothing goes wrong."""
        return cls().times(0.0)

    def times(self, factor: float) -> Faults:
        """The same, so many times as often."""
        rates = ("power", "silence", "slow", "cut", "client", "head")
        return replace(self, **{name: getattr(self, name) * factor for name in rates})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One run."""

    design: Design = Design.SSH
    hosts: int = 10
    clients: int = 10
    sandboxes: int = 1000
    """Wishes in all."""
    arrive_s: float = 600.0
    """The time in which they come, evenly at random."""
    life_s: float = 1800.0
    """The average time for which a sandbox is used (exponential)."""
    duration_s: float = 3600.0
    needs_mib: tuple[int, ...] = (608,)
    """Memory of a sandbox, with 96 MiB for QEMU; drawn evenly."""
    host_mib: int = 64 * 1024 - 2048
    processors: int = 16
    patience_s: float = 120.0
    """The time for which a wish waits for a place."""
    attached: float = 0.5
    """Share of sandboxes that end with their client."""
    restarts: float = 0.5
    """Share of the others that are started elsewhere if their host is gone."""
    choice: Choice = Choice.TWO
    fenced: bool = True
    """Whether a host ends a sandbox whose lease is over, if that may be restarted elsewhere."""
    faults: Faults = field(default_factory=Faults)
    costs: Costs = field(default_factory=Costs)
    seed: int = 1
