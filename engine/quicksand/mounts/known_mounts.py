"""The mounts of a sandbox, present or of its next start, read from small files: for lists, for
which the guest is not asked."""

from __future__ import annotations

from dataclasses import dataclass

from quicksand.base.files import is_locked
from quicksand.mounts import devices
from quicksand.mounts.directories import is_there
from quicksand.mounts.left_out import read_left_out, read_left_out_mounts
from quicksand.mounts.mounter import Mounter
from quicksand.mounts.shares import MountTraffic, Share, last_words, read_shares, traffic_of
from quicksand.mounts.told import Written, read_told
from quicksand.records.layout import MachineDir, sandbox_dir
from quicksand.records.mount import Mount
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Entry
from quicksand.things.status import MountState


@dataclass(frozen=True, slots=True)
class KnownMount:
    """A mount of a sandbox."""

    mount: Mount
    state: MountState
    reason: str = ""
    """The reason why it could not be mounted, or the last words of its server when that ended; ""
    for neither."""
    traffic: MountTraffic | None = None
    """The bytes that it has carried; None if it is not served, or served by 9p."""
    told: tuple[Written, ...] = ()
    """Files written by the guest that programs of the host run or obey, the latest first."""


def known_mounts(registry: Registry, entry: Entry) -> list[KnownMount]:
    """The mounts of a sandbox, running or not, in the order of the guest's paths. Blocks for a few
    small files."""
    config = () if entry.record is None else entry.record.config.mounts
    found = {mount.guest: KnownMount(mount, MountState.AT_START) for mount in config}
    if entry.run is not None:
        machine, place = registry.machine(entry.id), sandbox_dir(registry.paths, entry.id)
        if machine.past_shares.exists():
            # A revert has happened, and the guest will be asked for them next.
            state = MountState.MOUNTING if is_locked(place.history_lock) else MountState.UNFINISHED
            found = {guest: KnownMount(known.mount, state) for guest, known in found.items()}
        mounts = {mount.guest: mount for mount in [*read_left_out_mounts(place), *config]}
        for guest, why in read_left_out(place).items():
            if guest in mounts:
                found[guest] = KnownMount(mounts[guest], MountState.LEFT_OUT, why)
        present: dict[str, KnownMount] = {}
        for share in read_shares(machine):
            known = present.get(share.mount.guest)
            if known is None or known.state is MountState.NOT_SERVED:
                present[share.mount.guest] = _of_share(machine, share)
        found |= present
        for device in devices.read(machine):
            if device.mounted:
                found[device.mount.guest] = KnownMount(device.mount, _state(device.mounter))
    return [found[guest] for guest in sorted(found)]


def _of_share(machine: MachineDir, share: Share) -> KnownMount:
    reason, told = last_words(machine, share.number), read_told(machine, share.number)
    if not share.is_served:
        return KnownMount(share.mount, MountState.NOT_SERVED, reason, None, told)
    state = _state(share.mounter)
    if state is MountState.MOUNTED and share.known is not None and not is_there(share.known):
        state = MountState.MOVED
        reason = (
            f"{share.known.path} was moved, removed or replaced on this host, and the guest still "
            "has the directory that stood there"
        )
    return KnownMount(share.mount, state, reason, traffic_of(machine, share.number), told)


def _state(mounter: Mounter | None) -> MountState:
    """Return the state of a served mount, which ``mounter`` is having the guest mount."""
    if mounter is None:
        return MountState.MOUNTED
    return MountState.MOUNTING if mounter.is_at_it else MountState.UNFINISHED
