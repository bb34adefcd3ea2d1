"""`quicksand-tui export, import`: saves and sandboxes as one file that moves."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click
from click.shell_completion import CompletionItem

from quicksand_tui.cli.options import complete_sandboxes, json_option

if TYPE_CHECKING:
    from quicksand_tui.cli.runner import Signals

STREAM = "-"
"""As FILE: stdout or stdin."""


def _complete_names(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Saves, or sandboxes if those are meant."""
    from quicksand.host.paths import paths
    from quicksand.saves.finding import all_stores

    if ctx.params.get("tree"):
        return complete_sandboxes(ctx, param, incomplete)
    saves = {save.name: save for store in all_stores(paths()) for save in store.list()}
    return [
        CompletionItem(name, help=save.manifest.note if save.manifest else "cannot be used")
        for name, save in sorted(saves.items())
        if name.startswith(incomplete)
    ]


_file = click.argument("file", type=click.Path(allow_dash=True), metavar="FILE")


@click.command("export")
@click.argument("name", metavar="NAME", shell_complete=_complete_names)
@_file
@click.option("--full", is_flag=True, help="With the image below it: FILE needs nothing else then.")
@click.option(
    "--tree", is_flag=True, help="NAME is a sandbox: all its checkpoints, memory included."
)
@click.option(
    "--compress/--no-compress",
    default=None,
    help="Compress it (Zstandard).  [default: with --tree, whose memory is mostly empty]",
)
@json_option
def export(
    name: str, file: str, full: bool, tree: bool, compress: bool | None, as_json: bool
) -> int:
    """Write a save to one file, which `import` takes on another host.

    Without --full the other host must have the image that the save lies on. With --tree NAME is a
    sandbox, running or stopped, and FILE gets its checkpoints; the guest's memory is in them, and
    with it every secret there. FILE is readable for you only, and - is stdout.
    """
    from quicksand import saves

    from quicksand_tui.cli.exits import Exit
    from quicksand_tui.cli.output import print_json
    from quicksand_tui.cli.progress import Rate, shown
    from quicksand_tui.cli.runner import run_async

    if as_json and file == STREAM:
        raise click.UsageError("--json and - as FILE do not go together: both are for stdout")
    target = _stdout() if file == STREAM else Path(file)
    rate = Rate(f"{name}: exporting")
    packed = tree if compress is None else compress

    async def main(signals: Signals) -> int:
        async with shown(rate.describe):
            done = await saves.export(
                name, target, full=full, tree=tree, compress=packed, progress=rate.report
            )
        _note(name, done.notes)
        if as_json:
            print_json({**asdict(done), "file": str(Path(file).absolute())})
        elif file != STREAM:
            print(file, flush=True)
        return Exit.OK

    return run_async(main)


@click.command("import")
@_file
@click.option("--name", metavar="NEW", help="Another name than it had.")
@click.option("--replace", is_flag=True, help="A save of that name goes to the trash.")
@click.option(
    "--trust",
    is_flag=True,
    help="You know who made FILE: it may have QEMU arguments and mounts of its own.",
)
@json_option
def import_(file: str, name: str | None, replace: bool, trust: bool, as_json: bool) -> int:
    """Take what a file of `export` holds: a save, a sandbox with its checkpoints, or an image.

    Nothing of it can be seen before all of it has been checked, and nothing else is touched. A
    sandbox arrives stopped; `start --at TAG` goes on from one of its checkpoints. Do that only with
    files of people whom you trust: QEMU itself does not defend against a forged machine state.
    FILE may be -, which is stdin.
    """
    from quicksand import saves

    from quicksand_tui.cli.exits import Exit
    from quicksand_tui.cli.output import print_json
    from quicksand_tui.cli.progress import Rate, shown
    from quicksand_tui.cli.runner import run_async

    if file == STREAM and sys.stdin.isatty():
        raise click.UsageError("stdin is a terminal: give a FILE, or pipe one in")
    rate = Rate(f"{name or file}: importing")

    async def main(signals: Signals) -> int:
        source = sys.stdin.buffer if file == STREAM else Path(file)
        async with shown(rate.describe):
            done = await saves.import_(
                source, name=name, replace=replace, trusted=trust, progress=rate.report
            )
        _note(done.name, done.notes)
        if as_json:
            print_json({**asdict(done), "root": str(done.root)})
        else:
            print(done.name, flush=True)
        return Exit.OK

    return run_async(main)


def _stdout() -> BinaryIO:
    if sys.stdout.isatty():
        raise click.UsageError("stdout is a terminal: give a FILE, or pipe it somewhere")
    return sys.stdout.buffer


def _note(name: str, notes: Sequence[str]) -> None:
    from quicksand_tui.cli.output import say
    from quicksand_tui.cli.text import clean

    for note in notes:
        say(clean(f"{name}: {note}"))
