"""Names the files that guests have written and that programs of this host run by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand.mounts.known_mounts import Written
    from quicksand.sandbox import Sandbox


def written_in(sandbox: Sandbox, guest: str | None = None) -> Iterator[str]:
    """Yields a line for each file that a running sandbox has written in its mounts, or in the mount
    at ``guest``: once it has stopped, nobody knows any more."""
    for mount in sandbox.active_mounts:
        if guest in (None, mount.guest):
            yield from written_lines(sandbox.name, mount.host, mount.told)


def written_lines(name: str, host: str, told: Iterable[Written]) -> Iterator[str]:
    """Yields a line for each file below the directory ``host``."""
    for written in told:
        at = datetime.fromtimestamp(written.time).strftime("%H:%M:%S")
        path = clean(f"{host.rstrip('/')}/{written.path}")
        yield f"{clean(name)} wrote {path} at {at}: look at it before programs of the host run it"
