"""`quicksand-tui exec`: reads its command line; executing.py runs it."""

from __future__ import annotations

from functools import partial

import click

from quicksand_tui.cli.click_commands import command_of, parse_keys
from quicksand_tui.cli.guests.executing import Wish, collect_command, execute, run_command


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
    entrypoint: bool,
    detach_keys: str,
    as_json: bool,
) -> int:
    """Run a command in a running sandbox.

    The command gets its arguments unchanged, without a shell. Both output streams are passed on
    byte for byte, and its exit code becomes the exit code here. Ctrl-C reaches the command; a
    second one within two seconds ends it.

    With --entrypoint the command of the sandbox's image is run, with COMMAND in place of its own
    words.
    """
    if not argv and not entrypoint:
        raise click.UsageError("there is no command to run: exec NAME -- COMMAND...")
    if tty and as_json:
        raise click.UsageError("--tty and --json do not go together")
    keys = parse_keys(detach_keys)
    wish = Wish(
        argv=argv,
        env=env,
        user=user,
        cwd=cwd,
        timeout=timeout,
        stdin=interactive and not tty,
        entrypoint=entrypoint,
    )
    if not tty:
        return execute(name, wish, collect_command if as_json else run_command)
    from quicksand_tui.cli.guests.terminal import require_terminal, run_until_left  # noqa: PLC0415

    require_terminal()
    return execute(name, wish, partial(run_until_left, keys=keys))
