"""Placing by a head: it keeps the books, and serves one call after the other."""

from __future__ import annotations

from collections import deque

from bench.fleet_simulator.clock import Clock, Work
from bench.fleet_simulator.simulation import Simulation
from bench.fleet_simulator.world import Host, Sandbox, State

LOOKED_AT = 16
"""The waiting wishes that are tried when memory becomes free."""


class Head:
    """A server that does one thing at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free_at = 0.0
        self.busy_s = 0.0
        self.longest_wait_s = 0.0
        self.calls = 0

    def call(self, seconds: float, work: Work, *args: object) -> None:
        """Do ``work`` when all earlier work is done and so many ``seconds`` were spent on it."""
        self.calls += 1
        begins = max(self._free_at, self._clock.now)
        self.longest_wait_s = max(self.longest_wait_s, begins - self._clock.now)
        self.spend(seconds)
        self._clock.after(self._free_at - self._clock.now, work, *args)

    def spend(self, seconds: float) -> None:
        """Be busy for so long."""
        self._free_at = max(self._free_at, self._clock.now) + seconds
        self.busy_s += seconds

    def fail(self, seconds: float) -> None:
        """Serve nothing for so long. The work in hand is done by its successor."""
        self._free_at = max(self._free_at, self._clock.now) + seconds


class OverRay:
    """See `Placing`."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._costs = simulation.costs
        self._clock = simulation.clock
        hosts = simulation.world.hosts
        self.head = Head(self._clock)
        self._book = [host.memory_mib for host in hosts]
        """Free MiB of each host; -1 if it counts as dead."""
        self._on_the_way = [0] * len(hosts)
        """MiB by host that are reserved but not yet requested there."""
        self._known = [host.memory_mib for host in hosts]
        self._waiting: deque[Sandbox] = deque()
        self._look()

    @property
    def silent_s(self) -> float:
        """See `Placing`."""
        return self._costs.silent_ray_s

    def _look(self) -> None:
        """The head looks whether its nodes live."""
        self.head.spend(self._costs.check_work_s * len(self._book))
        self._clock.after(self._costs.check_every_s, self._look)

    def place(self, sandbox: Sandbox) -> None:
        """See `Placing`."""
        way_s = self._costs.round_trip_s / 2 + self._costs.group_delay_s
        self._clock.after(way_s, self._ask, sandbox, sandbox.epoch)

    def _ask(self, sandbox: Sandbox, epoch: int) -> None:
        self.head.call(self._costs.group_s, self._reserve, sandbox, epoch)

    def _reserve(self, sandbox: Sandbox, epoch: int) -> None:
        if sandbox.state is not State.WAITING or sandbox.epoch != epoch:
            return
        best = max(self._book)
        if best < sandbox.need_mib:
            self._waiting.append(sandbox)
            return
        number = self._book.index(best)
        self._book[number] -= sandbox.need_mib
        self._on_the_way[number] += sandbox.need_mib
        host = self._simulation.world.hosts[number]
        way_s = self._costs.round_trip_s + self._costs.actor_call_s
        self._clock.after(way_s, self._arrive, sandbox, host, epoch)

    def _arrive(self, sandbox: Sandbox, host: Host, epoch: int) -> None:
        costs = self._costs
        if sandbox.state is not State.WAITING or sandbox.epoch != epoch:
            self._settle(sandbox, host)
        elif host.is_silent:
            self._simulation.counts.hung += 1
            self._clock.after(costs.answer_s, self._unheard, sandbox, host, epoch)
        else:
            has_begun = self._simulation.begin(sandbox, host)
            self._settle(sandbox, host)
            if not has_begun:
                self.place(sandbox)

    def _unheard(self, sandbox: Sandbox, host: Host, epoch: int) -> None:
        self._settle(sandbox, host)
        if sandbox.state is State.WAITING and sandbox.epoch == epoch:
            self.place(sandbox)

    def _settle(self, sandbox: Sandbox, host: Host) -> None:
        """Note that a reservation is in use, or free again."""
        self._on_the_way[host.number] -= sandbox.need_mib
        self._enter(host)

    def _enter(self, host: Host) -> None:
        """Make the book agree with the host's report."""
        if self._book[host.number] >= 0 or not host.is_silent:
            self._book[host.number] = host.free_mib - self._on_the_way[host.number]

    def forget(self, sandbox: Sandbox) -> None:
        """See `Placing`: it is skipped when its turn comes."""

    def changed(self, host: Host) -> None:
        """See `Placing`: a group that is removed is one more call."""
        is_more = host.free_mib > self._known[host.number]
        self._known[host.number] = host.free_mib
        if is_more:
            self.head.call(self._costs.group_s, self._freed, host)

    def _freed(self, host: Host) -> None:
        if host.is_silent:
            return
        self._enter(host)
        tried: list[Sandbox] = []
        while self._waiting and len(tried) < LOOKED_AT:
            sandbox = self._waiting.popleft()
            if sandbox.state is State.WAITING:
                tried.append(sandbox)
        for sandbox in tried:
            self._reserve(sandbox, sandbox.epoch)  # which makes it wait again if it does not fit

    def fell_silent(self, host: Host) -> None:
        """See `Placing`."""
        self._clock.after(self._costs.silent_ray_s, self._notice, host)

    def _notice(self, host: Host) -> None:
        if host.is_silent:
            self._book[host.number] = -1

    def came_back(self, host: Host) -> None:
        """See `Placing`."""
        self._known[host.number] = host.free_mib
        self.head.call(self._costs.join_s, self._freed, host)

    def lose_head(self) -> None:
        """Lose the head; another takes its place: all nodes join it, and the book is made from
        their reports."""
        self.head.fail(self._costs.head_back_s + self._costs.join_s * len(self._book))
