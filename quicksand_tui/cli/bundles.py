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

STAGES = {"check": "checking", "export": "writing", "import": "reading"}


def _complete_names(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Saves, or sandboxes if those are meant."""
    from quicksand.host.paths import paths
    from quicksand.saves.store import SaveStore

    if ctx.params.get("tree"):
        return complete_sandboxes(ctx, param, incomplete)
    roots = (Path.cwd() / ".quicksand" / "sandboxes", paths().saves)
    saves = {save.name: save for root in roots for save in SaveStore(root).list()}
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
@click.option("--compress", is_flag=True, help="Compress it (Zstandard).")
@json_option
def export(name: str, file: str, full: bool, tree: bool, compress: bool, as_json: bool) -> int:
    """Write a save to one file, which `import` takes on another host.

    Without --full the other host must have the image that the save lies on. With --tree NAME is a
    sandbox, running or stopped, and FILE gets its checkpoints; the guest's memory is in them, and
    with it every secret there. FILE is readable for you only, and - is stdout.
    """
    from quicksand import saves

    from quicksand_tui.cli.exits import Exit
    from quicksand_tui.cli.output import print_json
    from quicksand_tui.cli.progress import shown
    from quicksand_tui.cli.runner import run_async

    if as_json and file == STREAM:
        raise click.UsageError("--json and - as FILE do not go together: both are for stdout")
    target = _stdout() if file == STREAM else Path(file)
    progress = Progress(name)

    async def main(signals: Signals) -> int:
        async with shown(progress.describe):
            done = await saves.export(
                name, target, full=full, tree=tree, compress=compress, progress=progress.tell
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
    from quicksand_tui.cli.progress import shown
    from quicksand_tui.cli.runner import run_async

    if file == STREAM and sys.stdin.isatty():
        raise click.UsageError("stdin is a terminal: give a FILE, or pipe one in")
    progress = Progress(name or file)

    async def main(signals: Signals) -> int:
        source = sys.stdin.buffer if file == STREAM else Path(file)
        async with shown(progress.describe):
            done = await saves.import_(
                source, name=name, replace=replace, trusted=trust, progress=progress.tell
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


class Progress:
    """How many bytes are done."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stage = "opening"
        self._done = self._total = 0

    def tell(self, stage: str, done: int, total: int) -> None:
        """Called from the thread that does the work."""
        self._stage, self._done, self._total = STAGES.get(stage, stage), done, total

    def describe(self, seconds: float) -> str:
        from quicksand_tui.cli.output import show_size

        share = f", {100 * self._done // self._total} %" if self._total else ""
        rate = show_size(self._done / seconds) if seconds else "0 B"
        return f"{self._name}: {self._stage} {show_size(self._done)}{share}, {rate}/s"
