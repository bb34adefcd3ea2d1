"""`quicksand-tui shell`: terminals of a running sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from quicksand_tui.cli.options import detach_keys_option, json_option, sandbox_argument

if TYPE_CHECKING:
    from quicksand.shell import ShellInfo


@click.command("shell")
@sandbox_argument()
@click.option("--user", metavar="USER", help="Open it as this user instead of root.")
@click.option("--session", metavar="S", help="Come back to this terminal; --list names them.")
@click.option("--list", "listing", is_flag=True, help="List the sandbox's terminals instead.")
@detach_keys_option
@json_option
def command(
    name: str,
    user: str | None,
    session: str | None,
    listing: bool,
    detach_keys: str,
    as_json: bool,
) -> int:
    """Open a terminal in a sandbox, or come back to one.

    The exit code is that of the shell. Ctrl-] and then d leave it running: so does a connection
    that breaks, and `--session` comes back to it. When the sandbox is reverted, this goes on in
    the same terminal as it was then, or in a new one.
    """
    if as_json and not listing:
        raise click.UsageError("--json goes with --list")
    if session is not None and user is not None:
        raise click.UsageError("--user is for a new terminal, --session for one that is there")

    from quicksand_tui.cli.attaching import attached
    from quicksand_tui.cli.exits import Exit
    from quicksand_tui.cli.keys import parse_keys
    from quicksand_tui.cli.relay import Wish
    from quicksand_tui.cli.runner import Signals, run_in_sandbox
    from quicksand_tui.cli.sessions import Left, open_terminal, relay, say_left
    from quicksand_tui.cli.terminal import require_terminal, terminal_size

    keys = parse_keys(detach_keys)

    async def main(signals: Signals) -> int:
        with attached(name) as sandbox:
            if listing:
                return _list(await sandbox.shells(), as_json)
            wish = Wish(argv=(), env={}, user=user)
            if session is None:
                shell = await open_terminal(sandbox, wish)
            else:
                columns, rows = terminal_size()
                shell = await sandbox.attach_shell(session, columns=columns, rows=rows)
            try:
                return await relay(sandbox, shell, wish, keys, signals, keep=True)
            except Left as left:
                say_left(sandbox, left.session)
                return Exit.OK

    if not listing:
        require_terminal()
    return run_in_sandbox(main)


def _list(shells: list[ShellInfo], as_json: bool) -> int:
    from dataclasses import asdict

    from quicksand_tui.cli.exits import Exit
    from quicksand_tui.cli.output import print_json, print_table, show_age

    if as_json:
        print_json([asdict(shell) for shell in shells])
        return Exit.OK
    rows = [
        (
            shell.session,
            shell.pid,
            f"{shell.columns}x{shell.rows}",
            shell.attached,
            show_age(shell.created),
            "running" if shell.alive else "ended",
            " ".join(shell.argv),
        )
        for shell in shells
    ]
    print_table(("SESSION", "PID", "SIZE", "ATTACHED", "AGE", "STATE", "COMMAND"), rows)
    return Exit.OK
