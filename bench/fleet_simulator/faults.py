"""The faults, and their times."""

from __future__ import annotations

import random
from collections.abc import Callable

from bench.fleet_simulator.over_ray import OverRay
from bench.fleet_simulator.over_ssh import OverSsh
from bench.fleet_simulator.simulation import Simulation
from bench.fleet_simulator.world import State

REPAIR_S = 600.0
"""Until a host that lost its power is there again."""
SLOWNESS, SLOW_S = 10.0, 300.0


class Misfortune:
    """Draws faults and has them happen."""

    def __init__(self, simulation: Simulation, placing: OverSsh | OverRay) -> None:
        self._simulation = simulation
        self._placing = placing
        self._clock = simulation.clock
        # Its own generator, so that the same faults happen with both designs.
        self._chance = random.Random(f"{simulation.scenario.seed} faults")
        self.happened: dict[str, int] = {}
        faults, hosts = simulation.scenario.faults, simulation.scenario.hosts
        clients = simulation.scenario.clients
        for name, rate, subjects, fault in (
            ("power", faults.power, hosts, self._power),
            ("silence", faults.silence, hosts, self._silence),
            ("slow", faults.slow, hosts, self._slow),
            ("cut", faults.cut, clients, self._cut),
            ("client", faults.client, clients, self._client),
            ("head", faults.head, 1, self._head),
        ):
            if rate:
                self._plan(name, 3600 / (rate * subjects), subjects, fault)

    def _plan(self, name: str, every_s: float, subjects: int, fault: Callable[[int], None]) -> None:
        wait_s = self._chance.expovariate(1 / every_s)
        self._clock.after(wait_s, self._happen, name, every_s, subjects, fault)

    def _happen(
        self, name: str, every_s: float, subjects: int, fault: Callable[[int], None]
    ) -> None:
        self.happened[name] = self.happened.get(name, 0) + 1
        fault(self._chance.randrange(subjects))
        self._plan(name, every_s, subjects, fault)

    def _power(self, number: int) -> None:
        self._simulation.fall_silent(self._simulation.world.hosts[number], REPAIR_S, power=True)

    def _silence(self, number: int) -> None:
        seconds = self._chance.expovariate(1 / self._simulation.scenario.faults.silence_s)
        self._simulation.fall_silent(self._simulation.world.hosts[number], seconds, power=False)

    def _slow(self, number: int) -> None:
        host = self._simulation.world.hosts[number]
        host.slowness = SLOWNESS

        def recover() -> None:
            host.slowness = 1.0

        self._clock.after(SLOW_S, recover)

    def _cut(self, number: int) -> None:
        """A client's connection to one of the hosts."""
        host = self._chance.choice(self._simulation.world.hosts)
        seconds = self._chance.expovariate(1 / self._simulation.scenario.faults.cut_s)
        if isinstance(self._placing, OverSsh) and number in self._placing.clients:
            self._placing.clients[number].cut[host.number] = self._clock.now + seconds
        grace_s = self._simulation.costs.grace_s
        if seconds > grace_s and not host.is_silent:
            for vm in sorted(host.vms, key=lambda vm: vm.sandbox.number):
                if vm.sandbox.client == number and vm.sandbox.attached:
                    self._end_later(vm.sandbox.number, "its connection was cut")

    def _client(self, number: int) -> None:
        """Kill a client and start it again at once: its attached sandboxes end."""
        for sandbox in self._simulation.world.sandboxes:
            if sandbox.client != number:
                continue
            if sandbox.state is State.WAITING and not sandbox.placed:
                self._placing.forget(sandbox)
                self._simulation.end(sandbox, State.GIVEN_UP)
            elif sandbox.attached:
                self._end_later(sandbox.number, "its client was killed")
        if isinstance(self._placing, OverSsh):
            self._placing.clients.pop(number, None)

    def _end_later(self, number: int, why: str) -> None:
        sandbox = self._simulation.world.sandboxes[number]
        self._clock.after(
            self._simulation.costs.grace_s, self._simulation.lose_attached, sandbox, why
        )

    def _head(self, _: int) -> None:
        if isinstance(self._placing, OverRay):
            self._placing.lose_head()
