"""`quicksand-tui forward`: ports of this host that lead to a running sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from quicksand.base.paths import paths
from quicksand.records.port_forwards import Protocol, parse_forward
from quicksand.records.registry import Registry

from quicksand_tui.cli.commands import command_of
from quicksand_tui.cli.output import Exit, complain, print_json, print_table
from quicksand_tui.cli.runner import Signals, attached, run_async
from quicksand_tui.verbs.ports import address_of, forward, suffix, unforward
from quicksand_tui.verbs.record import ignore

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox


@command_of("forward")
def forward_command(name: str, ports: tuple[str, ...], remove: bool, as_json: bool) -> int:
    """Forward ports of this host to a running sandbox, or list them.

    8080:80 forwards port 8080 of this host (127.0.0.1 and ::1) to port 80 of the guest; what
    listens only on the guest's own 127.0.0.1 is reached, too. 80 alone is the guest's port: a free
    port of this host is chosen, and printed. 5353:53/udp forwards datagrams. Without ports, the
    forwards are listed. The sandbox needs no network. A forward lasts until the sandbox ends or
    --remove, also over reverts, which end its open connections.

    \b
    quicksand-tui forward web 8080:80
    quicksand-tui forward web                  lists them, those of `run --publish` too
    quicksand-tui forward web --remove 8080 5353/udp    by the ports of this host
    """
    if remove and not ports:
        raise click.UsageError("--remove needs the ports of this host")
    wanted = [parse_forward(word) for word in ports]

    async def main(signals: Signals) -> int:
        with attached(name) as sandbox:
            for one in wanted:
                if remove:
                    # A port alone is the host's here; HOST:GUEST is taken, too.
                    await unforward(one.host or one.guest, one.protocol).act(sandbox, ignore)
                    continue
                made = await forward(one.guest, one.host, one.protocol).act(sandbox, ignore)
                if not as_json:
                    click.echo(f"{address_of(made.host)}{suffix(made.protocol)}")
            if as_json or not wanted:
                _list(sandbox, as_json)
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
