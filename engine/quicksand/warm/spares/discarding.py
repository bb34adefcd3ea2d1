"""Ending spares that no start will take, or whose memory is needed now."""

from __future__ import annotations

import time
from pathlib import Path

from quicksand.base.effort import best_effort
from quicksand.records.registry import Registry
from quicksand.warm.spares.claiming import end
from quicksand.warm.spares.spare import Spare, list_spares

OVERDUE_S = 60.0
"""Seconds past its time after which a spare's keeper must have failed to end it."""


def end_all(registry: Registry) -> int:
    """End all spares; returns how many. Blocks."""
    return _end_each(registry, list_spares(registry.paths))


def end_useless(registry: Registry) -> int:
    """End the spares whose image is gone, and those that are past their time; returns how many.
    Blocks."""
    useless = [spare for spare in list_spares(registry.paths) if _is_useless(spare)]
    return _end_each(registry, useless)


def _is_useless(spare: Spare) -> bool:
    if spare.until is not None and time.time() > spare.until + OVERDUE_S:
        return True
    return not all(Path(path).exists() for path in spare.record.chain)


def _end_each(registry: Registry, spares: list[Spare]) -> int:
    ended = 0
    for spare in spares:
        with best_effort(f"end the spare {spare.id}", registry.paths.engine_log):
            ended += end(registry, spare)
    return ended
