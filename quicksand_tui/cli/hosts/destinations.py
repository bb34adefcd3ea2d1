"""Other machines, as commands name them."""

from __future__ import annotations

from quicksand.base.errors import ConfigError
from quicksand.remote.destination import (
    NODE_SCHEME,
    SCHEME,
    Destination,
    NodeDestination,
    find_node,
    parse_address,
)

from quicksand_tui.cli.host_choice import OPTION, VARIABLE
from quicksand_tui.home.host_file import HostsError, read_hosts
from quicksand_tui.home.state import config_file
from quicksand_tui.model.text import did_you_mean


def find_destination(host: str) -> Destination | NodeDestination:
    """Returns the machine of that name or address. Raises ConfigError."""
    if host.startswith((SCHEME, NODE_SCHEME)):
        return parse_address(host)
    if "@" in host or ":" in host:  # the app's word for a machine that has no name
        return Destination.parse(host, bare=True)
    known = named_hosts()
    if host not in known and (node := find_node(host)) is not None:
        return node
    if host not in known:
        near = did_you_mean(host, list(known), cutoff=0.5)
        raise ConfigError(
            f"there is no host {host!r:.100}{near} ({OPTION} or {VARIABLE})",
            hint="`quicksand-tui hosts add NAME ssh://USER@HOST` adds one",
        )
    return Destination.parse(known[host])


def named_hosts() -> dict[str, str]:
    """Returns the addresses of the config by their names. Raises ConfigError."""
    try:
        return read_hosts(config_file())
    except HostsError as error:
        raise ConfigError(str(error), hint=error.hint) from error


def has_name(host: str) -> bool:
    """Returns whether a machine has that name, by the config or in the fleet."""
    return host in named_hosts() or find_node(host) is not None
