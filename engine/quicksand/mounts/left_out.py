"""Mounts that a running sandbox should have and has not, and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from quicksand.base.files import read_json, write_json
from quicksand.records.layout import SandboxDir


def note_left_out(place: SandboxDir, left_out: Mapping[str, str]) -> None:
    """Write down why mounts could not be made, by the guest's path; none takes what was written
    away. Blocks for I/O. Raises HostError."""
    if left_out:
        write_json(place.left_out, {"left_out": dict(left_out)}, durable=False)
    else:
        place.left_out.unlink(missing_ok=True)


def forget_left_out(place: SandboxDir, mounted: Collection[str]) -> None:
    """Something is mounted at these paths of the guest: why it could not be is true no more, also
    once that is unmounted again. Blocks for I/O. Raises HostError."""
    known = read_left_out(place)
    left = {guest: why for guest, why in known.items() if guest not in mounted}
    if left != known:
        note_left_out(place, left)


def read_left_out(place: SandboxDir) -> dict[str, str]:
    """The mounts that failed at the last start or a revert since, and that nobody has mounted
    since. Blocks for I/O."""
    try:
        values = dict(read_json(place.left_out)["left_out"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {str(guest): str(why) for guest, why in values.items()}
