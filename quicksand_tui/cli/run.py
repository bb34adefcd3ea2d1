"""`quicksand-tui run`: a new sandbox, and a command or a shell in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from quicksand_tui.cli.options import (
    command_options,
    complete_images,
    detach_keys_option,
    json_option,
    machine_options,
)

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

    from quicksand_tui.cli.relay import Wish
    from quicksand_tui.cli.runner import Signals

_FORWARD = re.compile(r"(?:(\d{1,5}):)?(\d{1,5})")


def _parse_forwards(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> list[tuple[int, int]]:
    found = []
    for text in values:
        match = _FORWARD.fullmatch(text)
        if match is None:
            raise click.BadParameter(f"{text!r} is not HOST:GUEST, as in 8080:80")
        found.append((int(match[1] or 0), int(match[2])))
    return found


@click.command("run")
@click.argument("image", shell_complete=complete_images)
@click.option("--name", help="Name it: it can be started again, and its disk stays.")
@machine_options
@click.option(
    "-p",
    "--publish",
    multiple=True,
    metavar="HOST:GUEST",
    callback=_parse_forwards,
    help="Forward a TCP port of 127.0.0.1; HOST 0 takes a free one. May be repeated.",
)
@click.option("--cold", is_flag=True, help="Boot it, though there is a template to go on from.")
@click.option("--save", metavar="SAVE", help="Save its disk when it stops; `run SAVE` goes on.")
@click.option("-d", "--detach", is_flag=True, help="Leave it running and print its name.")
@click.option(
    "--rm",
    "--ephemeral",
    "remove",
    is_flag=True,
    help="Remove it when it stops, though it has a name.",
)
@command_options
@detach_keys_option
@json_option
def command(
    image: str,
    name: str | None,
    machine: dict[str, Any],
    publish: list[tuple[int, int]],
    cold: bool,
    save: str | None,
    detach: bool,
    remove: bool,
    argv: tuple[str, ...],
    interactive: bool,
    tty: bool,
    env: dict[str, str],
    user: str | None,
    cwd: str | None,
    timeout: float | None,
    detach_keys: str,
    as_json: bool,
) -> int:
    """Start a sandbox and run a command or a shell in it.

    The first start of a machine boots it and has a template made; later ones go on from that in a
    fraction of the time (`images warm` makes it beforehand).

    With COMMAND its exit code is ours; without, on a terminal, this is a shell in the sandbox.
    Then the sandbox is stopped, and removed unless it has a name. With --detach it stays, and
    COMMAND goes on in it.
    """
    from quicksand_tui.cli.keys import parse_keys
    from quicksand_tui.cli.relay import Wish
    from quicksand_tui.cli.runner import run_in_sandbox

    if save is not None and detach:
        raise click.UsageError("--save and --detach do not go together: `quicksand-tui save` later")
    in_terminal = _decide_terminal(argv, tty=tty, detach=detach, as_json=as_json)
    if publish:
        machine["port_forwards"] = [{"host": h, "guest": g} for h, g in publish]
    plan = _Plan(
        image=image,
        name=name,
        ephemeral=True if remove else None,
        options=machine,
        warm=not cold,
        save=save,
        detach=detach,
        in_terminal=in_terminal,
        keys=parse_keys(detach_keys),
        as_json=as_json,
        wish=Wish(
            argv=argv,
            env=env,
            user=user,
            cwd=cwd,
            timeout=timeout,
            stdin=interactive and not in_terminal,
        ),
    )

    async def main(signals: Signals) -> int:
        return await _run(plan, signals)

    return run_in_sandbox(main)


def _decide_terminal(argv: tuple[str, ...], *, tty: bool, detach: bool, as_json: bool) -> bool:
    """Whether the command runs in a terminal. Raises UsageError for what cannot be."""
    from quicksand_tui.cli.terminal import is_terminal, require_terminal

    if detach:
        if tty:
            raise click.UsageError("--detach and --tty do not go together")
        return False
    if as_json and (tty or not argv):
        raise click.UsageError("--json needs a COMMAND without --tty, or --detach")
    if not argv and not tty and not is_terminal():
        raise click.UsageError(
            "there is no terminal for a shell: give a command after --, or --detach"
        )
    if tty or not argv:
        require_terminal()
        return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    image: str
    name: str | None
    ephemeral: bool | None
    options: dict[str, Any]
    warm: bool
    save: str | None
    detach: bool
    in_terminal: bool
    keys: bytes
    as_json: bool
    wish: Wish


async def _run(plan: _Plan, signals: Signals) -> int:
    from quicksand.sandbox import Sandbox

    from quicksand_tui.cli.progress import StartProgress, shown
    from quicksand_tui.cli.save import save_store

    progress = StartProgress(plan.name or plan.image)
    sandbox = Sandbox(
        image=plan.image,
        name=plan.name,
        ephemeral=plan.ephemeral,
        warm=plan.warm,
        progress_callback=progress.stage,
        **plan.options,
    )
    if plan.save is not None:
        sandbox.save_on_stop(plan.save, save_store(None))
    async with shown(progress.describe):
        await sandbox.start()
    stays = False
    try:
        if plan.detach:
            code, stays = await _leave_running(sandbox, plan), True
        else:
            code, stays = await _use(sandbox, plan, signals)
    finally:
        if stays:
            sandbox.close()
        else:
            await _stop(sandbox)
    return code


async def _use(sandbox: Sandbox, plan: _Plan, signals: Signals) -> tuple[int, bool]:
    """Run what is wanted; return its exit code, and whether the sandbox is to stay."""
    from quicksand_tui.cli import relay

    if plan.in_terminal:
        from quicksand_tui.cli.exits import Exit
        from quicksand_tui.cli.sessions import Left, run_in_terminal, say_left

        try:
            return await run_in_terminal(sandbox, plan.wish, plan.keys, signals), False
        except Left as left:
            sandbox.detach()
            say_left(sandbox, left.session)
            return Exit.OK, True
    if plan.as_json:
        facts = start_facts(sandbox)
        return await relay.collect_command(sandbox, plan.wish, signals, **facts), False
    return await relay.run_command(sandbox, plan.wish, signals), False


async def _leave_running(sandbox: Sandbox, plan: _Plan) -> int:
    from quicksand_tui.cli.exits import Exit
    from quicksand_tui.cli.output import print_json
    from quicksand_tui.cli.relay import starting

    facts = start_facts(sandbox)
    if plan.wish.argv:
        with starting():
            running = await sandbox.spawn(
                list(plan.wish.argv),
                timeout=plan.wish.timeout,
                detach=True,
                **plan.wish.keywords(),
            )
        facts["pid"] = running.pid
    sandbox.detach()
    if plan.as_json:
        print_json(facts)
    else:
        print(sandbox.name, flush=True)
    return Exit.OK


def start_facts(sandbox: Sandbox) -> dict[str, Any]:
    """What `--json` says of a sandbox that this process has started."""
    timing = sandbox.boot_timing
    return {
        "name": sandbox.name,
        "id": sandbox.id,
        "accel": sandbox.accelerator,
        "ports": [{"host": h, "guest": g} for g, h in sandbox.port_forwards.items()],
        "boot_s": round(timing.total_s, 3) if timing is not None else None,
        "boot_mode": timing.mode if timing is not None else None,
        "boot_note": (timing.note or None) if timing is not None else None,
    }


async def _stop(sandbox: Sandbox) -> None:
    from quicksand_tui.cli.progress import shown

    async with shown(lambda seconds: f"{sandbox.name}: stopping, {seconds:.1f} s"):
        await sandbox.stop()
