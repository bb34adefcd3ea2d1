"""Placing by clients: each is connected to all hosts, knows their reported memory, and asks the one
that seems best. The host decides."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.fleet_simulator.scenario import Choice
from bench.fleet_simulator.simulation import Simulation
from bench.fleet_simulator.world import Host, Sandbox, State

DRAWS = 8
"""Pairs that are drawn before a client looks at all hosts."""
LONGEST_PAUSE_S = 30.0


@dataclass(slots=True)
class Client:
    """One client's own knowledge besides the hosts' reports."""

    offset: int
    """The index of its first host, so that not all take the first of equals (`OWN_ORDER`)."""
    began: float
    """When it began to connect."""
    asked: dict[int, int] = field(default_factory=dict)
    """MiB by host that it has requested without a report yet."""
    refused: dict[int, float] = field(default_factory=dict)
    """Hosts that it does not ask, and until when."""
    cut: dict[int, float] = field(default_factory=dict)
    """Hosts that it cannot reach, and until when."""


class OverSsh:
    """See `Placing`."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._costs = simulation.costs
        self._clock = simulation.clock
        self._told = [host.memory_mib for host in simulation.world.hosts]
        """Free MiB of each host in its last report to the clients; -1 if it does not answer."""
        self.clients: dict[int, Client] = {}

    @property
    def silent_s(self) -> float:
        """See `Placing`."""
        return self._costs.silent_ssh_s

    def place(self, sandbox: Sandbox) -> None:
        """See `Placing`."""
        client = self._client(sandbox.client)
        number = self._choose(client, sandbox.need_mib)
        if number is None:
            pause = min(2.0**sandbox.attempts, LONGEST_PAUSE_S)
            if not self._reached(client):
                pause = self._costs.connect_s
            sandbox.attempts += 1
            pause *= self._simulation.chance.uniform(0.5, 1.0)
            self._clock.after(pause, self._again, sandbox, sandbox.epoch)
            return
        client.asked[number] = client.asked.get(number, 0) + sandbox.need_mib
        host = self._simulation.world.hosts[number]
        way_s = self._costs.round_trip_s / 2
        self._clock.after(way_s, self._arrive, client, sandbox, host, sandbox.epoch)

    def _client(self, number: int) -> Client:
        if number not in self.clients:
            offset = self._simulation.chance.randrange(len(self._told))
            self.clients[number] = Client(offset, self._clock.now)
        return self.clients[number]

    def _reached(self, client: Client) -> int:
        """To how many hosts it is connected by now."""
        costs = self._costs
        rounds = (self._clock.now - client.began) / costs.connect_s
        return min(len(self._told), int(rounds * costs.connects_at_once))

    def _choose(self, client: Client, need: int) -> int | None:
        view = self._told.copy()
        for number, mib in client.asked.items():
            view[number] -= mib
        for number, until in list(client.refused.items()):
            if until > self._clock.now:
                view[number] = -1
            else:
                del client.refused[number]
        choice, hosts = self._simulation.scenario.choice, len(view)
        offset = 0 if choice is Choice.MOST_FREE else client.offset
        if choice is Choice.TWO and self._reached(client) == hosts:
            for _ in range(DRAWS):
                one, other = (int(self._simulation.chance.random() * hosts) for _ in range(2))
                better = one if view[one] >= view[other] else other
                if view[better] >= need:
                    return better
        view = (view[offset:] + view[:offset])[: self._reached(client)]
        best = max(view, default=-1)
        return (view.index(best) + offset) % hosts if best >= need else None

    def _again(self, sandbox: Sandbox, epoch: int) -> None:
        if sandbox.state is State.WAITING and sandbox.epoch == epoch:
            self.place(sandbox)

    def _arrive(self, client: Client, sandbox: Sandbox, host: Host, epoch: int) -> None:
        costs = self._costs
        self._clock.after(costs.push_s, self._answered, client, host.number, sandbox.need_mib)
        if sandbox.state is not State.WAITING or sandbox.epoch != epoch:
            return
        if host.is_silent or client.cut.get(host.number, 0.0) > self._clock.now:
            self._simulation.counts.hung += 1
            # Only memory was requested, which that host frees again when nobody comes for it.
            client.refused[host.number] = self._clock.now + costs.answer_s + costs.refused_s
            self._clock.after(costs.answer_s, self._again, sandbox, epoch)
        elif not self._simulation.begin(sandbox, host):
            client.refused[host.number] = self._clock.now + costs.refused_s
            self._clock.after(costs.round_trip_s / 2, self._again, sandbox, epoch)

    def _answered(self, client: Client, number: int, mib: int) -> None:
        left = client.asked[number] - mib
        if left:
            client.asked[number] = left
        else:
            del client.asked[number]

    def forget(self, sandbox: Sandbox) -> None:
        """See `Placing`: a wish that is given up makes no further requests."""

    def changed(self, host: Host) -> None:
        """See `Placing`: each client gets a report."""
        self._clock.after(self._costs.push_s, self._tell, host, host.free_mib)
        self._simulation.counts.pushed += len(self.clients)

    def _tell(self, host: Host, free_mib: int) -> None:
        if not host.is_silent:
            self._told[host.number] = free_mib

    def fell_silent(self, host: Host) -> None:
        """See `Placing`."""
        self._clock.after(self._costs.silent_ssh_s, self._notice, host)

    def _notice(self, host: Host) -> None:
        if host.is_silent:
            self._told[host.number] = -1

    def came_back(self, host: Host) -> None:
        """See `Placing`."""
        self._clock.after(self._costs.reconnect_s, self._tell, host, host.free_mib)
        self._simulation.counts.pushed += len(self.clients)
