"""Compares Ray's places on a machine with its sandboxes: pure functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from quicksand_fleet.over_ray.desk import Place
from quicksand_fleet.over_ray.places import Kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """The steps that make Ray and the machine agree."""

    give_back: tuple[str, ...] = ()
    """Ray's places that nobody uses: their sandbox has ended, or none came in time."""
    take: tuple[Kept, ...] = ()
    """Places of running sandboxes that Ray does not know: another head has taken over."""
    drop: tuple[str, ...] = ()
    """Records of places whose sandbox has ended."""


def plan_repair(
    places: Sequence[Place], kept: Sequence[Kept], live: Collection[str], now: float
) -> Repair:
    """Compare the ``places`` that Ray keeps on one machine with its records, ``kept``. ``live`` are
    the ids of places whose sandbox runs; ``now`` is the Unix time."""
    known = {one.id for one in places}
    bound = {one.id for one in kept}
    return Repair(
        give_back=tuple(
            one.id
            for one in places
            if one.id not in live and (one.id in bound or one.expires_at <= now)
        ),
        take=tuple(one for one in kept if one.id in live and one.id not in known),
        drop=tuple(one.id for one in kept if one.id not in live),
    )
