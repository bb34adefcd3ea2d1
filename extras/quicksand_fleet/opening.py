"""Opens the back end of the fleet that is up, or of the machines of the config."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module

from quicksand import RemoteHost
from quicksand.errors import ConfigError, FleetError
from quicksand.extending import (
    NODE_SCHEME,
    Paths,
    fleet_dir,
    make_private_dir,
    paths,
    read_addresses,
)

from quicksand_fleet.interface import BackEnd
from quicksand_fleet.machine import FarMachine, Machine
from quicksand_fleet.over_ssh import OverSsh
from quicksand_fleet.record import RAY, FleetRecord, read_fleet, set_drained
from quicksand_fleet.remedies import ADD_MACHINES, GET_RAY

OVER_RAY = "quicksand_fleet.over_ray.lifecycle"
"""The module that has ``open_back_end(record, paths) -> BackEnd``. Only a fleet over Ray needs
it."""


def open_back_end() -> BackEnd:
    """Open the fleet that is up, or else the machines of the config. An event loop must run. Raises
    FleetError, ConfigError."""
    ours = paths()
    record = read_fleet(ours) or FleetRecord()
    if record.back_end == RAY:
        try:
            opened: BackEnd = import_module(OVER_RAY).open_back_end(record, ours)
        except ModuleNotFoundError as error:
            if error.name not in (OVER_RAY, "ray"):
                raise
            raise FleetError(
                "the fleet that is up needs Ray, which is not installed here",
                hint=GET_RAY,
            ) from error
        return opened
    addresses = addresses_of(record)
    if not addresses:
        raise FleetError(
            "there is no fleet: none is up, and the config names no other machine",
            hint=ADD_MACHINES,
        )
    return OverSsh(
        lambda changed: list(_machines(addresses, changed)),
        read_drained=lambda: _drained(ours),
        write_drained=lambda name, on: set_drained(ours, name, on=on),
        place=make_private_dir(fleet_dir(ours)),
    )


def addresses_of(record: FleetRecord) -> dict[str, str]:
    """The addresses of a fleet's machines by their names. Raises ConfigError."""
    if record.nodes:
        return {node.name: f"{NODE_SCHEME}{node.name}" for node in record.nodes}
    return read_addresses()


def _machines(addresses: dict[str, str], changed: Callable[[], None]) -> Iterable[Machine]:
    for name, address in addresses.items():
        try:
            # Nobody is asked: with several machines, the user could not tell which one asks.
            remote = RemoteHost(address, asks=False)
        except ConfigError as error:
            raise ConfigError(f"the host {name!r}: {error}", hint=error.hint) from error
        yield FarMachine(name, remote, changed)


def _drained(ours: Paths) -> frozenset[str]:
    record = read_fleet(ours)
    return frozenset() if record is None else record.drained
