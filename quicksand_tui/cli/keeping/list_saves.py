"""`quicksand-tui saves`: lists, checks and removes saves, which are disks that outlive their
sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from quicksand.base.errors import QuicksandError, SaveNotFoundError
from quicksand.base.paths import paths
from quicksand.records.trash import TRASH_KEPT_S
from quicksand.saves.census import Census, freed_by, list_trash
from quicksand.saves.finding import all_stores
from quicksand.saves.workspaces import known_stores

import quicksand_tui.cli.keeping.moving  # noqa: F401 - two of its commands
from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import (
    Exit,
    complain,
    complain_of,
    print_json,
    print_table,
    say,
    show_age,
    show_size,
)
from quicksand_tui.cli.progress_display import shown
from quicksand_tui.cli.reported_progress import Rate
from quicksand_tui.cli.runner import Signals, chosen_host, run_async
from quicksand_tui.model.amounts import date_text, megabytes_text, seconds_text
from quicksand_tui.model.text import clean
from quicksand_tui.verbs import saves, verdicts
from quicksand_tui.verbs.call import things_of

if TYPE_CHECKING:
    from quicksand.hosted.remote_host import RemoteHost
    from quicksand.life.kept_things import PrunedSaves, RemovedSave, Swept
    from quicksand.saves.census import SaveInfo
    from quicksand.saves.save_trash import Trashed
    from quicksand.saves.verifying import Verdict


DAY_S = 86400


@command_of("saves rm")
def remove(names: tuple[str, ...], now: bool) -> int:
    """Move saves to the trash, which keeps them for a week.

    Sandboxes and saves that share data with them keep those data, and are named.
    """
    chosen = list(dict.fromkeys(names))
    asked = iter(chosen)

    def tell(found: RemovedSave | QuicksandError) -> None:
        name = next(asked)
        if isinstance(found, QuicksandError):
            complain_of(name, found)
        else:
            print(clean(found.name), flush=True)
            _explain(found)

    verb = saves.discard(chosen, now=now, each=tell)

    async def main(signals: Signals) -> int:
        async with chosen_host() as host:
            removed = await verb.carry_out("", host=host)
        _say_swept(removed.swept)
        failed = any(isinstance(found, QuicksandError) for found in removed.each)
        return Exit.FAILURE if failed else Exit.OK

    return run_async(main)


def _explain(removed: RemovedSave) -> None:
    name, size = clean(removed.name), show_size(removed.own)
    if removed.removed is None:
        say(f"{name}: {size} are free again")
    else:
        until = date_text(removed.removed + TRASH_KEPT_S)
        say(
            f"{name}: in the trash until {until}, {size} are free then; "
            f"`quicksand-tui saves restore {name}` restores it"
        )
    heirs = [f"the save {clean(child)}" for child in removed.children]
    heirs += [f"the sandbox {clean(sandbox)}" for sandbox in removed.sandboxes]
    if heirs:
        say(f"{name}: {', '.join(heirs)} came from it, and keep what they share with it")


@command_of("saves restore")
def restore(name: str, new_name: str | None) -> int:
    """Restore a save from the trash.

    It is the one with this id, or the one of this name that was removed last. `saves trash` lists
    them.
    """

    async def main(signals: Signals) -> int:
        async with chosen_host() as host:
            return await bring_save_back(name, new_name, host)

    return run_async(main)


async def bring_save_back(name: str, new_name: str | None, host: RemoteHost | None) -> int:
    """Brings a save of a machine back, and prints its name. Returns the exit code."""
    verb = saves.bring_back([name], name=new_name or "")
    restored = await verb.carry_out("", host=host)
    _say_swept(restored.swept)
    for error in restored.failed:
        raise error
    print(*map(clean, restored.names), flush=True)
    return Exit.OK


def purge(places: Sequence[Path]) -> int:
    """Removes entries of the trash for good; returns the exit code."""

    async def main(signals: Signals) -> int:
        await saves.purge(places).carry_out("")
        return Exit.OK

    return run_async(main)


@command_of("saves prune")
def prune(older_than: float | None, keep: int | None, dry_run: bool, as_json: bool) -> int:
    """Move old saves to the trash.

    These are saves in ./.quicksand and your own, as `saves` lists them. Saves that cannot be read
    stay: `saves rm` removes them by name.
    """
    if older_than is None and keep is None:
        raise click.UsageError("say which may go: --older-than DAYS, --keep N, or both")
    seconds = None if older_than is None else older_than * DAY_S

    async def main(signals: Signals) -> int:
        async with chosen_host() as host:
            pruned = await things_of(host).prune_saves(
                older_than_s=seconds, keep=keep, dry_run=dry_run
            )
        _tell_pruned(pruned, dry_run=dry_run, as_json=as_json)
        return Exit.OK

    return run_async(main)


def _tell_pruned(pruned: PrunedSaves, *, dry_run: bool, as_json: bool) -> None:
    old, total = pruned.saves, pruned.frees
    if as_json:
        told = [
            {"name": i.name, "path": str(i.path), "created": i.created, "own": i.own} for i in old
        ]
        print_json({"removed": not dry_run, "frees": total, "saves": told})
    else:
        if old:
            rows = [(i.name, show_size(i.own), show_age(i.created), i.note) for i in old]
            print_table(("NAME", "OWN", "AGE", "NOTE"), rows)
        where = (
            "would be free once they are gone for good"
            if dry_run
            else ("will be free in a week; `quicksand-tui saves trash --empty` frees them now")
        )
        say(f"{show_size(total)} {where}" if old else "there are no such saves")
    _say_swept(pruned.swept)


def _say_swept(swept: Swept) -> None:
    """Names the things that have been in the trash for long enough, and are gone now."""
    if swept.error is not None:
        complain(swept.error, about="the trash")
    elif swept.gone:
        names = ", ".join(map(clean, swept.gone))
        say(f"a week in the trash has passed for {names}: gone for good")


@command_of("saves rebase")
def rebase(name: str, onto: str | None, as_json: bool) -> int:
    """Move a save to another image, or another version of its own.

    Its whole disk is copied. The disk's contents stay as they are; guests boot it with the new
    image's kernel. The old save goes to the trash, and `images prune` may remove the old image.
    """
    rate = Rate(f"{name}: onto {onto or 'the newest version of its image'}")

    async def main(signals: Signals) -> int:
        async with chosen_host() as host, shown(rate.look):
            made = await things_of(host).rebase_save(name, onto=onto, progress=rate.report)
        found = made.require()
        if as_json:
            print_json({"path": str(made.root), **found.to_json()})
        else:
            size = show_size(sum(layer.size for layer in found.layers or ()))
            print(f"{clean(made.name)}  {size}  {found.base}")
        return Exit.OK

    return run_async(main)


@command_of("saves verify")
def verify(names: tuple[str, ...], deep: bool, as_json: bool) -> int:
    """Check the files, sizes, headers and images of saves.

    Without names, all saves are checked. NAME can also be the file of a snapshot. The exit status
    is 1 if a save is damaged or its image is missing.
    """
    rate = Rate("verifying")

    async def main(signals: Signals) -> int:
        verb = verdicts.verify([], deep=deep, names=names)
        async with chosen_host() as host, shown(rate.look):
            verified = await verb.carry_out("", rate.take, host=host)
        found = verified.verdicts
        if as_json:
            print_json(verb.facts("", verified))
        else:
            _print(found)
            if deep:
                read, took = megabytes_text(verified.size), seconds_text(verified.seconds)
                say(f"read {read} in {took}")
            elif found:
                say("quick check; --deep reads every byte")
        is_good = all(verdict.is_whole for verdict in found)
        return Exit.OK if is_good else Exit.FAILURE

    return run_async(main)


def _print(verdicts: Sequence[Verdict]) -> None:
    rows: list[tuple[object, ...]] = []
    for verdict in verdicts:
        name = verdict.save.name
        if verdict.is_whole:
            rows.append((name, "whole" if verdict.deep else "ok", "", ""))
        rows += [(name, "BAD", file, text) for file, text in verdict.problems.items()]
    print_table(("NAME", "STATE", "FILE", "PROBLEM"), rows)


HEADS = ("NAME", "OWN", "SHARED", "BASE", "AGE", "PARENT", "CHILDREN", "FROM", "NOTE")
NAMES_SHOWN = 2
NOTE_MAX = 60


@command_of("saves")
@click.pass_context
def saves_command(ctx: click.Context, everywhere: bool, as_json: bool) -> None:
    """List, remove, restore, verify, prune, rebase, send and fetch saves.

    Without a further word the saves are listed: those in ./.quicksand, your own, and those in this
    directory. Deleting one frees its OWN bytes; SHARED ones belong to other saves or sandboxes,
    too.
    """
    if ctx.invoked_subcommand is None:
        _list(everywhere, as_json)
    elif as_json:
        raise click.UsageError(f"--json goes behind {ctx.invoked_subcommand}", ctx)
    elif everywhere:
        raise click.UsageError("--all goes with the list", ctx)


@command_of("saves list")
def list_saves(everywhere: bool, as_json: bool) -> None:
    """List saves."""
    _list(everywhere, as_json)


def _list(everywhere: bool, as_json: bool) -> None:
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
    base = "" if info.base is None else f"{info.base.name} {info.base.version}".strip()
    return (
        info.name,
        show_size(info.own),
        show_size(info.shared) if info.shared else "",
        base,
        show_age(info.created),
        "" if info.parent is None else info.parent.name,
        _some(info.children),
        _from(info),
        info.note[:NOTE_MAX],
    )


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" +{more}" if more > 0 else "")


def _origin(info: SaveInfo) -> str:
    """Returns the place where a save was found: the workspace of this directory, the user's own
    saves, the directory itself, or elsewhere."""
    names = ("workspace", "user", "here")
    known = dict(zip((store.root for store in all_stores(paths())), names, strict=True))
    return known.get(info.store.root, str(info.store.root))


def _from(info: SaveInfo) -> str:
    origin = _origin(info)
    if info.is_own:
        return origin
    return f"{origin}, imported" if origin == "user" else f"{origin}, not made here"


def facts(info: SaveInfo) -> dict[str, Any]:
    """Returns a save's fields for `--json`."""
    manifest, base = info.save.manifest, info.base
    told: dict[str, Any] = {
        "name": info.name,
        "path": str(info.save.root),
        "from": _origin(info),
        "made_here": info.is_own,
        "left_out": list(info.left_out),
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


@command_of("saves trash")
def trash(ids: tuple[str, ...], empty: bool, as_json: bool) -> int:
    """List removed and replaced saves, which can be restored for a week."""
    stores = known_stores(paths())
    found = _chosen(list_trash(stores), ids)
    total = freed_by(trashed.root for trashed in found)
    told = [trashed_save_facts(trashed) for trashed in found]
    if empty and (code := purge([trashed.root for trashed in found])):
        return code
    if as_json:
        print_json({"emptied": empty, "frees": total, "saves": told})
        return Exit.OK
    print_table(("NAME", "REMOVED", "UNTIL", "FREES", "ID", "NOTE"), [_trash_row(t) for t in told])
    if empty:
        say(f"{show_size(total)} are free again" if found else "there was nothing in it")
    else:
        say(f"{show_size(total)} will be free" if found else "there is nothing in it")
    return Exit.OK


def _chosen(found: Sequence[Trashed], ids: Sequence[str]) -> Sequence[Trashed]:
    """Returns the entries that the ids name, or all of the trash without ids."""
    if missing := set(ids) - {trashed.id for trashed in found}:
        raise SaveNotFoundError(
            f"there is no {min(missing)!r} in the trash", hint="`saves trash` lists the ids"
        )
    return [trashed for trashed in found if not ids or trashed.id in ids]


def trashed_save_facts(trashed: Trashed) -> dict[str, Any]:
    """Returns the fields of a save in the trash for `--json`."""
    manifest = trashed.save.manifest
    return {
        "id": trashed.id,
        "name": trashed.save.name,
        "path": str(trashed.save.root),
        "removed": trashed.removed,
        "until": trashed.removed + TRASH_KEPT_S if trashed.was_save else None,
        "frees": freed_by([trashed.root]),
        "note": "" if manifest is None else manifest.note,
        "error": trashed.save.error or None,
    }


def _trash_row(told: dict[str, Any]) -> tuple[object, ...]:
    return (
        told["name"],
        show_age(told["removed"]),
        "kept" if told["until"] is None else date_text(told["until"]),
        show_size(told["frees"]),
        told["id"],
        told["error"] or told["note"][:NOTE_MAX],
    )
