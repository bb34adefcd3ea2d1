"""`quicksand-tui mount, unmount, mounts, forward`: directories and ports that this host shares with
guests."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from quicksand.base.errors import ConfigError, MountError
from quicksand.base.paths import paths
from quicksand.mounts.known_mounts import known_mounts, read_left_out
from quicksand.records.layout import sandbox_dir
from quicksand.records.mount import Mount
from quicksand.records.port_forwards import Protocol, parse_forward
from quicksand.records.registry import Registry
from quicksand.things.fact import json_of
from quicksand.things.mount_facts import MOUNT
from quicksand.things.status import MountState

from quicksand_tui.cli.click_commands import ORDER, command_of, is_directory, read_mount
from quicksand_tui.cli.output import Exit, complain, print_json, print_table, print_things, say
from quicksand_tui.cli.progress_display import shown
from quicksand_tui.cli.runner import Signals, attached, run_async
from quicksand_tui.model.specs import MountSpec
from quicksand_tui.model.text import clean, did_you_mean
from quicksand_tui.verbs import mounts
from quicksand_tui.verbs.call import ignore
from quicksand_tui.verbs.ports import address_of, forward, suffix
from quicksand_tui.verbs.written import written_in, written_lines

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox


EXPLAINED = (MountState.NOT_SERVED, MountState.LEFT_OUT, MountState.MOVED)
"""States whose reason is printed."""


@command_of("mount")
def mount_command(name: str, mount: str) -> int:
    wanted = read_mount(mount)
    spec = MountSpec(
        host=wanted.host,
        guest=wanted.guest,
        readonly=wanted.readonly,
        protect=wanted.protect,
        type=wanted.type,
    )
    call = mounts.mount(spec)

    async def main(signals: Signals) -> int:
        with attached(name) as sandbox, _explained(wanted):
            async with shown(f"{name}: {call.stage}"):
                await call.act(sandbox, ignore)
        return Exit.OK

    return run_async(main)


@contextmanager
def _explained(mount: Mount) -> Iterator[None]:
    """Adds to the error of a missing directory that the two paths may be in the wrong order."""
    try:
        yield
    except MountError as error:
        if not Path(mount.host).exists() and is_directory(mount.guest):
            turned = replace(mount, host=mount.guest, guest=mount.host)
            hint = f"{ORDER}: {turned}"
            raise MountError(error.words, hint=hint) from error
        raise


@command_of("unmount")
def unmount_command(name: str, guest: str, force: bool) -> int:
    async def main(signals: Signals) -> int:
        with attached(name) as sandbox:
            left_out = read_left_out(sandbox_dir(paths(), sandbox.id))
            there = [*(handle.guest for handle in sandbox.active_mounts), *left_out]
            where = _find(guest, there, name=sandbox.name)
            for line in written_in(sandbox, where):
                say(line)
            call = mounts.unmount(where, force=force)
            async with shown(f"{name}: {call.stage}"):
                try:
                    await call.act(sandbox, ignore)
                except MountError as error:
                    raise MountError(error.words, hint=_way_out(sandbox.name, where)) from error
        return Exit.OK

    return run_async(main)


def _way_out(name: str, guest: str) -> str:
    forced = f"`quicksand-tui unmount --force {name} {shlex.quote(guest)}`"
    return f"end the programs that use it; {forced} does not wait for them"


def _find(guest: str, there: list[str], *, name: str) -> str:
    """Returns the path of the mount at ``guest``. Raises ConfigError if there is none."""
    wanted = guest if guest == "/" else guest.rstrip("/")
    if wanted in there:
        return wanted
    if not there:
        raise ConfigError(f"nothing is mounted in {name!r}")
    near = did_you_mean(wanted, there, cutoff=0.65)
    raise ConfigError(
        f"nothing is mounted at {guest!r} in {name!r}{near}",
        hint=f"mounted are: {', '.join(sorted(there))}",
    )


@command_of("mounts")
def mounts_command(names: tuple[str, ...], as_json: bool) -> None:
    """List the directories of this host that are in sandboxes.

    Without names, all running sandboxes are listed. Mounts for a sandbox's next start are listed,
    too. One that is `not served` gives errors in the guest until it is unmounted. One that is `not
    mounted` could not be mounted when the sandbox started or was reverted. Of one that is `moved
    away` the directory is not at its path here any more. Below, files are named
    that a sandbox wrote and that programs of the host run unasked.
    """
    registry = Registry(paths())
    if names:
        entries = [registry.find(name) for name in dict.fromkeys(names)]
    else:
        entries = [entry for entry in registry.list() if entry.is_live]
    found = [known for entry in entries for known in known_mounts(registry, entry)]
    if as_json:
        print_json([json_of(known, MOUNT) for known in found])
        return
    print_things(found, MOUNT)
    for known in found:
        if known.state in EXPLAINED and known.reason:
            what = f"{clean(known.sandbox)}: {clean(known.guest)} is {known.state.value}"
            say(f"{what}: {clean(known.reason)}")
    for known in found:
        told = zip(known.told, known.told_times, strict=True)
        for line in written_lines(known.sandbox, known.host, told):
            say(line)
    if not found:
        say("none: `quicksand-tui mount NAME HOST:GUEST` mounts a directory")


@command_of("forward")
def forward_command(name: str, ports: tuple[str, ...], remove: bool, as_json: bool) -> int:
    if remove and not ports:
        raise click.UsageError("--remove needs the ports of this host")
    for word in ports:
        parse_forward(word)  # raises ConfigError before anything is done

    async def main(signals: Signals) -> int:
        with attached(name) as sandbox:
            made = await forward(ports, remove=remove).act(sandbox, ignore)
            if as_json or not ports:
                _list(sandbox, as_json)
            else:
                for one in made:
                    click.echo(f"{address_of(one.host)}{suffix(one.protocol)}")
        return Exit.OK

    return run_async(main)


def _list(sandbox: Sandbox, as_json: bool) -> None:
    entry = Registry(paths()).inspect(sandbox.id)
    if entry is None:
        found = []
    else:
        found = [(*pair, Protocol.TCP) for pair in entry.ports]
        found += [(*pair, Protocol.UDP) for pair in entry.udp_ports]
        if entry.error:
            complain(entry.error)
    if as_json:
        print_json(
            [{"host": host, "guest": guest, "protocol": spoken} for host, guest, spoken in found]
        )
    else:
        rows = [
            (f"{address_of(host)}{suffix(spoken)}", f"{guest}{suffix(spoken)}")
            for host, guest, spoken in found
        ]
        print_table(("HOST", "GUEST"), rows)
