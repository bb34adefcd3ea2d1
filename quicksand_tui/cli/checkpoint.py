"""`quicksand-tui checkpoint`: keep an instant of a sandbox, or give up some that were kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from quicksand_tui.cli.options import complete_tags, json_option, sandbox_argument

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

    from quicksand_tui.cli.runner import Signals

REMOVE, PIN, UNPIN, NOTE = "rm", "pin", "unpin", "note"


class CheckpointCommand(click.Command):
    """Takes a checkpoint, unless its first word is `rm`, `pin`, `unpin` or `note`."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        others = {REMOVE: remove, PIN: pin, UNPIN: unpin, NOTE: write_note}
        if args and (other := others.get(args[0])) is not None:
            return other.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command("checkpoint", cls=CheckpointCommand)
@sandbox_argument()
@click.argument("tag", required=False)
@click.option("-m", "--note", metavar="NOTE", default="", help="Write down what it is.")
@click.option("--replace", is_flag=True, help="Take the place of the checkpoint with this tag.")
@click.option(
    "--tier",
    type=click.Choice(["pages", "internal"]),
    help="How to take it.  [default: the best that is possible]",
)
@json_option
def command(
    name: str, tag: str | None, note: str, replace: bool, tier: str | None, as_json: bool
) -> int:
    """Keep an instant of a running sandbox: memory, processes and disk.

    It stands still for a moment and goes on; `revert` comes back to the instant. Without TAG the
    checkpoint gets a number.

    \b
    quicksand-tui checkpoint rm NAME TAG...    removes checkpoints
    quicksand-tui checkpoint pin NAME TAG...   keeps them from that; `unpin` no longer
    quicksand-tui checkpoint note NAME TAG NOTE  says something else of it
    quicksand-tui checkpoint -- rm             takes one of a sandbox that is called rm
    """
    if replace and tag is None:
        raise click.UsageError("--replace needs the TAG that is to be replaced")

    from quicksand_tui.cli.attaching import opened
    from quicksand_tui.cli.exits import Exit
    from quicksand_tui.cli.output import print_json, print_table, say, show_size
    from quicksand_tui.cli.progress import shown
    from quicksand_tui.cli.runner import run_async
    from quicksand_tui.cli.text import clean

    async def main(signals: Signals) -> int:
        with opened(name, hint=f"`quicksand-tui start {name}` starts it") as sandbox:
            async with shown(lambda seconds: f"{name}: taking a checkpoint, {seconds:.1f} s"):
                made = await sandbox.checkpoint(tag, note=note, replace=replace, tier=tier)
        if as_json:
            print_json({"sandbox": sandbox.name, **asdict(made)})
            return Exit.OK
        row = (made.tag, show_pause(made.pause_s), show_size(made.bytes_written), made.tier)
        print_table(("TAG", "PAUSE", "WRITTEN", "TIER"), [row])
        # Of the usual tier `doctor` tells what would make it faster.
        if made.tier_note and made.tier != "pages":
            say(f"tier {clean(made.tier)}: {clean(made.tier_note)}")
        return Exit.OK

    return run_async(main)


def show_pause(seconds: float) -> str:
    """How long a VM stood still."""
    return f"{seconds * 1000:.0f} ms"


@click.command(REMOVE)
@sandbox_argument()
@click.argument("tags", metavar="TAG...", nargs=-1, required=True, shell_complete=complete_tags)
def remove(name: str, tags: tuple[str, ...]) -> int:
    """Remove checkpoints of a sandbox, running or not.

    What other checkpoints need of them stays. Tags of those that are gone are printed.
    """
    return _each(name, tags, lambda sandbox, tag: sandbox.delete_checkpoint(tag))


@click.command(PIN)
@sandbox_argument()
@click.argument("tags", metavar="TAG...", nargs=-1, required=True, shell_complete=complete_tags)
def pin(name: str, tags: tuple[str, ...]) -> int:
    """Keep checkpoints from being removed, by a slip or as the oldest automatic ones."""
    return _each(name, tags, lambda sandbox, tag: sandbox.pin_checkpoint(tag))


@click.command(UNPIN)
@sandbox_argument()
@click.argument("tags", metavar="TAG...", nargs=-1, required=True, shell_complete=complete_tags)
def unpin(name: str, tags: tuple[str, ...]) -> int:
    """Let checkpoints be removed again."""
    return _each(name, tags, lambda sandbox, tag: sandbox.pin_checkpoint(tag, False))


@click.command(NOTE)
@sandbox_argument()
@click.argument("tag", shell_complete=complete_tags)
@click.argument("note")
def write_note(name: str, tag: str, note: str) -> int:
    """Write another note to a checkpoint; an empty one takes it away."""
    return _each(name, (tag,), lambda sandbox, tag: sandbox.note_checkpoint(tag, note))


def _each(name: str, tags: tuple[str, ...], work: Callable[[Sandbox, str], Awaitable[None]]) -> int:
    """Do ``work`` for every tag; print those that are done, tell the errors of the others."""
    from quicksand.errors import QuicksandError
    from quicksand.sandbox import Sandbox

    from quicksand_tui.cli.exits import Exit
    from quicksand_tui.cli.output import complain
    from quicksand_tui.cli.runner import run_async
    from quicksand_tui.cli.text import clean

    async def main(signals: Signals) -> int:
        sandbox = Sandbox.open(name)
        failures = 0
        try:
            for tag in dict.fromkeys(tags):
                try:
                    await work(sandbox, tag)
                except QuicksandError as error:
                    failures += 1
                    complain(error)
                else:
                    print(clean(tag), flush=True)
        finally:
            sandbox.close()
        return Exit.FAILURE if failures else Exit.OK

    return run_async(main)
