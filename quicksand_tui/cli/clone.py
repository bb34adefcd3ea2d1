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
    """Copy a sandbox as it is now, with its running processes.

    A clone has the same memory, processes and disk, but its own name, addresses, host keys and
    forwarded ports. It keeps running when this command ends. Clones of a sandbox NAME are called
    NAME-1, NAME-2 and so on, unless --name is given; clones of one without a name have none. The
    source is paused for a moment, as for a checkpoint. Clones of a stopped sandbox boot from its
    disk. Clones have no mounts unless --mounts adds them. If one of them fails, none is kept.
    """
    if new_name is not None and count > 1:
        raise click.UsageError("--name goes with one clone: several need a name each")
    spec = CloneSpec(count=count, at=at, mounts=mounts or "")
    verb = starting.clone(spec, name=new_name, concurrency=concurrency)

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
