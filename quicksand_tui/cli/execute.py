"""`quicksand-tui exec`: a command in a running sandbox."""

from __future__ import annotations

import click

from quicksand_tui.cli.options import (
    command_options,
    detach_keys_option,
    json_option,
    sandbox_argument,
)


@click.command("exec")
@sandbox_argument()
@command_options
@detach_keys_option
@json_option
def command(
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

    from quicksand_tui.cli import relay
    from quicksand_tui.cli.attaching import attached
    from quicksand_tui.cli.exits import Exit
    from quicksand_tui.cli.keys import parse_keys
    from quicksand_tui.cli.runner import Signals, run_in_sandbox

    keys = parse_keys(detach_keys)
    wish = relay.Wish(
        argv=argv, env=env, user=user, cwd=cwd, timeout=timeout, stdin=interactive and not tty
    )

    async def main(signals: Signals) -> int:
        with attached(name) as sandbox:
            if tty:
                from quicksand_tui.cli.sessions import Left, run_in_terminal, say_left

                try:
                    return await run_in_terminal(sandbox, wish, keys, signals)
                except Left as left:
                    say_left(sandbox, left.session)
                    return Exit.OK
            if as_json:
                return await relay.collect_command(sandbox, wish, signals)
            return await relay.run_command(sandbox, wish, signals)

    if tty:
        from quicksand_tui.cli.terminal import require_terminal

        require_terminal()
    return run_in_sandbox(main)
