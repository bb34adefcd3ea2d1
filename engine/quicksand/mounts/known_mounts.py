"""The mounts of a sandbox, present or of its next start, read from small files: for lists, for
which the guest is not asked. With those that it should have but lacks, and why; and with the
files that the guest wrote there and programs of the host run or obey, such as git's hooks, as
the mount's server reports them (quicksand_smb/trigger_report.py)."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from quicksand.base.error_text import printable
from quicksand.base.errors import ConfigError
from quicksand.base.files import is_locked, read_json, write_json
from quicksand.base.regular import open_file
from quicksand.mounts import devices
from quicksand.mounts.directories import is_there
from quicksand.mounts.mounter import Mounter
from quicksand.mounts.shares import Share, last_words, read_shares, traffic_of
from quicksand.records.layout import MachineDir, SandboxDir, sandbox_dir
from quicksand.records.mount import CIFS, Mount, decode_mount, encode_mounts
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Entry
from quicksand.things.mount_facts import MountFacts
from quicksand.things.sandbox_facts import GuestTraffic
from quicksand.things.status import MountState


def note_left_out(
    place: SandboxDir, left_out: Mapping[str, str], mounts: Sequence[Mount] = ()
) -> None:
    """Record why mounts could not be made, by the guest's path; an empty mapping removes the
    record. Those of ``mounts`` that are among them are kept: nothing else describes them, if the
    sandbox was not made with them. Blocks for I/O. Raises HostError."""
    if left_out:
        kept = encode_mounts([mount for mount in mounts if mount.guest in left_out])
        write_json(place.left_out, {"left_out": dict(left_out), "mounts": kept}, durable=False)
    else:
        place.left_out.unlink(missing_ok=True)


def forget_left_out(place: SandboxDir, guests: Collection[str]) -> None:
    """Forget the errors at these paths of the guest, where something is mounted or nothing is
    wanted: they no longer hold, even after a later unmount. Blocks for I/O. Raises HostError."""
    known = read_left_out(place)
    left = {guest: why for guest, why in known.items() if guest not in guests}
    if left != known:
        note_left_out(place, left, read_left_out_mounts(place))


def read_left_out(place: SandboxDir) -> dict[str, str]:
    """Return the mounts that failed at the last start or a later revert, and that have not been
    mounted since. Blocks for I/O."""
    try:
        values = dict(read_json(place.left_out)["left_out"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {str(guest): str(why) for guest, why in values.items()}


def read_left_out_mounts(place: SandboxDir) -> list[Mount]:
    """Return those of them that existed before a revert. Blocks for I/O."""
    found: list[Mount] = []
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, ConfigError):
        found.extend(decode_mount(value) for value in read_json(place.left_out)["mounts"])
    return found


ENTRIES = 31
ENTRY = 512
_SIZE = ENTRY * (1 + ENTRIES)
_NUMBER = struct.Struct("=Q")
_HEAD = struct.Struct("=QH")
_TRIES = 8
"""The most attempts to read a file that is being changed; a change takes microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A file that the guest wrote, or renamed to that name."""

    path: str
    """The printable path below the mounted directory; the end of a very long one."""
    time: float
    """The time of its last writing, in seconds since 1970."""


def read_told(machine: MachineDir, number: int) -> tuple[Written, ...]:
    """Return the files of a stream's mount, the last written first; the last 31 different ones.
    Empty if there is no report. Blocks for I/O."""
    for _ in range(_TRIES):
        try:
            with open_file(machine.share_told(number)) as file:
                content = os.pread(file.fileno(), _SIZE, 0)
                again = os.pread(file.fileno(), _NUMBER.size, 0)
        except OSError:
            return ()
        if len(content) != _SIZE:
            return ()
        before = _NUMBER.unpack_from(content)[0]
        if before % 2 == 0 and before == _NUMBER.unpack(again)[0]:
            return _parse(content)
    return ()


def _parse(content: bytes) -> tuple[Written, ...]:
    found = []
    for start in range(ENTRY, _SIZE, ENTRY):
        seconds, length = _HEAD.unpack_from(content, start)
        if seconds and length <= ENTRY - _HEAD.size:
            path = content[start + _HEAD.size : start + _HEAD.size + length]
            found.append(Written(path=printable(os.fsdecode(path)), time=float(seconds)))
    return tuple(sorted(found, key=lambda written: -written.time))


def known_mounts(registry: Registry, entry: Entry) -> list[MountFacts]:
    """The mounts of a sandbox, running or not, in the order of the guest's paths. Blocks for a few
    small files."""
    config = () if entry.record is None else entry.record.config.mounts
    state, name = MountState.AT_START, entry.name
    found = {mount.guest: _told(name, mount, state) for mount in config}
    if entry.run is not None:
        machine, place = registry.machine(entry.id), sandbox_dir(registry.paths, entry.id)
        if machine.past_shares.exists():
            # A revert has happened, and the guest will be asked for them next.
            state = MountState.MOUNTING if is_locked(place.history_lock) else MountState.UNFINISHED
            found = {mount.guest: _told(name, mount, state) for mount in config}
        mounts = {mount.guest: mount for mount in [*read_left_out_mounts(place), *config]}
        for guest, why in read_left_out(place).items():
            if guest in mounts:
                found[guest] = _told(name, mounts[guest], MountState.LEFT_OUT, why)
        present: dict[str, MountFacts] = {}
        for share in read_shares(machine):
            known = present.get(share.mount.guest)
            if known is None or known.state is MountState.NOT_SERVED:
                present[share.mount.guest] = _of_share(name, machine, share)
        found |= present
        for device in devices.read(machine):
            if device.mounted:
                found[device.mount.guest] = _told(name, device.mount, _state(device.mounter))
    return [found[guest] for guest in sorted(found)]


def _of_share(name: str, machine: MachineDir, share: Share) -> MountFacts:
    reason, written = last_words(machine, share.number), read_told(machine, share.number)
    state = _state(share.mounter) if share.is_served else MountState.NOT_SERVED
    if state is MountState.MOUNTED and share.known is not None and not is_there(share.known):
        state = MountState.MOVED
        reason = (
            f"{share.known.path} was moved, removed or replaced on this host, and the guest still "
            "has the directory that stood there"
        )
    traffic = traffic_of(machine, share.number) if share.is_served else None
    return _told(name, share.mount, state, reason, traffic, written)


def _told(
    name: str,
    mount: Mount,
    state: MountState,
    reason: str = "",
    traffic: GuestTraffic | None = None,
    written: Sequence[Written] = (),
) -> MountFacts:
    return MountFacts(
        key=mount.guest,
        sandbox=name,
        host=mount.host,
        guest=mount.guest,
        readonly=mount.readonly,
        protect=mount.protect,
        type="" if mount.type == CIFS else mount.type,
        state=state,
        reason=reason,
        received=None if traffic is None else traffic.received,
        sent=None if traffic is None else traffic.sent,
        told=tuple(one.path for one in written),
        told_times=tuple(one.time for one in written),
    )


def _state(mounter: Mounter | None) -> MountState:
    """Return the state of a served mount, which ``mounter`` is having the guest mount."""
    if mounter is None:
        return MountState.MOUNTED
    return MountState.MOUNTING if mounter.is_at_it else MountState.UNFINISHED
