"""The costs of a fleet, and the source of each figure.

"M" is measured by `bench/costs.py` on the development machine, "R" by trials with Ray 2.60 on it,
"C" is a constant of this project, and "A" is assumed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds, MiB and counts."""

    start_s: float = 0.19
    """M: processor time of a start from a template (docs/internals/figures.md)."""
    round_trip_s: float = 0.001
    """A: between any two machines."""
    connect_s: float = 0.55
    """A: ssh and the far end's Python, until its first look is here: half of the least that was
    measured on a busy machine."""
    connects_at_once: int = 16
    """A: connections that a client makes at the same time."""
    push_s: float = 0.031
    """C: from a change to the client: 30 ms in which the far end gathers changes, and the way."""
    line_s: float = 0.001
    """M: a client's processor time for each line that a host tells it."""
    look_s: float = 0.0001
    """M: a far end's processor time for each sandbox on its host that runs, once a second, and at
    each change."""
    change_s: float = 0.003
    """M: the same for a change, besides that look."""
    make_s: float = 0.00002
    """M: the additional time of a start for each existing sandbox: its record is read."""

    answer_s: float = 30.0
    """C: a host that does not answer within this whether it has the memory is left for another."""
    refused_s: float = 5.0
    """C: the time for which a client does not ask a host again that has refused."""

    silent_ssh_s: float = 45.0
    """C: until a client gives up a host that does not answer (ServerAliveInterval 15, thrice)."""
    grace_s: float = 30.0
    """C: a host ends the sandboxes of a client that is away for so long."""
    reconnect_s: float = 15.0
    """C: half of the longest pause between attempts to connect again."""

    silent_ray_s: float = 20.0
    """C: until Ray gives up a frozen machine, with a look every 2 s of which five must fail; 63 s
    by default (R)."""
    group_s: float = 0.005
    """R: the head's time for a placement group (60 at once in 0.3 s)."""
    group_delay_s: float = 0.0025
    """R: the delay of a single one (1.8 to 3.2 ms)."""
    actor_call_s: float = 0.0009
    """R: a call of a host's actor."""
    check_work_s: float = 0.0002
    """A: the head's time to look at a node."""
    check_every_s: float = 2.0
    """C: how often it looks at each."""
    head_back_s: float = 120.0
    """A: until a lost head is replaced."""
    join_s: float = 0.02
    """A: the head's time for a node that joins."""

    margin_s: float = 5.0
    """C: between the end of a lease and the start of a twin."""
