"""Simulates fleets that are larger than any available one.

python -m bench.fleet_simulator --design ssh --hosts 100 --sandboxes 10000 --seed 1

Hosts, clients and sandboxes are fake; their costs are measured (`costs.py` names the source of
each, and mere assumptions). Time is simulated, event by event (`clock.py`), and all chance comes
from the seed, so the same command gives the same figures. `world.py` is the truth on the hosts,
`over_ssh.py` and `over_ray.py` are the two ways of finding a place, `faults.py` has the faults,
`limits.py` computes figures that need no events. docs/internals/scale.md has the results.
"""
