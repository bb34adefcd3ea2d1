"""`quicksand-tui forward`: ports of this host that lead to a running sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from quicksand.base.paths import paths
from quicksand.records.port_forwards import parse_forward
from quicksand.records.registry import Registry

from quicksand_tui.cli.commands import command_of
from quicksand_tui.cli.output import Exit, print_json, print_table
from quicksand_tui.cli.runner import Signals, attached, run_async
from quicksand_tui.verbs.ports import address_of, forward, unforward
from quicksand_tui.verbs.record import ignore

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox


@command_of("forward")
def forward_command(name: str, ports: tuple[str, ...], remove: bool, as_json: bool) -> int:
    """Forward ports of this host to a running sandbox, or list them.

    8080:80 leads from port 8080 of this host's loopback, 127.0.0.1 and ::1, to what listens at port
    80 in the guest, on its own 127.0.0.1 too. A port alone is the guest's, and gets any port here
    that is free. It needs no network in the sandbox. A revert ends open connections, and not the
    forward; the end of the sandbox ends both.

    \b
    quicksand-tui forward web 8080:80
    quicksand-tui forward web                  lists them, those of `run --publish` too
    quicksand-tui forward web --remove 8080
    """
    if remove and not ports:
        raise click.UsageError("--remove needs the ports of this host")
    wanted = [parse_forward(word) for word in ports]

    async def main(signals: Signals) -> int:
        with attached(name) as sandbox:
            for one in wanted:
                if remove:
                    # A port alone is the host's here; HOST:GUEST is taken, too.
                    await unforward(one.host or one.guest).act(sandbox, ignore)
                    continue
                made = await forward(one.guest, one.host).act(sandbox, ignore)
                if not as_json:
                    click.echo(address_of(made.host))
            if as_json or not wanted:
                _list(sandbox, as_json)
        return Exit.OK

    return run_async(main)


def _list(sandbox: Sandbox, as_json: bool) -> None:
    entry = Registry(paths()).inspect(sandbox.id)
    found = entry.ports if entry is not None else ()
    if as_json:
        print_json([{"host": host, "guest": guest} for host, guest in found])
    else:
        print_table(("HOST", "GUEST"), [(address_of(host), guest) for host, guest in found])
