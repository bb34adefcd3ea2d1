"""`quicksand-tui saves`: disks that outlive their sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from quicksand_tui.cli.options import json_option
from quicksand_tui.cli.saves_change import prune, rebase, remove, restore
from quicksand_tui.cli.saves_verify import verify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quicksand.saves.census import SaveInfo
    from quicksand.saves.store import Trashed

HEADS = ("NAME", "OWN", "SHARED", "BASE", "AGE", "PARENT", "CHILDREN", "FROM", "NOTE")
NAMES_SHOWN = 2
NOTE_MAX = 60


@click.group("saves", invoke_without_command=True)
@click.option("-a", "--all", "everywhere", is_flag=True, help="Also those of other workspaces.")
@json_option
@click.pass_context
def command(ctx: click.Context, everywhere: bool, as_json: bool) -> None:
    """List, remove, restore, verify, prune and rebase saves.

    Without a further word this lists them: those in ./.quicksand, then your own. Deleting one
    frees its OWN bytes; SHARED ones belong to other saves or sandboxes too.
    """
    if ctx.invoked_subcommand is None:
        _list(everywhere, as_json)
    elif as_json:
        raise click.UsageError(f"--json goes behind {ctx.invoked_subcommand}", ctx)
    elif everywhere:
        raise click.UsageError("--all goes with the list", ctx)


for part in (remove, restore, verify, prune, rebase):
    command.add_command(part)


@command.command("list")
@click.option("-a", "--all", "everywhere", is_flag=True, help="Also those of other workspaces.")
@json_option
def list_saves(everywhere: bool, as_json: bool) -> None:
    """List saves."""
    _list(everywhere, as_json)


def _list(everywhere: bool, as_json: bool) -> None:
    from quicksand.host.paths import paths
    from quicksand.saves.census import Census

    from quicksand_tui.cli.output import print_json, print_table, say

    found = Census(paths()).list(everywhere=everywhere)
    if as_json:
        print_json([facts(info) for info in found])
        return
    rows = [_row(info) for info in found]
    heads: tuple[str, ...] = HEADS
    if any(info.problems for info in found):
        heads = (*HEADS, "PROBLEM")
        rows = [(*row, "; ".join(info.problems)) for row, info in zip(rows, found, strict=True)]
    print_table(heads, rows)
    if not found:
        say("there are no saves yet: `quicksand-tui save SANDBOX NAME` makes one")


def _row(info: SaveInfo) -> tuple[object, ...]:
    from quicksand_tui.cli.output import show_age, show_size

    base = "" if info.base is None else f"{info.base.name} {info.base.version}".strip()
    return (
        info.name,
        show_size(info.own),
        show_size(info.shared) if info.shared else "",
        base,
        show_age(info.created),
        "" if info.parent is None else info.parent.name,
        _some(info.children),
        _origin(info),
        info.note[:NOTE_MAX],
    )


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" +{more}" if more > 0 else "")


def _origin(info: SaveInfo) -> str:
    """Where it is found: in the workspace of this directory, among the user's own, elsewhere."""
    from quicksand.host.paths import paths
    from quicksand.saves.finding import all_stores

    workspace, own = all_stores(paths())
    if info.store.root == own.root:
        return "user"
    return "workspace" if info.store.root == workspace.root else str(info.store.root)


def facts(info: SaveInfo) -> dict[str, Any]:
    """A save as JSON."""
    manifest, base = info.save.manifest, info.base
    told: dict[str, Any] = {
        "name": info.name,
        "path": str(info.save.root),
        "from": _origin(info),
        "own": info.own,
        "shared": info.shared,
        "created": info.created,
        "note": info.note,
        "base": None,
        "parent": None,
        "children": list(info.children),
        "above": list(info.above),
        "sandboxes": list(info.sandboxes),
        "problems": list(info.problems),
    }
    if base is not None:
        told["base"] = {
            "name": base.name,
            "version": base.version or None,
            "digest": base.digest or None,
            "state": info.base_state.value,
        }
    if info.parent is not None:
        told["parent"] = {"name": info.parent.name, "id": info.parent.id}
    if manifest is not None:
        layers = None if manifest.layers is None else len(manifest.layers)
        told |= {"id": manifest.id or None, "arch": manifest.arch, "layers": layers}
    return told


@command.command("trash")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--empty", is_flag=True, help="Remove for good what is in it, or the IDs only.")
@json_option
def trash(ids: tuple[str, ...], empty: bool, as_json: bool) -> None:
    """List saves that were removed or replaced, and can be brought back for a week."""
    from quicksand.host.paths import paths
    from quicksand.saves.census import freed_by, list_trash
    from quicksand.saves.workspaces import known_stores

    from quicksand_tui.cli.output import print_json, print_table, say, show_size

    stores = known_stores(paths())
    found = _chosen(list_trash(stores), ids)
    total = freed_by(trashed.root for trashed in found)
    told = [_trashed_facts(trashed) for trashed in found]
    if empty:
        shown = {trashed.id for trashed in found}
        for store in stores:
            if doomed := [trashed.id for trashed in store.trash() if trashed.id in shown]:
                store.empty_trash(doomed)
    if as_json:
        print_json({"emptied": empty, "frees": total, "saves": told})
        return
    print_table(("NAME", "REMOVED", "UNTIL", "FREES", "ID", "NOTE"), [_trash_row(t) for t in told])
    if empty:
        say(f"{show_size(total)} are free again" if found else "there was nothing in it")
    else:
        say(f"{show_size(total)} will be free" if found else "there is nothing in it")


def _chosen(found: Sequence[Trashed], ids: Sequence[str]) -> Sequence[Trashed]:
    """All of the trash, or what the ids name."""
    from quicksand.errors import SaveNotFoundError

    if missing := set(ids) - {trashed.id for trashed in found}:
        raise SaveNotFoundError(
            f"there is no {min(missing)!r} in the trash", hint="`saves trash` lists the ids"
        )
    return [trashed for trashed in found if not ids or trashed.id in ids]


def _trashed_facts(trashed: Trashed) -> dict[str, Any]:
    from quicksand.saves.census import freed_by
    from quicksand.saves.store import TRASH_KEPT_S

    manifest = trashed.save.manifest
    return {
        "id": trashed.id,
        "name": trashed.save.name,
        "path": str(trashed.save.root),
        "removed": trashed.removed,
        "until": trashed.removed + TRASH_KEPT_S,
        "frees": freed_by([trashed.root]),
        "note": "" if manifest is None else manifest.note,
        "error": trashed.save.error or None,
    }


def _trash_row(told: dict[str, Any]) -> tuple[object, ...]:
    from quicksand_tui.cli.output import show_age, show_date, show_size

    return (
        told["name"],
        show_age(told["removed"]),
        show_date(told["until"]),
        show_size(told["frees"]),
        told["id"],
        told["error"] or told["note"][:NOTE_MAX],
    )
