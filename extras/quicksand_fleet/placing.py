"""Where a sandbox is placed: functions of the machines' reports, and of chance."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Sequence

from quicksand.errors import FleetFullError
from quicksand.extending import OVERHEAD, Remedy, Words, size_text

from quicksand_fleet.interface import FleetHost, HostLack, HostState, Lack, Need
from quicksand_fleet.remedies import ADD_MACHINES

AWAY = (HostState.UNREACHABLE, HostState.UNFIT)
SHOWN_MAX = 20
"""Machines that an error names."""


DRAWN = 2
"""The number of machines that are drawn, of which the better one is asked."""

Draw = Callable[[Sequence[int], int], Sequence[int]]
"""Draws so many different numbers from a sequence, as `random.sample` does."""


def wanted_bytes(need: Need) -> int:
    """Return the bytes that a sandbox takes of its machine's memory."""
    return need.memory_bytes + OVERHEAD


def candidates(
    hosts: Sequence[FleetHost],
    need: Need,
    refused: Container[str] = (),
    *,
    draw: Draw = random.sample,
) -> list[FleetHost]:
    """Return the machines that have room: first the one to ask, then the others, the better ones
    first. Machines that have the image are better than those that do not; among equals, more free
    memory is better. Those in ``refused`` have already refused.

    The machine to ask is the better of two that are drawn from those that have the image, or from
    all if none has it. If each client asked the best of all, a best machine that has fallen silent
    would get every request until that is noticed, and clients with late reports would all meet at
    one machine (docs/internals/scale.md)."""
    fitting = [
        host
        for host in hosts
        if _may_take(host, need)
        and host.name not in refused
        and host.free_bytes >= wanted_bytes(need)
    ]
    ranked = sorted(
        fitting,
        key=lambda host: (
            _lacks_image(host, need),
            -host.free_bytes,
            host.sandboxes,
            host.name,
        ),
    )
    best = sum(not _lacks_image(host, need) for host in ranked) or len(ranked)
    if best > DRAWN:
        ranked.insert(0, ranked.pop(min(draw(range(best), DRAWN))))
    return ranked


def _lacks_image(host: FleetHost, need: Need) -> bool:
    return need.image is not None and need.image not in host.images


def _may_take(host: FleetHost, need: Need) -> bool:
    """Whether the sandbox may be placed there, memory aside. A drained machine still takes the
    sandboxes that it already has."""
    if not _is_meant(host, need):
        return False
    return host.takes_new if need.on is None else host.state not in AWAY


def _is_meant(host: FleetHost, need: Need) -> bool:
    return need.on in (None, host.name) and host.name != need.but


def can_ever_fit(hosts: Sequence[FleetHost], need: Need) -> bool:
    """Whether waiting makes sense: some machine would have room if it were empty, or may have more
    than is known."""
    return any(
        host.state in AWAY or host.memory_bytes >= wanted_bytes(need)
        for host in hosts
        if _is_meant(host, need)
    )


def lacks_of(
    hosts: Sequence[FleetHost], need: Need, refused: Container[str] = ()
) -> tuple[HostLack, ...]:
    """Return what each machine lacks that is not a candidate."""
    return tuple(
        lack
        for host in hosts
        if _is_meant(host, need)
        and (lack := _lack_of(host, need, is_refused=host.name in refused)) is not None
    )


def _lack_of(host: FleetHost, need: Need, *, is_refused: bool) -> HostLack | None:
    match host.state:
        case HostState.UNREACHABLE:
            return HostLack(host=host.name, lack=Lack.UNREACHABLE, why=host.why)
        case HostState.UNFIT:
            return HostLack(host=host.name, lack=Lack.UNFIT, why=host.why)
        case HostState.DRAINING | HostState.DRAINED:
            return HostLack(host=host.name, lack=Lack.DRAINED)
    if host.free_bytes < wanted_bytes(need):
        return HostLack(host=host.name, lack=Lack.MEMORY, free_bytes=host.free_bytes)
    return HostLack(host=host.name, lack=Lack.REFUSED) if is_refused else None


def full_error(lacks: Sequence[HostLack], need: Need, *, waited_s: float) -> FleetFullError:
    """The error for a sandbox that found no place."""
    wanted = f"{size_text(need.memory_bytes)} (and {size_text(OVERHEAD)} for QEMU)"
    when = f" within {waited_s:g} s" if waited_s else ""
    if not lacks:
        return FleetFullError("the fleet has no machine", hint=ADD_MACHINES)
    words = [_words(one) for one in lacks[:SHOWN_MAX]]
    if len(lacks) > SHOWN_MAX:
        words.append(f"and {len(lacks) - SHOWN_MAX} more")
    return FleetFullError(
        f"no machine of the fleet had {wanted}{when}: {'; '.join(words)}",
        lacks=lacks,
        hint=Words(
            "wait longer, ask for less memory, or end sandboxes; ",
            Remedy("fleet_status"),
            " shows the machines",
        ),
    )


def _words(lack: HostLack) -> str:
    match lack.lack:
        case Lack.MEMORY:
            return f"{lack.host} has {size_text(lack.free_bytes or 0)} free"
        case Lack.DRAINED:
            return f"{lack.host} is drained"
        case Lack.REFUSED:
            return f"{lack.host} has refused"
        case Lack.UNREACHABLE:
            why = f" ({lack.why})" if lack.why else ""
            return f"{lack.host} is unreachable{why}"
        case Lack.UNFIT:
            return f"{lack.host} cannot be used ({lack.why})"
