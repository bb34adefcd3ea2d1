"""The mounts of a sandbox, present or of its next start, read from small files: for lists, which
ask nothing of the guest."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from quicksand.mounts import devices
from quicksand.mounts.left_out import read_left_out
from quicksand.mounts.mounter import Mounter
from quicksand.mounts.shares import MountTraffic, last_words, read_shares, traffic_of
from quicksand.mounts.told import Written, read_told
from quicksand.records.layout import sandbox_dir
from quicksand.records.mount import Mount
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Entry


class MountState(StrEnum):
    MOUNTED = "mounted"
    MOUNTING = "mounting"
    """The guest is being asked to mount it; it is not there yet."""
    UNFINISHED = "unfinished"
    """The process that asked the guest to mount it has ended; only the guest knows whether it did.
    """
    NOT_SERVED = "not served"
    """Its server has ended; the guest sees errors there."""
    AT_START = "at its start"
    """It is mounted when the sandbox starts the next time."""
    LEFT_OUT = "not mounted"
    """It should be, and could not be mounted; `KnownMount.reason` says why."""


REPLACED = (MountState.AT_START, MountState.NOT_SERVED, MountState.LEFT_OUT)
"""States about which a present server says more."""


@dataclass(frozen=True, slots=True)
class KnownMount:
    """A mount of a sandbox."""

    mount: Mount
    state: MountState
    reason: str = ""
    """Why it could not be mounted, or what its server last said when it ended; "" if it could, and
    never has."""
    traffic: MountTraffic | None = None
    """The bytes that it has carried; None for one that is not served, or by 9p."""
    told: tuple[Written, ...] = ()
    """Files that the guest wrote and that programs of the host run or obey, the last first."""


def known_mounts(registry: Registry, entry: Entry) -> list[KnownMount]:
    """The mounts of a sandbox, running or not, in the order of the guest's paths. Blocks for a few
    small files."""
    config = () if entry.record is None else entry.record.config.mounts
    found = {mount.guest: KnownMount(mount, MountState.AT_START) for mount in config}
    if entry.run is not None:
        machine = registry.machine(entry.id)
        for guest, why in read_left_out(sandbox_dir(registry.paths, entry.id)).items():
            if guest in found:
                found[guest] = KnownMount(found[guest].mount, MountState.LEFT_OUT, why)
        for share in read_shares(machine):
            state = _state(share.mounter) if share.is_served else MountState.NOT_SERVED
            known = found.get(share.mount.guest)
            if known is None or known.state in REPLACED:
                reason = last_words(machine, share.number)
                traffic = traffic_of(machine, share.number) if share.is_served else None
                told = read_told(machine, share.number)
                found[share.mount.guest] = KnownMount(share.mount, state, reason, traffic, told)
        for device in devices.read(machine):
            if device.mounted:
                found[device.mount.guest] = KnownMount(device.mount, _state(device.mounter))
    return [found[guest] for guest in sorted(found)]


def _state(mounter: Mounter | None) -> MountState:
    """The state of a mount that is served, which ``mounter`` is having the guest mount."""
    if mounter is None:
        return MountState.MOUNTED
    return MountState.MOUNTING if mounter.is_at_it else MountState.UNFINISHED
