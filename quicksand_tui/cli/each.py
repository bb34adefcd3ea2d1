"""Does the same to several sandboxes at once, each independently."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import click
from quicksand.base.errors import QuicksandError
from quicksand.base.paths import paths
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Entry

from quicksand_tui.cli.output import Exit, complain_of, tell
from quicksand_tui.cli.progress_display import shown
from quicksand_tui.cli.reported_progress import Standing
from quicksand_tui.cli.runner import Signals, run_async

AT_ONCE = 8
"""The number of sandboxes that are worked on at the same time."""

Work = Callable[[str], Awaitable[None]]


def do_each(names: Sequence[str], work: Work, *, doing: str) -> int:
    """Does ``work`` for every name; prints the names that succeeded and reports the errors of the
    others. Returns the exit code."""
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


def names_of(wanted: Callable[[Entry], bool]) -> list[str]:
    """Returns the names of the sandboxes that are wanted."""
    return [entry.name for entry in Registry(paths()).list() if wanted(entry)]


def names_or_all(names: tuple[str, ...], chosen: bool, option: str, among: list[str]) -> list[str]:
    """Returns the names that were given, or ``among`` if the option was. Raises UsageError unless
    exactly one of both was."""
    if chosen and names:
        raise click.UsageError(f"give names or {option}, not both")
    if not chosen and not names:
        raise click.UsageError(f"name a sandbox, or say {option}")
    return among if chosen else list(names)
