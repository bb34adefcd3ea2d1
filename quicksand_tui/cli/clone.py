"""`quicksand-tui clone`: more sandboxes that go on from an instant of one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from quicksand_tui.cli.options import complete_tags, json_option, sandbox_argument

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

    from quicksand_tui.cli.runner import Signals

AT_ONCE_MAX = 4
"""Clones that start at the same time unless --concurrency says otherwise: more of them fight for
the disk."""


@click.command("clone")
@sandbox_argument()
@click.option(
    "-n",
    "--count",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="How many.  [default: 1]",
)
@click.option(
    "--at",
    metavar="TAG",
    shell_complete=complete_tags,
    help="As it was at this checkpoint, not as it is now.",
)
@click.option("--name", "new_name", metavar="NEW", help="Name it; goes with one clone only.")
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    metavar="C",
    help=f"Start so many at a time.  [default: one a CPU, at most {AT_ONCE_MAX}]",
)
@json_option
def command(
    name: str,
    count: int,
    at: str | None,
    new_name: str | None,
    concurrency: int | None,
    as_json: bool,
) -> int:
    """Make sandboxes that go on from this instant of another one.

    Memory, processes and disk are the same; names, addresses, host keys and forwarded ports of
    this host are their own. They run on when this ends; unless --name is given, those of a named
    sandbox are called NAME-1 and so on, those of one without a name have none either. The source
    stands still as for a checkpoint; clones of a stopped one boot from its disk. After an error
    there is none.
    """
    if new_name is not None and count > 1:
        raise click.UsageError("--name goes with one clone: several need a name each")

    from quicksand.sandbox import Sandbox

    from quicksand_tui.cli.exits import Exit
    from quicksand_tui.cli.output import print_json
    from quicksand_tui.cli.progress import shown
    from quicksand_tui.cli.run import start_facts
    from quicksand_tui.cli.runner import run_async

    what = "a clone" if count == 1 else f"{count} clones"

    async def main(signals: Signals) -> int:
        source = Sandbox.open(name)
        try:
            async with shown(lambda seconds: f"{name}: making {what}, {seconds:.1f} s"):
                clones = await source.clone(
                    count,
                    concurrency=concurrency or _cpus(),
                    at=at,
                    names=None if new_name is None else [new_name],
                )
                # Before anything else is awaited: Ctrl-C finds all of them or none.
                facts = [start_facts(clone) for clone in clones]
                _release(clones)
        finally:
            source.close()
        if as_json:
            print_json(facts)
        else:
            for clone in clones:
                print(clone.name, flush=True)
        return Exit.OK

    return run_async(main)


def _cpus() -> int:
    return min(AT_ONCE_MAX, os.cpu_count() or 1)


def _release(clones: list[Sandbox]) -> None:
    """Let them outlive this process."""
    for clone in clones:
        clone.detach()
    for clone in clones:
        clone.close()
