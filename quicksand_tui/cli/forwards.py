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

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox


@command_of("forward")
def forward_command(name: str, ports: tuple[str, ...], remove: bool, as_json: bool) -> int:
    """Forward ports of this host to a running sandbox, or list them.

    8080:80 leads from port 8080 of this host's loopback, 127.0.0.1 and ::1, to what listens at port
    80 in the guest, on its own 127.0.0.1 too. A port alone is the guest's, and gets any port here
    that is free. 5353:53/udp forwards datagrams. It needs no network in the sandbox. A revert ends
    open connections, and not the forward; the end of the sandbox ends both.

    \b
    quicksand-tui forward web 8080:80
    quicksand-tui forward web                  lists them, those of `run --publish` too
    quicksand-tui forward web --remove 8080 5353/udp
    """
    if remove and not ports:
        raise click.UsageError("--remove needs the ports of this host")
    wanted = [parse_forward(word) for word in ports]

    async def main(signals: Signals) -> int:
        with attached(name) as sandbox:
            for one in wanted:
                if remove:
                    # A port alone is the host's here; HOST:GUEST is taken, too.
                    await sandbox.unforward(one.host or one.guest, protocol=one.protocol)
                    continue
                made = await sandbox.forward(one.guest, one.host, protocol=one.protocol)
                if not as_json:
                    click.echo(f"127.0.0.1:{made.host}{suffix(made.protocol)}")
            if as_json or not wanted:
                _list(sandbox, as_json)
        return Exit.OK

    return run_async(main)


def suffix(protocol: Protocol) -> str:
    """What stands behind a port; nothing for TCP."""
    return "" if protocol is Protocol.TCP else f"/{protocol}"


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
            (f"127.0.0.1:{host}{suffix(spoken)}", f"{guest}{suffix(spoken)}")
            for host, guest, spoken in found
        ]
        print_table(("HOST", "GUEST"), rows)
