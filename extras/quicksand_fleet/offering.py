"""The services of a machine for fleets, loaded with the first request for them."""

from __future__ import annotations

from importlib import import_module

from quicksand.extending import LateOffer, Offer, paths

FLEET = "fleet"
METHODS = ("capacity", "claim")
KEEPING, KEEPING_METHODS = "keeping", ("leases",)


def fleet_offers() -> tuple[LateOffer, ...]:
    """The offers, for `serve_stdio`."""

    def load() -> Offer:
        made: Offer = import_module("quicksand_fleet.far_end").MachineOfFleets(paths())
        return made

    def keeping() -> Offer:
        made: Offer = import_module("quicksand_fleet.keeping.far_end").MachineOfLeases(paths())
        return made

    return LateOffer(FLEET, METHODS, load), LateOffer(KEEPING, KEEPING_METHODS, keeping)
