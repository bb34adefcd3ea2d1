"""`quicksand-tui revert, undo`: back to a checkpoint, and forth again."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from quicksand_tui.cli.options import complete_targets, json_option, sandbox_argument

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox
    from quicksand.snapshots.checkpoint import Checkpoint

    from quicksand_tui.cli.runner import Signals

Change = Callable[["Sandbox"], Awaitable["Checkpoint"]]


@click.command("revert")
@sandbox_argument()
@click.argument("tag", shell_complete=complete_targets)
@click.option("--discard", is_flag=True, help="Do not keep the present: there is no undo then.")
@json_option
def revert(name: str, tag: str, discard: bool, as_json: bool) -> int:
    """Go back to a checkpoint: memory, processes and disk are as they were.

    The present is kept as an automatic checkpoint, and `undo` comes back to it. Commands that run
    end with an error, for what they did has never been.

    TAG is a checkpoint of NAME, or OTHER:TAG one of another sandbox of the same image and shape. It
    becomes one of NAME as well; names, addresses and secrets stay NAME's own.
    """
    hint = f"`quicksand-tui start {name} --at TAG` goes on from a checkpoint"
    change: Change = lambda sandbox: sandbox.revert(tag, keep_now=not discard)  # noqa: E731
    return _go(name, change, hint=hint, as_json=as_json)


@click.command("undo")
@sandbox_argument()
@json_option
def undo(name: str, as_json: bool) -> int:
    """Take the last revert back.

    A second undo takes the first one back.
    """
    hint = f"`quicksand-tui tree {name}` lists what `start {name} --at TAG` can go on from"
    return _go(name, lambda sandbox: sandbox.undo(), hint=hint, as_json=as_json)


def _go(name: str, change: Change, *, hint: str, as_json: bool) -> int:
    from quicksand_tui.cli.attaching import opened
    from quicksand_tui.cli.exits import Exit
    from quicksand_tui.cli.output import print_json
    from quicksand_tui.cli.progress import shown
    from quicksand_tui.cli.runner import run_async

    async def main(signals: Signals) -> int:
        with opened(name, hint=hint) as sandbox:
            before = {made.id for made in sandbox.checkpoints()}
            started = time.perf_counter()
            async with shown(lambda seconds: f"{name}: going back, {seconds:.1f} s"):
                reached = await change(sandbox)
            seconds = time.perf_counter() - started
            kept = newest_automatic(sandbox, before)
        if as_json:
            facts = {"sandbox": sandbox.name, "seconds": round(seconds, 4)}
            print_json({**facts, "at": asdict(reached), "kept": asdict(kept) if kept else None})
        else:
            _tell(sandbox.name, reached, kept, seconds)
        return Exit.OK

    return run_async(main)


def newest_automatic(sandbox: Sandbox, before: set[str]) -> Checkpoint | None:
    """What the present was kept as."""
    new = [made for made in sandbox.checkpoints() if made.auto and made.id not in before]
    return new[-1] if new else None


def _tell(name: str, reached: Checkpoint, kept: Checkpoint | None, seconds: float) -> None:
    from quicksand_tui.cli.output import show_age
    from quicksand_tui.cli.text import clean

    age = show_age(reached.created)
    print(f"{clean(name)} is back at {clean(reached.tag)!r}, from {age} ago ({seconds:.2f} s)")
    if kept is None:
        print("what was until now is not kept", flush=True)
    else:
        print(
            f"what was until now is kept as {clean(kept.tag)!r}: "
            f"`quicksand-tui undo {clean(name)}` goes back to it",
            flush=True,
        )
