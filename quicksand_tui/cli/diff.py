"""`quicksand-tui diff`: the files that differ between two instants of a sandbox."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from quicksand_tui.cli.options import complete_tags, json_option, sandbox_argument

if TYPE_CHECKING:
    from quicksand.diskdiff.changes import FileChange

    from quicksand_tui.cli.runner import Signals

LETTERS = {"added": "A", "removed": "D", "changed": "M", "type-changed": "T"}


@click.command("diff")
@sandbox_argument()
@click.argument("a", shell_complete=complete_tags)
@click.argument("b", required=False, shell_complete=complete_tags)
@json_option
def command(name: str, a: str, b: str | None, as_json: bool) -> int:
    """List the files that differ between checkpoint A and checkpoint B.

    Without B, between A and the disk as it is now. A is an added path, D a removed one, M one that
    changed (in brackets what, if not the content alone), T one that became something else. A file
    that was moved is removed in one place and added in another.

    Read from the sandbox's disk: it may run or not, nothing is booted. What a guest had not
    written to its disk yet is not seen.
    """
    from quicksand.host.paths import paths
    from quicksand.registry import Registry
    from quicksand.sandbox import Sandbox

    from quicksand_tui.cli.exits import Exit
    from quicksand_tui.cli.output import print_json, say
    from quicksand_tui.cli.progress import shown
    from quicksand_tui.cli.runner import run_async
    from quicksand_tui.cli.text import clean

    async def main(signals: Signals) -> int:
        entry = Registry(paths()).find(name)
        sandbox = Sandbox.open(entry.id)
        try:
            async with shown(lambda seconds: f"{name}: comparing, {seconds:.1f} s"):
                changes = await sandbox.diff(a, b)
        finally:
            sandbox.close()
        if b is None and entry.is_live:
            say(f"{clean(entry.name)} is running: compared with what has reached its disk so far")
        if as_json:
            print_json([asdict(change) for change in changes])
        else:
            _show(changes)
        return Exit.OK

    return run_async(main)


def _show(changes: list[FileChange]) -> None:
    from quicksand_tui.cli.output import format_table, say

    if changes:
        for line in format_table(("", "", "", ""), [_row(change) for change in changes])[1:]:
            print(line)
    counts = [
        f"{count} {kind}"
        for kind in LETTERS
        if (count := sum(change.kind == kind for change in changes))
    ]
    say(", ".join(counts) or "no file differs")


def _row(change: FileChange) -> tuple[str, ...]:
    """Letter, path, size, remarks."""
    before, after = change.type_before, change.type_after
    path = change.path
    if "directory" in (after or before or "") and path != "/":
        path += "/"
    remarks = ""
    if change.kind == "type-changed":
        remarks = f"({before} -> {after})"
    elif change.differs not in ((), ("content",), ("content", "mtime")):
        remarks = f"({', '.join(change.differs)})"
    return LETTERS[change.kind], path, _sizes(change), remarks


def _sizes(change: FileChange) -> str:
    from quicksand_tui.cli.output import show_size

    before, after = change.size_before, change.size_after
    known = [show_size(size) for size in (before, after) if size is not None]
    return known[0] if before == after and known else " -> ".join(known)
