"""The results of a run, as values for JSON."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from typing import Any

from bench.fleet_simulator.faults import Misfortune
from bench.fleet_simulator.limits import (
    Parts,
    client_limits,
    first_list_s,
    host_limits,
    image_by_star_s,
    image_by_tree_s,
)
from bench.fleet_simulator.over_ray import OverRay
from bench.fleet_simulator.over_ssh import OverSsh
from bench.fleet_simulator.scenario import Design, Scenario
from bench.fleet_simulator.simulation import Counts, Simulation

SAMPLE_S = 300.0


def run(scenario: Scenario) -> dict[str, Any]:
    """Simulate a scenario; return the results."""
    simulation = Simulation(scenario, OverSsh if scenario.design is Design.SSH else OverRay)
    placing = simulation.placing
    assert isinstance(placing, OverSsh | OverRay)
    misfortune = Misfortune(simulation, placing)
    sampler = Sampler(simulation)
    simulation.run()
    simulation.world.check()
    counts, world = simulation.counts, simulation.world
    found: dict[str, Any] = {
        "placed": len(counts.placed_s),
        "to_place_s": _times(counts.placed_s),
        "most_running": counts.most_running,
        "most_on_a_host": max(host.most_vms for host in world.hosts),
        "states": dict(sorted(Counter(one.state.value for one in world.sandboxes).items())),
        "refusals": counts.refusals,
        "hung": counts.hung,
        "restarted": counts.restarted,
        "lost": dict(sorted(counts.lost.items())),
        "doubled": counts.doubled,
        "faults": dict(sorted(misfortune.happened.items())),
        "events": simulation.clock.events,
    }
    if isinstance(placing, OverSsh):
        sampler.of_client, sampler.of_host = scenario.hosts, scenario.clients
        told_s = counts.pushed / scenario.clients / scenario.duration_s
        found["lines_pushed"] = counts.pushed
        found["host_processors_for_clients"] = round(_looking(scenario, counts, found), 2)
        found["client_busy_with_lines"] = round(told_s * scenario.costs.line_s, 4)
    else:
        found["head_busy"] = round(placing.head.busy_s / scenario.duration_s, 3)
        found["head_calls"] = placing.head.calls
        found["head_longest_wait_s"] = round(placing.head.longest_wait_s, 2)
    found["connections_of_a_client"] = sampler.of_client
    found["clients_of_a_host"] = sampler.of_host
    return found | _taken(scenario, sampler, found["most_on_a_host"])


def _looking(scenario: Scenario, counts: Counts, found: dict[str, Any]) -> float:
    """Processors of each host that are busy with looking, for all clients that are connected."""
    costs = scenario.costs
    looks: float = costs.look_s * found["most_on_a_host"]
    told_s = counts.pushed / scenario.hosts / scenario.duration_s
    return scenario.clients * looks + told_s * (costs.change_s + looks)


def _taken(scenario: Scenario, sampler: Sampler, on_a_host: int) -> dict[str, Any]:
    parts, costs = Parts(), scenario.costs
    to, by = sampler.of_client, sampler.of_host
    limits = [*client_limits(to, parts), *host_limits(by, on_a_host, scenario.host_mib, parts)]
    if scenario.design is Design.SSH:
        first = first_list_s(to, on_a_host, costs.connect_s, costs.connects_at_once, parts)
    else:  # the driver asks each host's actor, one after the other
        first = costs.actor_call_s * scenario.hosts + parts.list_ms * on_a_host / 1000
    return {
        "client_mib": round(parts.client_mib + parts.ssh_mib * to),
        "host_mib_for_clients": round(parts.serve_mib * by),
        "first_list_s": round(first, 2),
        "image_by_star_s": round(image_by_star_s(scenario.hosts, parts.image_mib), 1),
        "image_by_tree_s": round(image_by_tree_s(scenario.hosts, parts.image_mib), 1),
        "met": [f"{one.name}: {one.takes:,.0f} of {one.has:,.0f}" for one in limits if one.is_met],
    }


def _times(seconds: list[float]) -> dict[str, float]:
    if len(seconds) < 2:
        return {}
    cuts = statistics.quantiles(seconds, n=1000)
    at = {"median": cuts[499], "p99": cuts[989], "p999": cuts[998], "max": max(seconds)}
    return {name: round(value, 3) for name, value in at.items()}


class Sampler:
    """Looks now and then who uses sandboxes of whom: streams go straight to the host, over ssh."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.of_client = 0
        """The most hosts on which one client has sandboxes."""
        self.of_host = 0
        simulation.clock.after(SAMPLE_S, self._look)

    def _look(self) -> None:
        hosts: defaultdict[int, set[int]] = defaultdict(set)
        for host in self._simulation.world.hosts:
            clients = {vm.sandbox.client for vm in host.vms}
            self.of_host = max(self.of_host, len(clients))
            for client in clients:
                hosts[client].add(host.number)
        self.of_client = max(self.of_client, *map(len, hosts.values()), 0)
        self._simulation.clock.after(SAMPLE_S, self._look)
