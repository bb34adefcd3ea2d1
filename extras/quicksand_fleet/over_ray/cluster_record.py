"""The facts that programs need to use a Ray cluster of ours; `FleetRecord.more` holds them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quicksand.errors import FleetError
from quicksand.extending import Fields, Remedy, Words

NAMESPACE = "quicksand"
"""The namespace of Ray in which our actors and placement groups have their names."""

MARK = "QUICKSAND_RAY_CLUSTER"
"""The environment variable of each of Ray's processes that holds the id of our cluster. Processes
are recognised and ended by it alone."""

NAME_VARIABLE, ADDRESS_VARIABLE = "QUICKSAND_FLEET_NAME", "QUICKSAND_FLEET_ADDRESS"
"""The variables that tell a raylet's actor the machine's name and address."""

CLUSTER_ID = re.compile(r"[0-9a-f]{12}")
MACHINE_ID = re.compile(r"[0-9a-f]{32}")
ADDRESS = re.compile(r"[0-9A-Za-z.:\[\]-]{1,200}:[0-9]{1,5}")

LOOPBACK = "127.0.0.1"
"""The address on which all of Ray's processes listen: whoever reaches their ports and has the token
can run code."""

HEALTH_PERIOD_S = 2
HEALTH_FAILURES = 5
"""The number of failed looks in a row, one each period, after which Ray takes a machine for lost.
Three looks of one second find it after 2.4 s (measured), but a machine that runs VMs may well be
silent for that long; five take 8 to 12 s if its raylet is gone, and 20 s if it hangs."""

STATIC = {
    "RAY_AUTH_MODE": "token",
    # On a machine with VMs, Ray would kill our actor because of QEMU's memory.
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_DEDUP_LOGS": "0",
}
"""Variables that each of Ray's processes gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """A Ray cluster of ours."""

    id: str
    """12 hex digits."""
    address: str
    """HOST:PORT of its head, on loopback."""
    directory: Path
    """Ray's own directory for this cluster, with its token. Its path is short because of the
    sockets."""
    health_period_s: float = HEALTH_PERIOD_S

    @property
    def token(self) -> Path:
        """The file with the secret of the cluster."""
        return self.directory / "token"

    def environment(self) -> dict[str, str]:
        """Return the variables for all processes and clients of the cluster."""
        period = str(int(self.health_period_s * 1000))
        return {
            **STATIC,
            "RAY_health_check_period_ms": period,
            "RAY_health_check_timeout_ms": period,
            "RAY_health_check_failure_threshold": str(HEALTH_FAILURES),
            "RAY_AUTH_TOKEN_PATH": str(self.token),
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "address": self.address,
            "directory": str(self.directory),
            "health_period_s": self.health_period_s,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ClusterRecord:
        """Parse a record. Raises FleetError."""
        try:
            found = Fields(dict(value), "bad cluster")
            record = cls(
                id=found.text("id"),
                address=found.text("address"),
                directory=Path(found.text("directory")),
                health_period_s=found.real("health_period_s"),
            )
        except ValueError as error:
            raise _damaged(str(error)) from error
        if not CLUSTER_ID.fullmatch(record.id) or not ADDRESS.fullmatch(record.address):
            raise _damaged("its id or its address makes no sense")
        if not record.directory.is_absolute() or record.directory.name != record.id:
            raise _damaged("its directory makes no sense")
        return record


def _damaged(why: str) -> FleetError:
    return FleetError(
        f"the record of the Ray cluster cannot be used: {why}",
        hint=Words(
            Words(Remedy("fleet_down"), python="the commands `fleet down`"),
            " and ",
            Words(Remedy("fleet_up_ray"), python="`fleet up`"),
            " make another one; no sandbox is lost",
        ),
    )


def resource_of(machine_id: str) -> str:
    """Return the resource of Ray that only one machine has. An actor or place that takes a little
    of it runs on that machine and nowhere else. It also comes back with the machine, which is a new
    node for Ray."""
    return f"machine:{machine_id}"


def machine_of(resources: Mapping[str, object]) -> str:
    """Return the machine that has those resources, "" if it is none of ours."""
    for name in resources:
        kind, _, machine_id = name.partition(":")
        if kind == "machine" and MACHINE_ID.fullmatch(machine_id):
            return machine_id
    return ""
