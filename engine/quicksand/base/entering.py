"""Additions to the engine by packages beside it, which it does not know: entry points.

The groups are ``quicksand.names`` (public names of `quicksand`), ``quicksand.fleets`` (``make``
and ``open`` for `quicksand.where`), ``quicksand.nodes`` (local nodes, `records.local_nodes`) and
``quicksand.offers`` (functions that return what a machine does for others, `hosted.offering`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@cache
def entered(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by their names. Blocks."""
    from importlib.metadata import entry_points  # noqa: PLC0415

    return {one.name: one for one in entry_points(group=group)}
