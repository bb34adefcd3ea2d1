"""`quicksand-tui start, stop, kill, pause, resume, rm`: each works on several sandboxes at once,
independently; `trash, restore`: what was removed, and how to get it back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
from quicksand.base.errors import QuicksandError, SandboxNotFoundError, StateError

from quicksand_tui.cli.commands import command_of
from quicksand_tui.cli.output import Exit, complain_of, tell
from quicksand_tui.cli.saves import trashed_save_facts
from quicksand_tui.verbs import life

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quicksand.life.sandbox_removal import RemovedSandbox
    from quicksand.life.sandbox_trash import SandboxTrash
    from quicksand.records.registry import Registry
    from quicksand.records.sandboxes import Entry
    from quicksand.records.trash import TrashedSandbox
    from quicksand.sandbox import Sandbox
    from quicksand.saves.store import SaveStore

    from quicksand_tui.cli.runner import Signals
    from quicksand_tui.verbs.record import SandboxVerb


AT_ONCE = 8
"""How many sandboxes are worked on at the same time."""

Work = Callable[[str], Awaitable[None]]


def _each(names: Sequence[str], work: Work, *, doing: str) -> int:
    """Does ``work`` for every name; prints the names that succeeded and reports the errors of the
    others. Returns the exit code."""
    from quicksand_tui.cli.progress import shown
    from quicksand_tui.cli.runner import run_async
    from quicksand_tui.cli.standing import Standing

    pending = dict.fromkeys(names)
    failures: list[str] = []
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> None:
        async with gate:
            try:
                await work(name)
            except QuicksandError as error:
                failures.append(name)
                complain_of(name, error)
            else:
                tell(name)
            finally:
                del pending[name]

    def look() -> Standing:
        return Standing(text=f"{doing} {', '.join(pending)[:60]}")

    async def main(signals: Signals) -> int:
        async with shown(look), asyncio.TaskGroup() as group:
            for name in list(pending):
                group.create_task(one(name), name=f"quicksand-{name}")
        return Exit.FAILURE if failures else Exit.OK

    return run_async(main)


def _do(
    verb: SandboxVerb[None],
    names: Sequence[str],
    opened: Callable[[Sandbox], None] = lambda _: None,
) -> int:
    """Carries out a verb for every name, as `_each`. ``opened`` gets each sandbox first."""
    return _each(names, lambda name: verb.carry_out(name, opened=opened), doing=verb.doing)


def _registry() -> Registry:
    from quicksand.base.paths import paths
    from quicksand.records.registry import Registry

    return Registry(paths())


def _names(wanted: Callable[[Entry], bool]) -> list[str]:
    return [entry.name for entry in _registry().list() if wanted(entry)]


def _names_or_all(names: tuple[str, ...], chosen: bool, option: str, among: list[str]) -> list[str]:
    if chosen and names:
        raise click.UsageError(f"give names or {option}, not both")
    if not chosen and not names:
        raise click.UsageError(f"name a sandbox, or say {option}")
    return among if chosen else list(names)


@command_of("start")
def start_command(names: tuple[str, ...], at: str | None) -> int:
    """Start stopped sandboxes again.

    They run on when this ends, with the disks that they had. With --at the disk is the
    checkpoint's; what it was is kept in the tree.
    """
    from quicksand_tui.cli.checkpoints import newest_automatic
    from quicksand_tui.cli.output import say
    from quicksand_tui.model.text import clean

    if at is not None and len(names) > 1:
        raise click.UsageError("--at goes with one sandbox: each has checkpoints of its own")

    async def work(name: str) -> None:
        from quicksand.sandbox import Sandbox

        sandbox = Sandbox.open(name)
        before = {checkpoint.id for checkpoint in sandbox.checkpoints()}
        await sandbox.start(at=at)
        sandbox.detach()
        sandbox.close()
        for notice in sandbox.notices:
            say(f"{clean(name)}: {clean(notice)}")
        if at is not None and (kept := newest_automatic(sandbox, before)) is not None:
            say(f"the disk as it was is kept as {clean(kept.tag)!r}: `start --at {kept.id}`")

    return _each(names, work, doing="starting")


@command_of("stop")
def stop_command(names: tuple[str, ...], grace: float, everything: bool) -> int:
    """Stop sandboxes: sync, power down.

    Those without a name are removed with that. No error for one that is stopped already.
    """
    live = _names(lambda entry: entry.is_live) if everything else []
    chosen = _names_or_all(names, everything, "--all", live)
    return _do(life.stop_within(grace), chosen, opened=_say_written)


@command_of("kill")
def kill_command(names: tuple[str, ...]) -> int:
    """Stop sandboxes at once, as pulling the plug would.

    What the guest has not written to its disk is lost.
    """
    return _do(life.KILL, names, opened=_say_written)


def _say_written(sandbox: Sandbox) -> None:
    from quicksand_tui.cli.written import say_written

    say_written(sandbox)


@command_of("pause")
def pause_command(names: tuple[str, ...]) -> int:
    """Freeze sandboxes where they are.

    They keep their memory and take no CPU time until `resume`.
    """
    return _do(life.PAUSE, names)


@command_of("resume")
def resume_command(names: tuple[str, ...]) -> int:
    """Let paused sandboxes go on."""
    return _do(life.RESUME, names)


@command_of("rm")
def rm_command(names: tuple[str, ...], force: bool, now: bool, all_stopped: bool) -> int:
    """Move sandboxes to the trash, where they are kept for a week with their checkpoints.

    The last instant of one that runs is kept as a checkpoint: `restore --start` goes on from there.
    Those without a name are gone for good. There is no question asked.
    """
    from quicksand.records.sandboxes import Status

    ended = (Status.STOPPED, Status.CRASHED)
    stopped = _names(lambda entry: entry.status in ended) if all_stopped else []

    async def work(name: str) -> None:
        from quicksand.life.sandbox_removal import remove_sandbox

        why = "removed while it ran" if force else ""
        removed = await remove_sandbox(_registry(), name, now=now, stop=force, why=why)
        _explain(removed)

    chosen = _names_or_all(names, all_stopped, "--all-stopped", stopped)
    return _each(chosen, work, doing="removing")


def _explain(removed: RemovedSandbox) -> None:
    """Tells where a removed sandbox is, and which parts of it are not in the trash."""
    from quicksand_tui.cli.output import say
    from quicksand_tui.model.amounts import date_text
    from quicksand_tui.model.text import clean

    name = clean(removed.name)
    if removed.trashed is None:
        say(f"{name}: gone for good")
        return
    if removed.not_kept:
        why = clean(removed.not_kept)
        say(f"{name}: only its disk and its checkpoints are kept, not what ran: {why}")
    start = " --start" if removed.trashed.instant else ""
    until = date_text(removed.trashed.until)
    say(f"{name}: in the trash until {until}; `quicksand-tui restore{start} {name}` brings it back")


HEADS = ("NAME", "WHAT", "REMOVED", "UNTIL", "FREES", "ID", "NOTE")
NOTE_MAX = 60


def _sandbox_trash() -> SandboxTrash:
    from quicksand.base.paths import paths
    from quicksand.life.sandbox_trash import SandboxTrash
    from quicksand.records.registry import Registry

    return SandboxTrash(Registry(paths()))


def _stores() -> tuple[SaveStore, ...]:
    from quicksand.base.paths import paths
    from quicksand.saves.workspaces import known_stores

    return tuple(known_stores(paths()))


@command_of("trash")
def trash_command(ids: tuple[str, ...], empty: bool, as_json: bool) -> None:
    """List sandboxes and saves that were removed, and can be brought back for a week."""
    from quicksand.base.footprint import Footprint
    from quicksand.saves.census import list_trash

    from quicksand_tui.cli.output import print_json, print_table, say, show_size

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
    if empty:
        sandboxes.empty([found.id for found in removed])
        for store in stores:
            wanted = {found.id for found in saves}
            if doomed := [found.id for found in store.trash() if found.id in wanted]:
                store.empty_trash(doomed)
    if as_json:
        print_json({"emptied": empty, "frees": total, "removed": told})
        return
    print_table(HEADS, [_row(found) for found in told])
    if empty:
        say(f"{show_size(total)} are free again" if told else "there was nothing in it")
    else:
        say(_outlook(total) if told else "there is nothing in it")


def _outlook(total: int) -> str:
    from quicksand_tui.cli.output import show_size

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
    from quicksand_tui.cli.output import show_age, show_size
    from quicksand_tui.model.amounts import date_text

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
    """Bring a sandbox or a save back from the trash: of that name the one removed last, or the one
    of that id.

    `trash` lists what is there. A sandbox comes back stopped, with its disk and its checkpoints.
    """
    from quicksand.base.paths import paths
    from quicksand.saves.census import list_trash
    from quicksand.saves.save_removal import restore_save

    from quicksand_tui.cli.output import say
    from quicksand_tui.model.text import clean

    sandboxes = [found for found in _sandbox_trash().list() if name in (found.id, found.name)]
    saves = [t.id for t in list_trash(_stores()) if name in (t.id, t.save.name)]
    if sandboxes and saves:
        raise _ambiguous(name, sandboxes, saves)
    if saves:
        if start:
            raise click.UsageError(f"{name} is a save: `quicksand-tui run {name}` begins with it")
        print(restore_save(name, paths(), new_name=new_name).name, flush=True)
        return Exit.OK
    trash_ = _sandbox_trash()
    found = trash_.find(name)
    entry = trash_.restore(found.id, new_name)
    if start:
        return _start(entry.id, found.instant)
    print(entry.name, flush=True)
    at = f" --at {found.instant}" if found.instant else ""
    say(f"it is stopped: `quicksand-tui start{at} {clean(entry.name)}` lets it go on")
    return Exit.OK


def _ambiguous(
    name: str, sandboxes: Sequence[TrashedSandbox], saves: Sequence[str]
) -> QuicksandError:
    return StateError(
        f"both a sandbox and a save called {name!r} are in the trash",
        hint=f"`quicksand-tui restore {sandboxes[-1].id}` brings the sandbox back, "
        f"`quicksand-tui restore {saves[-1]}` the save",
    )


def _start(id_: str, instant: str) -> int:
    """Resumes a sandbox from the moment of its removal, or boots it. Returns the exit code."""
    from quicksand_tui.cli.runner import run_async

    async def main(signals: Signals) -> int:
        from quicksand.sandbox import Sandbox

        sandbox = Sandbox.open(id_)
        await sandbox.start(at=instant or None)
        sandbox.detach()
        sandbox.close()
        print(sandbox.name, flush=True)
        return Exit.OK

    return run_async(main)
