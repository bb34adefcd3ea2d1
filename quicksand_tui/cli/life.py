"""`quicksand-tui start, stop, kill, pause, resume`: each works on several sandboxes at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from quicksand_tui.cli.commands import command_of
from quicksand_tui.cli.each import do_each, names_of, names_or_all
from quicksand_tui.cli.notices import say_notices
from quicksand_tui.cli.output import say
from quicksand_tui.cli.written import say_written
from quicksand_tui.model.text import clean
from quicksand_tui.verbs import life, starting
from quicksand_tui.verbs.record import ignore

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

    from quicksand_tui.verbs.record import SandboxVerb


def _do(
    verb: SandboxVerb[None], names: Sequence[str], opened: Callable[[Sandbox], None] = ignore
) -> int:
    """Carries out a verb for every name, as `do_each`. ``opened`` gets each sandbox first."""

    async def work(name: str) -> None:
        await verb.carry_out(name, opened=opened)

    return do_each(names, work, doing=verb.doing)


@command_of("start")
def start_command(names: tuple[str, ...], at: str | None) -> int:
    """Start stopped sandboxes again.

    They get the disks that they had, and keep running when this command ends. With --at, a sandbox
    gets the disk of that checkpoint, and the tree keeps the old one.
    """
    if at is not None and len(names) > 1:
        raise click.UsageError("--at goes with one sandbox: each has checkpoints of its own")
    verb = starting.start(at)

    async def work(name: str) -> None:
        started = await verb.carry_out(name)
        say_notices(clean(name), started.notices)
        if (kept := started.kept) is not None:
            say(f"the disk as it was is kept as {clean(kept.tag)!r}: `start --at {kept.id}`")

    return do_each(names, work, doing=verb.doing)


@command_of("stop")
def stop_command(names: tuple[str, ...], grace: float, everything: bool) -> int:
    """Stop sandboxes: their guests sync and power down.

    Sandboxes without a name are removed as well. It is no error if one is stopped already.
    """
    live = names_of(lambda entry: entry.is_live) if everything else []
    chosen = names_or_all(names, everything, "--all", live)
    return _do(life.stop_within(grace), chosen, opened=say_written)


@command_of("kill")
def kill_command(names: tuple[str, ...]) -> int:
    """Stop sandboxes at once, like pulling the plug.

    Data that the guest has not written to its disk are lost.
    """
    return _do(life.KILL, names, opened=say_written)


@command_of("pause")
def pause_command(names: tuple[str, ...]) -> int:
    """Freeze running sandboxes.

    They keep their memory and take no CPU time until `resume`.
    """
    return _do(life.PAUSE, names)


@command_of("resume")
def resume_command(names: tuple[str, ...]) -> int:
    """Resume paused sandboxes."""
    return _do(life.RESUME, names)
