"""`quicksand-tui start, stop, kill, pause, resume, rm`: several names at once, each for itself."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import click
from quicksand.errors import QuicksandError, SandboxNotFoundError, StateError

from quicksand_tui.cli.exits import Exit
from quicksand_tui.cli.options import complete_tags, sandboxes_argument
from quicksand_tui.cli.output import complain

if TYPE_CHECKING:
    from quicksand.registry import Entry, Registry

    from quicksand_tui.cli.runner import Signals

AT_ONCE = 8
"""Sandboxes that are worked on at the same time."""

Work = Callable[[str], Awaitable[None]]


def _each(names: Sequence[str], work: Work, *, doing: str) -> int:
    """Do ``work`` for every name; print those that are done, tell the errors of the others."""
    from quicksand_tui.cli.progress import shown
    from quicksand_tui.cli.runner import run_async

    pending = dict.fromkeys(names)
    failures: list[str] = []
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> None:
        async with gate:
            try:
                await work(name)
            except QuicksandError as error:
                failures.append(name)
                complain(error, about="" if name in str(error) else name)
            else:
                print(name, flush=True)
            finally:
                del pending[name]

    def describe(seconds: float) -> str:
        return f"{doing} {', '.join(pending)[:60]}, {seconds:.1f} s"

    async def main(signals: Signals) -> int:
        async with shown(describe), asyncio.TaskGroup() as group:
            for name in list(pending):
                group.create_task(one(name), name=f"quicksand-{name}")
        return Exit.FAILURE if failures else Exit.OK

    return run_async(main)


def _registry() -> Registry:
    from quicksand.host.paths import paths
    from quicksand.registry import Registry

    return Registry(paths())


def _names(wanted: Callable[[Entry], bool]) -> list[str]:
    return [entry.name for entry in _registry().list() if wanted(entry)]


def _names_or_all(names: tuple[str, ...], chosen: bool, option: str, among: list[str]) -> list[str]:
    if chosen and names:
        raise click.UsageError(f"give names or {option}, not both")
    if not chosen and not names:
        raise click.UsageError(f"name a sandbox, or say {option}")
    return among if chosen else list(names)


@click.command("start")
@sandboxes_argument()
@click.option(
    "--at",
    metavar="TAG",
    shell_complete=complete_tags,
    help="Go on from this checkpoint, with the processes that it had.",
)
def start(names: tuple[str, ...], at: str | None) -> int:
    """Start stopped sandboxes again.

    They run on when this ends, with the disks that they had. With --at the disk is the
    checkpoint's; what it was is kept in the tree.
    """
    from quicksand_tui.cli.revert import newest_automatic
    from quicksand_tui.cli.text import clean

    if at is not None and len(names) > 1:
        raise click.UsageError("--at goes with one sandbox: each has checkpoints of its own")

    async def work(name: str) -> None:
        from quicksand.sandbox import Sandbox

        sandbox = Sandbox.open(name)
        before = {made.id for made in sandbox.checkpoints()}
        await sandbox.start(at=at)
        sandbox.detach()
        sandbox.close()
        if at is not None and (kept := newest_automatic(sandbox, before)) is not None:
            say = f"the disk as it was is kept as {clean(kept.tag)!r}: `start --at {kept.id}`"
            print(say, file=sys.stderr, flush=True)

    return _each(names, work, doing="starting")


@click.command("stop")
@sandboxes_argument(required=False)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    metavar="S",
    help="Seconds until a guest that does not power down is killed.",
)
@click.option("--all", "everything", is_flag=True, help="All that run.")
def stop(names: tuple[str, ...], grace: float, everything: bool) -> int:
    """Stop sandboxes: sync, power down.

    Those without a name are removed with that. No error for one that is stopped already.
    """
    live = _names(lambda entry: entry.is_live) if everything else []
    chosen = _names_or_all(names, everything, "--all", live)
    return _each(chosen, lambda name: _stop(name, grace=grace), doing="stopping")


@click.command("kill")
@sandboxes_argument()
def kill(names: tuple[str, ...]) -> int:
    """Stop sandboxes at once, as pulling the plug would.

    What the guest has not written to its disk is lost.
    """
    return _each(names, lambda name: _stop(name, grace=0), doing="killing")


async def _stop(name: str, *, grace: float) -> None:
    from quicksand.sandbox import Sandbox

    await Sandbox.open(name).stop(grace=grace)


@click.command("pause")
@sandboxes_argument()
def pause(names: tuple[str, ...]) -> int:
    """Freeze sandboxes where they are.

    They keep their memory and take no CPU time until `resume`.
    """
    return _each(names, lambda name: _set_paused(name, True), doing="pausing")


@click.command("resume")
@sandboxes_argument()
def resume(names: tuple[str, ...]) -> int:
    """Let paused sandboxes go on."""
    return _each(names, lambda name: _set_paused(name, False), doing="resuming")


async def _set_paused(name: str, paused: bool) -> None:
    from quicksand.sandbox import Sandbox

    sandbox = Sandbox.attach(name)
    try:
        await (sandbox.pause() if paused else sandbox.resume())
    finally:
        sandbox.close()


@click.command("rm")
@sandboxes_argument(required=False)
@click.option("-f", "--force", is_flag=True, help="Also those that run: kill them first.")
@click.option("--all-stopped", is_flag=True, help="All that are stopped or crashed.")
def remove(names: tuple[str, ...], force: bool, all_stopped: bool) -> int:
    """Remove stopped sandboxes and their disks.

    What is on the disks is gone then. There is no question asked.
    """
    from quicksand.registry import Status

    ended = (Status.STOPPED, Status.CRASHED)
    stopped = _names(lambda entry: entry.status in ended) if all_stopped else []

    async def work(name: str) -> None:
        registry = _registry()
        entry = registry.find(name)
        if entry.is_live:
            if not force:
                raise StateError(
                    f"the sandbox {entry.name!r} is {entry.status.value}",
                    hint=f"stop it first, or `quicksand-tui rm -f {entry.name}`",
                )
            await _stop(entry.id, grace=0)
        with contextlib.suppress(SandboxNotFoundError):
            registry.remove(entry.id)

    chosen = _names_or_all(names, all_stopped, "--all-stopped", stopped)
    return _each(chosen, work, doing="removing")
