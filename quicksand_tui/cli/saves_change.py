"""`quicksand-tui saves rm, restore, prune`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from quicksand_tui.cli.exits import Exit
from quicksand_tui.cli.options import complete_saves, complete_trash, json_option

if TYPE_CHECKING:
    from quicksand.saves.keeping import Removed

    from quicksand_tui.cli.runner import Signals

DAY_S = 86400


@click.command("rm")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_saves)
@click.option("--now", is_flag=True, help="For good, not to the trash.")
def remove(names: tuple[str, ...], now: bool) -> int:
    """Move saves to the trash, where they are kept for a week.

    Sandboxes and saves that came from them keep what they share with them; they are named.
    """
    from quicksand.errors import QuicksandError
    from quicksand.host.paths import paths
    from quicksand.saves.keeping import remove_save

    from quicksand_tui.cli.output import complain

    failed = False
    for name in dict.fromkeys(names):
        try:
            removed = remove_save(name, paths(), now=now)
        except QuicksandError as error:
            failed = True
            complain(error, about="" if name in str(error) else name)
        else:
            print(removed.info.name, flush=True)
            _explain(removed)
    _sweep()
    return Exit.FAILURE if failed else Exit.OK


def _explain(removed: Removed) -> None:
    from quicksand.saves.store import TRASH_KEPT_S

    from quicksand_tui.cli.output import say, show_date, show_size
    from quicksand_tui.cli.text import clean

    info, size = removed.info, show_size(removed.info.own)
    name = clean(info.name)
    if removed.trashed is None:
        say(f"{name}: {size} are free again")
    else:
        until = show_date(removed.trashed.removed + TRASH_KEPT_S)
        say(
            f"{name}: in the trash until {until}, {size} are free then; "
            f"`quicksand-tui saves restore {name}` brings it back"
        )
    heirs = [f"the save {clean(child)}" for child in info.children]
    heirs += [f"the sandbox {clean(sandbox)}" for sandbox in info.sandboxes]
    if heirs:
        say(f"{name}: {', '.join(heirs)} came from it, and keep what they share with it")


@click.command("restore")
@click.argument("name", metavar="NAME", shell_complete=complete_trash)
@click.option("--as", "new_name", metavar="NEW", help="Give it another name.")
def restore(name: str, new_name: str | None) -> None:
    """Bring a save back from the trash: of that name the one removed last, or the one of that id.

    `saves trash` lists what is there.
    """
    from quicksand.host.paths import paths
    from quicksand.saves.keeping import restore_save

    print(restore_save(name, paths(), new_name=new_name).name, flush=True)
    _sweep()


@click.command("prune")
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="Only those that are older than this.",
)
@click.option(
    "--keep", type=click.IntRange(min=0), metavar="N", help="Not the newest N, of all of them."
)
@click.option("--dry-run", is_flag=True, help="Remove nothing, only list.")
@json_option
def prune(older_than: float | None, keep: int | None, dry_run: bool, as_json: bool) -> None:
    """Move old saves to the trash: those in ./.quicksand and your own, as `saves` lists them.

    Saves that cannot be read stay: `saves rm` removes them by name.
    """
    from quicksand.host.paths import paths
    from quicksand.saves.census import Census
    from quicksand.saves.keeping import choose_old, freed_together, remove_all

    from quicksand_tui.cli.output import print_json, print_table, say, show_age, show_size

    if older_than is None and keep is None:
        raise click.UsageError("say which may go: --older-than DAYS, --keep N, or both")
    seconds = None if older_than is None else older_than * DAY_S
    old = choose_old(Census(paths()).list(), older_than_s=seconds, keep=keep)
    total = freed_together(old)
    if not dry_run:
        remove_all(old)
    if as_json:
        told = [
            {"name": i.name, "path": str(i.save.root), "created": i.created, "own": i.own}
            for i in old
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
    if not dry_run:
        _sweep()


def _sweep() -> None:
    """What has been in the trash long enough goes."""
    from quicksand.errors import QuicksandError
    from quicksand.host.paths import paths
    from quicksand.saves.keeping import sweep

    from quicksand_tui.cli.output import complain, say
    from quicksand_tui.cli.text import clean

    try:
        gone = sweep(paths())
    except QuicksandError as error:  # what was asked for is done
        complain(error, about="the trash")
        return
    if gone:
        names = ", ".join(clean(trashed.save.name) for trashed in gone)
        say(f"a week in the trash has passed for {names}: gone for good")


@click.command("rebase")
@click.argument("name", shell_complete=complete_saves)
@click.option("--onto", metavar="IMAGE", help="The image.  [default: its own, as it is now]")
@json_option
def rebase(name: str, onto: str | None, as_json: bool) -> int:
    """Bring a save to another image, or to another version of its own: its disk is copied whole.

    The disk stays as it is; guests boot with the kernel of that image then. The old save goes to
    the trash, and `images prune` may remove the old image.
    """
    from quicksand.host.paths import paths
    from quicksand.host.threads import in_thread_to_the_end
    from quicksand.saves.finding import find_save
    from quicksand.saves.rebasing import rebase as rebase_save

    from quicksand_tui.cli.output import print_json, show_size
    from quicksand_tui.cli.progress import Rate, shown
    from quicksand_tui.cli.runner import run_async

    save = find_save(name, paths())
    manifest = save.require()
    image = onto or (manifest.base.name if manifest.base else manifest.config.image)
    rate = Rate(f"{save.name}: onto {image}")

    async def main(signals: Signals) -> int:
        async with shown(rate.describe):
            made = await in_thread_to_the_end(
                lambda: rebase_save(save, image, paths(), report=rate.report)
            )
        found = made.require()
        if as_json:
            print_json({"path": str(made.root), **found.to_json()})
        else:
            size = show_size(sum(layer.size for layer in found.layers or ()))
            print(f"{made.name}  {size}  {found.base}")
        return Exit.OK

    return run_async(main)
