"""`quicksand-tui saves send, fetch`: saves on their way to other machines and from there."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import quicksand

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import Exit, print_json, say, show_size
from quicksand_tui.cli.progress_display import Rate, shown
from quicksand_tui.cli.runner import Signals, run_async
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand.hosted.save_moving import MovedSave

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
