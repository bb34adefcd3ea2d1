"""Other machines, as commands name them, and `quicksand-tui hosts`, which keeps their names."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import click
from quicksand.base.errors import ConfigError, QuicksandError
from quicksand.remote.destination import (
    NODE_SCHEME,
    SCHEME,
    Destination,
    NodeDestination,
    find_node,
    parse_address,
)

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.host_choice import OPTION, VARIABLE
from quicksand_tui.cli.output import Exit, complain, print_json, print_table, say
from quicksand_tui.cli.runner import Signals, run_async
from quicksand_tui.home.host_file import HostsError, add_host, read_hosts, remove_host
from quicksand_tui.home.host_table import problem_of
from quicksand_tui.home.state import config_file
from quicksand_tui.model.remedy_words import hint_of, text_of
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


@command_of("hosts")
@click.pass_context
def hosts_command(ctx: click.Context, as_json: bool) -> None:
    """List, add, remove and check other machines.

    A machine needs an ssh server and quicksand-tui, and nothing else. `quicksand-tui --host NAME
    COMMAND` carries COMMAND out there, and QUICKSAND_HOST=NAME does that for all commands. An
    address, ssh://USER@HOST:PORT, will do in place of a name. The names are kept in the config, in
    the table [hosts].
    """
    if ctx.invoked_subcommand is None:
        _list(as_json=as_json)


@command_of("hosts list")
def list_hosts(as_json: bool) -> None:
    """List the machines."""
    _list(as_json=as_json)


def _list(*, as_json: bool) -> None:
    found = named_hosts()
    if as_json:
        print_json([{"name": name, "address": address} for name, address in found.items()])
        return
    print_table(("NAME", "ADDRESS"), list(found.items()))
    if not found:
        say("there are none; `quicksand-tui hosts add NAME ssh://USER@HOST` adds one")


@command_of("hosts add")
def add(name: str, address: str) -> int:
    """Add a machine. It is not tried whether it can be reached: `hosts check` does that."""
    if what := problem_of(name, address):
        raise click.UsageError(f"{name!r}, {address!r}: {what}")
    Destination.parse(address)
    if name in named_hosts():
        complain(f"there is a host {name!r} already", hint=f"`quicksand-tui hosts rm {name}` first")
        return Exit.FAILURE
    return _change(lambda: add_host(config_file(), name, address))


@command_of("hosts rm")
def remove(name: str) -> int:
    """Remove a machine from the list. Nothing changes on the machine itself."""
    if name not in named_hosts():
        complain(f"there is no host {name!r}")
        return Exit.FAILURE
    return _change(lambda: remove_host(config_file(), name))


def _change(change: Callable[[], None]) -> int:
    try:
        change()
    except HostsError as error:
        complain(error, hint=error.hint)
        return Exit.FAILURE
    return Exit.OK


@command_of("hosts check")
def check(names: tuple[str, ...], as_json: bool) -> int:
    """Connect to machines, and show what answers there.

    Without names, all machines of the list are tried. Exits with 1 if one cannot be reached, or has
    no quicksand-tui that understands ours.
    """
    return run_async(
        lambda signals: _check(names or tuple(named_hosts()), signals, as_json=as_json)
    )


async def _check(names: tuple[str, ...], signals: Signals, *, as_json: bool) -> int:
    # One after the other: each may ask for a passphrase.
    found = [await _look(name) for name in names]
    if as_json:
        print_json(found)
    else:
        heads = ("NAME", "ADDRESS", "VERSION", "CONNECT", "ROUND TRIP")
        if rows := [_row(one) for one in found if one["error"] is None]:
            print_table(heads, rows)
        for one in found:
            if one["error"] is not None:
                complain(one["error"], about=one["name"], hint=one["hint"] or "")
    return Exit.FAILURE if any(one["error"] is not None for one in found) else Exit.OK


def _row(facts: dict[str, Any]) -> tuple[object, ...]:
    return (
        facts["name"],
        facts["address"],
        facts["version"],
        f"{facts['connect_s']:.2f} s",
        f"{facts['round_trip_s'] * 1000:.1f} ms",
    )


async def _look(name: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": name, "address": None, "error": None, "hint": None}
    try:
        destination = find_destination(name)
        facts["address"] = str(destination)
        from quicksand.remote.connection import Connection  # noqa: PLC0415

        began = time.monotonic()
        async with Connection(destination, asks=os.isatty(0)) as connection:
            connected = time.monotonic()
            await connection.link.request("ping")
            welcome = connection.welcome
            assert welcome is not None
            facts |= {
                "version": welcome.version,
                "protocol": welcome.protocol,
                "capabilities": sorted(welcome.capabilities),
                "connect_s": connected - began,
                "round_trip_s": time.monotonic() - connected,
            }
    except QuicksandError as error:
        facts |= {"error": text_of(error), "hint": hint_of(error) or None}
    return facts
