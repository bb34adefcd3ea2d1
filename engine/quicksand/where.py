"""The place where a sandbox is made or found: here, on another machine, or somewhere in a fleet.
The code for other machines is loaded only when needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from quicksand.base.errors import ConfigError
from quicksand.life.making import make_here
from quicksand.life.parts import Parts

if TYPE_CHECKING:
    from quicksand.fleet.fleet import Fleet
    from quicksand.fleet.keeping.restart import Restart
    from quicksand.hosted.host import RemoteHost

LOCAL = "local"
"""The name of this machine, as a ``host``."""


def make_parts(
    host: str | RemoteHost | None,
    fleet: Fleet | bool | None,
    restart: Restart | bool | None,
    own: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Parts:
    """Return the parts of a sandbox that `start` makes. ``own`` are the keywords of `Sandbox` that
    are not options of the machine. Raises as `Sandbox`."""
    if fleet is not None and fleet is not False:
        if host is not None:
            raise ConfigError("host and fleet exclude each other: a fleet chooses the machine")
        from quicksand.fleet.making import make_in_fleet  # noqa: PLC0415

        return make_in_fleet(fleet, restart, own, options)
    if restart:
        raise ConfigError("restart is for sandboxes of a fleet: pass fleet=, too")
    if is_elsewhere(host):
        from quicksand.hosted.making import make_there  # noqa: PLC0415

        return make_there(host, own, options)
    return make_here(own, options)


def open_parts(host: str | RemoteHost, id_or_name: str, **how: Any) -> Parts:
    """Return the parts of a sandbox on another machine; ``how`` is as in `open_there`."""
    from quicksand.hosted.making import open_there  # noqa: PLC0415

    return open_there(host, id_or_name, **how)


def open_kept(fleet: Fleet | bool, name: str) -> Parts:
    """Return the parts of a sandbox that a fleet keeps, by its name."""
    from quicksand.fleet.making import open_in_fleet  # noqa: PLC0415

    return open_in_fleet(fleet, name)


def is_elsewhere(host: str | RemoteHost | None) -> TypeGuard[str | RemoteHost]:
    """Whether a ``host`` is another machine."""
    return host is not None and host != LOCAL
