"""`quicksand-tui clean`: free the space of what can be made again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from quicksand_tui.cli.exits import Exit
from quicksand_tui.cli.options import json_option

if TYPE_CHECKING:
    from quicksand.cleaning import Heap


@click.command("clean")
@click.option("--dry-run", is_flag=True, help="Remove nothing, only show.")
@click.option("-y", "--yes", is_flag=True, help="Ask no question.")
@json_option
def command(dry_run: bool, yes: bool, as_json: bool) -> int:
    """Remove what can be made again, and what is in the trash.

    Sandboxes, saves, images and checkpoints stay. What is in use is left alone.
    """
    from quicksand.cleaning import Cleaner
    from quicksand.host.paths import paths

    from quicksand_tui.cli.output import print_json, say, show_size

    if as_json and not (dry_run or yes):
        raise click.UsageError("--json goes with --dry-run or --yes: it asks nothing")
    cleaner = Cleaner(paths())
    heaps = cleaner.look()
    if dry_run:
        if as_json:
            print_json(_facts(heaps, None))
        else:
            _print(heaps)
        return Exit.OK
    if not as_json:
        _print(heaps)
    if not any(not heap.kept for heap in heaps):
        say("there is nothing to remove")
    elif not yes and not _agreed():
        return Exit.FAILURE
    freed = cleaner.clean(heaps)
    if as_json:
        print_json(_facts(heaps, freed))
    else:
        say(f"{show_size(freed)} are free again")
    return Exit.OK


def _agreed() -> bool:
    from quicksand_tui.cli.output import complain

    if sys.stdin.isatty() and sys.stderr.isatty():
        return click.confirm("Remove all this?", default=False, err=True)
    complain("nobody can be asked, so nothing was removed", hint="say --yes")
    return False


def _print(heaps: list[Heap]) -> None:
    from quicksand.cleaning import COST

    from quicksand_tui.cli.output import print_table, show_size

    rows: list[tuple[object, ...]] = [
        (
            heap.kind.value,
            len(heap.paths),
            show_size(heap.frees),
            f"stay: {heap.kept}" if heap.kept else COST[heap.kind],
        )
        for heap in heaps
    ]
    rows.append(("total", "", show_size(sum(heap.frees for heap in heaps)), ""))
    print_table(("WHAT", "NUMBER", "FREES", ""), rows)


def _facts(heaps: list[Heap], freed: int | None) -> dict[str, Any]:
    return {
        "freed": freed,
        "heaps": [
            {
                "kind": heap.kind.value,
                "paths": [str(path) for path in heap.paths],
                "frees": heap.frees,
                "kept": heap.kept or None,
            }
            for heap in heaps
        ],
    }
