"""`quicksand-tui saves verify`: whether saves are whole."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from quicksand_tui.cli.exits import Exit
from quicksand_tui.cli.options import complete_saves, json_option

if TYPE_CHECKING:
    from quicksand.saves.store import Save
    from quicksand.saves.verifying import Verdict

    from quicksand_tui.cli.runner import Signals


@click.command("verify")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_saves)
@click.option("--deep", is_flag=True, help="Read every byte of them and of their bases.")
@json_option
def verify(names: tuple[str, ...], deep: bool, as_json: bool) -> int:
    """Check saves, all of them unless some are named: files, sizes, headers, the image they lie on.

    NAME can be the file of a snapshot, too. Exit status 1 if one is damaged or lacks its image.
    """
    from quicksand.host.paths import paths
    from quicksand.saves.finding import all_stores
    from quicksand.saves.verifying import find_any, verify_saves

    from quicksand_tui.cli.output import print_json, say
    from quicksand_tui.cli.progress import Rate, shown
    from quicksand_tui.cli.runner import run_async

    if names:
        saves = [find_any(name, paths()) for name in dict.fromkeys(names)]
    else:
        saves = [save for store in all_stores(paths()) for save in store.list()]
    rate, total = Rate("verifying"), 0

    def report(done: int, size: int) -> None:
        nonlocal total
        total = size
        rate.report("reading", done, size)

    async def main(signals: Signals) -> int:
        started = time.perf_counter()
        async with shown(rate.describe):
            verdicts = await verify_saves(saves, paths(), deep=deep, progress=report)
        seconds = time.perf_counter() - started
        if as_json:
            print_json([_facts(verdict) for verdict in verdicts])
        else:
            _print(verdicts)
            if deep:
                say(f"read {total / 1e6:.0f} MB in {seconds:.1f} s")
            elif saves:
                say("looked at from outside; --deep reads every byte")
        is_good = all(verdict.is_whole for verdict in verdicts)
        return Exit.OK if is_good else Exit.FAILURE

    return run_async(main)


def _print(verdicts: list[Verdict]) -> None:
    from quicksand_tui.cli.output import print_table

    rows: list[tuple[object, ...]] = []
    for verdict in verdicts:
        name = verdict.save.name
        if verdict.is_whole:
            rows.append((name, "whole" if verdict.deep else "ok", "", ""))
        rows += [(name, "BAD", file, text) for file, text in verdict.problems.items()]
    print_table(("NAME", "STATE", "FILE", "PROBLEM"), rows)


def _facts(verdict: Verdict) -> dict[str, Any]:
    save: Save = verdict.save
    return {
        "name": save.name,
        "path": str(save.root),
        "deep": verdict.deep,
        "whole": verdict.is_whole,
        "problems": dict(verdict.problems),
    }
