"""`quicksand-tui save, snapshot, export, import`: keep a disk or a whole sandbox, on this host or
in one file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import click
from quicksand.base.errors import PathError
from quicksand.sandbox import Sandbox

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import Exit, print_json, print_table, say, show_size, told
from quicksand_tui.cli.progress_display import shown
from quicksand_tui.cli.reported_progress import Rate
from quicksand_tui.cli.runner import Signals, run_async
from quicksand_tui.model.specs import ExportSpec, ImportSpec
from quicksand_tui.model.text import clean
from quicksand_tui.verbs import bundles
from quicksand_tui.verbs.saved import UNSYNCED

STREAM = "-"
"""Stands for stdout or stdin in place of FILE."""


@command_of("export")
def export_command(
    name: str,
    file: str,
    full: bool,
    tree: bool,
    image: bool,
    compress: bool | None,
    as_json: bool,
) -> int:
    """Write a save to one file, which `import` and `run` read on another host.

    Without --full, the other host must have the image that the save is based on. With --tree, NAME
    is a sandbox, running or stopped, and FILE gets its checkpoints with the guest's memory and
    every secret in it. With --image, NAME is an image. Only you can read FILE; - is stdout.
    """
    if as_json and file == STREAM:
        raise click.UsageError("--json and - as FILE do not go together: both are for stdout")
    if tree and image:
        raise click.UsageError("--tree and --image do not go together: NAME is one of them")
    target = _stdout() if file == STREAM else Path(file)
    rate = Rate(f"{name}: exporting")
    packed = tree if compress is None else compress
    spec = ExportSpec(file=file, full=full, compress=packed, replace=True)
    verb = bundles.export(name, spec, target=target, tree=tree, image=image)

    async def main(signals: Signals) -> int:
        async with shown(rate.look):
            sent = await verb.carry_out(name, rate.take)
        _note(name, sent.exported.notes)
        if as_json:
            print_json({**verb.facts(name, sent), "file": told(Path(file).absolute())})
        elif file != STREAM:
            print(told(file), flush=True)
        return Exit.OK

    return run_async(main)


@command_of("import")
def import_command(
    file: str,
    name: str | None,
    replace: bool,
    trust: bool,
    memory_dir: Path | None,
    as_json: bool,
) -> int:
    """Import a file that `export` wrote: a save, a sandbox with its checkpoints, or an image.

    All of it is checked before any of it becomes visible, and nothing else is touched. A sandbox
    arrives stopped; `start --at TAG` continues from one of its checkpoints. Do that only with files
    of people whom you trust: QEMU does not defend itself against a forged machine state. FILE may
    be -, which is stdin.
    """
    if file == STREAM and sys.stdin.isatty():
        raise click.UsageError("stdin is a terminal: give a FILE, or pipe one in")
    rate = Rate(f"{name or told(file)}: importing")

    async def main(signals: Signals) -> int:
        source = sys.stdin.buffer if file == STREAM else Path(file)
        spec = ImportSpec(file=file, name=name or "")
        verb = bundles.import_(
            spec, source=source, replace=replace, trusted=trust, memory_dir=memory_dir
        )
        async with shown(rate.look):
            done = await verb.carry_out("", rate.take)
        _note(done.name, done.notes)
        if as_json:
            print_json(verb.facts("", done))
        else:
            print(done.name, flush=True)
        return Exit.OK

    return run_async(main)


def _stdout() -> BinaryIO:
    if sys.stdout.isatty():
        raise click.UsageError("stdout is a terminal: give a FILE, or pipe it somewhere")
    return sys.stdout.buffer


def _note(name: str, notes: Sequence[str]) -> None:
    for note in notes:
        say(clean(f"{name}: {note}"))


@command_of("snapshot")
def snapshot_command(
    name: str, file: Path, note: str, compress: bool, replace: bool, as_json: bool
) -> int:
    """Write the disk of the sandbox NAME, running or stopped, to FILE, a qcow2 image.

    `quicksand-tui run ./FILE` starts sandboxes from it, here or on any host that has the same
    image.
    """
    if file.exists() and not replace:
        raise PathError(
            f"{told(file)} is there already", hint="choose another name, or --replace it"
        )
    rate = Rate(f"{name}: writing {told(file)}")

    async def main(signals: Signals) -> int:
        sandbox = Sandbox.open(name)
        try:
            async with shown(rate.look):
                made = await sandbox.snapshot(
                    file, note=note, compress=compress, report=rate.report
                )
        finally:
            sandbox.close()
        if as_json:
            facts = made.manifest.to_json()
            print_json({"sandbox": sandbox.name, "path": told(made.path), **facts})
        else:
            size = show_size(made.path.stat().st_blocks * 512)
            print_table(("FILE", "SIZE", "IMAGE"), [(told(file), size, made.manifest.config.image)])
            if made.manifest.unsynced:
                say(UNSYNCED)
        return Exit.OK

    return run_async(main)
