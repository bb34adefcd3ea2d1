"""`quicksand-tui rm, trash, restore`: removes sandboxes, and gets them back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from quicksand.base.errors import QuicksandError, SandboxNotFoundError, StateError
from quicksand.base.footprint import Footprint
from quicksand.base.paths import paths
from quicksand.life.sandbox_trash import SandboxTrash
from quicksand.records.registry import Registry
from quicksand.saves.census import list_trash
from quicksand.saves.workspaces import known_stores
from quicksand.things.status import Status

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.each import do_each, names_of, names_or_all
from quicksand_tui.cli.keeping.list_saves import bring_save_back, purge, trashed_save_facts
from quicksand_tui.cli.output import Exit, print_json, print_table, say, show_age, show_size
from quicksand_tui.cli.runner import Signals, chosen_host, run_async
from quicksand_tui.model.amounts import date_text
from quicksand_tui.model.text import clean
from quicksand_tui.verbs import trashing
from quicksand_tui.verbs.call import things_of

if TYPE_CHECKING:
    from quicksand.life.kept_things import InTrash
    from quicksand.life.sandbox_removal import RemovedSandbox
    from quicksand.records.trash import TrashedSandbox
    from quicksand.saves.store import SaveStore


@command_of("rm")
def rm_command(names: tuple[str, ...], force: bool, now: bool, all_stopped: bool) -> int:
    """Move sandboxes to the trash, which keeps them and their checkpoints for a week.

    The last moment of a running one is kept as a checkpoint, and `restore --start` continues from
    it. Sandboxes without a name are deleted for good. No question is asked.
    """
    ended = (Status.STOPPED, Status.CRASHED)
    stopped = names_of(lambda entry: entry.status in ended) if all_stopped else []
    verb = trashing.remove(stop=force, now=now, why="removed while it ran" if force else "")

    async def work(name: str) -> None:
        async with chosen_host() as host:
            removed = await verb.carry_out(name, host=host)
        _explain(removed)

    chosen = names_or_all(names, all_stopped, "--all-stopped", stopped)
    return do_each(chosen, work, doing=verb.doing)


def _explain(removed: RemovedSandbox) -> None:
    """Tells where a removed sandbox is, and which parts of it are not in the trash."""
    name = clean(removed.name)
    if removed.trashed is None:
        say(f"{name}: gone for good")
        return
    if removed.not_kept:
        why = clean(removed.not_kept)
        say(f"{name}: only its disk and its checkpoints are kept, not what ran: {why}")
    start = " --start" if removed.trashed.instant else ""
    until = date_text(removed.trashed.until)
    say(f"{name}: in the trash until {until}; `quicksand-tui restore{start} {name}` restores it")


HEADS = ("NAME", "WHAT", "REMOVED", "UNTIL", "FREES", "ID", "NOTE")
NOTE_MAX = 60


def _sandbox_trash() -> SandboxTrash:
    return SandboxTrash(Registry(paths()))


def _stores() -> tuple[SaveStore, ...]:
    return tuple(known_stores(paths()))


@command_of("trash")
def trash_command(ids: tuple[str, ...], empty: bool, as_json: bool) -> int:
    """List removed sandboxes and saves, which can be restored for a week."""
    sandboxes, stores = _sandbox_trash(), _stores()
    removed = [found for found in sandboxes.list() if not ids or found.id in ids]
    saves = [found for found in list_trash(stores) if not ids or found.id in ids]
    if missing := set(ids) - {found.id for found in removed} - {found.id for found in saves}:
        raise SandboxNotFoundError(
            f"there is no {min(missing)!r} in the trash", hint="`quicksand-tui trash` lists the ids"
        )
    places = [place for found in removed for place in found.places]
    total = Footprint(*places, *(found.root for found in saves)).own
    told = [_facts(found) for found in removed]
    told += [{"kind": "save", **trashed_save_facts(found)} for found in saves]
    told.sort(key=lambda found: float(found["removed"]))
    places_of_all = [*(found.root for found in removed), *(found.root for found in saves)]
    if empty and (code := purge(places_of_all)):
        return code
    if as_json:
        print_json({"emptied": empty, "frees": total, "removed": told})
        return Exit.OK
    print_table(HEADS, [_row(found) for found in told])
    if empty:
        say(f"{show_size(total)} are free again" if told else "there was nothing in it")
    else:
        say(_outlook(total) if told else "there is nothing in it")
    return Exit.OK


def _outlook(total: int) -> str:
    return (
        f"{show_size(total)} will be free; `quicksand-tui restore NAME` brings one back, "
        "`quicksand-tui trash --empty` removes all for good"
    )


def _facts(found: TrashedSandbox) -> dict[str, Any]:
    return {
        "kind": "sandbox",
        "id": found.id,
        "name": found.name,
        "path": str(found.root),
        "removed": found.removed,
        "until": found.until,
        "frees": found.footprint.own,
        "note": found.why,
        "instant": found.instant or None,
        "error": None if found.record is not None else "its record cannot be read",
    }


def _row(told: dict[str, Any]) -> tuple[object, ...]:
    return (
        told["name"],
        told["kind"],
        show_age(told["removed"]),
        date_text(told["until"]),
        show_size(told["frees"]),
        told["id"],
        told["error"] or told["note"][:NOTE_MAX],
    )


@command_of("restore")
def restore_command(name: str, new_name: str | None, start: bool) -> int:
    """Restore a sandbox or a save from the trash: the one with this id, or the one of this name
    that was removed last.

    `trash` lists them. A sandbox comes back stopped, with its disk and its checkpoints.
    """

    async def main(signals: Signals) -> int:
        async with chosen_host() as host:
            meant = await things_of(host).find_in_trash(name)
            if meant.sandboxes and meant.saves:
                raise _ambiguous(name, meant)
            if meant.saves:
                if start:
                    hint = f"`quicksand-tui run {name}` begins with it"
                    raise click.UsageError(f"{name} is a save: {hint}")
                return await bring_save_back(name, new_name, host)
            verb = trashing.bring_back(new_name=new_name, start=start)
            back = await verb.carry_out(name, host=host)
        print(clean(back.name), flush=True)
        if not start:
            at = f" --at {back.instant}" if back.instant else ""
            say(f"it is stopped: `quicksand-tui start{at} {clean(back.name)}` resumes it")
        return Exit.OK

    return run_async(main)


def _ambiguous(name: str, meant: InTrash) -> QuicksandError:
    return StateError(
        f"both a sandbox and a save called {name!r} are in the trash",
        hint=f"`quicksand-tui restore {meant.sandboxes[-1]}` brings the sandbox back, "
        f"`quicksand-tui restore {meant.saves[-1]}` the save",
    )
