"""The services of a machine for fleets, loaded with the first request for them."""

from __future__ import annotations

from importlib import import_module

from quicksand.base.paths import paths
from quicksand.hosted.offering import LateOffer
from quicksand.remote.serving import Offer

FLEET = "fleet"
METHODS = ("capacity", "claim")
KEEPING, KEEPING_METHODS = "keeping", ("leases",)


def fleet_offers() -> tuple[LateOffer, ...]:
    """The offers, for `serve_stdio`."""

    def load() -> Offer:
        made: Offer = import_module("quicksand.fleet.far_end").MachineOfFleets(paths())
        return made

    def keeping() -> Offer:
        made: Offer = import_module("quicksand.fleet.keeping.far_end").MachineOfLeases(paths())
        return made

    return LateOffer(FLEET, METHODS, load), LateOffer(KEEPING, KEEPING_METHODS, keeping)
