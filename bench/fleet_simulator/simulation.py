"""A run: wishes come, find places, and end; faults are reported to those who would notice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from bench.fleet_simulator.clock import Clock
from bench.fleet_simulator.scenario import Scenario
from bench.fleet_simulator.world import OVER, Host, Sandbox, State, Vm, World


class Placing(Protocol):
    """A way to find places for sandboxes."""

    def place(self, sandbox: Sandbox) -> None:
        """Find one for a sandbox that waits, if that is possible."""

    def forget(self, sandbox: Sandbox) -> None:
        """The sandbox waits no longer."""

    def changed(self, host: Host) -> None:
        """A host's free memory has changed."""

    def fell_silent(self, host: Host) -> None:
        """The host no longer answers. Nobody knows yet."""

    def came_back(self, host: Host) -> None:
        """The host answers again."""

    @property
    def silent_s(self) -> float:
        """Seconds until a silent host is noticed."""


@dataclass(slots=True)
class Counts:
    """The numbers of a run."""

    placed_s: list[float] = field(default_factory=list)
    """The seconds that each wish took, to the guest's answer."""
    refusals: int = 0
    """Hosts that had less memory than assumed."""
    hung: int = 0
    """Wishes that were on their way to a host that did not answer."""
    lost: Counter[str] = field(default_factory=Counter)
    restarted: int = 0
    doubled: int = 0
    """Sandboxes that ran on two hosts at some time."""
    most_doubled: int = 0
    most_running: int = 0
    pushed: int = 0
    """Lines that hosts told their clients."""
    connections_client: int = 0
    connections_host: int = 0


class Simulation:
    """The common part of both designs: hosts, wishes, and the truth."""

    def __init__(self, scenario: Scenario, design: Callable[[Simulation], Placing]) -> None:
        self.scenario = scenario
        self.costs = scenario.costs
        self.clock = Clock()
        self.chance = random.Random(f"{scenario.seed} placing")
        self._wishes = random.Random(f"{scenario.seed} wishes")
        """A separate generator, so that both designs get the same wishes."""
        self.world = World(scenario.hosts, scenario.host_mib, scenario.processors)
        self.counts = Counts()
        self.running = 0
        """Sandboxes that have a place, reachable or not."""
        self.placing = design(self)
        for number in range(scenario.sandboxes):
            self.clock.after(self._wishes.uniform(0, scenario.arrive_s), self._wish, number)

    def run(self, *, watch: Callable[[], object] | None = None) -> None:
        """Simulate all of it; ``watch`` is called after each event."""
        self.clock.run(self.scenario.duration_s, watch=watch)

    # From a wish to its end

    def _wish(self, _: int) -> None:
        scenario, chance = self.scenario, self._wishes
        attached = chance.random() < scenario.attached
        sandbox = Sandbox(
            number=len(self.world.sandboxes),
            client=chance.randrange(scenario.clients),
            need_mib=chance.choice(scenario.needs_mib),
            life_s=chance.expovariate(1 / scenario.life_s),
            attached=attached,
            restarts=not attached and chance.random() < scenario.restarts,
            asked_at=self.clock.now,
        )
        self.world.sandboxes.append(sandbox)
        self._seek(sandbox)

    def _seek(self, sandbox: Sandbox) -> None:
        self.clock.after(self.scenario.patience_s, self._give_up, sandbox, sandbox.epoch)
        self.placing.place(sandbox)

    def _give_up(self, sandbox: Sandbox, epoch: int) -> None:
        if sandbox.state is State.WAITING and sandbox.epoch == epoch:
            self.placing.forget(sandbox)
            if sandbox.placed:
                self.lose(sandbox, "found no other host")
            else:
                self.end(sandbox, State.GIVEN_UP)

    def begin(self, sandbox: Sandbox, host: Host) -> bool:
        """Start a sandbox on a host that answers; False if it refuses."""
        assert sandbox.state is State.WAITING and not host.is_silent
        vm = self.world.admit(sandbox, host)
        if vm is None:
            self.counts.refusals += 1
            return False
        sandbox.state = State.STARTING
        if len(sandbox.vms) > 1:
            self.counts.doubled += 1
            self.counts.most_doubled = max(self.counts.most_doubled, len(self.world.doubled))
        self.placing.changed(host)
        processor = min(range(len(host.starts)), key=host.starts.__getitem__)
        costs, others = self.costs, len(host.vms) - 1
        work_s = (costs.start_s + costs.make_s * others) * host.slowness
        done = max(host.starts[processor], self.clock.now) + work_s
        host.starts[processor] = done
        self.clock.after(done - self.clock.now, self._started, vm)
        return True

    def _started(self, vm: Vm) -> None:
        sandbox = vm.sandbox
        if vm not in sandbox.vms:
            return
        vm.is_up = True
        if sandbox.state is State.STARTING and vm is sandbox.vms[-1] and not vm.host.is_silent:
            self._runs(sandbox)

    def _runs(self, sandbox: Sandbox) -> None:
        sandbox.vms[-1].was_seen = True
        sandbox.state = State.RUNNING
        if sandbox.placed:
            self.counts.restarted += 1
            return
        sandbox.placed = True
        self.counts.placed_s.append(self.clock.now + self.costs.round_trip_s - sandbox.asked_at)
        self.running += 1
        self.counts.most_running = max(self.counts.most_running, self.running)
        self.clock.after(sandbox.life_s, self._used_up, sandbox)

    def _used_up(self, sandbox: Sandbox) -> None:
        """The sandbox's owner no longer needs it."""
        if sandbox.state is State.RUNNING:
            self.end(sandbox, State.ENDED)
        elif sandbox.state not in OVER:  # it cannot be reached just now
            self.clock.after(30.0, self._used_up, sandbox)

    def end(self, sandbox: Sandbox, state: State) -> None:
        """End a sandbox wherever it can be reached; a silent host ends it later."""
        if sandbox.state not in OVER and sandbox.placed:
            self.running -= 1
        sandbox.state = state
        for vm in list(sandbox.vms):
            if not vm.host.is_silent:
                self._remove(vm)

    def _remove(self, vm: Vm) -> None:
        self.world.remove(vm)
        self.placing.changed(vm.host)

    def lose(self, sandbox: Sandbox, why: str) -> None:
        """Note that it has ended against its owner's wish."""
        if sandbox.state not in OVER:
            self.counts.lost[why] += 1
            self.end(sandbox, State.LOST)

    def lose_attached(self, sandbox: Sandbox, why: str) -> None:
        """Lose sandboxes whose client has been away for too long."""
        if sandbox.placed:
            self.lose(sandbox, why)
        elif sandbox.state not in OVER:
            self.placing.forget(sandbox)
            self.end(sandbox, State.GIVEN_UP)

    # Hosts that do not answer

    def fall_silent(self, host: Host, seconds: float, *, power: bool) -> None:
        """A host answers no more for so long; without ``power`` its machines end at once."""
        if host.is_silent:
            return
        host.is_silent, host.has_power = True, not power
        vms = sorted(host.vms, key=lambda vm: vm.sandbox.number)
        for vm in vms:
            if vm.epoch == vm.sandbox.epoch and vm.sandbox.state not in OVER:
                self._out_of_reach(vm, seconds)
            if power:
                self.world.remove(vm)
        self.placing.fell_silent(host)
        self.clock.after(seconds, self._come_back, host, vms)

    def _out_of_reach(self, vm: Vm, seconds: float) -> None:
        sandbox, costs = vm.sandbox, self.costs
        starts = sandbox.state is State.STARTING
        sandbox.state = State.UNREACHABLE
        noticed_s = self.placing.silent_s
        lease_s = noticed_s + costs.margin_s
        if starts or (sandbox.attached and seconds > costs.grace_s):
            # Its client is away for too long: the host ends it, and the client knows that.
            self.clock.after(costs.grace_s, self._lease_over, vm)
            after_s = noticed_s + costs.grace_s
            self.clock.after(after_s, self._elsewhere if starts else self._gone, vm)
        elif sandbox.restarts and self.scenario.fenced:
            self.clock.after(lease_s, self._lease_over, vm)
            self.clock.after(lease_s + costs.margin_s, self._elsewhere, vm)
        elif sandbox.restarts:
            self.clock.after(noticed_s, self._elsewhere, vm)

    def _lease_over(self, vm: Vm) -> None:
        """The host itself ends sandboxes that nobody could request since."""
        if vm.host.is_silent and vm.sandbox.state in (State.UNREACHABLE, State.LOST):
            self.world.remove(vm)

    def _elsewhere(self, vm: Vm) -> None:
        sandbox = vm.sandbox
        if sandbox.state is State.UNREACHABLE and sandbox.epoch == vm.epoch:
            if not sandbox.placed:
                self.counts.hung += 1
            sandbox.state = State.WAITING
            self._seek(sandbox)

    def _gone(self, vm: Vm) -> None:
        if vm.sandbox.state is State.UNREACHABLE and vm.sandbox.epoch == vm.epoch:
            self.lose(vm.sandbox, "its host did not answer")

    def _come_back(self, host: Host, known: list[Vm]) -> None:
        """Find again what was there when it fell silent, or lose it."""
        host.is_silent, host.has_power = False, True
        for vm in known:
            self._found(vm, is_there=vm in host.vms)
        self.placing.came_back(host)

    def _found(self, vm: Vm, *, is_there: bool) -> None:
        sandbox = vm.sandbox
        if vm.epoch != sandbox.epoch or sandbox.state is not State.UNREACHABLE:
            if is_there:
                self._remove(vm)  # it has a newer twin, or its owner has given it up
        elif is_there and not vm.is_up:
            sandbox.state = State.STARTING
        elif is_there and vm.was_seen:
            sandbox.state = State.RUNNING
        elif is_there:
            self._runs(sandbox)
        elif not sandbox.placed or sandbox.restarts:
            sandbox.state = State.WAITING
            self._seek(sandbox)
        else:
            self.lose(sandbox, "its host lost its power")
