"""The way to a local node (`records.local_nodes`), which needs no ssh."""

from __future__ import annotations

import asyncio
from typing import Protocol, runtime_checkable

from quicksand.base.entering import entered
from quicksand.base.errors import ConfigError
from quicksand.base.remedies import Remedy, Words
from quicksand.records.fleet_files import GROUP
from quicksand.remote.destination import Destination

NODE_SCHEME = "node://"


@runtime_checkable
class NodeDestination(Protocol):
    """A local node, as `Connection` needs to know it. Its text is its address."""

    @property
    def short(self) -> str:
        """Return the name of the node in messages."""

    @property
    def trial(self) -> str:
        """Return a command that shows whether the node can be reached."""

    async def start(self) -> asyncio.subprocess.Process:
        """Start the program of the node, which answers on its stdin and stdout. Raises OSError,
        PathError, RemoteUnreachableError."""


def find_node(name: str) -> NodeDestination | None:
    """Return the way to the node of that name; None if there is none. Raises FleetError."""
    return one.load()(name) if (one := entered(GROUP).get("way")) else None


def parse_address(text: str) -> Destination | NodeDestination:
    """Parse an address: ``ssh://…``, or ``node://NAME`` for a local node that is up. Raises
    ConfigError, FleetError."""
    if not text.startswith(NODE_SCHEME):
        return Destination.parse(text)
    name = text.removeprefix(NODE_SCHEME)
    if (node := find_node(name)) is not None:
        return node
    raise ConfigError(
        f"there is no local node {name!r:.100}",
        hint=Words(Remedy("fleet_status"), " lists the machines of the fleet"),
    )
