"""Runs a command in a running sandbox. Scripts do that in loops, so this imports neither the reader
of command lines, nor anything that only a terminal needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quicksand_tui.cli.guests.relay import Wish, collect_command, run_command
from quicksand_tui.cli.output import Exit
from quicksand_tui.cli.runner import attached, run_in_sandbox

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

    from quicksand_tui.cli.runner import Signals


def execute(name: str, wish: Wish, *, keys: bytes | None = None, as_json: bool = False) -> int:
    """Runs a command in the sandbox ``name``: with our streams, in a terminal that the user leaves
    with ``keys`` if there are any, or to be told as JSON. Returns the exit code. Raises as
    `run_in_sandbox`."""

    async def main(signals: Signals) -> int:
        with attached(name) as sandbox:
            if keys is not None:
                return await _run_in_terminal(sandbox, wish, keys, signals)
            if as_json:
                return await collect_command(sandbox, wish, signals)
            return await run_command(sandbox, wish, signals)

    return run_in_sandbox(main)


def execute_plainly(argv: Sequence[str]) -> int | None:
    """Carries out the command line ``exec NAME -- COMMAND...``, which has no options to be read;
    returns the exit code, and None for any other line. Raises as `execute`. Reading the line as any
    other would take 7 ms of 60."""
    match argv:
        case ["exec", name, "--", _, *_] if not name.startswith("-"):
            return execute(name, Wish(argv=tuple(argv[3:]), env={}))
    return None


async def _run_in_terminal(sandbox: Sandbox, wish: Wish, keys: bytes, signals: Signals) -> int:
    from quicksand_tui.cli.guests.shells import Left, run_in_terminal, say_left  # noqa: PLC0415

    try:
        return await run_in_terminal(sandbox, wish, keys, signals)
    except Left as left:
        say_left(sandbox, left.session)
        return Exit.OK
