"""`quicksand-tui forward`: ports of this host that lead to a running sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from quicksand.base.paths import paths
from quicksand.records.port_forwards import Protocol, parse_forward
from quicksand.records.registry import Registry

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import Exit, complain, print_json, print_table
from quicksand_tui.cli.runner import Signals, attached, run_async
from quicksand_tui.verbs.call import ignore
from quicksand_tui.verbs.ports import address_of, forward, suffix

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox


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
