"""Mounts that a running sandbox should have but lacks, and the reasons."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence

from quicksand.base.errors import ConfigError
from quicksand.base.files import read_json, write_json
from quicksand.records.layout import SandboxDir
from quicksand.records.mount import Mount, decode_mount, encode_mounts


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
