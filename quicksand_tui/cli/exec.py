"""`quicksand-tui exec`: runs a command in a running sandbox.

Scripts call it in loops, so what only a terminal or --json needs is imported there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from quicksand_tui.cli.commands import command_of
from quicksand_tui.cli.options import parse_keys
from quicksand_tui.cli.relay import Wish, collect_command, run_command
from quicksand_tui.cli.runner import attached, run_in_sandbox

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

    from quicksand_tui.cli.runner import Signals


@command_of("exec")
def exec_command(
    name: str,
    argv: tuple[str, ...],
    interactive: bool,
    tty: bool,
    env: dict[str, str],
    user: str | None,
    cwd: str | None,
    timeout: float | None,
    detach_keys: str,
    as_json: bool,
) -> int:
    """Run a command in a running sandbox.

    It gets its arguments as they are, without a shell. Both streams are passed on byte for byte
    and its exit code is ours. Ctrl-C reaches the command; a second one within two seconds ends it.
    """
    if not argv:
        raise click.UsageError("there is no command to run: exec NAME -- COMMAND...")
    if tty and as_json:
        raise click.UsageError("--tty and --json do not go together")
    keys = parse_keys(detach_keys)
    wish = Wish(
        argv=argv, env=env, user=user, cwd=cwd, timeout=timeout, stdin=interactive and not tty
    )

    async def main(signals: Signals) -> int:
        with attached(name) as sandbox:
            if tty:
                return await _run_in_terminal(sandbox, wish, keys, signals)
            if as_json:
                return await collect_command(sandbox, wish, signals)
            return await run_command(sandbox, wish, signals)

    if tty:
        from quicksand_tui.cli.terminal import require_terminal

        require_terminal()
    return run_in_sandbox(main)


async def _run_in_terminal(sandbox: Sandbox, wish: Wish, keys: bytes, signals: Signals) -> int:
    from quicksand_tui.cli.output import Exit
    from quicksand_tui.cli.shells import Left, run_in_terminal, say_left

    try:
        return await run_in_terminal(sandbox, wish, keys, signals)
    except Left as left:
        say_left(sandbox, left.session)
        return Exit.OK
