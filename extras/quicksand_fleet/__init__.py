"""Fleets: sandboxes over many machines (docs/internals/fleet.md).

A fleet says which machines there are, and on which of them a sandbox fits. From then on it is a
sandbox of another machine (`quicksand.hosted`). The truth is on the machines' disks: if everything
that a fleet knows is lost, no sandbox is lost.

It stands beside the engine, which does not know it: its public names, what it does for
``Sandbox(fleet=…)`` (`making`) and for fleets of other machines (`offering`), and its command
(`verb`, `command`) enter by entry points.
"""

from typing import TYPE_CHECKING

from quicksand.extending import on_demand

if TYPE_CHECKING:
    from quicksand_fleet.batch import BatchResult as BatchResult
    from quicksand_fleet.finding import PlacedLife as PlacedLife
    from quicksand_fleet.fleet import Fleet as Fleet
    from quicksand_fleet.interface import FleetEvent as FleetEvent
    from quicksand_fleet.interface import FleetEventKind as FleetEventKind
    from quicksand_fleet.interface import FleetHost as FleetHost
    from quicksand_fleet.interface import HostLack as HostLack
    from quicksand_fleet.interface import HostState as HostState
    from quicksand_fleet.interface import Lack as Lack
    from quicksand_fleet.interface import Need as Need
    from quicksand_fleet.interface import Reservation as Reservation
    from quicksand_fleet.keeping.kept import KeptSandbox as KeptSandbox
    from quicksand_fleet.keeping.restart import Restart as Restart
    from quicksand_fleet.life import FleetLife as FleetLife
    from quicksand_fleet.nodes import end_fleet as end_fleet
    from quicksand_fleet.nodes import make_nodes as make_nodes
else:
    __getattr__, __dir__ = on_demand()
