"""Names the files that guests have written and that programs of this host run by themselves."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from quicksand.sandbox import Sandbox


def written_in(sandbox: Sandbox, guest: str | None = None) -> Iterator[str]:
    """Yields a line for each file that a running sandbox has written in its mounts, or in the mount
    at ``guest``: once it has stopped, nobody knows any more."""
    for mount in sandbox.active_mounts:
        if guest in (None, mount.guest):
            yield from written_lines(
                sandbox.name, mount.host, ((one.path, one.time) for one in mount.told)
            )


def written_lines(name: str, host: str, told: Iterable[tuple[str, float]]) -> Iterator[str]:
    """Yields a line for each file below the directory ``host``, of its path and its time."""
    for name_below, time in told:
        at = datetime.fromtimestamp(time).strftime("%H:%M:%S")
        path = clean(f"{host.rstrip('/')}/{name_below}")
        yield f"{clean(name)} wrote {path} at {at}: look at it before programs of the host run it"
