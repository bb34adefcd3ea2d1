"""`quicksand-tui du, clean`: shows what uses the disk, and frees space."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
from quicksand.base.paths import paths
from quicksand.life.cleaning import COST, Cleaner
from quicksand.life.disk_usage import measure
from quicksand.qemu.stopping import end_orphans, find_orphans

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import Exit, complain, print_json, print_table, say, show_size
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand.base.processes import Process
    from quicksand.life.cleaning import Heap
    from quicksand.life.disk_usage import Usage


@command_of("clean")
def clean_command(dry_run: bool, yes: bool, as_json: bool) -> int:
    """Empty the trash, and remove files that can be made again.

    Sandboxes, saves, images and checkpoints stay, and so does everything in use. QEMU processes of
    sandboxes that no longer exist are ended.
    """
    if as_json and not (dry_run or yes):
        raise click.UsageError("--json goes with --dry-run or --yes: it asks nothing")
    cleaner = Cleaner(paths())
    heaps, orphans = cleaner.look(), find_orphans()
    if dry_run:
        if as_json:
            print_json(_heap_facts(heaps, orphans, None))
        else:
            _print(heaps, orphans)
        return Exit.OK
    if not as_json:
        _print(heaps, orphans)
    if not orphans and not any(not heap.kept for heap in heaps):
        say("there is nothing to remove")
    elif not yes and not _agreed():
        return Exit.FAILURE
    end_orphans(orphans)
    freed = cleaner.clean(heaps)
    if as_json:
        print_json(_heap_facts(heaps, orphans, freed))
    else:
        say(f"{show_size(freed)} are free again")
    return Exit.OK


def _agreed() -> bool:
    if sys.stdin.isatty() and sys.stderr.isatty():
        return click.confirm("Remove all this?", default=False, err=True)
    complain("nobody can be asked, so nothing was removed", hint="say --yes")
    return False


def _print(heaps: list[Heap], orphans: list[Process]) -> None:
    rows: list[tuple[object, ...]] = [
        (
            heap.kind.value,
            len(heap.paths),
            show_size(heap.frees),
            f"stay: {heap.kept}" if heap.kept else COST[heap.kind],
        )
        for heap in heaps
    ]
    for orphan in orphans:
        what = f"{orphan.kind} {orphan.pid} of {orphan.of}, which is gone: it is ended"
        rows.append(("process", 1, "", clean(what)))
    rows.append(("total", "", show_size(sum(heap.frees for heap in heaps)), ""))
    print_table(("WHAT", "NUMBER", "FREES", ""), rows)


def _heap_facts(heaps: list[Heap], orphans: list[Process], freed: int | None) -> dict[str, Any]:
    return {
        "freed": freed,
        "orphans": [
            {"kind": orphan.kind.value, "pid": orphan.pid, "of": orphan.of} for orphan in orphans
        ],
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


@command_of("du")
def du_command(each: bool, as_json: bool) -> None:
    """Show how much disk space sandboxes, saves, images and the rest take.

    Deleting a whole group frees its OWN bytes; SHARED ones belong to others, too. The total counts
    every file once.
    """
    usage = measure(paths())
    if as_json:
        print_json(_usage_facts(usage))
        return
    if each:
        _print_items(usage)
    else:
        _print_rows(usage)
    say("`quicksand-tui clean` removes what can be made again; --each lists every thing")


def _print_rows(usage: Usage) -> None:
    rows: list[tuple[object, ...]] = []
    for row in usage.rows():
        shared = show_size(row.shared) if row.shared else ""
        rows.append((row.kind.value, row.number, show_size(row.own), shared))
    rows.append(("total", len(usage.items), show_size(usage.total), ""))
    print_table(("WHAT", "NUMBER", "OWN", "SHARED"), rows)


def _print_items(usage: Usage) -> None:
    items = sorted(usage.items, key=lambda item: item.footprint.size, reverse=True)
    rows: list[tuple[object, ...]] = [
        (
            item.kind.value,
            item.name,
            show_size(item.footprint.own),
            show_size(item.footprint.shared) if item.footprint.shared else "",
            item.path,
        )
        for item in items
    ]
    rows.append(("total", "", show_size(usage.total), "", ""))
    print_table(("WHAT", "NAME", "OWN", "SHARED", "PATH"), rows)


def _usage_facts(usage: Usage) -> dict[str, Any]:
    return {
        "total": usage.total,
        "kinds": [
            {"kind": row.kind.value, "number": row.number, "own": row.own, "shared": row.shared}
            for row in usage.rows()
        ],
        "items": [
            {
                "kind": item.kind.value,
                "name": item.name,
                "path": str(item.path),
                "own": item.footprint.own,
                "shared": item.footprint.shared,
            }
            for item in usage.items
        ],
    }
