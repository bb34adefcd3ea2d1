"""Remedies for when a fleet cannot do what it is asked."""

from __future__ import annotations

from typing import Final

from quicksand.extending import DISTRIBUTION, Remedy, Words

ADD_MACHINES: Final = Words(
    Words(Remedy("add_host"), python="an entry in the config's table [hosts]"),
    " adds one, ",
    Words(Remedy("fleet_up_local"), python="the command `fleet up --local 2`"),
    " makes nodes on this one",
)
"""For a fleet that has no machine."""

BRING_UP: Final = Words(
    Words(Remedy("fleet_up"), python="the command `fleet up`"), " brings one up"
)
END_IT: Final = Words(Words(Remedy("fleet_down"), python="the command `fleet down`"), " ends it")

GET_RAY: Final = f"pip install '{DISTRIBUTION}[fleet]'"
