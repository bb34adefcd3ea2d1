"""`quicksand-tui save`: keep the disk of a sandbox as a start for new ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from quicksand_tui.cli.options import json_option, sandbox_argument

if TYPE_CHECKING:
    from quicksand.saves.store import Save, SaveStore

    from quicksand_tui.cli.runner import Signals

VOLATILE_SHOWN = 5


@click.command("save")
@sandbox_argument()
@click.argument("save", metavar="SAVE")
@click.option("-m", "--note", metavar="NOTE", default="", help="Write down what it is.")
@click.option("--compress", is_flag=True, help="Make it small: all layers in one, compressed.")
@click.option("--replace", is_flag=True, help="Take the place of the save of that name.")
@click.option(
    "--freeze/--no-freeze",
    default=None,
    help="Have the guest's file system stand still for the instant.  [default: if it is quick]",
)
@click.option("--delete-checkpoints", is_flag=True, help="Delete the sandbox's checkpoints.")
@click.option(
    "--workspace",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Save to DIR/sandboxes instead of your own saves.",
)
@json_option
def command(
    name: str,
    save: str,
    note: str,
    compress: bool,
    replace: bool,
    freeze: bool | None,
    delete_checkpoints: bool,
    workspace: Path | None,
    as_json: bool,
) -> int:
    """Save the disk of the sandbox NAME, running or stopped, as SAVE.

    A running one goes on. `quicksand-tui run SAVE` starts sandboxes that begin with that disk, any
    number of them; the save itself never changes. Memory and processes are not in it: those are
    what `checkpoint` keeps.
    """
    from quicksand.sandbox import Sandbox
    from quicksand.saves.saving import Options

    from quicksand_tui.cli.exits import Exit
    from quicksand_tui.cli.output import print_json
    from quicksand_tui.cli.progress import Rate, shown
    from quicksand_tui.cli.runner import run_async

    rate = Rate(f"{name}: saving")
    options = Options(
        compress=compress,
        delete_checkpoints=delete_checkpoints,
        note=note,
        replace=replace,
        freeze=freeze,
        progress=rate.report,
    )

    async def main(signals: Signals) -> int:
        started = time.perf_counter()
        sandbox = Sandbox.open(name)
        try:
            async with shown(rate.describe):
                made = await sandbox.save_to(save_store(workspace), save, options)
        finally:
            sandbox.close()
        if as_json:
            print_json(
                {"sandbox": sandbox.name, "path": str(made.root), **made.require().to_json()}
            )
        else:
            _say(made, time.perf_counter() - started)
        return Exit.OK

    return run_async(main)


def save_store(workspace: Path | None) -> SaveStore:
    """Where commands save: in the user's own saves, unless told otherwise."""
    from quicksand.host.paths import paths
    from quicksand.saves.finding import workspace_store
    from quicksand.saves.store import SaveStore

    return SaveStore(paths().saves) if workspace is None else workspace_store(workspace)


def _say(made: Save, seconds: float) -> None:
    from quicksand.host.footprint import Footprint

    from quicksand_tui.cli.output import UNSYNCED, print_table, say, show_size
    from quicksand_tui.cli.text import clean

    manifest = made.require()
    layers = manifest.layers or ()
    size = show_size(Footprint(made.root).size)  # as `saves` has it: own and shared
    print_table(
        ("SAVE", "SIZE", "LAYERS", "TIME"), [(made.name, size, len(layers), f"{seconds:.2f} s")]
    )
    if manifest.unsynced:
        say(UNSYNCED)
    if manifest.volatile:
        some = ", ".join(clean(path) for path in manifest.volatile[:VOLATILE_SHOWN])
        more = len(manifest.volatile) - VOLATILE_SHOWN
        more_text = f" and {more} more" if more > 0 else ""
        say(f"not in it, since only in the guest's memory: {some}{more_text}")
