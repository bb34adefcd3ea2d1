"""A sandbox that already exists in a fleet. Either only its name is known, and the first call finds
its machine, or its machine is known, too."""

from __future__ import annotations

from typing import Any

from quicksand import SandboxConfig
from quicksand.errors import SandboxNotFoundError, StateError
from quicksand.extending import Known, Remedy, Session, Words

from quicksand_fleet.desk import Desk
from quicksand_fleet.life import FleetLife
from quicksand_fleet.placing import AWAY


class PlacedLife(FleetLife):
    """A sandbox on a known machine of a fleet, running or not: its starts and clones get places
    there."""

    def __init__(self, fleet: Desk, host: str, id_or_name: str, config: SandboxConfig) -> None:
        """``config`` says how much memory the sandbox needs. Raises FleetHostNotFoundError."""
        known = Known(id="", name=id_or_name, config=config)
        opening = {"name": id_or_name, "must_run": False, "to_end_it": False}
        super().__init__(fleet, known, opening)
        self.put_on(fleet.host(host))
        self.last_place = host


class FoundLife(FleetLife):
    """A sandbox that runs on one of the machines of a fleet."""

    def __init__(self, fleet: Desk | None, name: str) -> None:
        known = Known(id="", name=name, config=SandboxConfig(image="unknown"))
        super().__init__(fleet, known, {"name": name, "must_run": True, "to_end_it": False})
        self._name = name

    @property
    def where(self) -> str | None:
        """See `FarLife.where`."""
        return self.last_place

    async def call(self, name: str, *args: Any, wanted: Any = None, **keywords: Any) -> Any:
        """See `FarLife.call`."""
        await self._find()
        return await super().call(name, *args, wanted=wanted, **keywords)

    async def session(self) -> Session:
        """See `FarLife.session`."""
        await self._find()
        return await super().session()

    async def _find(self) -> None:
        """Find the sandbox. Raises SandboxNotFoundError; StateError if several have the name."""
        if self.last_place is not None:
            return
        fleet = self._opened()
        await fleet.settle()
        found = [
            host
            for host, sandboxes in (await fleet.sandboxes()).items()
            if any(self._name in (one.name, one.id) for one in sandboxes)
        ]
        if len(found) > 1:
            raise StateError(
                f"{' and '.join(found)} each have a sandbox {self._name!r:.80}",
                hint=f"say which: host=fleet.host({found[0]!r})",
            )
        if not found:
            away = [host.name for host in fleet.hosts() if host.state in AWAY]
            unseen = f"; {', '.join(away)} cannot be asked" if away else ""
            raise SandboxNotFoundError(
                f"no machine of the fleet has a sandbox {self._name!r:.80}{unseen}",
                hint=Words(Remedy("fleet_status"), " shows the machines"),
            )
        self.put_on(fleet.host(found[0]))
        self.last_place = found[0]
