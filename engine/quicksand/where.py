"""The place where a sandbox is made or found: here, on another machine, or somewhere in a fleet.
The code for other machines is loaded only when needed, that for fleets if a package has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from quicksand.base.entering import entered
from quicksand.base.errors import ConfigError
from quicksand.life.parts import Parts, make_here

if TYPE_CHECKING:
    from quicksand.hosted.remote_host import RemoteHost

LOCAL = "local"
"""The name of this machine, as a ``host``."""


class Fleet(Protocol):
    """The machines that sandboxes are placed on: a `quicksand.Fleet`."""

    wait_s: float

    def host(self, name: str) -> RemoteHost:
        """Return the way to a machine of that name."""


class Restart(Protocol):
    """How a sandbox is restarted elsewhere: a `quicksand.Restart`."""

    @property
    def every(self) -> float | None: ...
    @property
    def lease(self) -> float: ...


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
        return _of_fleets("make")(fleet, restart, own, options)
    if restart:
        raise ConfigError("restart is for sandboxes of a fleet: pass fleet=, too")
    if is_elsewhere(host):
        from quicksand.hosted.remote_making import make_there  # noqa: PLC0415

        return make_there(host, own, options)
    return make_here(own, options)


def open_parts(host: str | RemoteHost, id_or_name: str, **how: Any) -> Parts:
    """Return the parts of a sandbox on another machine; ``how`` is as in `open_there`."""
    from quicksand.hosted.remote_making import open_there  # noqa: PLC0415

    return open_there(host, id_or_name, **how)


def open_kept(fleet: Fleet | bool, name: str) -> Parts:
    """Return the parts of a sandbox of a fleet, by its name. Raises ConfigError."""
    return _of_fleets("open")(fleet, name)


def _of_fleets(name: str) -> Callable[..., Parts]:
    if (one := entered("quicksand.fleets").get(name)) is None:
        raise ConfigError("no installed package has fleets", hint="install quicksand_fleet")
    found: Callable[..., Parts] = one.load()
    return found


def is_elsewhere(host: str | RemoteHost | None) -> TypeGuard[str | RemoteHost]:
    """Whether a ``host`` is another machine."""
    return host is not None and host != LOCAL
