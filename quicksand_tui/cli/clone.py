"""`quicksand-tui clone`: makes more of a sandbox."""

from __future__ import annotations

import click
from quicksand.sandbox import Sandbox

from quicksand_tui.cli.commands import command_of
from quicksand_tui.cli.notices import say_notices
from quicksand_tui.cli.output import Exit, print_json
from quicksand_tui.cli.progress import shown
from quicksand_tui.cli.runner import Signals, run_async
from quicksand_tui.model.specs import CloneSpec
from quicksand_tui.verbs import starting
from quicksand_tui.verbs.record import ignore


@command_of("clone")
def clone_command(
    name: str,
    count: int,
    at: str | None,
    new_name: str | None,
    mounts: str | None,
    concurrency: int | None,
    as_json: bool,
) -> int:
    """Make sandboxes that go on from this instant of another one.

    Memory, processes and disk are the same; names, addresses, host keys and forwarded ports of
    this host are their own. They run on when this ends; unless --name is given, those of a named
    sandbox are called NAME-1 and so on, those of one without a name have none either. The source
    stands still as for a checkpoint; clones of a stopped one boot from its disk. They have no
    mounts unless --mounts says so. After an error there is none.
    """
    if new_name is not None and count > 1:
        raise click.UsageError("--name goes with one clone: several need a name each")
    spec = CloneSpec(count=count, at=at or "", mounts=mounts or "")
    verb = starting.clone(spec, name=new_name or "", concurrency=concurrency)

    async def main(signals: Signals) -> int:
        source = Sandbox.open(name)
        try:
            async with shown(f"{name}: {verb.stage}"):
                clones = await verb.act(source, ignore)
        finally:
            source.close()
        if as_json:
            print_json(verb.facts(name, clones))
        else:
            for clone in clones:
                say_notices(clone.name, clone.notices)
                print(clone.name, flush=True)
        return Exit.OK

    return run_async(main)
