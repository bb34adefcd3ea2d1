"""`quicksand-tui cp`: files into and out of a sandbox."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from quicksand_tui.cli.exits import Exit

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

    from quicksand_tui.cli.runner import Signals
    from quicksand_tui.cli.transfer import Tally

_IN_GUEST = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,62}):(.*)", re.DOTALL)
STANDARD = "-"


@dataclass(frozen=True, slots=True)
class Place:
    """One side of a copy."""

    path: str
    sandbox: str | None = None
    """None: a path of this host, or "-"."""

    @classmethod
    def parse(cls, text: str) -> Place:
        """NAME:/path is in a guest; a local name with a colon is written ./NAME:..."""
        match = _IN_GUEST.fullmatch(text)
        if match is None:
            return cls(text)
        if not match[2].startswith("/"):
            raise click.UsageError(
                f"{text!r}: a path in a sandbox begins with a slash (a local file: './{text}')"
            )
        return cls(match[2], match[1])


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from quicksand_tui.cli.options import complete_sandboxes

    items = [CompletionItem(incomplete, type="file")]
    if "/" not in incomplete and ":" not in incomplete:
        found = complete_sandboxes(ctx, param, incomplete)
        items += [CompletionItem(f"{item.value}:/") for item in found]
    return items


@click.command("cp")
@click.argument("source", shell_complete=_complete)
@click.argument("target", shell_complete=_complete)
@click.option("-L", "--follow", is_flag=True, help="If SOURCE is a symlink, copy what it leads to.")
def command(source: str, target: str, follow: bool) -> int:
    """Copy files into or out of a sandbox.

    One side is NAME:/path, the other a local path or - for stdin or stdout. A directory is copied
    with all that is in it; into a TARGET that is one, else as TARGET. With /. behind SOURCE only
    its contents are copied. Modes are kept, except setuid and setgid on the way out; symlinks stay
    symlinks; devices, pipes and sockets are left out.
    """
    from quicksand_tui.cli.attaching import attached
    from quicksand_tui.cli.progress import shown
    from quicksand_tui.cli.runner import run_async
    from quicksand_tui.cli.transfer import Tally

    origin, goal = Place.parse(source), Place.parse(target)
    name = origin.sandbox or goal.sandbox
    if name is None or (origin.sandbox is not None and goal.sandbox is not None):
        raise click.UsageError("one of SOURCE and TARGET must be NAME:/path, the other local")
    tally = Tally()

    async def main(signals: Signals) -> int:
        with attached(name) as sandbox:
            async with shown(tally.describe):
                if origin.sandbox is not None:
                    await _fetch(sandbox, origin.path, goal.path, tally, follow=follow)
                else:
                    await _send(sandbox, origin.path, goal.path, tally, follow=follow)
        return Exit.FAILURE if tally.failed else Exit.OK

    return run_async(main)


async def _fetch(sandbox: Sandbox, source: str, target: str, tally: Tally, *, follow: bool) -> None:
    from quicksand_tui.cli import incoming

    if target == STANDARD:
        await incoming.to_stdout(sandbox.files, source, tally)
    else:
        await incoming.fetch(sandbox.files, source, target, tally, follow=follow)


async def _send(sandbox: Sandbox, source: str, target: str, tally: Tally, *, follow: bool) -> None:
    from quicksand_tui.cli import outgoing

    if source == STANDARD:
        await outgoing.from_stdin(sandbox.files, target, tally)
    else:
        await outgoing.send(sandbox.files, source, target, tally, follow=follow)
