"""The fleet that is up, as the app sees it: local nodes, drained ones, and sandboxes that wait."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from quicksand.base.errors import FleetError
from quicksand.base.paths import paths
from quicksand.records.fleet_files import fleet_file
from quicksand.records.fleet_record import read_fleet
from quicksand.records.waiting import WaitingList
from quicksand.remote.node import NODE_SCHEME
from quicksand.things.frozen import frozen

from quicksand_tui.door.stamps import Stamp, dir_stamp
from quicksand_tui.model.text import error_text

if TYPE_CHECKING:
    from collections.abc import Mapping


@frozen
class FleetView:
    """The app's knowledge of the fleet."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    """The addresses of its local nodes, by their names."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Values that tell nodes from those of an earlier fleet that had the same names."""
    drained: frozenset[str] = frozenset()
    """The names of machines that take nothing new."""
    waiting: int = 0
    """The number of sandboxes that wait for a place."""
    error: str = ""
    """The reason why the record of the fleet cannot be read."""


NO_FLEET = FleetView()


class FleetLook:
    """Reads the record of the fleet when it has changed. Used by one thread at a time."""

    def __init__(self) -> None:
        self._paths = paths()
        self._waiting = WaitingList(self._paths)
        self._stamp: Stamp = ()
        self._view = NO_FLEET

    def read(self) -> FleetView:
        """Returns the fleet; an empty one if none is up. Raises OSError."""
        stamp = dir_stamp(fleet_file(self._paths))
        if stamp != self._stamp:
            self._view = self._read()
            self._stamp = stamp
        waiting = self._waiting.count()
        if waiting != self._view.waiting:
            self._view = replace(self._view, waiting=waiting)
        return self._view

    def _read(self) -> FleetView:
        try:
            record = read_fleet(self._paths)
        except FleetError as error:
            return FleetView(error=error_text(error))
        if record is None:
            return NO_FLEET
        nodes = {node.name: f"{NODE_SCHEME}{node.name}" for node in record.nodes}
        ids = {node.name: node.id for node in record.nodes}
        return FleetView(nodes=nodes, ids=ids, drained=record.drained)
