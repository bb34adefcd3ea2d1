"""Completes names of other machines: those of the config, and those of the fleet."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import click
from click.shell_completion import CompletionItem
from quicksand.base.errors import FleetError
from quicksand.base.paths import paths
from quicksand.records.fleet_record import FleetRecord, read_fleet

from quicksand_tui.cli.completing.words import beginning
from quicksand_tui.home.host_file import HostsError, read_hosts
from quicksand_tui.home.state import config_file


def complete_hosts(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of machines of the config."""
    return beginning(incomplete, sorted(_of_config().items()))


def complete_fleet_hosts(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of machines of the fleet; to undrain, only of those that are drained."""
    record = FleetRecord()
    with contextlib.suppress(FleetError):
        record = read_fleet(paths()) or record
    # A fleet with nodes has no others.
    found = {node.name: "a local node" for node in record.nodes} or _of_config()
    found = {name: "drained" if name in record.drained else about for name, about in found.items()}
    if ctx.params.get("off"):
        found = {name: about for name, about in found.items() if name in record.drained}
    else:
        found = {name: about for name, about in found.items() if name not in record.drained}
    return beginning(incomplete, sorted(found.items()))


def _of_config() -> Mapping[str, str]:
    with contextlib.suppress(HostsError, OSError):
        return read_hosts(config_file())
    return {}
