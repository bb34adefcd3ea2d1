"""Simulates fleets that are larger than what there is to try them on.

python -m bench.fleet_simulator --design ssh --hosts 100 --sandboxes 10000 --seed 1

Hosts, clients and sandboxes are fake; what each costs is measured (`costs.py` says by what, and
what is merely assumed). Time is simulated, event by event (`clock.py`), and all chance comes from
the seed, so the same command gives the same figures. `world.py` is what is true on the hosts,
`over_ssh.py` and `over_ray.py` are the two ways of finding a place, `faults.py` is what goes wrong,
`limits.py` computes what needs no events. docs/internals/scale.md says what came of it.
"""
