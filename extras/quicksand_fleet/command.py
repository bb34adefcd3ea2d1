"""`quicksand-tui fleet`: brings up, shows, drains and ends a fleet of machines."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any

import click
from quicksand.errors import ConfigError, FleetError
from quicksand.extending import paths, read_addresses

from quicksand_fleet.fleet import Fleet
from quicksand_fleet.interface import HostState
from quicksand_fleet.nodes import end_fleet, make_nodes, sandboxes_of, saves_of, take_config
from quicksand_fleet.over_ray.cluster import require_ray
from quicksand_fleet.over_ray.lifecycle import end_ray, start_ray
from quicksand_fleet.record import FleetRecord, read_fleet
from quicksand_fleet.waiting_list import WaitingList
from quicksand_tui.plugins import (
    Exit,
    beginning,
    command_of,
    complain,
    print_json,
    print_table,
    run_async,
    sanitise,
    say,
    show_age,
    show_size,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem

    from quicksand_fleet.interface import FleetHost
    from quicksand_fleet.keeping.kept import KeptSandbox
    from quicksand_tui.plugins import Signals

NAMES_MAX = 10
"""The most sandboxes that a question names."""
AWAY = (HostState.UNREACHABLE, HostState.UNFIT)


@command_of("fleet")
@click.pass_context
def fleet_command(ctx: click.Context, as_json: bool) -> int:
    """Bring up, show, drain and end a fleet: many machines as one.

    A fleet is made of the machines that `quicksand-tui hosts` lists, or of nodes on this machine.
    `Sandbox(fleet=True)` places a sandbox on one of them, `Fleet.map()` runs many commands over
    all of them. Without a part of its own this is `fleet status`.
    """
    if ctx.invoked_subcommand is None:
        return run_async(lambda _: _show(as_json=as_json))
    return Exit.OK


@command_of("fleet up")
def up(local: int | None, ray: bool) -> int:
    """Bring up a fleet of machines, or of nodes on this one.

    It has the machines of the config or, with --local, nodes on this machine. A node is a data
    directory of its own. All nodes share this machine's images, which they only read, and have
    equal parts of the memory that is available now, less a reserve. `fleet down` ends them.

    With --ray, Ray keeps the places on these nodes: programs that start many sandboxes at once
    share its books. It needs `pip install 'quicksand-tui[fleet]'`. `fleet up --ray` by itself
    starts Ray anew for the nodes that there are; their sandboxes run on meanwhile.
    """
    if local is not None:
        if ray:
            require_ray()
        record = make_nodes(paths(), local)
        share = show_size(record.nodes[0].memory_bytes)
        say(f"{len(record.nodes)} nodes with {share} of memory each")
    elif not ray:
        take_config(paths())
    if ray:
        _start_ray(is_new=local is not None)
    return run_async(lambda _: _show(as_json=False))


def _start_ray(*, is_new: bool) -> None:
    """Starts Ray for the local nodes. Nodes that were just made are ended if it fails."""
    say("starting Ray")
    try:
        start_ray(paths())
    except BaseException:
        if is_new:
            asyncio.run(end_fleet(paths(), told=lambda _: None))
        raise


@command_of("fleet status")
def status(as_json: bool) -> int:
    """Show the machines of the fleet, and what it restarts elsewhere.

    Exits with 1 if a machine cannot be used."""
    return run_async(lambda _: _show(as_json=as_json))


async def _show(*, as_json: bool) -> int:
    async with Fleet.open() as fleet:
        await fleet.settle()
        hosts = fleet.hosts()
        kept = await fleet.kept()
    waiting = await asyncio.to_thread(WaitingList(paths()).count)
    if as_json:
        print_json([_facts(host, kept) for host in hosts])
        for one in kept:
            if not any(_belongs(one, host) for host in hosts):
                complain("a sandbox that is kept is on none of these machines", about=one.name)
    else:
        heads = ("NAME", "STATE", "SANDBOXES", "MEMORY", "FREE", "CPUS", "IMAGES")
        print_table(heads, [_row(host) for host in hosts])
        if waiting:
            say(f"{waiting} {'sandbox waits' if waiting == 1 else 'sandboxes wait'} for a place")
        if kept:
            print_table(("KEPT", "ON", "EPOCH", "SAVED", "SAVE ON"), [*map(_kept_row, kept)])
        for one in kept:
            _say_more(one)
        for host in hosts:
            if host.why and host.state in AWAY:
                complain(host.why, about=host.name)
    return Exit.FAILURE if any(host.state in AWAY for host in hosts) else Exit.OK


def _kept_row(one: KeptSandbox) -> tuple[object, ...]:
    saved = "" if one.saved_at is None else f"{show_age(one.saved_at)} ago"
    where = f"starting {one.host}".strip() if one.is_starting else one.host
    return (one.name, where, one.epoch, saved, " ".join(one.saved_on))


def _say_more(one: KeptSandbox) -> None:
    """Tells the facts of a kept sandbox that its row does not show."""
    if one.restarted:
        say(f"{one.name}: restarted {sanitise(one.restarted)}")
    if one.older_on:
        hosts = ", ".join(one.older_on)
        say(f"{one.name}: {hosts} has an earlier epoch, and will be told when it is back")
    if one.trouble:
        complain(sanitise(one.trouble), about=one.name)
    if not one.is_coordinated:
        complain("no coordinator renews its lease", about=one.name)


def _row(host: FleetHost) -> tuple[object, ...]:
    is_away = host.state in AWAY and host.since is not None
    if host.state in AWAY and host.since is None:
        return (host.name, "no answer yet", "", "", "", "", "")
    state = f"{host.state.value} since {show_age(host.since or 0)}" if is_away else host.state.value
    if not host.memory_bytes:
        return (host.name, state, "", "", "", "", "")
    return (
        host.name,
        state,
        host.sandboxes,
        show_size(host.memory_bytes),
        show_size(host.free_bytes),
        host.cpus,
        len(host.images),
    )


def _belongs(one: KeptSandbox, host: FleetHost) -> bool:
    """Whether a kept sandbox is listed with a machine: the one that it is on, or else was on."""
    return host.name == one.host if one.host else host.name in one.older_on[-1:]


def _facts(host: FleetHost, kept: Sequence[KeptSandbox]) -> dict[str, Any]:
    return {
        "name": host.name,
        "address": host.address,
        "machine_id": host.machine_id,
        "state": host.state.value,
        "since": host.since,
        "why": host.why,
        "cpus": host.cpus,
        "memory": host.memory_bytes,
        "free": host.free_bytes,
        "reserved": host.reserved_bytes,
        "sandboxes": host.sandboxes,
        "images": list(host.images),
        "kept": [_kept_facts(one) for one in kept if _belongs(one, host)],
    }


def _kept_facts(one: KeptSandbox) -> dict[str, Any]:
    return {
        "name": one.name,
        "id": one.id or None,
        "host": one.host or None,
        "epoch": one.epoch,
        "starting": one.is_starting,
        "saved": one.saved_at,
        "saved_on": list(one.saved_on),
        "restarted": one.restarted or None,
        "older_on": list(one.older_on),
        "trouble": one.trouble or None,
        "coordinated": one.is_coordinated,
    }


@command_of("fleet drain")
def drain(name: str, off: bool) -> int:
    """Place no new sandboxes on a machine; those that run there run on.

    It lasts until --off, and holds for all programs of yours.
    """

    async def change(_: Signals) -> int:
        async with Fleet.open() as fleet:
            await fleet.drain(name, on=not off)
        say(f"{name} takes new sandboxes again" if off else f"{name} takes no new sandboxes")
        return Exit.OK

    return run_async(change)


@command_of("fleet down")
def down(yes: bool) -> int:
    """End the fleet. Sandboxes of nodes on this machine are ended and removed, with their disks,
    and the saves of these nodes.

    Sandboxes on other machines run on, and stay in their lists. It asks first if any are removed.
    """
    record = read_fleet(paths())
    doomed = [] if record is None else _names_of(record)
    if doomed and not yes and not _agreed(doomed):
        return Exit.FAILURE

    async def end(_: Signals) -> int:
        await asyncio.to_thread(end_ray, paths())
        await end_fleet(paths(), told=lambda name: say(f"ending {sanitise(name)}"))
        say("the fleet is down")
        return Exit.OK

    return run_async(end)


def _names_of(record: FleetRecord) -> list[str]:
    return [
        name
        for node in record.nodes
        for name in (
            *(f"{entry.name}@{node.name}" for entry in sandboxes_of(paths(), node)),
            *(f"the save {save}@{node.name}" for save in saves_of(paths(), node)),
        )
    ]


def _agreed(names: Sequence[str]) -> bool:
    shown = ", ".join(map(sanitise, names[:NAMES_MAX]))
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    say(f"this ends and removes {shown}{more}, with all that is on them")
    if sys.stdin.isatty() and sys.stderr.isatty():
        return click.confirm("End the fleet?", default=False, err=True)
    complain("nobody can be asked, so nothing was ended", hint="say --yes")
    return False


def complete_hosts(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of machines of the fleet; to undrain, only of those that are drained."""
    record = FleetRecord()
    with contextlib.suppress(FleetError):
        record = read_fleet(paths()) or record
    found = {node.name: "a local node" for node in record.nodes}
    if not found:  # a fleet with nodes has no others
        with contextlib.suppress(ConfigError):
            found = read_addresses()
    found = {name: "drained" if name in record.drained else about for name, about in found.items()}
    if ctx.params.get("off"):
        found = {name: about for name, about in found.items() if name in record.drained}
    else:
        found = {name: about for name, about in found.items() if name not in record.drained}
    return beginning(incomplete, sorted(found.items()))
