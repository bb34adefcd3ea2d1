"""Mounts: what is known of one on any machine, wherever it is shown."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Any

from quicksand.things.fact import Named, shown, shown_of
from quicksand.things.frozen import frozen
from quicksand.things.sandbox_facts import GuestTraffic, TrafficRates
from quicksand.things.status import MountState


@frozen
class MountFacts:
    """The facts of a directory of the host in a guest. Texts are those of the machine itself; the
    app's are sanitised, but for the key."""

    key: str
    """The path in the guest, which is sent back, and never shown as it is."""
    sandbox: str = shown("", head="SANDBOX", json="sandbox")
    """The name of its sandbox; "" in a list of that sandbox's mounts."""
    host: str = shown(MISSING, head="HOST", json="host")
    guest: str = shown(MISSING, head="GUEST", json="guest")
    readonly: bool = shown(False, head="MODE", drawn="mode", json="readonly")
    protect: bool = shown(False, json="protect")
    """Files that programs of the host run by themselves are read-only."""
    type: str = shown("", json="type", plain="type_told")
    """The way of mounting it; "" for the usual way."""
    state: MountState = shown(MountState.MOUNTED, head="STATE", json="state")
    reason: str = shown("", json="reason", empty="")
    """The reason why it could not be mounted, or the last words of its server when that ended; ""
    for neither."""
    received: int | None = shown(None, json="received")
    """Bytes that the guest has received through it, and ``sent``, of files and of the protocol
    around them; None if it is not served, or served by 9p."""
    sent: int | None = shown(None, json="sent")
    told: tuple[str, ...] = shown((), json="told", plain="written")
    """Files that the guest wrote and programs of the host run or obey, as printable paths below
    ``host``, the last first."""
    told_times: tuple[float, ...] = ()
    """The Unix time of the last writing of each of them."""
    traffic: TrafficRates | None = None
    """The app's measurement of the traffic; None until it was looked at twice."""

    @property
    def named(self) -> Named:
        """Its key, which is shown as its path."""
        return Named(self.key, self.guest)

    @property
    def carried(self) -> GuestTraffic | None:
        """The bytes that it has carried; None if nobody counts."""
        if self.received is None or self.sent is None:
            return None
        return GuestTraffic(received=self.received, sent=self.sent)

    @property
    def mode(self) -> str:
        """How the guest can use it, as columns say it."""
        marks = ("ro" if self.readonly else "rw", "protect" if self.protect else "", self.type)
        return " ".join(filter(None, marks))

    @property
    def type_told(self) -> str:
        return self.type or "cifs"

    @property
    def written(self) -> list[dict[str, Any]]:
        return [
            {"path": path, "time": time}
            for path, time in zip(self.told, self.told_times, strict=False)
        ]


MOUNT = shown_of(MountFacts)
"""How the facts of a mount are shown, in their order in `mounts`."""
