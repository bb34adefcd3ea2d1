"""Whether a sandbox of the registry can be used now."""

from __future__ import annotations

from quicksand.base.errors import StateError
from quicksand.base.remedies import Remedy, Words
from quicksand.records.sandboxes import Entry
from quicksand.things.status import Status


def refuse_unusable(entry: Entry) -> None:
    """Raise StateError for a sandbox that is still starting or stopping, or cannot be reached."""
    if entry.status is Status.STARTING:
        raise StateError(f"the sandbox {entry.name!r} is still starting; try again")
    if entry.status is Status.STOPPING:
        raise StateError(f"the sandbox {entry.name!r} is just stopping; try again")
    if entry.status is Status.UNREACHABLE:
        raise StateError(
            f"the sandbox {entry.name!r} cannot be reached: its sockets are gone",
            hint=Words(Remedy("end", name=entry.name), " ends it, `start` starts it again"),
        )
