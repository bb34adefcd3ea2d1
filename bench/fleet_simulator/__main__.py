"""The command. See `bench.fleet_simulator`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace

from bench.fleet_simulator.report import run
from bench.fleet_simulator.scenario import Choice, Design, Scenario


def count(text: str) -> int:
    """Reads a whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def amount(text: str) -> float:
    """Reads a positive number."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return found


def numbers(text: str) -> tuple[int, ...]:
    """Reads whole numbers between commas."""
    return tuple(count(word) for word in text.split(","))


def parse(words: Sequence[str] | None = None) -> Scenario:
    """Reads the command line. Ends the program if something is wrong with it."""
    usual = Scenario()
    parser = argparse.ArgumentParser(prog="python -m bench.fleet_simulator", description=__doc__)
    add = parser.add_argument
    add("--design", type=Design, choices=list(Design), default=usual.design)
    add("--hosts", type=count, default=usual.hosts)
    add("--clients", type=count, default=usual.clients)
    add("--sandboxes", type=count, default=usual.sandboxes)
    add("--needs-mib", type=numbers, default=usual.needs_mib, metavar="MIB,…")
    add("--host-mib", type=count, default=usual.host_mib)
    add("--arrive-s", type=amount, default=usual.arrive_s)
    add("--life-s", type=amount, default=usual.life_s)
    add("--duration-s", type=amount, default=usual.duration_s)
    add("--choice", type=Choice, choices=list(Choice), default=usual.choice)
    add("--push-s", type=amount, default=usual.costs.push_s)
    add("--round-trip-s", type=amount, default=usual.costs.round_trip_s)
    add("--silent-ray-s", type=amount, default=usual.costs.silent_ray_s)
    add("--group-s", type=amount, default=usual.costs.group_s)
    add("--unfenced", action="store_true", help="a twin starts though the first may run on")
    add("--no-faults", action="store_true")
    add("--faults-times", type=amount, default=1.0, metavar="FACTOR", help="so much more often")
    add("--seed", type=int, default=usual.seed)
    given = vars(parser.parse_args(words))
    costs = {
        name: given.pop(name) for name in ("push_s", "round_trip_s", "silent_ray_s", "group_s")
    }
    factor = given.pop("faults_times")
    faults = usual.faults.times(0.0 if given.pop("no_faults") else factor)
    fenced = not given.pop("unfenced")
    return Scenario(costs=replace(usual.costs, **costs), faults=faults, fenced=fenced, **given)


def main() -> None:
    scenario = parse()
    print(json.dumps(run(scenario), indent=1))


if __name__ == "__main__":
    main()
