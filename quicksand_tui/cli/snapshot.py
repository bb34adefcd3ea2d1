"""`quicksand-tui snapshot`: the disk of a sandbox as one portable file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from quicksand_tui.cli.options import json_option, sandbox_argument

if TYPE_CHECKING:
    from quicksand_tui.cli.runner import Signals


@click.command("snapshot")
@sandbox_argument()
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-m", "--note", metavar="NOTE", default="", help="Write down what it is.")
@click.option("--compress", is_flag=True, help="Make it small; takes longer.")
@click.option("--replace", is_flag=True, help="Replace a FILE that is there.")
@json_option
def command(name: str, file: Path, note: str, compress: bool, replace: bool, as_json: bool) -> int:
    """Write the disk of the sandbox NAME, running or stopped, to FILE, a qcow2 image.

    `quicksand-tui run ./FILE` starts sandboxes that begin with it, here or where the same image is.
    """
    from quicksand.errors import PathError
    from quicksand.sandbox import Sandbox

    from quicksand_tui.cli.exits import Exit
    from quicksand_tui.cli.output import UNSYNCED, print_json, print_table, say, show_size
    from quicksand_tui.cli.progress import Rate, shown
    from quicksand_tui.cli.runner import run_async

    if file.exists() and not replace:
        raise PathError(f"{file} is there already", hint="choose another name, or --replace it")
    rate = Rate(f"{name}: writing {file}")

    async def main(signals: Signals) -> int:
        sandbox = Sandbox.open(name)
        try:
            async with shown(rate.describe):
                made = await sandbox.snapshot(
                    file, note=note, compress=compress, report=rate.report
                )
        finally:
            sandbox.close()
        if as_json:
            facts = made.manifest.to_json()
            print_json({"sandbox": sandbox.name, "path": str(made.path), **facts})
        else:
            size = show_size(made.path.stat().st_blocks * 512)
            print_table(("FILE", "SIZE", "IMAGE"), [(file, size, made.manifest.config.image)])
            if made.manifest.unsynced:
                say(UNSYNCED)
        return Exit.OK

    return run_async(main)
