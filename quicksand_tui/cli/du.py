"""`quicksand-tui du`: where the space goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from quicksand_tui.cli.options import json_option

if TYPE_CHECKING:
    from quicksand.usage import Usage


@click.command("du")
@click.option("--each", is_flag=True, help="A line for each thing, the largest first.")
@json_option
def command(each: bool, as_json: bool) -> None:
    """Show what sandboxes, saves, images and the rest take on the disk.

    OWN bytes are free once they are all gone; SHARED ones belong to others too. In the total every
    file counts once.
    """
    from quicksand.host.paths import paths
    from quicksand.usage import measure

    from quicksand_tui.cli.output import print_json, say

    usage = measure(paths())
    if as_json:
        print_json(_facts(usage))
        return
    if each:
        _print_items(usage)
    else:
        _print_rows(usage)
    say("`quicksand-tui clean` removes what can be made again; --each lists every thing")


def _print_rows(usage: Usage) -> None:
    from quicksand_tui.cli.output import print_table, show_size

    rows: list[tuple[object, ...]] = []
    for row in usage.rows():
        shared = show_size(row.shared) if row.shared else ""
        rows.append((row.kind.value, row.number, show_size(row.own), shared))
    rows.append(("total", len(usage.items), show_size(usage.total), ""))
    print_table(("WHAT", "NUMBER", "OWN", "SHARED"), rows)


def _print_items(usage: Usage) -> None:
    from quicksand_tui.cli.output import print_table, show_size

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


def _facts(usage: Usage) -> dict[str, Any]:
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
