"""`quicksand-tui saves, rm, trash, restore`: lists, checks, sends and removes saves, which are
disks that outlive their sandbox; removes sandboxes; and brings both back."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import quicksand
from quicksand.base.errors import (
    QuicksandError,
    SandboxNotFoundError,
    SaveNotFoundError,
    StateError,
)
from quicksand.base.footprint import Footprint
from quicksand.base.paths import paths
from quicksand.records.registry import Registry
from quicksand.records.trash import TRASH_KEPT_S
from quicksand.saves.census import Census, freed_by, list_trash
from quicksand.saves.finding import known_stores
from quicksand.things.fact import json_of
from quicksand.things.save import SAVE, TRASHED
from quicksand.things.status import Status

from quicksand_tui.cli import lazy_commands as lazy
from quicksand_tui.cli.carrying import do_each, names_of, names_or_all
from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import (
    Exit,
    complain,
    complain_of,
    print_json,
    print_table,
    print_things,
    say,
    show_age,
    show_size,
)
from quicksand_tui.cli.progress_display import Rate, shown
from quicksand_tui.cli.runner import Signals, chosen_host, run_async
from quicksand_tui.model.amounts import date_text, megabytes_text, seconds_text
from quicksand_tui.model.text import clean
from quicksand_tui.verbs import saves, trashing, verdicts
from quicksand_tui.verbs.call import things_of

if TYPE_CHECKING:
    from quicksand.hosted.remote_host import RemoteHost
    from quicksand.hosted.save_moving import MovedSave
    from quicksand.life.kept_things import InTrash, PrunedSaves, RemovedSave, Swept
    from quicksand.records.trash import RemovedSandbox
    from quicksand.saves.store import SaveStore, Trashed
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
        print_json([json_of(info, SAVE) for info in found])
        return
    print_things(found, SAVE)
    if not found:
        say("there are no saves yet: `quicksand-tui save SANDBOX NAME` makes one")


@command_of("saves trash")
def trash(ids: tuple[str, ...], empty: bool, as_json: bool) -> int:
    """List removed and replaced saves, which can be restored for a week."""
    stores = known_stores(paths())
    found = _chosen(list_trash(stores), ids)
    total = freed_by(trashed.root for trashed in found)
    told = [trashed.facts for trashed in found]
    if empty and (code := purge([trashed.root for trashed in found])):
        return code
    if as_json:
        saves_ = [json_of(one, TRASHED, without=("kind",)) for one in told]
        print_json({"emptied": empty, "frees": total, "saves": saves_})
        return Exit.OK
    print_things(told, TRASHED, without=("kind",))
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


Move = Callable[..., Coroutine[Any, Any, "MovedSave"]]


@command_of("saves send")
def send(
    name: str, to: str, new_name: str | None, replace: bool, trust: bool, as_json: bool
) -> int:
    """Send a save of this machine and its image to another one.

    Only what is not there yet is sent: of a save that lies on one that was sent before, its own
    layer. If the connection breaks, it goes on where it was. HOST is a name of `hosts`, or an
    address.
    """
    move = quicksand.RemoteHost(to).send_save
    return _move(move, name, f"to {to}", new_name, replace, trust, as_json)


@command_of("saves fetch")
def fetch(
    name: str, source: str, new_name: str | None, replace: bool, trust: bool, as_json: bool
) -> int:
    """Fetch a save and its image from another machine.

    Only what is not here yet is fetched. HOST is a name of `hosts`, or an address.
    """
    move = quicksand.RemoteHost(source).fetch_save
    return _move(move, name, f"from {source}", new_name, replace, trust, as_json)


def _move(
    move: Move,
    name: str,
    way: str,
    new_name: str | None,
    replace: bool,
    trust: bool,
    as_json: bool,
) -> int:
    rate = Rate(f"{name}: {way}")

    async def main(signals: Signals) -> int:
        async with shown(rate.look):
            moved = await move(
                name,
                new_name=new_name or "",
                replace=replace,
                trusted=trust,
                progress=rate.report,
            )
        if as_json:
            print_json(asdict(moved))
            return Exit.OK
        print(moved.name, flush=True)
        for note in (_how(moved), *moved.notes):
            say(clean(f"{moved.name}: {note}"))
        return Exit.OK

    return run_async(main)


def _how(moved: MovedSave) -> str:
    if moved.was_there:
        return "it was there already"
    return (
        f"{show_size(moved.sent)} were sent" if moved.sent else "all its files were there already"
    )


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
        _explain_removed(removed)

    chosen = names_or_all(names, all_stopped, "--all-stopped", stopped)
    return do_each(chosen, work, doing=verb.doing)


def _explain_removed(removed: RemovedSandbox) -> None:
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


def _sandbox_trash() -> lazy.SandboxTrash:
    return lazy.SandboxTrash(Registry(paths()))


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
    told = [*(found.facts for found in removed), *(found.facts for found in saves)]
    told.sort(key=lambda found: found.removed)
    places_of_all = [*(found.root for found in removed), *(found.root for found in saves)]
    if empty and (code := purge(places_of_all)):
        return code
    if as_json:
        print_json(
            {"emptied": empty, "frees": total, "removed": [json_of(one, TRASHED) for one in told]}
        )
        return Exit.OK
    print_things(told, TRASHED)
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
